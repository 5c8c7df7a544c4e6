"""Pulls that found nothing and wait for a message.

The rules:

* A parked pull is an entry in a table, not a task. One service serves all of them.
* No wake-up is lost: a pull is parked in the same step that found nothing, and every message that becomes readable
  calls :meth:`PullHold.arrived` before anything else can run.
* A message that passes the pull's filter makes it ready; so does its deadline. Ready pulls are answered when a receive
  has stored all it brought, before its sends are acknowledged: one answer carries everything, and no consumer waits for
  the producer's share. Those that something else made ready are answered on the next turn of the event loop.
* Pulls of ended connections are dropped.

Source: PullRequestHoldService.java.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio

from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.hold")

Place = tuple[str, int]
"""Topic and queue id."""

DEFAULT_LIMIT = 100_000
"""Parked pulls per broker, the reference's ``pullThreadPoolQueueCapacity``."""


class ParkedPull:
    """One waiting pull.

    Attributes:
        connection, command: whom and what to answer.
        accept: filter by tags code; ``None`` takes every message.
        place: where it is parked; ``None`` once it left.
    """

    __slots__ = ("accept", "command", "connection", "place")

    def __init__(self, connection: Connection, command: Command, accept: Callable[[int], bool] | None) -> None:
        self.connection = connection
        self.command = command
        self.accept = accept
        self.place: Place | None = None


class PullHold:
    """Every parked pull of one broker.

    Args:
        clock: for deadlines.
        limit: most parked pulls; above it a pull is answered at once.

    Attributes:
        answer: called with each pull that shall be answered now; set by the owner.
    """

    def __init__(self, clock: Clock, limit: Callable[[], int] = lambda: DEFAULT_LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._parked: dict[Place, dict[ParkedPull, None]] = {}
        self._of_connection: dict[Connection, dict[ParkedPull, None]] = {}
        self._count = 0
        self._deadlines: list[tuple[float, int, ParkedPull]] = []
        self._numbers = itertools.count()
        self._ready: list[ParkedPull] = []
        self._wake = trio.Event()
        self._wakes_at = float("inf")
        self.answer: Callable[[ParkedPull], None] = lambda parked: None

    def __len__(self) -> int:
        return self._count

    def park(self, parked: ParkedPull, place: Place, wait_ms: int) -> None:
        """Keep *parked* until something arrives at *place* or *wait_ms* have passed."""
        self._parked.setdefault(place, {})[parked] = None
        self._of_connection.setdefault(parked.connection, {})[parked] = None
        parked.place = place
        self._count += 1
        if self._count > self._limit() or wait_ms <= 0:
            self._leave(parked)
            self._make_ready(parked)
            return
        deadline = self._clock.monotonic() + wait_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._numbers), parked))
        if deadline < self._wakes_at:
            self._wake.set()

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message that became readable; registered at the store."""
        waiting = self._parked.get((topic, queue_id))
        if waiting is None:
            return
        for parked in [each for each in waiting if each.accept is None or each.accept(tags_code)]:
            self._leave(parked)
            self._make_ready(parked)

    def wake_topic(self, topic: str) -> None:
        """Answer the pulls parked at *topic* now (it was deleted)."""
        for place in [place for place in self._parked if place[0] == topic]:
            for parked in list(self._parked[place]):
                self._leave(parked)
                self._make_ready(parked)

    def wake_all(self) -> None:
        """Answer every parked pull now (the broker's role changed)."""
        for waiting in list(self._parked.values()):
            for parked in list(waiting):
                self._leave(parked)
                self._make_ready(parked)

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of an ended connection."""
        for parked in list(self._of_connection.get(connection, ())):
            self._leave(parked)

    async def run(self) -> None:
        """Answer pulls until cancelled; asleep until one is ready or due."""
        while True:
            if not self._ready:
                self._wake = trio.Event()
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
        """Answer the pulls that are ready; never raises."""
        if not self._ready:
            return
        ready, self._ready = self._ready, []
        for parked in ready:
            if not parked.connection.alive:
                continue
            try:
                self.answer(parked)
            except Exception as error:  # one pull must not end the service of all
                log.error("parked pull failed", exc=error, peer=parked.connection.address, error=repr(error))

    def _make_ready(self, parked: ParkedPull) -> None:
        self._ready.append(parked)
        self._wake.set()

    def _leave(self, parked: ParkedPull) -> None:
        place = parked.place
        if place is None:
            return
        parked.place = None
        waiting = self._parked[place]
        del waiting[parked]
        if not waiting:
            del self._parked[place]
        own = self._of_connection[parked.connection]
        del own[parked]
        if not own:
            del self._of_connection[parked.connection]
        self._count -= 1

    def _expire(self) -> None:
        """Make due pulls ready, and shed entries of pulls that left early before they outnumber the live ones."""
        now = self._clock.monotonic()
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][2].place is None):
            _, _, parked = heapq.heappop(deadlines)
            if parked.place is not None:
                self._leave(parked)
                self._ready.append(parked)
        if len(deadlines) > 1024 and len(deadlines) > 2 * self._count:
            self._deadlines = [entry for entry in deadlines if entry[2].place is not None]
            heapq.heapify(self._deadlines)
