"""What of the timer topic is done, as one replica knows it, and what two of them know together. Pure.

What is done is a rectangle: of the messages that stand before a queue offset, all whose slot lies before a second.
Where replicas with different logs delivered one after the other, parts of it are left to do: of the messages in them
less is done. So what two replicas know is known exactly, however often one takes over from another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import attrs

MOST_PARTS = 16
"""Most parts that are left to do; of more, the last ones become one, of which the least is done."""


@attrs.frozen(order=True)
class Read:
    """How far slots are delivered.

    Attributes:
        second_ms: wall time of the slot that is delivered next; everything in those before it is done.
        physical: in that slot, what lies before this byte of the commit log is done.
    """

    second_ms: int = 0
    physical: int = 0


@attrs.frozen
class Again:
    """Messages that are left to do although their slot is passed over.

    Attributes:
        first, end: their queue offsets in the timer topic.
        was: what of them is done: what lay before this.
    """

    first: int
    end: int
    was: Read


@attrs.frozen
class Done:
    """What one replica knows to be done.

    Attributes:
        read: what lies before this is done,
        known: of the messages before this queue offset,
        left: but for these parts, which do not overlap, the lowest offsets first.
    """

    read: Read = Read()
    known: int = 0
    left: tuple[Again, ...] = ()

    def before(self, offset: int) -> Read:
        """Return what of the message at *offset* is done: what lies before this."""
        part = next((each for each in self.left if each.first <= offset < each.end), None)
        if part is not None:
            return part.was
        return self.read if offset < self.known else Read()

    def within(self, end: int) -> Done:
        """Return it without what stands from queue offset *end* on."""
        left = tuple(attrs.evolve(each, end=min(each.end, end)) for each in self.left if each.first < end)
        return Done(self.read, min(self.known, end), left)

    def merged(self, other: Done) -> Done:
        """Return what is known to either."""
        read = max(self.read, other.read)
        bounds = {0, self.known, other.known}
        bounds |= {bound for each in (*self.left, *other.left) for bound in (each.first, each.end)}
        parts = [
            Again(first, end, was)
            for first, end in pairwise(sorted(bounds))
            if (was := max(self.before(first), other.before(first))) < read
        ]
        return Done(read, max(bounds), _few(parts))


@attrs.frozen
class Lost:
    """What was known to be done of messages that the log had lost at the end of the topic; it may get them back.

    Attributes:
        done: before the loss.
        first: queue offset where the topic ended then; others have those before it.
        end: the log ended there (bytes); what lies behind it is new.
    """

    done: Done = Done()
    first: int = 0
    end: int = 0

    def was_done(self, offset: int, own: Read) -> bool:
        """Return whether the message at queue offset *offset*, delivered at *own*, is back, and was done."""
        return offset >= self.first and own.physical < self.end and own < self.done.before(offset)

    def or_after_cut(self, done: Done, first: int, end: int) -> Lost:
        """Return what is known when progress is cut that was *done*, if it is; see the attributes."""
        return Lost(done, first, end) if done.known > first else self


def as_one(parts: Sequence[Again]) -> Again:
    """Return what holds all of *parts*, one or more, of which the least is done."""
    return Again(parts[0].first, parts[-1].end, min(each.was for each in parts))


def joined(*parts: Iterable[Again]) -> tuple[Again, ...]:
    """Return what any of *parts* leaves to do, as parts that do not overlap."""
    every = [each for some in parts for each in some if each.first < each.end]
    bounds = sorted({bound for each in every for bound in (each.first, each.end)})
    found = []
    for first, end in pairwise(bounds):
        was = [each.was for each in every if each.first <= first < each.end]
        if was:
            found.append(Again(first, end, min(was)))
    return _few(found)


def _few(parts: Iterable[Again]) -> tuple[Again, ...]:
    """Return *parts*, neighbours of which equally much is done as one, and :data:`MOST_PARTS` at most."""
    found: list[Again] = []
    for each in parts:
        before = found[-1] if found else None
        if before is not None and (len(found) == MOST_PARTS or (before.end, before.was) == (each.first, each.was)):
            found[-1] = as_one((before, each))
        else:
            found.append(each)
    return tuple(found)
