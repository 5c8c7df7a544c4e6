"""Unique message ids, made by the sender.

An id is 32 hexadecimal digits: 10 bytes that name the producer, 4 bytes of milliseconds since the start of the month in
local time (so that tools can guess when it was made, MessageClientIDSetter.java) and a 2-byte counter. The 10 bytes are
random instead of address, process and class loader, so that an id is unique in containers too and names no host.
"""

from __future__ import annotations

import random
from datetime import datetime


class UniqueIds:
    """Makes ids of one producer.

    Args:
        source: randomness for the producer's part.
    """

    def __init__(self, source: random.Random) -> None:
        self._prefix = source.getrandbits(80).to_bytes(10, "big").hex().upper()
        self._counter = source.getrandbits(16)
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self, wall_ms: int) -> str:
        """Return a new id; *wall_ms* is the wall time in milliseconds."""
        if not self._month_start_ms <= wall_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_bounds_ms(wall_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{(wall_ms - self._month_start_ms) & 0xFFFFFFFF:08X}{self._counter:04X}"


def month_bounds_ms(wall_ms: int) -> tuple[int, int]:
    """Return the wall times, in milliseconds, at which the local month of *wall_ms* starts and ends."""
    start = datetime.fromtimestamp(wall_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return round(start.timestamp() * 1000), round(after.timestamp() * 1000)


def time_of(unique_id: str, now_ms: int) -> int | None:
    """Return the wall time in milliseconds at which *unique_id* was probably made, or ``None`` for a foreign form.

    Ids carry no month, so the latest possible one before *now_ms* is taken.
    """
    try:
        data = bytes.fromhex(unique_id)
    except ValueError:
        return None
    if len(data) not in (16, 28):
        return None
    since_month_ms = int.from_bytes(data[-6:-2], "big")
    start_ms, _ = month_bounds_ms(now_ms)
    made_ms = start_ms + since_month_ms
    if made_ms >= now_ms + 60_000:
        start_ms, _ = month_bounds_ms(start_ms - 1)
        made_ms = start_ms + since_month_ms
    return made_ms
