"""What the user is told about keys of a controller's file that nobody reads."""

from __future__ import annotations

from collections.abc import Container

from understudy.controller.configuration import FORGET_MEMBER_KEY, ControllerConfig
from understudy.namesrv.config import FIELDS as NAMESRV_FIELDS
from understudy.remoting import netty_config
from understudy.remoting.shared_keys import unread_key_line
from understudy.runtime.configuration import fields_of
from understudy.runtime.properties import Properties, printable
from understudy.security.settings import KEYS as SECURITY_KEYS

_KIND = "there is one kind of quorum here, set up by the controllerDLeger keys"
NO_EFFECT = {
    **netty_config.NO_EFFECT,
    "controllerDeployedStandAlone": "a controller is alone or in a name server by how it is started",
    "controllerThreadPoolNums": netty_config.POOLS,
    "isProcessReadEvent": "reads are answered without a turn of the quorum's log",
    "mappedFileSize": "the quorum's log is one file",
}


def unused_keys(values: Properties, config: ControllerConfig, told: Container[str] = ()) -> list[str]:
    """Return a warning per key of a settings file that neither a controller nor a name server reads.

    Args:
        values: what stands in the file; a controller in a name server shares its file.
        config: the settings that were read from it.
        told: keys about which somebody else warns.
    """
    known = fields_of(ControllerConfig)
    warnings = []
    for key in values:
        if key in told:
            continue
        reason = _KIND if key.startswith("jRaft") else NO_EFFECT.get(key)
        if reason is not None:
            if key not in known or getattr(config, known[key].name) != known[key].default:
                warnings.append(f"{values.where(key)}: {printable(key)} has no effect here: {reason}")
        elif key not in known and key not in SECURITY_KEYS and key not in NAMESRV_FIELDS and key != FORGET_MEMBER_KEY:
            warnings.append(unread_key_line(values, key, [*known, *NAMESRV_FIELDS]))
    return warnings
