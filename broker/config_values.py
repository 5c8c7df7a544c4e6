"""One configuration value: its text, its type, its bounds, and the one-line error when they do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable

from understudy.broker.inert_keys import INERT
from understudy.runtime.configuration import INT, LONG, bad_value, read_value

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
    """Return the value of a broker's setting. Raises :class:`ConfigError`."""
    value = read_value(source, key, text, kind, LONG if key in _LONG_KEYS or key in INERT else INT)
    if kind == "int":
        expected, fits = _BOUNDS.get(key, ("", None))
        if fits is not None and not fits(int(value)):
            raise bad_value(source, key, text.strip(), expected)
        return value
    return value if isinstance(value, float | bool) else _parse_text(source, key, str(value))


def _parse_text(source: str, key: str, text: str) -> str:
    choices = _CHOICES.get(key)
    if choices is not None and text not in choices:
        raise bad_value(source, key, text, "one of " + ", ".join(choices))
    if key == "namesrvAddr":
        for address in filter(None, text.split(";")):
            host, _, port = address.strip().rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise bad_value(
                    source, key, text, "host:port, several separated by ';', like 127.0.0.1:9876;192.168.0.1:9876"
                )
    if key == "storePathRootDir" and not text:
        raise bad_value(source, key, text, "a folder")
    if key == "messageDelayLevel":
        try:
            delay_levels_ms(text)
        except ValueError as error:
            raise bad_value(source, key, text, f"waits such as '1s 5m 2h', not {str(error)!r}") from None
    if key == "deleteWhen" and not all(hour.strip().isdecimal() and int(hour) < 24 for hour in text.split(";")):
        raise bad_value(source, key, text, "hours from 00 to 23 separated by ';'")
    return text


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
