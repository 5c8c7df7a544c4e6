"""One configuration value: its text, its type, its bounds, and the one-line error when they do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable

from understudy.broker.inert_keys import INERT
from understudy.runtime.properties import ConfigError

_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("SYNC_FLUSH", "ASYNC_FLUSH"),
    "defaultMessageRequestMode": ("PULL", "POP"),
}
_LONG_KEYS = frozenset(
    {
        "broadcastOffsetExpireMaxSecond",
        "broadcastOffsetExpireSecond",
        "brokerId",
        "brokerNotActiveTimeoutMillis",
        "channelExpiredTimeout",
        "channelNotActiveInterval",
        "checkSyncStateSetPeriod",
        "consumerFallbehindThreshold",
        "consumerOffsetUpdateVersionStep",
        "controllerHeartBeatTimeoutMills",
        "delayOffsetUpdateVersionStep",
        "filterDataCleanTimeSpan",
        "flushDelayOffsetInterval",
        "forwardTimeout",
        "loadBalancePollNameServerInterval",
        "maxChecksumRange",
        "maxHaTransferByteInSecond",
        "maxSlaveResendLength",
        "shortPollingTimeMills",
        "startAcceptSendRequestTimeStamp",
        "subscriptionExpiredTimeout",
    }
)
_PORT = ("a port from 0 to 65535", lambda value: 0 <= value <= 65535)
_POSITIVE = ("a number above 0", lambda value: value > 0)
_AT_LEAST_ZERO = ("0 or more", lambda value: value >= 0)
_BOUNDS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "listenPort": _PORT,
    "haListenPort": _PORT,
    "brokerId": ("-1 or more", lambda value: value >= -1),
    "brokerPermission": ("0 to 7 (4 read, 2 write, 1 inherit)", lambda value: 0 <= value <= 7),
    "defaultTopicQueueNums": _POSITIVE,
    "mappedFileSizeCommitLog": ("at least 4096 bytes", lambda value: value >= 4096),
    "mappedFileSizeConsumeQueue": ("at least 20 bytes", lambda value: value >= 20),
    "maxMessageSize": _POSITIVE,
    "maxHashSlotNum": _POSITIVE,
    "maxIndexNum": ("at least 2", lambda value: value >= 2),
    "fileReservedTime": _AT_LEAST_ZERO,
    "flushConsumerOffsetInterval": _POSITIVE,
    "registerNameServerPeriod": _POSITIVE,
    "brokerHeartbeatInterval": _POSITIVE,
    "serverSocketBacklog": _POSITIVE,
    "syncFlushTimeout": _POSITIVE,
    "cleanResourceInterval": _AT_LEAST_ZERO,
    "flushDelayOffsetInterval": _AT_LEAST_ZERO,
    "flushIntervalCommitLog": _AT_LEAST_ZERO,
    "haHousekeepingInterval": _AT_LEAST_ZERO,
    "haSendHeartbeatInterval": _AT_LEAST_ZERO,
    "syncBrokerMemberGroupPeriod": _AT_LEAST_ZERO,
}
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_value(source: str, key: str, text: str, kind: str) -> object:
    text = text.strip()
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise _bad(source, key, text, "true or false")
        return text.lower() == "true"
    if kind == "int":
        low, high = _LONG if key in _LONG_KEYS or key in INERT else _INT
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise _bad(source, key, text, f"a whole number from {low} to {high}")
        expected, fits = _BOUNDS.get(key, ("", None))
        if fits is not None and not fits(int(text)):
            raise _bad(source, key, text, expected)
        return int(text)
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            raise _bad(source, key, text, "a number") from None
    return _parse_text(source, key, text)


def _parse_text(source: str, key: str, text: str) -> str:
    choices = _CHOICES.get(key)
    if choices is not None and text not in choices:
        raise _bad(source, key, text, "one of " + ", ".join(choices))
    if key == "namesrvAddr":
        for address in filter(None, text.split(";")):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise _bad(
                    source, key, text, "host:port, several separated by ';', like 127.0.0.1:9876;192.168.0.1:9876"
                )
    if key == "storePathRootDir" and not text:
        raise _bad(source, key, text, "a folder")
    if key == "messageDelayLevel":
        try:
            delay_levels_ms(text)
        except ValueError as error:
            raise _bad(source, key, text, f"waits such as '1s 5m 2h', not {str(error)!r}") from None
    if key == "deleteWhen" and not all(hour.strip().isdecimal() and int(hour) < 24 for hour in text.split(";")):
        raise _bad(source, key, text, "hours from 00 to 23 separated by ';'")
    return text


def _bad(source: str, key: str, text: str, expected: str) -> ConfigError:
    return ConfigError(f"{source}: {key}={text}: expected {expected}")


def delay_levels_ms(text: str) -> list[int]:
    """Return the waits of messageDelayLevel in milliseconds, level 1 first.

    Errors:
        ValueError: a word is not a whole number with a unit (s, m, h, d).
    """
    levels = []
    for word in text.split():
        if not re.fullmatch(r"[0-9]+[smhd]", word):
            raise ValueError(word)
        levels.append(int(word[:-1]) * _DELAY_UNITS_MS[word[-1]])
    return levels


def value_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
