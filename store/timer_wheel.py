"""The timer wheel: for each second, where the newest unit of the timer log lies that is due then.

The reference's file (TimerWheel.java, Slot.java): 2 x 604800 slots of 32 bytes, a slot's number being its time modulo
their number. A slot counts only for the time it names, so what was due long ago is simply overwritten.

Nothing is written to the file before :meth:`TimerWheel.write`, which the owner calls when the units that the slots
point to are durable. So after any crash the file points to nothing that is not there, and memory is bounded by what
changes between two writes and by one byte for each slot.
"""

from __future__ import annotations

import os.path
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from understudy.runtime.disk import Disk, File
from understudy.runtime.log import get_logger

log = get_logger("store.timer_wheel")

WINDOW_SLOTS = 7 * 24 * 3600
SLOTS = 2 * WINDOW_SLOTS
_SLOT = struct.Struct(">qqqii")
SLOT_BYTES = _SLOT.size
_BLOCK_SLOTS = 8192
_OCCUPIED = b"\x01"


class Slot(NamedTuple):
    """One slot.

    Attributes:
        tick: its time in units of the precision.
        first, last: positions in the timer log of its oldest and newest unit.
        num: units added less units that delete.
        magic: not used.
    """

    tick: int
    first: int
    last: int
    num: int
    magic: int = 0


class TimerWheel:
    """The slots of one store. No file exists before the first :meth:`write`.

    Args:
        disk: where the file is.
        path: the file.
        slots: how many there are.

    Attributes:
        damaged: the file has another length than a wheel: it must be made anew from the timer log.
    """

    def __init__(self, disk: Disk, path: str, slots: int = SLOTS) -> None:
        self._disk = disk
        self._slots = slots
        self._file_bytes = slots * SLOT_BYTES
        self.path = path
        self._file: File | None = None
        self._changed: dict[int, Slot] = {}
        self._being_written: dict[int, Slot] = {}
        self._occupied = bytearray()
        self.damaged = False

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def load(self, from_tick: int) -> None:
        """Read which slots from *from_tick* on hold something. Blocking."""
        if not self._disk.exists(self.path):
            return
        size = self._disk.size(self.path)
        if size != self._file_bytes:
            if size:
                log.warning("not a timer wheel, made anew from the timer log", path=self.path, bytes=size)
            self.damaged = True
            self._disk.remove(self.path)
            self._disk.sync_folder(os.path.dirname(self.path))
            return
        self._file = self._disk.open(self.path, create=False)
        for slot in self.slots():
            if from_tick <= slot.tick < from_tick + self._slots:
                self._occupy(slot.tick)

    def slots(self) -> Iterator[Slot]:
        """Return every slot of the file that was ever used, in order of its number. Blocking."""
        if self._file is None:
            return
        empty = bytes(_BLOCK_SLOTS * SLOT_BYTES)
        for start in range(0, self._file_bytes, len(empty)):
            block = self._file.read_at(start, min(len(empty), self._file_bytes - start))
            if block == empty[: len(block)]:
                continue
            for slot_number, fields in enumerate(_SLOT.iter_unpack(block), start // SLOT_BYTES):
                slot = Slot(*fields)
                if slot.tick > 0 and slot.tick % self._slots == slot_number:
                    yield slot

    def get(self, tick: int) -> Slot | None:
        """Return the slot of *tick*; ``None`` when nothing was ever due then."""
        slot_number = tick % self._slots
        slot = self._changed.get(slot_number) or self._being_written.get(slot_number)
        if slot is None:
            if self._file is None:
                return None
            slot = Slot(*_SLOT.unpack(self._file.read_at(slot_number * SLOT_BYTES, SLOT_BYTES)))
        return slot if slot.tick == tick else None

    def put(self, slot: Slot) -> None:
        """Set one slot; it is in the file with the next write."""
        self._changed[slot.tick % self._slots] = slot
        self._occupy(slot.tick)

    def clear(self, tick: int) -> None:
        """Forget that *tick* holds something: it is done."""
        if self._occupied:
            self._occupied[tick % self._slots] = 0

    def next_occupied(self, tick: int, end: int) -> int | None:
        """Return the first tick from *tick* on, and before *end*, that holds something; ``None`` when none does."""
        end = min(end, tick + self._slots)
        if not self._occupied or tick >= end:
            return None
        low, high = tick % self._slots, (end - 1) % self._slots + 1
        if low < high:
            ranges = [(low, high, tick - low)]
        else:
            ranges = [(low, self._slots, tick - low), (0, high, tick - low + self._slots)]
        for start, stop, base in ranges:
            at = self._occupied.find(_OCCUPIED, start, stop)
            while at >= 0:
                if self.get(base + at) is not None:
                    return base + at
                at = self._occupied.find(_OCCUPIED, at + 1, stop)
        return None

    def numbers(self, tick: int, count: int) -> list[int]:
        """Return how many messages each of *count* ticks from *tick* on holds. Some 10 ms for a day of seconds."""
        found = [0] * count
        if self._file is not None:
            start = 0
            while start < count:
                slot_number = (tick + start) % self._slots
                wanted = min(count - start, self._slots - slot_number)
                block = self._file.read_at(slot_number * SLOT_BYTES, wanted * SLOT_BYTES)
                for number, (of, _, _, num, _) in enumerate(_SLOT.iter_unpack(block), start):
                    if of == tick + number:
                        found[number] = num
                start += wanted
        for slots in (self._being_written, self._changed):
            for slot in slots.values():
                if tick <= slot.tick < tick + count:
                    found[slot.tick - tick] = slot.num
        return found

    # --- writing -----------------------------------------------------------------------------------------------

    @property
    def changed(self) -> int:
        """How many slots differ from the file."""
        return len(self._changed)

    def take_changed(self) -> Mapping[int, Slot]:
        """Return what is to be written now, by number; :meth:`written` or :meth:`not_written` ends it."""
        self._being_written, self._changed = self._changed, {}
        return self._being_written

    def write(self, slots: Mapping[int, Slot]) -> None:
        """Write *slots* and wait until they are durable. Blocking, may run in a thread."""
        file = self._file
        if file is None:
            file = self._disk.open(self.path)
            file.truncate(self._file_bytes)
        for slot_number in sorted(slots):
            file.write_at(slot_number * SLOT_BYTES, _SLOT.pack(*slots[slot_number]))
        file.sync()
        if self._file is None:
            self._disk.sync_folder(os.path.dirname(self.path))
            self._file = file

    def written(self) -> None:
        """Take note that what :meth:`take_changed` gave is durable."""
        self._being_written = {}

    def not_written(self) -> None:
        """Take note that it is not, and must be written again."""
        self._changed = {**self._being_written, **self._changed}
        self._being_written = {}

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _occupy(self, tick: int) -> None:
        if not self._occupied:
            self._occupied = bytearray(self._slots)
        self._occupied[tick % self._slots] = 1
