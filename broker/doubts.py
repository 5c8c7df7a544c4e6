"""Which consumers may remember more than their master still has, and where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

DOUBT_MS = 120_000
"""Longer than a consumer takes to ask a master that is back, after its next look at the routes."""


class Doubts:
    """Ends of queues whose last messages this master has lost, for each group that may have read them.

    A consumer that did holds a larger offset in memory, of messages that are others now. Memory only, and no longer
    than :data:`DOUBT_MS`: who reads at a slave never asks here, and must be believed when it commits.

    Args:
        now_ms: wall time.

    Attributes:
        ends: by ``topic@group``, then queue id; empty nearly always.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until_ms = 0
        self.ends: dict[str, dict[int, int]] = {}

    def begin(self, committed: Mapping[str, Mapping[int, int]], end_of: Callable[[str, int], int]) -> None:
        """Doubt the groups that have *committed* something, behind what *end_of* returns for topic and queue."""
        self._until_ms = self._now_ms() + DOUBT_MS
        self.ends = {
            key: {queue_id: end_of(key.partition("@")[0], queue_id) for queue_id in queues}
            for key, queues in committed.items()
        }

    def doubt(self, key: str, queue_id: int, end: int) -> None:
        """Doubt one group in one queue behind *end*."""
        self._expire()
        self._until_ms = self._now_ms() + DOUBT_MS
        self.ends.setdefault(key, {})[queue_id] = end

    def believe(self, key: str, queue_id: int) -> None:
        """Learn that a consumer has asked for nothing that was lost."""
        ends = self.ends.get(key, {})
        ends.pop(queue_id, None)
        if not ends:
            self.ends.pop(key, None)

    def learn_ends(self, end_of: Callable[[str, int], int]) -> None:
        """Doubt only what lies behind the ends that *end_of* returns now: more of the log is here than it seemed."""
        for key, queues in self.ends.items():
            for queue_id, end in queues.items():
                queues[queue_id] = max(end, end_of(key.partition("@")[0], queue_id))

    def refuses(self, key: str, queue_id: int, offset: int) -> bool:
        """Return whether a commit of *offset* must not count yet."""
        self._expire()
        return offset > self.ends.get(key, {}).get(queue_id, offset)

    def settle(self, key: str, queue_id: int, offset: int) -> int | None:
        """Return where a consumer that asks for *offset* has to go on, ``None``: there. It is believed from now on."""
        self._expire()
        end = self.ends.get(key, {}).get(queue_id, offset)
        self.believe(key, queue_id)
        return end if offset > end else None

    def _expire(self) -> None:
        if self._now_ms() > self._until_ms:
            self.ends = {}
