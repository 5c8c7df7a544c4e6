"""Pulls that found nothing and wait for a message.

The rules:

* A parked pull is an entry in a table, not a task. One service serves all of them.
* No wake-up is lost: a pull is parked in the same step that found nothing, and every message that becomes readable
  calls :meth:`PullHold.arrived` before anything else can run.
* A message that passes the pull's filter makes it ready; so does its deadline. Ready pulls are answered when a receive
  has stored all it brought, before its sends are acknowledged: one answer carries everything, and no consumer waits for
  the producer's share. Those that something else made ready are answered on the next turn of the event loop. No more
  than ``AT_ONCE`` are answered in one go, nor for longer than :data:`AT_ONCE_SECONDS`, however many wait for one
  message.
* A pull whose peer does not read its answers stays ready until it does.
* Pulls of ended connections are dropped. What all pulls keep counts into the process's total for parked requests.

Source: PullRequestHoldService.java.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Container, Iterable, Set
from functools import partial

import trio

from understudy.broker.parked_pulls import AT_ONCE, ParkedPull, TopicQueue, WaitingHere
from understudy.remoting.connection import Connection
from understudy.runtime.clock import Clock
from understudy.runtime.load import Budget, Load
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("broker.hold")

DEFAULT_LIMIT = 100_000
"""Parked pulls per broker, the reference's ``pullThreadPoolQueueCapacity``."""

AT_ONCE_SECONDS = 0.002
"""How long pulls are answered in one go; those with long conditions cost much more than others."""


