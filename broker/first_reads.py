"""Which consumers a slave may answer when its master is back: those of whom the master knows where they stand.

A master that lost the end of its log doubts its consumers (:mod:`~understudy.broker.doubts`) until each has asked it
once. One that reads at a slave asks there: it would get what the master has stored since, and be sent back before it
when it comes to the master. So the slave puts the first question of each group in each queue to its master before it
gives out anything that it did not have when the master came back.

The reference doubts nobody: consumers that had read what is lost skip as many new messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from understudy.broker.doubts import DOUBT_MS, Doubts
from understudy.runtime.signal import Signal

ANSWER_MS = 2_000
"""After so long without the master's answer a consumer is believed."""

GroupQueue = tuple[str, int]
"""``topic@group`` and a queue id."""


@attrs.frozen
class FirstRead:
    """Where a group asked first in a queue.

    Attributes:
        key: ``topic@group``.
        queue_id: the queue.
        offset: what was asked for.
        common: it is not behind what slave and master both had.
    """

    key: str
    queue_id: int
    offset: int
    common: bool


class FirstReads:
    """The first questions of consumers at one slave, since it has followed its master again. Pure.

    Args:
        now_ms: a clock that does not jump.
        doubts: of this broker; a consumer that the master sends back is doubted here, too.
        end_at: returns for topic, queue id and a byte of the log the offset of the first message at or after it.
        end_of: returns the offset of the next message of a queue.

    Attributes:
        active: whether questions have to be asked; false nearly always.
        asked: set when there is something for :meth:`take`.
    """

    def __init__(
        self,
        now_ms: Callable[[], float],
        doubts: Doubts,
        end_at: Callable[[str, int, int], int],
        end_of: Callable[[str, int], int],
    ) -> None:
        self._now_ms = now_ms
        self._doubts = doubts
        self._end_at = end_at
        self._end_of = end_of
        self._until_ms = 0.0
        self._common_bytes = 0
        self._settled: set[GroupQueue] = set()
        self._waiting: dict[GroupQueue, float] = {}
        self._new: list[FirstRead] = []
        self.active = False
        self.asked = Signal()

    def begin(self, common_bytes: int) -> None:
        """The slave follows its master again; up to *common_bytes* their logs are the same."""
        self.end()
        self.active = True
        self._common_bytes = common_bytes
        self._until_ms = self._now_ms() + DOUBT_MS

    def end(self) -> None:
        """Nobody is doubted any more, or there is nobody to ask."""
        self.active = False
        self._settled.clear()
        self._waiting.clear()
        self._new.clear()

    def must_wait(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a pull waits for the master's answer; its question is noted then.

        To be called while :attr:`active`.

        Args:
            group: that pulls.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset that it asks for.
        """
        now, group_queue = self._now_ms(), (f"{topic}@{group}", queue_id)
        if now > self._until_ms:
            self.end()
            return False
        if group_queue in self._settled:
            return False
        since = self._waiting.get(group_queue)
        if since is not None:
            if now - since < ANSWER_MS:
                return True
            self._settle(group_queue)
            return False
        common_end = self._end_at(topic, queue_id, self._common_bytes)
        if offset <= common_end and self._end_of(topic, queue_id) <= common_end:
            return False  # there is nothing new to give
        self._waiting[group_queue] = now
        self._new.append(FirstRead(*group_queue, offset, offset <= common_end))
        self.asked.set()
        return True

    def take(self, most: int) -> list[FirstRead]:
        """Return questions that nobody has put to the master yet, at most so many."""
        taken, self._new = self._new[:most], self._new[most:]
        return taken

    def answered(self, reads: Iterable[FirstRead], corrections: Mapping[GroupQueue, int]) -> None:
        """Learn where consumers have to go on instead, and that the others are where they say."""
        for read in reads:
            group_queue = read.key, read.queue_id
            if group_queue in self._waiting:
                self._settle(group_queue)
                if group_queue in corrections:
                    self._doubts.doubt(*group_queue, corrections[group_queue])

    def _settle(self, group_queue: GroupQueue) -> None:
        self._waiting.pop(group_queue, None)
        self._settled.add(group_queue)


def settle(doubts: Doubts, reads: Iterable[FirstRead]) -> dict[GroupQueue, int]:
    """Return where consumers that asked a slave have to go on instead; the master believes all of them from now on."""
    found = {}
    for read in reads:
        if read.common:
            doubts.believe(read.key, read.queue_id)
        else:
            end = doubts.settle(read.key, read.queue_id, read.offset)
            if end is not None:
                found[read.key, read.queue_id] = end
    return found
