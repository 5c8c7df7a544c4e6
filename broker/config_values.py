"""The types of a broker's settings that have rules of their own: what each may be, and how a user is told."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from understudy.broker.topics import QUEUE_LIMIT
from understudy.format.receipts import ORDER_QUEUE
from understudy.runtime.configuration import INT, LONG, Between, Form

_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _one_of(*choices: str) -> Form:
    return Form(lambda text: None if text in choices else "one of " + ", ".join(choices))


def _no_addresses(port: int, text: str) -> str | None:
    for address in filter(None, text.split(";")):
        host, _, digits = address.strip().rpartition(":")
        if not host or not digits.isdecimal() or not 0 < int(digits) < 65536:
            return f"host:port, several separated by ';', like 127.0.0.1:{port};192.168.0.1:{port}"
    return None


def _no_delay_levels(text: str) -> str | None:
    try:
        delay_levels_ms(text)
    except ValueError as error:
        return f"waits such as '1s 5m 2h', not {str(error)!r}"
    return None


def _no_hours(text: str) -> str | None:
    fits = all(hour.strip().isdecimal() and int(hour) < 24 for hour in text.split(";"))
    return None if fits else "hours from 00 to 23 separated by ';'"


Positive = Annotated[int, Between(1, INT[1], f"a number above 0, at most {INT[1]}")]
QueueCount = Annotated[int, Between(1, QUEUE_LIMIT, f"1 to {QUEUE_LIMIT} queues")]
ReviveQueueCount = Annotated[int, Between(1, ORDER_QUEUE, f"1 to {ORDER_QUEUE} queues")]
Missed = Annotated[int, Between(1, 600_000, "1 to 600000 milliseconds")]
NotNegative = Annotated[int, Between(0, INT[1])]
NotNegativeLong = Annotated[int, Between(0, LONG[1])]
BrokerId = Annotated[int, Between(-1, LONG[1])]
Permission = Annotated[int, Between(0, 7, "0 to 7 (4 read, 2 write, 1 inherit)")]
LogFileBytes = Annotated[int, Between(4096, INT[1], f"4096 to {INT[1]} bytes")]
QueueFileBytes = Annotated[int, Between(20, INT[1], f"20 to {INT[1]} bytes")]
ExtensionFileBytes = Annotated[int, Between(1024, INT[1], f"1024 to {INT[1]} bytes")]
CompactionFileBytes = Annotated[int, Between(460, INT[1], f"460 to {INT[1]} bytes")]
IndexEntries = Annotated[int, Between(2, INT[1])]
Role = Annotated[str, _one_of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")]
FlushType = Annotated[str, _one_of("SYNC_FLUSH", "ASYNC_FLUSH")]
RequestMode = Annotated[str, _one_of("PULL", "POP")]
NameServers = Annotated[str | None, Form(partial(_no_addresses, 9876))]
Controllers = Annotated[str, Form(partial(_no_addresses, 9878))]
Folder = Annotated[str, Form(lambda text: None if text else "a folder")]
DelayLevels = Annotated[str, Form(_no_delay_levels)]
Hours = Annotated[str, Form(_no_hours)]


def delay_levels_ms(text: str) -> list[int]:
    """Return the waits of messageDelayLevel in milliseconds, level 1 first.

    Raises:
        ValueError: a word is not a whole number with a unit (s, m, h, d).
    """
    levels = []
    for word in text.split():
        if not re.fullmatch(r"[0-9]+[smhd]", word):
            raise ValueError(word)
        levels.append(int(word[:-1]) * _DELAY_UNITS_MS[word[-1]])
    return levels
