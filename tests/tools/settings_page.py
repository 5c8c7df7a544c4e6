"""Writes ``docs/settings.md``: every key of every server, its default, what it may be, when it counts, what it does.

What a key does stands beside its field, in the docstring of its class; keys without an effect have their reason in the
tables of such keys. Run it after a setting was added or changed: ``.venv/bin/python tests/tools/settings_page.py``.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import attrs

from understudy.broker import config as broker_config
from understudy.broker.inert_keys import INERT
from understudy.container import config as container_config
from understudy.container.config import BrokerContainerConfig
from understudy.controller import configuration as controller_configuration
from understudy.controller import file_warnings
from understudy.controller.configuration import ControllerConfig
from understudy.namesrv import config as namesrv_config
from understudy.namesrv.config import MetricsKeys, NamesrvConfig
from understudy.proxy.config import ProxyConfig
from understudy.remoting import netty_config
from understudy.remoting.metrics_keys import ExporterKeys
from understudy.runtime.configuration import INT, LONG, Between, Form, fields_of
from understudy.security import settings as security
from understudy.security import tls

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
_OF_THE_MACHINE = {
    "endTransactionThreadPoolNums": "8, and 2 for each processor",
    "processReplyMessageThreadPoolNums": "16, and 2 for each processor",
    "brokerName": "the host's name",
    "brokerIP1": "the address from which the host reaches others",
    "brokerIP2": "the address from which the host reaches others",
    "brokerContainerIP": "the address from which the host reaches others",
    "namesrvAddr": "`$NAMESRV_ADDR`",
    "rocketmqHome": "`$ROCKETMQ_HOME`",
    "storePathRootDir": "`~/store`",
    "storePathCommitLog": "`commitlog` below `storePathRootDir`",
    "configStorePath": "the file that was given, else below `~`",
    "kvConfigPath": "`~/namesrv/kvConfig.json`",
    "controllerStorePath": "below `~`",
    "bitMapLengthConsumeQueueExt": "derived",
    "haListenPort": "the port above `listenPort`",
    "keptForPeersBytes": "1/8 of the memory",
    "waitingIncomingBytes": "1/16 of the memory",
    "waitingOutgoingBytes": "1/16 of the memory",
    "waitingParkedBytes": "1/32 of the memory",
}
_AT_THE_START = {
    "adminBrokerThreadPoolNums",
    "adminBrokerThreadPoolQueueCapacity",
    "bindAddress",
    "brokerContainerIP",
    "brokerTopicEnable",
    "checkCRCOnRecover",
    "clusterTopicEnable",
    "compactionCqMappedFileSize",
    "compactionMappedFileSize",
    "consumerOffsetUpdateVersionStep",
    "defaultTopicQueueNums",
    "delayOffsetUpdateVersionStep",
    "enableControllerInNamesrv",
    "enableRemotingMetrics",
    "endTransactionPoolQueueCapacity",
    "endTransactionThreadPoolNums",
    "haMasterAddress",
    "listenPort",
    "loadBalanceProcessorThreadPoolNums",
    "loadBalanceThreadPoolQueueCapacity",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "messageDelayLevel",
    "messageIndexEnable",
    "msgTraceTopicName",
    "processReplyMessageThreadPoolNums",
    "readOnlyCommitLogStorePaths",
    "replyThreadPoolQueueCapacity",
    "serverChannelMaxIdleTimeSeconds",
    "traceTopicEnable",
    "waitTimeMillsInAdminBrokerQueue",
    "waitTimeMillsInTransactionQueue",
}
"""What listeners, the lanes of their handlers, tables, files and topics of the system are made with."""
_FAMILIES_AT_THE_START = ("controllerDLeger", "controllerRaft", "metrics", "metricGrpc", "metricLogging")
_OF_CONTROLLERS_AT_THE_START = {
    "controllerRequestThreadPoolQueueCapacity",
    "controllerType",
    "controllerUnknownBrokerGrace",
}
_HEAD = """\
# Settings

Every key of every server: its default, what may stand there, when a change counts, and what it does. Made from the code
by `tests/tools/settings_page.py`. Keys keep the reference's names and meanings; *ours* are those that it does not have.
What is special here stands on the pages of their subjects. A value that a key cannot have stops the start with one line
that names file, line and key. `-p` of a program prints every key with the value that a file gives it.

* *live*: `mqadmin updateBrokerConfig`, `updateNamesrvConfig` or `updateControllerConfig` changes it, and it counts at
  once.
* *start*: it is refused over the network, or is taken and counts at the next start, as where metrics go and the sizes
  of pools do.
* *file*: it is changed in the file alone, and counts at the next start.

