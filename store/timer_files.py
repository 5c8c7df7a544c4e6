"""Wheel, timer log and check as one: what is opened, added to, and made durable together.

The log alone is the truth; the wheel says where to begin in it. Three steps make a flush: the log's new units become
durable, then the slots that point to them, then the check with the position up to which both are. What a start finds
behind that position it takes back, for it follows from the timer topic: the units behind are cut off, and slots that
point to them go back along the chain.

A store that a Java broker wrote has a check that does not fit its log exactly. There, units behind the position are
kept as far as they are whole, and their slots point to them (TimerMessageStore.java, recover). A wheel that is missing
is made from the log; a log that is missing, or shorter than what was durable, is begun anew, and the owner reads the
topic again.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.store.timer_check import TimerCheck, load_check, save_check
from understudy.store.timer_log import DELETE, MAGIC, MOST_WAIT_MS, NONE, ROLL, UNIT_BYTES, TimerLog, Unit
from understudy.store.timer_wheel import SLOTS, Slot, TimerWheel

log = get_logger("store.timer")


@attrs.frozen
class Flush:
    """What one flush makes durable, in this order: files and folders of the log, slots, check."""

    files: set[str]
    folders: set[str]
    slots: Mapping[int, Slot]
    check: TimerCheck


@attrs.frozen
class Opened:
    """What a start found.

    Attributes:
        check: the saved one, with what of it still holds.
        anew: the timer log begins anew: every message of the topic must be read again.
        exact: the check was written by us, so that its queue offset is exact.
    """

    check: TimerCheck
    anew: bool
    exact: bool


class TimerFiles:
    """The files of one timer. None exists before the first unit.

    Args:
        disk: where they are.
        folder: the store's.
        file_bytes: length of a file of the timer log.
        precision_ms: milliseconds of one slot.
        slots: how many the wheel has.

    Attributes:
        slots: as given.
        wheel, log: as they are now.
        waiting: units in slots that are not done, less those that delete.
    """

    def __init__(self, disk: Disk, folder: str, file_bytes: int, precision_ms: int, slots: int = SLOTS) -> None:
        self._disk = disk
        self._config = os.path.join(folder, "config")
        self._check_path = os.path.join(self._config, "timercheck")
        self._precision_ms = precision_ms
        self.slots = slots
        self.wheel = TimerWheel(disk, os.path.join(folder, "timerwheel"), slots)
        self.log = TimerLog(disk, os.path.join(folder, "timerlog"), file_bytes)
        self.waiting = 0

    # --- opening -----------------------------------------------------------------------------------------------

    def open(self, read_ms: int) -> Opened:
        """Read the files and make them agree. Blocking.

        Args:
            read_ms: what is known from elsewhere of the second that is delivered next; the later one counts.
        """
        check, exact = load_check(self._disk, self._check_path)
        check = attrs.evolve(check, read_ms=max(check.read_ms, read_ms))
        from_tick = check.read_ms // self._precision_ms
        self.log.load()
        self.wheel.load(from_tick)
        noted = check != TimerCheck(read_ms=check.read_ms)  # without a check, nobody knows what of the rest was durable
        if not (noted and self.log.has_files) or (exact and not self.log.ends_with_unit(check.log_position)):
            if check.log_position or self.wheel.exists:
                log.warning("the timer log is not there, the timer topic is read again", check=check)
            self._begin_anew()
            return Opened(attrs.evolve(check, log_position=0, queue_offset=0), True, exact)
        if exact:
            self._take_back(check.log_position)
        if not self.wheel.exists:
            self._point_from(self.log.begin, from_tick)
        elif not exact:
            self._point_from(self.log.file_before(check.log_position), from_tick)
            if any(slot.last >= self.log.end for slot in self.wheel.slots()):
                log.warning("the timer wheel points behind its log, made anew from the log", end=self.log.end)
                self._remove_wheel()
                self._point_from(self.log.begin, from_tick)
        self._count(from_tick)
        return Opened(check, False, exact)

    def _begin_anew(self) -> None:
        self.log.remove()
        self._remove_wheel()

    def _remove_wheel(self) -> None:
        if self.wheel.exists:
            self.wheel.close()
            self._disk.remove(self.wheel.path)
            self._disk.sync_folder(os.path.dirname(self.wheel.path))
        self.wheel = TimerWheel(self._disk, self.wheel.path, self.slots)

    def _take_back(self, position: int) -> None:
        """Lead the slots that point behind *position* back, durably, and cut the log there."""
        for _, unit in self.log.units(position):
            slot = self.wheel.get(unit.due_ms // self._precision_ms)
            while slot is not None and slot.last >= position:
                newest = next((each for _, each in self.log.units(slot.last)), None)
                if newest is None:
                    break
                slot = _without(slot, newest)
                self.wheel.put(slot)
        if self.wheel.changed:  # first: once the log is cut, nobody can tell which slots pointed behind it
            self.wheel.write(self.wheel.take_changed())
            self.wheel.written()
        self.log.continue_at(position)

    def _point_from(self, start: int, from_tick: int) -> None:
        """Let slots point to the units from *start* on that they do not know; the log ends behind the last of them."""
        end = start
        for position, unit in self.log.units(start):
            end = position + UNIT_BYTES
            tick = unit.due_ms // self._precision_ms
            slot = self.wheel.get(tick)
            if tick >= from_tick and (slot is None or slot.last < position):
                slot = slot or Slot(tick, position, NONE, 0)
                self.wheel.put(slot._replace(last=position, num=slot.num + _weight(unit)))
        self.log.continue_at(end)

    def _count(self, from_tick: int) -> None:
        end_ms = (from_tick + self.slots) * self._precision_ms
        due_ms = self.next_due_ms(from_tick * self._precision_ms, end_ms)
        self.waiting = 0
        while due_ms is not None:
            slot = self.slot(due_ms)
            self.waiting += slot.num if slot is not None else 0
            due_ms = self.next_due_ms(due_ms + self._precision_ms, end_ms)

    # --- units -------------------------------------------------------------------------------------------------

    def slot(self, time_ms: int) -> Slot | None:
        """Return the slot of a second that holds something; ``None`` otherwise."""
        slot = self.wheel.get(time_ms // self._precision_ms)
        return None if slot is None or slot.last == NONE else slot

    def next_due_ms(self, from_ms: int, end_ms: int) -> int | None:
        """Return the first second from *from_ms* on, before *end_ms*, that holds something."""
        tick = self.wheel.next_occupied(from_ms // self._precision_ms, end_ms // self._precision_ms)
        while tick is not None and self.slot(tick * self._precision_ms) is None:
            self.wheel.clear(tick)
            tick = self.wheel.next_occupied(tick + 1, end_ms // self._precision_ms)
        return None if tick is None else tick * self._precision_ms

    def waiting_within(self, from_ms: int, bounds: Sequence[int]) -> list[int]:
        """Return how many messages wait for the seconds from *from_ms* on, in ranges that end after so many seconds."""
        ticks = [bound * 1000 // self._precision_ms for bound in bounds]
        numbers = self.wheel.numbers(from_ms // self._precision_ms, ticks[-1])
        return [sum(numbers[start:end]) for start, end in pairwise((0, *ticks))]

    def add(
        self,
        time_ms: int,
        write_ms: int,
        physical: int,
        size: int,
        topic_hash: int,
        *,
        rolls: bool = False,
        deletes: bool = False,
    ) -> int:
        """Add a message to the slot of *time_ms* and return the position of its unit.

        Args:
            time_ms: a multiple of the precision.
            write_ms: the wheel's time, as far as the unit's fields can hold it.
            physical, size: of its record in the commit log, in bytes.
            topic_hash: of the topic it is for.
            rolls, deletes: see :class:`Unit`.

        Raises ``OSError`` when the disk is full; nothing has changed then.
        """
        tick = time_ms // self._precision_ms
        slot = self.wheel.get(tick) or Slot(tick, NONE, NONE, 0)
        write_ms = max(write_ms, time_ms - MOST_WAIT_MS)
        magic = MAGIC | ROLL * rolls | DELETE * deletes
        unit = Unit(slot.last, magic, write_ms, time_ms - write_ms, physical, size, topic_hash)
        position = self.log.append(unit)
        first = position if slot.first == NONE or slot.last == NONE else slot.first
        self.wheel.put(Slot(tick, first, position, slot.num + _weight(unit)))
        self.waiting += _weight(unit)
        return position

    def chain(self, position: int) -> Iterator[tuple[int, Unit]]:
        """Return the unit at *position* and those before it of its slot, newest first."""
        while position != NONE:
            unit = self.log.unit(position)
            if unit is None:
                log.error("a unit of the timer log is not there", position=position)
                return
            yield position, unit
            if unit.previous >= position:
                return
            position = unit.previous

    def done(self, from_ms: int, to_ms: int) -> None:
        """Forget the slots from *from_ms* on, before *to_ms*: everything in them is done."""
        due_ms = self.next_due_ms(from_ms, to_ms)
        while due_ms is not None:
            slot = self.slot(due_ms)
            self.waiting -= slot.num if slot is not None else 0
            self.wheel.clear(due_ms // self._precision_ms)
            due_ms = self.next_due_ms(due_ms, to_ms)

    def drop_tail(self, is_true: Callable[[Unit], bool]) -> bool:
        """Take units back from the end until one *is_true*; return whether any was. :meth:`cut` must follow."""
        end = self.log.end
        while (last := self.log.last()) is not None and not is_true(last[1]):
            position, unit = last
            slot = self.wheel.get(unit.due_ms // self._precision_ms)
            if slot is not None and slot.last == position:
                self.wheel.put(_without(slot, unit))
                self.waiting -= _weight(unit)
            self.log.end = position
        return self.log.end != end

    def cut(self, check: TimerCheck) -> None:
        """Make what :meth:`drop_tail` left and *check* durable, then forget what it took back. Blocking."""
        flush = self.begin_flush(check)
        done = False
        try:
            self.flush(flush)
            done = True
        finally:
            self.end_flush(flush, done)
        self.log.continue_at(self.log.end)

    # --- durability --------------------------------------------------------------------------------------------

    def begin_flush(self, check: TimerCheck) -> Flush:
        """Return what :meth:`flush` makes durable; *check* gets the position of the log as it is now."""
        files, folders = self.log.take_changed()
        return Flush(files, folders, self.wheel.take_changed(), attrs.evolve(check, log_position=self.log.end))

    def flush(self, flush: Flush) -> None:
        """Make it durable. Blocking, may run in a thread. Raises ``OSError``."""
        self.log.sync(flush.files, flush.folders)
        if flush.slots:
            self.wheel.write(flush.slots)
        make_folder_durably(self._disk, self._config)
        save_check(self._disk, self._check_path, flush.check)

    def end_flush(self, flush: Flush, done: bool) -> None:
        """Take note of whether :meth:`flush` was *done*; otherwise the next one does it again."""
        if done:
            self.wheel.written()
        else:
            self.wheel.not_written()
            self.log.not_synced(flush.files, flush.folders)

    def close(self) -> None:
        """Give the files back."""
        self.log.close()
        self.wheel.close()


def _without(slot: Slot, newest: Unit) -> Slot:
    first = NONE if newest.previous == NONE else slot.first
    return slot._replace(first=first, last=newest.previous, num=slot.num - _weight(newest))


def _weight(unit: Unit) -> int:
    return -1 if unit.deletes else 1
