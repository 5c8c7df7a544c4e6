"""Check points that wait in memory for their acknowledgements, so that most of them are never written. Pure.

The laws:

* A queue's offset moves past a pop only when its check point is written or needs not to be: what is lost with the
  memory is popped again. Pops of one queue move it in their order.
* A check point is written when it has waited for a while, or when its time comes near; what was acknowledged until then
  is written with it. Acknowledgements that come later are written one by one.
* What does not fit is written at once. A check point that is written while an earlier pop of its queue waits says so
  (:attr:`~understudy.broker.pop.revive_log.CheckPoint.overtakes`): with the memory, the earlier one is lost.
* How long it waits is counted by the monotonic clock: a wall clock that is set neither writes all of it nor keeps it.

Source: PopBufferMergeService.java.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Set

import attrs

from understudy.broker.pop.revive_log import Ack, CheckPoint, Key

QueueOfGroup = tuple[str, str, int]
"""Group, topic and queue id."""


@attrs.frozen
class BufferLimits:
    """When a check point may wait in memory.

    Attributes:
        stay_ms: how long (``popCkStayBufferTime``).
        margin_ms: it is written so long before its time (``popCkStayBufferTimeOut``).
        most: check points altogether (``popCkMaxBufferSize``).
        most_of_queue: pops of one queue that have not moved its offset yet (``popCkOffsetMaxQueueSize``).
    """

    stay_ms: int
    margin_ms: int
    most: int
    most_of_queue: int


@attrs.define(eq=False)
class Buffered:
    """One pop of one queue.

    Attributes:
        point: its check point, with what was acknowledged.
        revive_queue: where it is written.
        due_at: when it is written, in monotonic seconds.
        done: it is written, or needs not to be.
    """

    point: CheckPoint
    revive_queue: int
    due_at: float
    done: bool = False


class PopBuffer:
    """The check points of one broker that wait."""

    def __init__(self) -> None:
        self._points: dict[Key, Buffered] = {}
        self._order: dict[QueueOfGroup, deque[tuple[int, Buffered | None]]] = {}
        self._waiting: dict[QueueOfGroup, deque[Buffered]] = {}
        self._due: list[tuple[float, int, Buffered]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._points)

    @property
    def waiting_offsets(self) -> int:
        """How many pops have not moved their queue's offset."""
        return sum(map(len, self._order.values()))

    def takes(self, point: CheckPoint, now_ms: int, limits: BufferLimits) -> bool:
        """Tell whether *point* may wait in memory."""
        queue = self._order.get((point.group, point.topic, point.queue_id), ())
        fits = len(self._points) < limits.most and len(queue) < limits.most_of_queue
        return fits and point.revive_ms - now_ms > limits.margin_ms + 1_500 and point.key not in self._points

    def keep(
        self, point: CheckPoint, revive_queue: int, following: int, now_ms: int, now: float, limits: BufferLimits
    ) -> None:
        """Let *point* wait; the group goes on at *following*.

        Args:
            point: of a pop.
            revive_queue: queue of the revive topic that it goes to, if it must.
            following: queue offset behind the pop.
            now_ms: wall time.
            now: the same in monotonic seconds.
            limits: how long it may wait.
        """
        due_at = now + min(limits.stay_ms, point.revive_ms - now_ms - limits.margin_ms) / 1000
        waiting = Buffered(point, revive_queue, due_at)
        self._points[point.key] = waiting
        queue = (point.group, point.topic, point.queue_id)
        self._order.setdefault(queue, deque()).append((following, waiting))
        self.first_waiting(*queue)  # so that no more of them are kept than wait
        self._waiting.setdefault(queue, deque()).append(waiting)
        heapq.heappush(self._due, (due_at, next(self._numbers), waiting))

    def first_waiting(self, group: str, topic: str, queue_id: int) -> Buffered | None:
        """Return the earliest pop of a queue whose check point is not written and may have to be."""
        waiting = self._waiting.get((group, topic, queue_id))
        while waiting and waiting[0].done:
            waiting.popleft()
        if waiting is not None and not waiting:
            del self._waiting[group, topic, queue_id]
        return waiting[0] if waiting else None

    def follows(self, group: str, topic: str, queue_id: int, following: int) -> bool:
        """Take note that a group goes on at *following* although nothing of that waits.

        Args:
            group: that popped.
            topic: of the queue.
            queue_id: of the queue.
            following: queue offset where it goes on.

        Returns:
            Whether an earlier pop of the queue waits, and moves its offset later; otherwise it can be moved now.
        """
        queue = self._order.get((group, topic, queue_id))
        if queue is None:
            return False
        queue.append((following, None))
        return True

    def ack(self, ack: Ack) -> bool:
        """Take acknowledgements; return whether their check point waits here."""
        waiting = self._points.get(ack.key)
        if waiting is None:
            return False
        for offset in ack.offsets:
            waiting.point = waiting.point.acked(offset)
        if not waiting.point.open_offsets:
            self.finish(waiting)
        return True

    def finish(self, waiting: Buffered) -> None:
        """Take note that *waiting* is written, or needs not to be."""
        waiting.done = True
        self._points.pop(waiting.point.key, None)

    def next_due_at(self) -> float:
        """Return when something must be written, in monotonic seconds."""
        while self._due and self._due[0][2].done:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else float("inf")

    def due(self, now: float) -> list[Buffered]:
        """Return what must be written at *now* (monotonic seconds); what is not finished then comes again."""
        return [each for each in self._points.values() if each.due_at <= now] if self.next_due_at() <= now else []

    def commits(self) -> list[tuple[QueueOfGroup, int]]:
        """Return the queues whose offset moves now, and where to."""
        found: list[tuple[QueueOfGroup, int]] = []
        for group_queue, queue in list(self._order.items()):
            following: int | None = None
            while queue and (queue[0][1] is None or queue[0][1].done):
                following, _ = queue.popleft()
            if following is not None:
                found.append((group_queue, following))
            if not queue:
                del self._order[group_queue]
                self.first_waiting(*group_queue)
        return found

    def position(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the group goes on in a queue; -1 when nothing of it waits."""
        queue = self._order.get((group, topic, queue_id))
        return -1 if not queue else queue[-1][0]

    def forget_topics(self, topics: Set[str]) -> None:
        """Forget deleted topics."""
        for waiting in [each for each in self._points.values() if each.point.topic in topics]:
            self.finish(waiting)
        for group_queue in [group_queue for group_queue in self._order if group_queue[1] in topics]:
            del self._order[group_queue]
            self._waiting.pop(group_queue, None)

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Let no pop of a queue move its offset any more: it was reset."""
        self._order.pop((group, topic, queue_id), None)
        self._waiting.pop((group, topic, queue_id), None)
