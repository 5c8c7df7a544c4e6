"""Which consumers may remember more than their master still has, and where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from understudy.format.names import BUILT_IN_GROUPS

DOUBT_MS = 120_000
"""Longer than a consumer takes to ask a master that is back, after its next look at the routes."""
MOST_BELIEVED = 200_000
"""Groups in queues that are remembered as believed; when there are more, groups that are not known are."""

EndOf = Callable[[str, int], int]
"""From topic and queue id to a queue offset."""


class Doubts:
    """Ends of queues whose last messages this master has lost, for each group that may have read them.

    A consumer that did holds a larger offset in memory, of messages that are others now. Memory only, and no longer
    than :data:`DOUBT_MS`: who reads at a slave never asks here, and must be believed when it commits.

    A group that has committed nothing here may have read at a slave while this master was away. It is doubted as well,
    until it asks where it stands: it remembers nothing then. Tools show any message they are asked for, and commit
    nothing: their groups are never doubted.

    Args:
        now_ms: wall time.

    Attributes:
        ends: by ``topic@group``, then queue id, of the groups that are known; empty nearly always.
        active: whether anybody is doubted; false nearly always.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until_ms = 0
        self._end_of: EndOf | None = None
        self._believed: set[tuple[str, int]] = set()
        self.ends: dict[str, dict[int, int]] = {}
        self.active = False

    def begin(self, committed: Mapping[str, Mapping[int, int]], end_of: EndOf) -> None:
        """Doubt the groups that have *committed* something, behind what *end_of* returns."""
        self._until_ms = self._now_ms() + DOUBT_MS
        self.ends = {
            key: {queue_id: end_of(key.partition("@")[0], queue_id) for queue_id in queues}
            for key, queues in committed.items()
        }
        self._look()

    def doubt_others(self, end_of: EndOf) -> None:
        """Doubt all groups that have committed nothing, too, as long as those of :meth:`begin`.

        Args:
            end_of: returns where each queue ended then, whatever has been stored since.
        """
        self._end_of = end_of
        self._look()

    def doubt(self, key: str, queue_id: int, end: int) -> None:
        """Doubt one group in one queue behind *end*."""
        self._expire()
        self._until_ms = self._now_ms() + DOUBT_MS
        self.ends.setdefault(key, {})[queue_id] = end
        self._look()

    def believe(self, key: str, queue_id: int) -> None:
        """Learn that a consumer has asked for nothing that was lost."""
        ends = self.ends.get(key, {})
        ends.pop(queue_id, None)
        if not ends:
            self.ends.pop(key, None)
        if self._end_of is not None:
            self._believed.add((key, queue_id))
            if len(self._believed) > MOST_BELIEVED:
                self._believe_others()
        self._look()

    def asked(self, key: str, queue_id: int) -> None:
        """Learn that a consumer asks where it stands; one that is known is told that, and doubted on."""
        if queue_id not in self.ends.get(key, {}):
            self.believe(key, queue_id)

    def learn_ends(self, end_of: EndOf) -> None:
        """Doubt only what lies behind the ends that *end_of* returns now: more of the log is here than it seemed."""
        for key, queues in self.ends.items():
            for queue_id, end in queues.items():
                queues[queue_id] = max(end, end_of(key.partition("@")[0], queue_id))
        if self._end_of is not None:
            self._end_of = end_of

    def refuses(self, key: str, queue_id: int, offset: int) -> bool:
        """Return whether a commit of *offset* must not count yet."""
        self._expire()
        return offset > self._end(key, queue_id, offset)

    def settle(self, key: str, queue_id: int, offset: int) -> int | None:
        """Return where a consumer that asks for *offset* has to go on, ``None``: there. It is believed from now on."""
        self._expire()
        end = self._end(key, queue_id, offset)
        self.believe(key, queue_id)
        return end if offset > end else None

    def _end(self, key: str, queue_id: int, offset: int) -> int:
        """Return behind what a group is doubted in a queue; *offset* where it is believed."""
        end = self.ends.get(key, {}).get(queue_id)
        if end is not None:
            return end
        if self._end_of is None or (key, queue_id) in self._believed:
            return offset
        topic, _, group = key.partition("@")
        return offset if group in BUILT_IN_GROUPS else self._end_of(topic, queue_id)

    def _expire(self) -> None:
        if self._now_ms() > self._until_ms:
            self.ends = {}
            self._believe_others()
            self._look()

    def _believe_others(self) -> None:
        self._end_of = None
        self._believed.clear()

    def _look(self) -> None:
        self.active = bool(self.ends) or self._end_of is not None
