"""Reads the messages of one second, oldest first, in steps of bounded work.

The units of a slot are chained from the newest to the oldest. A first walk notes where every :data:`BATCH` units begin,
and which of them take messages back; a second one, batch by batch from the oldest, reads the messages. So memory does
not grow with the messages of a second, but for a number for each batch and the keys of what is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import islice

import attrs

from understudy.broker.timer.rules import TakenBack
from understudy.broker.timer.timer import Timer
from understudy.format.record import Record
from understudy.store.timer_log import Unit

BATCH = 128
"""Most messages that are under way at once, and that a crash can repeat."""
BATCH_BYTES = 4 << 20
WALK_UNITS = 2_048
"""Most units that one step of the first walk passes."""


class Step(Enum):
    """What a step of the first walk came to."""

    MORE = "there are more units"
    READY = "messages can be read"


@attrs.frozen
class Found:
    """One unit of a second.

    Attributes:
        position: of the unit in the timer log.
        unit: the unit.
        record: its message; ``None`` when it is not there any more.
    """

    position: int
    unit: Unit
    record: Record | None


class SlotReading:
    """The units of one slot as they were when the reading began.

    Args:
        timer: reads units and messages.
        second_ms: the slot.
        newest: position of its newest unit.

    Attributes:
        second_ms, newest: as given.
        taken_back: what messages of this second take others back.
        regular: the units lie in the order of their messages, so that a place in the commit log is a place in the slot.
    """

    def __init__(self, timer: Timer, second_ms: int, newest: int) -> None:
        self._timer = timer
        self._walk: Iterator[tuple[int, Unit]] = timer.files.chain(newest)
        self._marks: list[int] = []
        self._requests: list[int] = []
        self._before = -1
        self.count = 0
        self.second_ms = second_ms
        self.newest = newest
        self.taken_back = TakenBack()
        self.regular = True
        self.ready = False

    def prepare(self) -> Step:
        """Do one step of the first walk."""
        walked = 0
        for position, unit in islice(self._walk, WALK_UNITS):
            walked += 1
            if self.count % BATCH == 0:
                self._marks.append(position)
            if self._before >= 0 and unit.physical >= self._before:
                self.regular = False
            self._before = unit.physical
            if unit.deletes and not unit.rolls:
                self._requests.append(position)
            self.count += 1
        if walked == WALK_UNITS:
            return Step.MORE
        for position in self._requests[-BATCH:]:
            unit_there = self._timer.files.log.unit(position)
            record = None if unit_there is None else self._timer.record(unit_there)
            if record is not None:
                self.taken_back.add(record)
        del self._requests[-BATCH:]
        self.ready = not self._requests
        return Step.READY if self.ready else Step.MORE

    def batch(self, position: int, physical: int) -> list[Found]:
        """Return the oldest units that are not done, :data:`BATCH` at most; none when all are done.

        Args:
            position: units before this place of the timer log are done.
            physical: where the slot is regular, units of messages before this byte of the commit log are done.
        """
        while self._marks:
            units = list(islice(self._timer.files.chain(self._marks[-1]), self._size_of_last()))
            left = [
                (at, unit)
                for at, unit in reversed(units)
                if at >= position and (not self.regular or unit.physical >= physical)
            ]
            if left:
                return self._read(left)
            self.count -= len(units) or BATCH
            self._marks.pop()
        return []

    def _size_of_last(self) -> int:
        return self.count - (len(self._marks) - 1) * BATCH

    def _read(self, units: list[tuple[int, Unit]]) -> list[Found]:
        found, left_bytes = [], BATCH_BYTES
        for at, unit in units:
            if left_bytes <= 0:
                break
            left_bytes -= unit.size
            found.append(Found(at, unit, self._timer.record(unit)))
        return found
