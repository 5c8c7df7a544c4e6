"""The half messages that were stored last, by where they begin in the log. Pure.

A producer mostly decides right after its send was answered. What its decision needs was in hand then: to read the
record again, check it and take its properties apart is a sixth of what a transaction costs. What is not here is read.
"""

from __future__ import annotations

from collections import OrderedDict

from understudy.broker.transactions.half import Half
from understudy.format.record import Record

MOST = 2048
MOST_BYTES = 4 << 20
"""Of bodies and properties together."""
LARGEST_BYTES = MOST_BYTES // 16
"""One that is larger is read again: it would drive out many."""


class RecentHalves:
    """See the module. What is taken is forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Half] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, record: Record, pairs: dict[str, str]) -> None:
        """Remember a half message that has just been stored.

        Args:
            record: as it stands in the half topic; its host and checksum are not looked at.
            pairs: its properties; not changed afterwards.
        """
        size = len(record.body) + len(record.properties_text)
        half = Half.with_pairs(record, pairs)
        if half is None or size > LARGEST_BYTES:
            return
        self._kept[record.physical_offset] = half
        self._bytes += size
        while len(self._kept) > MOST or self._bytes > MOST_BYTES:
            self._forget(next(iter(self._kept)))

    def take(self, physical_offset: int) -> Half | None:
        """Return the half message that begins at byte *physical_offset* of the log; ``None`` when it is not here."""
        return self._forget(physical_offset)

    def clear(self) -> None:
        """Forget all: the log may be another one from here on."""
        self._kept.clear()
        self._bytes = 0

    def _forget(self, physical_offset: int) -> Half | None:
        half = self._kept.pop(physical_offset, None)
        if half is not None:
            self._bytes -= len(half.record.body) + len(half.record.properties_text)
        return half
