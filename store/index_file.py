"""One file of the key index.

A file has a 40-byte header, hash slots of 4 bytes and entries of 20 bytes (IndexFile.java)::

    0 begin time 8 | 8 end time 8 | 16 begin offset 8 | 24 end offset 8 | 32 used slots 4 | 36 entry count 4
    slot: number of its newest entry | entry: hash 4, physical offset 8, seconds after begin 4, older entry 4

Entry 0 is not used, so an empty file has count 1.
"""

from __future__ import annotations

import os.path
import struct
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from sys import byteorder

import attrs

from understudy.store.mapped_files import MappedFiles

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
#: Most entries written in one go.
ENTRIES_AT_ONCE_MAX = 128
#: Entries that a search looks at before others have their turn.
ENTRIES_IN_A_STEP = 256
SECONDS_MAX = 0x7FFFFFFF
#: Slots that are compared before others have their turn.
_SLOTS_IN_A_STEP = 4096
#: Entries of a chain that are looked at for one.
_CHAIN_MAX = 100_000
HEADER_BYTES = HEADER.size
ENTRY_BYTES = ENTRY.size


@lru_cache(maxsize=ENTRIES_AT_ONCE_MAX)
def entries_at_once(count: int) -> struct.Struct:
    """Return the layout of *count* entries in a row, at most :data:`ENTRIES_AT_ONCE_MAX`."""
    return struct.Struct(">" + "iqii" * count)


@attrs.frozen
class Geometry:
    """Sizes that all index files of a store share.

    Args:
        slots: hash slots of a file.
        capacity: a file is full when its count reaches this.
    """

    slots: int
    capacity: int

    @property
    def entries_at(self) -> int:
        """Position of entry 0."""
        return HEADER_BYTES + 4 * self.slots

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        return self.entries_at + ENTRY_BYTES * self.capacity


