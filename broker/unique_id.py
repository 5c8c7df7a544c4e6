"""Message ids for producers that sent none.

Source: MessageClientIDSetter.java.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from random import Random


class UniqueIds:
    """A source of ids ``address, process, salt, time since the month began, counter`` in upper-case hex.

    Args:
        host: an address of this broker.
        random: source of the process number and salt, so that two brokers of one host differ.
    """

    def __init__(self, host: str, random: Random) -> None:
        try:
            address = ipaddress.ip_address(host).packed
        except ValueError:
            address = bytes(4)
        self._head = (address + random.randbytes(6)).hex().upper()
        self._counter = 0
        self._month_begins_ms = self._month_ends_ms = 0

    def next(self, now_ms: int) -> str:
        """Return an id for a message that arrived at *now_ms*."""
        if not self._month_begins_ms <= now_ms < self._month_ends_ms:
            self._begin_month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._head}{(now_ms - self._month_begins_ms) & 0xFFFFFFFF:08X}{self._counter:04X}"

    def _begin_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        self._month_begins_ms = round(begin.timestamp() * 1000)
        self._month_ends_ms = round(following.timestamp() * 1000)
