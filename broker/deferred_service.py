"""Drives deferred queues: sleeps until one is due, reads it, puts what is due, moves its progress.

One service for all queues of one kind. A queue at work is a task of its own, so that one whose target is slow holds up
no other; queues that rest cost nothing. The decisions are those of :mod:`~understudy.broker.deferred`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import attrs
import trio

from understudy.broker.deferred import (
    NEVER,
    Action,
    Arrived,
    DeferredQueue,
    Due,
    Found,
    Move,
    Put,
    Read,
    Settled,
    step,
)
from understudy.broker.inner import InnerMessage
from understudy.broker.redelivery import Redelivery
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.status import PutStatus

log = get_logger("broker.deferred")

SET_BACK_MS = 1_000
"""A clock that was set back by more than this is noticed; by less, messages are late by as much."""
LONGEST_SLEEP_SECONDS = 10.0
"""While something waits: a clock that is set forward wakes nobody, and what waits may be due by it at once."""
MISSING_MS = 100
"""Pause while messages may be there in a moment that cannot be read: short, for damage is often found one by one."""
GRACE_SECONDS = 4.0
"""How long a put may take to end after the service was stopped: cut short, it is done twice."""
_AT_REST = DeferredQueue()


class Source(Protocol):
    """The queues of one kind: how they are read, and where their progress stands. Queues are numbered."""

    def queues(self) -> Iterable[int]:
        """Return the queues there are, their progress brought into what each holds."""
        ...

    def position(self, queue: int) -> int:
        """Return the progress of *queue*."""
        ...

    def read(self, queue: int, position: int) -> Found:
        """Return what is due in *queue* from *position* on, a bounded part of it."""
        ...

    def move(self, queue: int, position: int) -> None:
        """Note that everything of *queue* before *position* is done."""
        ...

    def undo(self, queue: int) -> None:
        """Take note that what was read of *queue* last does not count, and is read once more."""
        ...

    def stored(self, message: InnerMessage) -> None:
        """Count a message that was put."""
        ...


class DeferredService:
    """The queues of one *source*, and where their messages go.

    Args:
        clock: wall time decides what is due.
        source: reads the queues and keeps their progress.
        target: where due messages go; may be replaced while nothing runs.

    Attributes:
        target: as given.
        missing: returns whether what cannot be read now may be there in a moment; nothing is passed meanwhile.
    """

    def __init__(self, clock: Clock, source: Source, target: Redelivery) -> None:
        self._clock = clock
        self._source = source
        self.target = target
        self.missing: Callable[[], bool] = lambda: False
        self._queues: dict[int, DeferredQueue] = {}
        self._puts: set[trio.CancelScope] = set()
        self._put_ended = Signal()
        self._wake = Signal()
        self._wakes_at_ms = NEVER

    def arrived(self, queue: int, due_ms: float) -> None:
        """Take note of a message in *queue* that is due at *due_ms* (wall time)."""
        known = self._queues.get(queue)
        if known is not None and due_ms < known.due_ms:
            self._queues[queue], _ = step(known, Arrived(due_ms), due_ms)
            if known.rests and due_ms < self._wakes_at_ms:
                self._wake.set()

    def opened(self, queue: int) -> None:
        """Take note of a *queue* that the source did not name when this began to run; it is looked at now."""
        if queue not in self._queues:
            self._queues[queue] = DeferredQueue()
            self._wake.set()

    # --- what was missing, and is back --------------------------------------------------------------------------

    def reached(self, queue: int) -> int:
        """Return up to where *queue* was read: what is missing before this is not read any more if all goes well."""
        known = self._queues.get(queue, _AT_REST)
        return max(self._source.position(queue), known.reached)

    def comes(self, queue: int, position: int) -> bool:
        """Return whether what stands at *position* of *queue* will be read in its turn, or was read and is under way.

        Args:
            queue: number of the queue.
            position: of a message that was missing.
        """
        return position >= self._source.position(queue) and not self._queues.get(queue, _AT_REST).passes(position)

    def settled(self, queue: int, position: int) -> None:
        """Take note that somebody else has put what stands at *position*: it is not put if that is read once more."""
        known = self._queues.get(queue)
        if known is not None:
            self._queues[queue] = attrs.evolve(known, landed=known.landed | {(position, None)})

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Put what is due until cancelled; a put that is under way then gets :data:`GRACE_SECONDS` to end."""
        try:
            await self._run()
        finally:
            self._queues = {}  # nothing is under way any more

    async def _run(self) -> None:
        self._queues = {queue: DeferredQueue() for queue in self._source.queues()}
        ahead_ms = self._wall_ahead_ms()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._limit_when_stopped)
            while True:
                before_ms, ahead_ms = ahead_ms, self._wall_ahead_ms()
                was_set_back = ahead_ms < before_ms - SET_BACK_MS  # what is due by a clock that never jumps may be
                now_ms = self._clock.wall_ms()
                for number, queue in self._queues.items():
                    if queue.rests and (queue.due_ms <= now_ms or was_set_back):
                        due = Due(self._source.position(number))
                        self._queues[number], actions = step(queue, due, now_ms)
                        nursery.start_soon(self._work, number, actions)
                self._wakes_at_ms = min((each.due_ms for each in self._queues.values() if each.rests), default=NEVER)
                left_ms = self._wakes_at_ms - self._clock.wall_ms()
                if left_ms > 0:
                    longest = math.inf if left_ms == NEVER else LONGEST_SLEEP_SECONDS
                    with self._clock.move_on_after(min(left_ms / 1000, longest)):
                        await self._wake.wait()
                else:
                    await trio.lowlevel.checkpoint()

    def _wall_ahead_ms(self) -> float:
        return self._clock.wall_ms() - self._clock.monotonic() * 1000

    async def _work(self, number: int, actions: Sequence[Action]) -> None:
        """Do *actions* and what follows from them until the queue rests."""
        while actions:
            event: Found | Settled | None = None
            for action in actions:
                match action:
                    case Move(position):
                        self._source.move(number, position)
                    case Read(position):
                        await trio.lowlevel.checkpoint()
                        event = self._read(number, position)
                    case Put(messages):
                        await trio.lowlevel.checkpoint()  # the read was enough for one turn
                        event = Settled(await self._put(messages))
            if event is None:
                break
            self._queues[number], actions = step(self._queues[number], event, self._clock.wall_ms())
        self._wake.set()

    def _read(self, number: int, position: int) -> Found:
        if not self.missing():
            found = self._source.read(number, position)
            if not self.missing():
                return found
            self._source.undo(number)  # it was found just now that messages are damaged
        return Found((), position, self._clock.wall_ms() + MISSING_MS)

    async def _put(self, messages: tuple[InnerMessage, ...]) -> tuple[bool, ...]:
        statuses: Sequence[PutStatus] = ()
        scope = trio.CancelScope(shield=True)
        self._puts.add(scope)
        try:
            with scope:
                statuses = await self.target.put(messages)
        except Exception as error:
            log.error("due messages not put yet", topic=messages[0].topic, count=len(messages), error=error)
        finally:
            self._puts.discard(scope)
            self._put_ended.set()
        if not statuses:
            return (False,) * len(messages)
        stored = tuple(status is PutStatus.PUT_OK for status in statuses)
        for message, is_stored in zip(messages, stored, strict=True):
            if is_stored:
                self._source.stored(message)
        return stored

    async def _limit_when_stopped(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            # By the clock of this service: while a machine stands still, so do the puts that are waited for.
            with self._clock.move_on_after(GRACE_SECONDS) as grace:
                grace.shield = True
                while self._puts:
                    await self._put_ended.wait()
            for scope in self._puts:
                scope.cancel()
