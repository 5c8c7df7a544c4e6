"""What pops of one broker have written, read and brought back since its start, for metrics.

Source: PopMetricsManager.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from understudy.broker.pop.revive_log import CheckPoint, Entry

CK, ACK = "CK", "ACK"
"""Kinds of entries of the revive topic, as metrics call them."""


def kind_of(entry: Entry) -> str:
    """Return what metrics call an entry."""
    return CK if isinstance(entry, CheckPoint) else ACK


class PopCounts:
    """The counts of one broker.

    Attributes:
        written: entries put towards the revive topic, by group, topic, kind and what became of the put.
        read: entries that came out of it, by group, topic, revive queue and kind.
        returned: messages that came back, by group, retry topic and what became of the put.
    """

    def __init__(self) -> None:
        self.written: Counter[tuple[str, str, str, str]] = Counter()
        self.read: Counter[tuple[str, str, int, str]] = Counter()
        self.returned: Counter[tuple[str, str, str]] = Counter()

    def wrote(self, entry: Entry, status: str) -> None:
        """Count one entry that was put."""
        topic, group, *_ = entry.key
        self.written[group, topic, kind_of(entry), status] += 1

    def came_out(self, entry: Entry, queue: int) -> None:
        """Count one entry that was read."""
        topic, group, *_ = entry.key
        self.read[group, topic, queue, kind_of(entry)] += 1

    def forget_topics(self, topics: Set[str]) -> None:
        """Forget deleted topics."""
        for group_queue in [group_queue for group_queue in self.written if group_queue[1] in topics]:
            del self.written[group_queue]
        for read in [read for read in self.read if read[1] in topics]:
            del self.read[read]
        for returned in [returned for returned in self.returned if returned[1] in topics]:
            del self.returned[returned]