class PullHold:
    """Every parked pull of one broker.

    Args:
        clock: for deadlines.
        limit: most parked pulls; above it a pull is answered at once.
        budget: where what they keep is counted.

    Attributes:
        answer: called with each pull that shall be answered now; set by the owner.
    """

    def __init__(
        self, clock: Clock, limit: Callable[[], int] = lambda: DEFAULT_LIMIT, budget: Budget | None = None
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._budget = budget if budget is not None else Load().parked
        self._parked: dict[TopicQueue, WaitingHere] = {}
        self._of_connection: dict[Connection, dict[ParkedPull, None]] = {}
        self._pulls: dict[int, ParkedPull] = {}  # the heap below must not keep those that left
        self._deadlines: list[tuple[float, int]] = []
        self._numbers = itertools.count()
        self._ready: deque[ParkedPull] = deque()
        self._choked: dict[Connection, list[ParkedPull]] = {}
        self._wake = Signal()
        self._wakes_at = float("inf")
        self.answer: Callable[[ParkedPull], None] = lambda parked: None

    def __len__(self) -> int:
        return len(self._pulls)

    @property
    def parked(self) -> Container[TopicQueue]:
        """Where pulls are parked; always the same object."""
        return self._parked

    def has_room(self, parked: ParkedPull) -> bool:
        """Tell whether the process may keep *parked*; the connections that keep most are refused first."""
        if self._budget.allows(parked.connection, parked.size_bytes):
            return True
        self._budget.refused += 1
        return False

    def park(self, parked: ParkedPull, queue: TopicQueue, wait_ms: int) -> None:
        """Keep *parked* until something arrives at *queue* or *wait_ms* have passed."""
        parked.queue = queue
        parked.number = number = next(self._numbers)
        self._pulls[number] = parked
        self._of_connection.setdefault(parked.connection, {})[parked] = None
        self._budget.change(parked.connection, parked.size_bytes)
        if len(self._pulls) > self._limit() or wait_ms <= 0:
            self._make_ready((parked,))
            return
        waiting = self._parked.get(queue)
        if waiting is None:
            waiting = self._parked[queue] = WaitingHere()
        waiting.add(parked)
        deadline = self._clock.monotonic() + wait_ms / 1000
        heapq.heappush(self._deadlines, (deadline, number))
        if deadline < self._wakes_at:
            self._wake.set()

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message that became readable where pulls are parked (:attr:`parked`).

        Args:
            topic: of the message.
            queue_id: of the message.
            next_offset: queue offset behind it.
            tags_code: its tags code.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where the store was not asked for them.
        """
        queue = topic, queue_id
        waiting = self._parked.get(queue)
        if waiting is None:
            return
        taken = waiting.take(tags_code, properties)
        if not waiting:
            del self._parked[queue]
        if taken:
            self._make_ready(taken)

    def wake_queue(self, queue: TopicQueue) -> None:
        """Answer the pulls parked at *queue* now."""
        waiting = self._parked.pop(queue, None)
        if waiting is not None:
            self._make_ready(waiting.take_all())

    def wake_topics(self, topics: Set[str]) -> None:
        """Answer the pulls parked at *topics* now (they were deleted)."""
        for queue in [queue for queue in self._parked if queue[0] in topics]:
            self.wake_queue(queue)

    def wake_all(self) -> None:
        """Answer every parked pull now (the broker's role changed)."""
        waiting = list(self._parked.values())
        self._parked.clear()
        for each in waiting:
            self._make_ready(each.take_all())

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of an ended connection."""
        for parked in list(self._of_connection.get(connection, ())):
            self._leave(parked)
        self._choked.pop(connection, None)

    async def run(self) -> None:
        """Answer pulls until cancelled; asleep until one is ready or due."""
        while True:
            if not self._ready:
                self._wakes_at = self._deadlines[0][0] if self._deadlines else float("inf")
                left = self._wakes_at - self._clock.monotonic()
                if left > 0:
                    with self._clock.move_on_after(left):
                        await self._wake.wait()
                self._expire()
            else:
                await trio.lowlevel.checkpoint()
            self.answer_ready()

    def answer_ready(self) -> None:
        """Answer the pulls that are ready, at most :data:`AT_ONCE`; :meth:`run` goes on. Never raises."""
        ready = self._ready
        if not ready:
            return
        monotonic = self._clock.monotonic
        until = monotonic() + AT_ONCE_SECONDS
        for number in range(min(len(ready), AT_ONCE)):
            if number and monotonic() > until:
                break
            parked = ready.popleft()
            connection = parked.connection
            if not connection.alive:
                self._leave(parked)
                continue
            if connection.choked:
                self._wait_drained(connection, parked)
                continue
            if not self._leave(parked):
                continue  # its connection was dropped
            try:
                self.answer(parked)
            except Exception as error:  # one pull must not end the service of all
                log.error("parked pull failed", exc=error, peer=connection.address, error=repr(error))

    def _make_ready(self, pulls: Iterable[ParkedPull]) -> None:
        for parked in pulls:
            parked.ready = True
            self._ready.append(parked)
        self._wake.set()

    def _wait_drained(self, connection: Connection, parked: ParkedPull) -> None:
        waiting = self._choked.get(connection)
        if waiting is None:
            waiting = self._choked[connection] = []
            connection.when_drained(partial(self._drained, connection))
        waiting.append(parked)

    def _drained(self, connection: Connection) -> None:
        self._make_ready(self._choked.pop(connection, ()))

    def _leave(self, parked: ParkedPull) -> bool:
        """Take *parked* out of every table; return whether it was there."""
        if self._pulls.pop(parked.number, None) is None:
            return False
        if not parked.ready:
            waiting = self._parked[parked.queue]
            waiting.remove(parked)
            if not waiting:
                del self._parked[parked.queue]
        own = self._of_connection[parked.connection]
        del own[parked]
        if not own:
            del self._of_connection[parked.connection]
        self._budget.change(parked.connection, -parked.size_bytes)
        return True

    def _expire(self) -> None:
        """Make due pulls ready, and shed entries of pulls that left early before they outnumber the live ones."""
        now = self._clock.monotonic()
        deadlines, pulls = self._deadlines, self._pulls
        due: list[ParkedPull] = []
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1] not in pulls):
            parked = pulls.get(heapq.heappop(deadlines)[1])
            if parked is not None and not parked.ready:
                waiting = self._parked[parked.queue]
                waiting.remove(parked)
                if not waiting:
                    del self._parked[parked.queue]
                due.append(parked)
        self._make_ready(due)
        if len(deadlines) > 1024 and len(deadlines) > 2 * len(pulls):
            self._deadlines = [entry for entry in deadlines if entry[1] in pulls]
            heapq.heapify(self._deadlines)