What a key that is `true` or `false` does, it does when it is `true`. Bytes of the whole process are told by the file
that it was started with, not by those of a container's brokers.
"""


def page() -> str:
    """Return the page as the code has it now."""
    server = broker_config.NettyServerConfig
    parts = [
        _HEAD,
        _program(
            "Brokers",
            [broker_config.BrokerConfig, broker_config.MessageStoreConfig, server],
            INERT,
            broker_config.ALWAYS_BLACK,
            broker_config.START_ONLY,
            {"listenPort": f"`{broker_config.DEFAULT_LISTEN_PORT}`"},
        ),
        _program(
            "Name servers",
            [NamesrvConfig, MetricsKeys],
            namesrv_config.NO_EFFECT,
            {*namesrv_config.ALWAYS_BLACK, *fields_of(MetricsKeys)},
            namesrv_config.START_ONLY,
        ),
        _program(
            "Containers",
            [BrokerContainerConfig, server],
            {**netty_config.NO_EFFECT, **container_config._INERT},
            container_config.ALWAYS_BLACK,
            container_config.START_ONLY,
            {"listenPort": f"`{container_config.DEFAULT_LISTEN_PORT}`"},
        ),
        _program(
            "Controllers",
            [ControllerConfig],
            file_warnings.NO_EFFECT,
            controller_configuration.ALWAYS_BLACK,
            controller_configuration.START_ONLY | _OF_CONTROLLERS_AT_THE_START,
            {"listenPort": "that of `controllerDLegerPeers`"},
        ),
        _program("Proxies", [ProxyConfig], {}, fields_of(ProxyConfig), ()),
        _security(),
    ]
    return "\n".join(parts)


def _program(
    title: str,
    sections: list[type[attrs.AttrsInstance]],
    inert: Mapping[str, str],
    black: Collection[str],
    start_only: Collection[str],
    defaults: Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    fields = {key: field for section in sections for key, field in fields_of(section).items()}
    effects = _effects(*sections, ExporterKeys)
    lines = [f"## {title}", "", "| key | default | may be | when | effect |", "|---|---|---|---|---|"]
    for key in sorted(fields.keys() - inert.keys(), key=str.lower):
        field = fields[key]
        when = "file" if key in black else "start" if key in start_only or counts_at_the_start(key) else "live"
        default = defaults.get(key) or _default(key, field)
        effect = effects.get(field.name, "")
        lines.append(f"| `{key}` | {default} | {_rule(field.type)} | {when} | {effect} |")
    reasons: dict[str, list[str]] = {}
    for key in sorted(fields.keys() & inert.keys(), key=str.lower):
        reasons.setdefault(inert[key], []).append(key)
    if reasons:
        lines += ["", "Accepted and shown, without effect here:", ""]
    for reason, keys in sorted(reasons.items()):
        lines.append(f"* {reason}:\n  " + _wrapped(keys).replace("\n", "\n  ").rstrip())
    return "\n".join(lines) + "\n"


def _security() -> str:
    lines = [
        "## Users, rules and TLS",
        "",
        "Read from the files of servers, never shown and never changed over the network;",
        "[security.md](security.md) explains them.",
        "",
        "| key | default | effect |",
        "|---|---|---|",
    ]
    effects = _effects(security._Keys)
    rows = {
        key: (_default(key, field), effects.get(field.name, "")) for key, field in fields_of(security._Keys).items()
    }
    for key, row in tls.TABLE.items():
        rows[key] = (f"`{row.default}`" if row.default else "", _told(row.effect))
    lines += [f"| `{key}` | {default} | {effect} |" for key, (default, effect) in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def _effects(*classes: type) -> dict[str, str]:
    """Return what the docstrings of *classes* and of those they are made of say of fields; the first one that does."""
    told: dict[str, str] = {}
    for each in (base for section in classes for base in section.__mro__):
        for name, text in attributes_of(each).items():
            told.setdefault(name, _told(text))
    return told


def attributes_of(documented: type) -> dict[str, str]:
    """Return the sentences of a class's own docstring by the names of the attributes that they are about."""
    listed = inspect.cleandoc(documented.__dict__.get("__doc__") or "").partition("\nAttributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n        .+)*)", listed.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _told(text: str) -> str:
    return text.replace("``", "`").replace("|", "or")


def counts_at_the_start(key: str) -> bool:
    """Whether a server takes a change of *key* over the network, and goes on as it was until it starts again."""
    return key in _AT_THE_START or key.startswith(_FAMILIES_AT_THE_START)


def _default(key: str, field: attrs.Attribute[Any]) -> str:
    if key in _OF_THE_MACHINE:
        return _OF_THE_MACHINE[key]
    value = field.default
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # attrs shows the class of defaults as a function
        return "of the machine"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or value == "" else f"`{value}`"


def _rule(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        base, *rules = get_args(kind)
        for rule in rules:
            if isinstance(rule, Between):
                return rule.told or _numbers(rule)
            if isinstance(rule, Form):
                return (rule.refusal("?\n") or "text").replace("|", "or")
        return _rule(base)
    if get_origin(kind) in (typing.Union, type(int | None)):
        return _rule(next(each for each in get_args(kind) if each is not type(None)))
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")


def _numbers(rule: Between) -> str:
    if (rule.low, rule.high) in (INT, LONG):
        return "a whole number"
    return f"from {rule.low}" if rule.high in (INT[1], LONG[1]) else f"{rule.low} to {rule.high}"


def _wrapped(keys: list[str]) -> str:
    lines, line = [], ""
    for key in keys:
        if len(line) + len(key) > 110:
            lines.append(line.rstrip())
            line = ""
        line += f"`{key}` "
    return "\n".join([*lines, line.rstrip()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
