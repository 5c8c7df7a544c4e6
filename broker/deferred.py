"""A queue whose messages are put somewhere else later: read, decide, put once, move progress. Pure.

The laws:

* Progress never passes a message that is not stored where it was put, as safely as a send would be.
* Several messages are under way at once and are put in order; progress moves in order.
* A message that was stored is not put again, also when one before it must be tried again. Only a crash, or the end of
  the role that puts, forgets this, and no more than one read of messages can be affected.
* A queue with nothing due rests. An arrival or the time ends the rest; an arrival while the queue works is not lost.

What is due is not decided here but by the *source* that reads the queue (:class:`Source` in
:mod:`~understudy.broker.deferred_service`), and where a message goes is the business of the redelivery target. Delay
levels are one source (:mod:`~understudy.broker.schedule`), a queue for each. The others are:

* *Timer messages* (:mod:`~understudy.broker.timer.source`): one queue, its position a second and a place in that.
  One that is due later than the wheel reaches goes to the timer topic again.
* *Pop revive* (:mod:`~understudy.broker.pop.revive`): one queue per revive queue, its position an offset of that. The
  messages of a check point that were not acknowledged have its position, a key each, and the retry topic as their
  place; one that cannot be read now is put back as a check point of its own. One queue more is of what an acting slave
  handed out, which no log has.
"""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from understudy.broker.inner import InnerMessage

NEVER = float("inf")
RETRY_MS = 100
"""Pause before a failed put is tried again (DELAY_FOR_A_WHILE in ScheduleMessageService.java)."""


@attrs.frozen
class Item:
    """What is due at one position.

    Attributes:
        position: of it in its queue.
        message: what to put; ``None`` when progress shall pass the position and nothing is put.
        key: tells it from other messages of the same position.
    """

    position: int
    message: InnerMessage | None
    key: Hashable = None

    @property
    def name(self) -> tuple[int, Hashable]:
        """Position and key: what no other item of the queue has."""
        return self.position, self.key


# --- events: what has happened -----------------------------------------------------------------------------------


@attrs.frozen
class Due:
    """The time to look at the queue has come; *position* is its progress."""

    position: int


@attrs.frozen
class Arrived:
    """A message has come into the queue that is due at *due_ms* (wall time)."""

    due_ms: float


@attrs.frozen
class Found:
    """What a read found.

    Attributes:
        items: what is due, in order of positions.
        resume: where to go on when all of it is done; the position that was read from when there is nothing to pass.
        due_ms: wall time when what follows is due; :data:`NEVER` when nothing follows, ``None`` when it is to be read.
    """

    items: tuple[Item, ...]
    resume: int
    due_ms: float | None


@attrs.frozen
class Settled:
    """The messages of the last :class:`Put` are settled: for each in order, whether it is stored."""

    stored: tuple[bool, ...]


NOTHING = Found((), 0, NEVER)
Event = Due | Arrived | Found | Settled


# --- actions: what to do now -------------------------------------------------------------------------------------


@attrs.frozen
class Read:
    """Read the queue from *position* and answer with :class:`Found`."""

    position: int


@attrs.frozen
class Put:
    """Put *messages* in order and answer with :class:`Settled`."""

    messages: tuple[InnerMessage, ...]


@attrs.frozen
class Move:
    """Everything before *position* is done: note it."""

    position: int


Action = Read | Put | Move


@attrs.frozen
class DeferredQueue:
    """One queue.

    Attributes:
        rests: nothing is under way.
        due_ms: wall time of the next look at a queue that rests; while it works, of the first arrival since its read.
        position: everything before is done, as the last action said.
        found: what was read last and is not done yet.
        landed: names of the items that are stored although something before it is not.
    """

    rests: bool = True
    due_ms: float = 0.0
    position: int = 0
    found: Found = NOTHING
    landed: frozenset[tuple[int, Hashable]] = frozenset()

    @property
    def pending(self) -> tuple[Item, ...]:
        """The items that must be put."""
        return tuple(each for each in self.found.items if each.message is not None and each.name not in self.landed)

    @property
    def reached(self) -> int:
        """The position up to which it has read, which is not done yet while messages are under way."""
        return self.position if self.rests else max(self.position, self.found.resume)

    def passes(self, position: int) -> bool:
        """Return whether *position* lies in what is under way, though nothing was to be read there."""
        is_read = self.position <= position < self.reached
        return is_read and all(each.position != position for each in self.found.items)


def step(queue: DeferredQueue, event: Event, now_ms: float) -> tuple[DeferredQueue, tuple[Action, ...]]:
    """Return the queue after *event*, and what to do in order; a queue that has nothing to do rests.

    Args:
        queue: the queue before.
        event: what has happened.
        now_ms: wall time.
    """
    match event:
        case Arrived(due_ms):
            return attrs.evolve(queue, due_ms=min(queue.due_ms, due_ms)), ()
        case Due(position):
            landed = frozenset(each for each in queue.landed if each[0] >= position)
            return DeferredQueue(False, NEVER, position, landed=landed), (Read(position),)
        case Found():
            queue = attrs.evolve(queue, found=event)
            pending = queue.pending
            if pending:
                return queue, (Put(tuple(item.message for item in pending if item.message is not None)),)
            return _advance(queue, now_ms)
        case Settled(stored):
            names = {each.name for each, is_stored in zip(queue.pending, stored, strict=True) if is_stored}
            return _advance(attrs.evolve(queue, landed=queue.landed | names), now_ms)


def _advance(queue: DeferredQueue, now_ms: float) -> tuple[DeferredQueue, tuple[Action, ...]]:
    """Move progress to the first item that is not done; then go on, or rest."""
    pending, found = queue.pending, queue.found
    position = pending[0].position if pending else found.resume
    moves: tuple[Action, ...] = (Move(position),) if position != queue.position else ()
    queue = attrs.evolve(
        queue,
        position=position,
        found=NOTHING,
        landed=frozenset(each for each in queue.landed if each[0] >= position),
    )
    if pending:
        return attrs.evolve(queue, rests=True, due_ms=min(queue.due_ms, now_ms + RETRY_MS)), moves
    if found.due_ms is not None:
        return attrs.evolve(queue, rests=True, due_ms=min(queue.due_ms, found.due_ms)), moves
    return attrs.evolve(queue, due_ms=NEVER), (*moves, Read(position))
