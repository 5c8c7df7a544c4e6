"""Unique message ids, made by the sender, or by the broker for a message that came without.

An id is 32 hexadecimal digits (56 with an IPv6 address): bytes that name the maker, 4 bytes of milliseconds since the
start of the month in local time, so that tools can guess when it was made, and a 2-byte counter
(MessageClientIDSetter.java). Makers here are named by random bytes instead of process and class loader, so that an id
is unique in containers too.
"""

from __future__ import annotations

import ipaddress
import random
from datetime import datetime

_TIME_AND_COUNTER_BYTES = 6
_LENGTHS_BYTES = (16, 28)


class UniqueIds:
    """Makes ids of one maker.

    Args:
        head: 10 bytes, or 22, that name the maker.
        counter: of the last id made.
    """

    def __init__(self, head: bytes, counter: int = 0) -> None:
        self._prefix = head.hex().upper()
        self._counter = counter
        self._month_start_ms = 0
        self._month_end_ms = 0

    @classmethod
    def of_producer(cls, source: random.Random) -> UniqueIds:
        """Return ids that name no host.

        Args:
            source: randomness for the producer's part.
        """
        return cls(source.randbytes(10), source.getrandbits(16))

    @classmethod
    def of_broker(cls, host: str, source: random.Random) -> UniqueIds:
        """Return ids that begin with the broker's address.

        Args:
            host: an IP address of the broker; another text counts as 0.0.0.0.
            source: randomness for the rest, so that two brokers of one host differ.
        """
        try:
            address = ipaddress.ip_address(host).packed
        except ValueError:
            address = bytes(4)
        return cls(address + source.randbytes(6))

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
    if len(data) not in _LENGTHS_BYTES:
        return None
    since_month_ms = int.from_bytes(data[-_TIME_AND_COUNTER_BYTES:-2], "big")
    start_ms, _ = month_bounds_ms(now_ms)
    made_ms = start_ms + since_month_ms
    if made_ms >= now_ms + 60_000:
        start_ms, _ = month_bounds_ms(start_ms - 1)
        made_ms = start_ms + since_month_ms
    return made_ms
