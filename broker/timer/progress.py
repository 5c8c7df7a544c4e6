"""How far a timer has come, and what it knows of others when it begins to deliver. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.timer.done import Again, Read, as_one, joined
from understudy.format.data_version import DataVersion


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
        self.todo: tuple[Again, ...] = ()
        self.on_change: list[Callable[[], None]] = []

    def move(self, read: Read) -> None:
        """Note that everything before *read* is done."""
        if read == self.read:
            return
        self.read = read
        self.changed()

    def begin(self, known: int, end: int, *, followed: bool, lacks: bool) -> tuple[Again, ...]:
        """Begin to deliver; return what must be read again for that.

        Args:
            known: of how many messages others have delivered what lies before :attr:`read`.
            end: how many there are in this log.
            followed: it was another replica's progress until now.
            lacks: this log is a slave's: what it does not have yet may be delivered all the same.
        """
        todo = self.unsure(known) if followed else ()
        if lacks and known > end:  # what of them falls due from now on, this broker cannot deliver
            todo = joined(todo, [Again(min(self.enqueued, end), known, self.read)])
        self.settled = known if lacks else min(known, end)
        if todo:
            self.leave(joined(self.todo, todo))
        return todo

    def unsure(self, known: int) -> tuple[Again, ...]:
        """Return what a replica that was followed had not delivered, or may have kept for a later second.

        Args:
            known: how many messages it had settled.
        """
        return (Again(known, self.enqueued, Read()),) if known < self.enqueued else ()

    @property
    def known(self) -> int:
        """Of how many messages all is done, at a replica that delivers, before :attr:`read` but for what is left."""
        todo = self.todo
        return max(self.enqueued, todo[-1].end) if todo and self.enqueued >= todo[0].first else self.enqueued

    def leave(self, todo: tuple[Again, ...]) -> None:
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
        if self.todo:
            saved["again"] = _part(as_one(self.todo))  # former versions know one part only
            saved["parts"] = [_part(each) for each in self.todo]
        return saved

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Take a saved progress over. Raises ``ValueError``."""
        parts = value.get("parts", [value["again"]] if "again" in value else [])
        try:
            self.read = max(self.read, _from_json(value))
            self.todo = joined(Again(int(each["first"]), int(each["end"]), _from_json(each)) for each in parts)
        except (KeyError, TypeError, ValueError):
            raise ValueError("first, end, readTimeMs and readPhysicalOffset must be whole numbers") from None
        if "dataVersion" in value:
            self.version = max(self.version, DataVersion.from_json(value["dataVersion"]))


def _part(part: Again) -> dict[str, int]:
    return {"first": part.first, "end": part.end, **_to_json(part.was)}


def _to_json(read: Read) -> dict[str, int]:
    return {"readTimeMs": read.second_ms, "readPhysicalOffset": read.physical}


def _from_json(value: Mapping[str, Any]) -> Read:
    read = Read(int(value.get("readTimeMs", 0)), int(value.get("readPhysicalOffset", 0)))
    if not 0 <= read.second_ms < 1 << 53 or read.physical < 0:
        raise ValueError
    return read
