"""How many messages of each queue are popped and neither acknowledged nor brought back. Pure; memory only.

Source: PopInflightMessageCounter.java.
"""

from __future__ import annotations

from collections.abc import Set


class InFlight:
    """The counts of one broker, by topic, group and queue id. They begin anew with each start."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}

    def get(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many messages are out."""
        return self._counts.get((topic, group, queue_id), 0)

    def add(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """Count messages that went out, or, below zero, came in; what went out before the start is not missed.

        Args:
            topic: of the queue.
            group: that popped.
            queue_id: of the queue.
            count: how many messages; below zero for those that came in.
        """
        group_queue = topic, group, queue_id
        left = self._counts.get(group_queue, 0) + count
        if left > 0:
            self._counts[group_queue] = left
        else:
            self._counts.pop(group_queue, None)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget a queue: its offset was reset."""
        self._counts.pop((topic, group, queue_id), None)

    def forget_topics(self, topics: Set[str]) -> None:
        """Forget every queue of *topics*."""
        for group_queue in [group_queue for group_queue in self._counts if group_queue[0] in topics]:
            del self._counts[group_queue]
