"""Keys that every program answers alike, because to pass over them would lose what their reader relies on."""

from __future__ import annotations

from understudy.runtime.configuration import unknown_key_line
from understudy.runtime.properties import ConfigError, Properties, printable

_REFUSED = {
    "enableDLegerCommitLog": "there is no DLedger commit log; have a controller elect masters "
    "(enableControllerMode), or use slaves with enableSlaveActingMaster"
}
_NO_SUCH_KEY = "no server has this key, neither here nor in the reference: docs/security.md says how TLS is set"
_MEANS_TLS = frozenset({"tlsenable", "enabletls", "tls.enable", "tlsenabled", "sslenable", "enablessl"})


def refuse_lost(values: Properties) -> None:
    """Refuse a file that asks for what no program here does.

    Raises:
        ConfigError: with the key's place and what to do instead.
    """
    for key, why in _REFUSED.items():
        if values.get(key, "").strip().lower() == "true":
            raise ConfigError(f"{values.where(key)}: {key}=true is not supported: {why}")


def unread_key_line(values: Properties, key: str, known: list[str]) -> str:
    """Return the warning about *key* of *values*, which is none of the *known* ones of the program."""
    if key.lower() in _MEANS_TLS:
        return f"{values.where(key)}: {printable(key)} is ignored: {_NO_SUCH_KEY}"
    return unknown_key_line(values, key, known)