class IndexFile:
    """One index file and its header; the index writes the fields directly.

    Attributes:
        view: the mapped file; None when it is not mapped now.
        changed: something was written since the file was last made durable.
        room: entries below this number have their space on the disk, as the slots have when it is not 0.
    """

    __slots__ = (
        "_geometry",
        "_mapped",
        "begin_ms",
        "begin_offset",
        "changed",
        "count",
        "end_ms",
        "end_offset",
        "name",
        "path",
        "room",
        "used_slots",
        "view",
    )

    def __init__(self, path: str, geometry: Geometry, mapped: MappedFiles) -> None:
        self.path = path
        self.room = 0
        self.name = os.path.basename(path)
        self._geometry = geometry
        self._mapped = mapped
        self.begin_ms = self.end_ms = self.begin_offset = self.end_offset = self.used_slots = 0
        self.count = 1
        self.changed = False
        self.view: memoryview | None = None

    def unmapped(self, start: int) -> None:
        """Forget the view."""
        self.view = None

    def mapped_view(self) -> memoryview:
        """Return the file's bytes, mapped if they are not; a new file is made when there is none."""
        if self.view is None:
            self.view = self._mapped.view(self.path, self._geometry.file_bytes, self, 0)
        return self.view

    def read_header(self) -> None:
        """Take over what the file says."""
        header = HEADER.unpack_from(self.mapped_view(), 0)
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, count = header
        self.count = max(count, 1)

    def write_header(self) -> None:
        """Write the header."""
        HEADER.pack_into(
            self.mapped_view(),
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return (hash, physical offset, seconds, older entry) of one entry."""
        entry: tuple[int, int, int, int] = ENTRY.unpack_from(
            self.mapped_view(), self._geometry.entries_at + number * ENTRY_BYTES
        )
        return entry

    def write_entry(self, number: int, entry: tuple[int, int, int, int]) -> None:
        """Write (hash, physical offset, seconds, older entry) of one entry that is there."""
        ENTRY.pack_into(self.mapped_view(), self._geometry.entries_at + number * ENTRY_BYTES, *entry)

    def first_at(self, physical: int) -> int:
        """Return the number of the first entry of a record at *physical* or later: they are in the order of the log."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def hashes_at(self, physical: int) -> set[int]:
        """Return the hashes of the entries of the record at *physical*."""
        number, found = self.first_at(physical), set()
        while number < self.count and (entry := self.entry(number))[1] == physical:
            found.add(entry[0])
            number += 1
        return found

    def is_linked(self, number: int) -> bool:
        """Whether an entry stands in the chain of its own hash, as one that has not rotted does."""
        slots = self._geometry.slots
        unsigned, _, _, older = self.entry(number)
        if older:
            return 0 < older < number and self.entry(older)[0] % slots == unsigned % slots
        newer: int = SLOT.unpack_from(self.mapped_view(), HEADER_BYTES + unsigned % slots * 4)[0]
        for _ in range(_CHAIN_MAX):
            if newer <= number:
                return newer == number
            if newer >= self.count:
                return False
            newer = self.entry(newer)[3]
        return False

    def has_entries(self, number: int, hashes: list[int], physical: int, store_ms: int) -> bool:
        """Whether the entries from *number* on, not the first of the file, are those of one record.

        Args:
            number: of the first of them.
            hashes: of the record, in their order.
            physical, store_ms: where it begins, and its store time.
        """
        count = len(hashes)
        if number < 2 or number + count > self.count or not 0 < count <= ENTRIES_AT_ONCE_MAX:
            return False
        values = entries_at_once(count).unpack_from(
            self.mapped_view(), self._geometry.entries_at + number * ENTRY_BYTES
        )
        same = values[1::4] == (physical,) * count and values[2::4] == (self.seconds_of(store_ms),) * count
        return same and values[0::4] == tuple(hashes)

    def seconds_of(self, store_ms: int) -> int:
        """Return what an entry, other than the first, says of the store time of its record."""
        seconds = (store_ms - self.begin_ms) // 1000 if self.begin_ms > 0 else 0
        return min(max(seconds, 0), SECONDS_MAX)

    def mend_header(self, store_ms: Callable[[int, int], int | None], *, newest: bool) -> bool:
        """Take the header from the entries where it does not fit them, and tell whether that was so.

        Args:
            store_ms: returns the store time of the record with a hash at a physical offset, if it is there.
            newest: the file is still written to, and knows its end; any other one is full.
        """
        before = (self.count, self.begin_offset, self.end_offset, self.begin_ms, self.end_ms)
        if not newest and any(self.entry(self._geometry.capacity - 1)):
            self.count = self._geometry.capacity
        if not 1 < self.count <= self._geometry.capacity:
            return False
        (first, begin, _, _), (last, end, _, _) = self.entry(1), self.entry(self.count - 1)
        begin_ms, end_ms = store_ms(first, begin), store_ms(last, end)
        if begin_ms is not None:
            self.begin_offset, self.begin_ms = begin, begin_ms
        if end_ms is not None and not newest:
            self.end_offset, self.end_ms = end, end_ms
        if before == (self.count, self.begin_offset, self.end_offset, self.begin_ms, self.end_ms):
            return False
        self.write_header()
        return True

    def mending_links(self, *, newest: bool) -> Iterator[str]:
        """Compare chains and slots with the entries, and write anew what differs.

        Args:
            newest: it is still written to.

        Yields:
            Now and then nothing, so that others have their turn, and what was written anew.
        """
        geometry, end = self._geometry, self.count
        slots, slot_count = array("i", bytes(4 * geometry.slots)), geometry.slots
        for begin in range(1, end, ENTRIES_IN_A_STEP):
            stop = min(begin + ENTRIES_IN_A_STEP, end)
            entries = self.mapped_view()[
                geometry.entries_at + begin * ENTRY_BYTES : geometry.entries_at + stop * ENTRY_BYTES
            ]
            for number, (unsigned, physical, seconds, older) in enumerate(ENTRY.iter_unpack(entries), begin):
                slot = unsigned % slot_count
                if older != slots[slot]:
                    self.write_entry(number, (unsigned, physical, seconds, slots[slot]))
                    yield "chain"
                slots[slot] = number
            yield ""
        for first in range(0, geometry.slots, _SLOTS_IN_A_STEP):
            wanted = slots[first : first + _SLOTS_IN_A_STEP]
            packed = array("i", wanted)
            if byteorder == "little":
                packed.byteswap()
            at = HEADER_BYTES + 4 * first
            if self.mapped_view()[at : at + 4 * len(wanted)] != packed.tobytes():
                for offset, number in enumerate(wanted):
                    present: int = SLOT.unpack_from(self.mapped_view(), at + 4 * offset)[0]
                    if present != number and not (newest and end <= present < self.count):
                        SLOT.pack_into(self.mapped_view(), at + 4 * offset, number)
                        yield "slot"
            yield ""

    def find(
        self, wanted: int, max_num: int, begin_ms: int, end_ms: int, found: list[int], stop_below: int = -1
    ) -> Iterator[None]:
        """Add the physical offsets under hash *wanted* to *found*, newest first, until it has *max_num*.

        Args:
            begin_ms, end_ms: only records stored in this range.
            stop_below: end at entries of records before this physical offset.

        Yields:
            Now and then, so that others have their turn; the file must not be deleted when it goes on.
        """
        slot_at = HEADER_BYTES + wanted % self._geometry.slots * 4
        number: int = SLOT.unpack_from(self.mapped_view(), slot_at)[0]
        if not 0 < number <= self.count or self.count <= 1:
            return
        looked = 0
        while len(found) < max_num:
            unsigned, physical, seconds, older = self.entry(number)
            if seconds < 0 or physical < stop_below:
                break
            stored_ms = self.begin_ms + seconds * 1000
            if unsigned == wanted and begin_ms <= stored_ms <= end_ms:
                found.append(physical)
            # Entries of a slot only point back; anything else is damage and would never end.
            if not 0 < older < number or stored_ms < begin_ms:
                break
            number = older
            looked += 1
            if not looked % ENTRIES_IN_A_STEP:
                yield

    def undo(self, count: int) -> None:
        """Take entries off the end until *count* is reached, newest first: each slot gets back what it had before."""
        view, slots = self.mapped_view(), self._geometry.slots
        newest = self.count - 1
        # When the process died, entries are there that the header does not count.
        while newest + 1 < self._geometry.capacity and any(self.entry(newest + 1)):
            newest += 1
        for number in range(newest, count - 1, -1):
            unsigned, _, _, older = self.entry(number)
            slot_at = HEADER_BYTES + unsigned % slots * 4
            if SLOT.unpack_from(view, slot_at)[0] == number:
                SLOT.pack_into(view, slot_at, older)
                if older == 0:
                    self.used_slots -= 1
        start = self._geometry.entries_at + count * ENTRY_BYTES
        end = self._geometry.entries_at + (newest + 1) * ENTRY_BYTES
        if end > start:
            view[start:end] = bytes(end - start)
        self.count = count

    def undo_some(self, physical: int) -> bool:
        """Take entries of records at *physical* and after it off the end, a step's worth; False when there are none."""
        count, least = self.count, max(self.count - ENTRIES_IN_A_STEP, 1)
        while count > least and self.entry(count - 1)[1] >= physical:
            count -= 1
        if count == self.count:
            return False
        self.undo(count)
        return True

    def rebuild_slots(self, count: int) -> None:
        """Make all slots anew from the first *count* entries, whatever the slots hold."""
        view, geometry = self.mapped_view(), self._geometry
        slots = array("i", bytes(4 * geometry.slots))
        entries = view[geometry.entries_at + ENTRY_BYTES : geometry.entries_at + count * ENTRY_BYTES]
        for number, (unsigned, _, _, _) in enumerate(ENTRY.iter_unpack(entries), 1):
            slots[unsigned % geometry.slots] = number
        if byteorder == "little":
            slots.byteswap()
        view[HEADER_BYTES : geometry.entries_at] = slots.tobytes()
        self.count = count
