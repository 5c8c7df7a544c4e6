"""How far a timer has come, and what another replica's progress means for it. Pure.

What is done is a rectangle: of the messages that stand before a queue offset of the timer topic, all whose slot lies
before a second. In the slot of that second itself, those before a byte of the commit log are done as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from understudy.format.data_version import DataVersion


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
    """Messages that a merge leaves to do although their slot is passed over.

    Attributes:
        first, end: their queue offsets in the timer topic.
        was: what of them is done: what lay before this.
    """

    first: int
    end: int
    was: Read


class TimerProgress:
    """How far one timer has come; saved as ``timerProgress.json``, and seen by replicas.

    Attributes:
        read: how far slots are delivered.
        enqueued: queue offset of the timer topic that is put into a slot next.
        settled: messages before this queue offset whose slot is over are delivered; others, never.
        version: grows while the timer delivers.
        todo: what a take-over left to do, until it is done durably.
        on_change: called after each change of what is saved.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.read = Read()
        self.enqueued = 0
        self.settled = 0
        self.version = DataVersion(timestamp=now_ms())
        self.todo: Again | None = None
        self.on_change: list[Callable[[], None]] = []

    def move(self, read: Read) -> None:
        """Note that everything before *read* is done."""
        if read == self.read:
            return
        self.read = read
        self.changed()

    def begin(self, known: int, end: int, *, followed: bool, lacks: bool) -> Again | None:
        """Begin to deliver; return what must be read again for that.

        Args:
            known: of how many messages others have delivered what lies before :attr:`read`.
            end: how many there are in this log.
            followed: it was another replica's progress until now.
            lacks: this log is a slave's: what it does not have yet may be delivered all the same.
        """
        todo = self.unsure(known) if followed else None
        if lacks and known > end:  # what of them falls due from now on, this broker cannot deliver
            todo = joined(todo, Again(min(self.enqueued, end), known, self.read))
        self.settled = known if lacks else min(known, end)
        if todo is not None:
            self.leave(joined(self.todo, todo))
        return todo

    def unsure(self, known: int) -> Again | None:
        """Return what a replica that was followed had not delivered, or may have kept for a later second.

        Args:
            known: how many messages it had settled.
        """
        return Again(known, self.enqueued, Read()) if known < self.enqueued else None

    def known(self, late: Iterable[int]) -> int:
        """Return of how many messages all is done, at a replica that delivers, before :attr:`read` but for *todo*.

        Args:
            late: queue offsets of those that wait in a later slot than their own.
        """
        oldest, todo = min(late, default=None), self.todo
        if oldest is None and todo is not None and self.enqueued >= todo.first:
            return max(self.enqueued, todo.end)
        return self.enqueued if oldest is None else min(self.enqueued, oldest)

    def leave(self, todo: Again | None) -> None:
        """Note that *todo* is left to do."""
        self.todo = todo
        self.changed()

    def grow_older(self) -> None:
        """Let the version grow: replicas of the reference compare it."""
        self.version = self.version.next(self._now_ms())

    def changed(self) -> None:
        """Have it saved."""
        for listener in self.on_change:
            listener()

    def to_json(self) -> dict[str, Any]:
        """Return what is saved."""
        saved: dict[str, Any] = {"dataVersion": self.version.to_json(), **_to_json(self.read)}
        if self.todo is not None:
            saved["again"] = {"first": self.todo.first, "end": self.todo.end, **_to_json(self.todo.was)}
        return saved

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Take a saved progress over. Raises ``ValueError``."""
        todo = value.get("again")
        try:
            self.read = max(self.read, _from_json(value))
            if isinstance(todo, Mapping):
                self.todo = Again(int(todo["first"]), int(todo["end"]), _from_json(todo))
        except (KeyError, TypeError, ValueError):
            raise ValueError("first, end, readTimeMs and readPhysicalOffset must be whole numbers") from None
        if "dataVersion" in value:
            self.version = max(self.version, DataVersion.from_json(value["dataVersion"]))


def again(own: Read, known: int, theirs: Read, settled: int, pending: Again | None = None) -> Again | None:
    """Return which messages must be read again once *theirs* is known; ``None`` when no slot is passed over.

    Args:
        own: how far we delivered, or know that others have.
        known: of how many messages of the topic that holds.
        theirs: how far another replica delivered.
        settled: how many messages of our topic it had.
        pending: what a take-over before this one left to do: *own* is not ours alone then.
    """
    if theirs <= own:
        if pending is not None and settled >= pending.end:  # it had all of them, and delivered those before its own end
            return attrs.evolve(pending, end=max(pending.end, settled), was=max(pending.was, theirs))
        if settled <= known or theirs == own:
            return pending
        return joined(pending, Again(known, settled, theirs))  # of these it did not deliver what came after its end
    return Again(settled, known, own if pending is None else pending.was) if settled < known else None


def joined(one: Again | None, other: Again | None) -> Again | None:
    """Return what holds all that either leaves to do."""
    if one is None or other is None:
        return one or other
    return Again(min(one.first, other.first), max(one.end, other.end), min(one.was, other.was))


def _to_json(read: Read) -> dict[str, int]:
    return {"readTimeMs": read.second_ms, "readPhysicalOffset": read.physical}


def _from_json(value: Mapping[str, Any]) -> Read:
    read = Read(int(value.get("readTimeMs", 0)), int(value.get("readPhysicalOffset", 0)))
    if not 0 <= read.second_ms < 1 << 53 or read.physical < 0:
        raise ValueError
    return read
