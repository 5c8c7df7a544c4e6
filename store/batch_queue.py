"""A batch consume queue: a queue whose entries are whole client batches stored as one record.

A unit has 46 bytes: physical offset 8, record size 4, tags code 8, store time 8, first queue offset 8, messages in the
record 2, compacted offset 4 (-1), reserved 4 (BatchConsumeQueue.java). A queue offset is found by searching the first
queue offsets, not by position. :mod:`understudy.store.batch_queues` has all of a store.
"""

from __future__ import annotations

import os.path
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import attrs

from understudy.runtime.disk import Disk
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.mapped_files import MappedFiles
from understudy.store.segments import file_name, numbered_files

UNIT = struct.Struct(">qiqqqhii")
UNIT_BYTES = UNIT.size
MOST_MESSAGES = 0x7FFF
"""Of one record: what fits into its unit."""
_NOT_COMPACTED = (-1, 0)
_ALLOCATE_UNITS = 128
_NOTHING = bytes(UNIT_BYTES)
"""No two units that follow each other have so many zeros in a row."""


class BatchUnit(NamedTuple):
    """One unit.

    Attributes:
        physical: where the record begins in the log (bytes).
        size: its length (bytes).
        code: its tags code.
        store_ms: when it was stored (wall time).
        first: queue offset of the first message in it.
        messages: how many it holds.
    """

    physical: int
    size: int
    code: int
    store_ms: int
    first: int
    messages: int

    @property
    def next_offset(self) -> int:
        """Queue offset behind its last message."""
        return self.first + self.messages

    @property
    def end(self) -> int:
        """Physical offset behind the record."""
        return self.physical + self.size


@attrs.frozen
class Changes:
    """What has to be made durable: files that were written, folders that got or lost files."""

    paths: set[str] = attrs.Factory(set)
    folders: set[str] = attrs.Factory(set)


class BatchQueue:
    """One batch queue; its units are few (one for a whole batch) and searched in place.

    Attributes:
        position: bytes of units before the write position, counted from the start of the first file's name.
        next_offset: queue offset of the next message to be written.
        max_offset: queue offset after the last message that readers may see.
        ends_before: the visible and the written end before units were dropped that are being entered again, else zeros.
        torn: recovery found units behind one that is lost.
        named: how the topic stands in records and in the index; no queue of its own.
    """

    def __init__(
        self,
        disk: Disk,
        topic: str,
        queue_id: int,
        folder: str,
        file_size: int,
        mapped: MappedFiles,
        changes: Changes,
    ) -> None:
        self._disk = disk
        self._mapped = mapped
        self._changes = changes
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.file_size = file_size
        self.named = ConsumeQueue(topic, queue_id, "", file_size)
        self.starts = numbered_files(disk, folder)
        if len(self.starts) > 1:
            self.file_size = self.starts[1] - self.starts[0]
        elif self.starts and (length := disk.size(self._path(self.starts[0]))) > file_size and not length % UNIT_BYTES:
            self.file_size = length
        self.position = self.starts[0] if self.starts else 0
        self.next_offset = 0
        self.max_offset = 0
        self.ends_before = 0, 0
        self.torn = False
        self._allocated = 0  # bytes of units whose space is taken

    def unmapped(self, start: int) -> None:
        """Nothing to forget: views are asked for at each use."""

    # Units

    @property
    def first(self) -> int:
        """Number of the first unit."""
        return self.starts[0] // UNIT_BYTES if self.starts else 0

    @property
    def end(self) -> int:
        """Number behind the last unit."""
        return self.position // UNIT_BYTES

    def number_from(self, offset: int) -> int:
        """Return the number of the unit that holds queue offset *offset*, or of the next one."""
        return self.first + bisect_right(range(self.first, self.end), offset, key=self._next_offset)

    def number_at(self, physical: int) -> int:
        """Return the number of the first unit whose record begins at *physical* or after it."""
        return self.first + bisect_right(range(self.first, self.end), physical - 1, key=self._physical_offset)

    def unit(self, number: int) -> BatchUnit | None:
        """Return the unit at position *number* * 46; None when its file is missing."""
        position = number * UNIT_BYTES
        start = position - position % self.file_size
        if start not in self.starts:
            return None
        view = self._mapped.view(self._path(start), self.file_size, self, start)
        return BatchUnit._make(UNIT.unpack_from(view, position - start)[:-2])

    def last_unit(self) -> BatchUnit | None:
        """Return the newest unit; None for an empty queue."""
        return self.unit(self.end - 1) if self.end > self.first else None

    @property
    def shown_end(self) -> int:
        """:attr:`max_offset`, to which what is being entered again counts."""
        return max(self.max_offset, self.ends_before[0])

    @property
    def written_end(self) -> int:
        """:attr:`next_offset`, to which what is being entered again counts."""
        return max(self.next_offset, self.ends_before[1])

    def make_room(self, count: int) -> None:
        """Take the space for *count* more units, with files for them. Raises ``OSError`` when the disk is full."""
        at, end = self.position, self.position + count * UNIT_BYTES
        while at < end:
            start = at - at % self.file_size
            stop = min(end, start + self.file_size)
            if start not in self.starts:
                self._add_file(start)
            if stop > self._allocated:
                until = min(max(stop, at + _ALLOCATE_UNITS * UNIT_BYTES), start + self.file_size)
                self._disk.allocate(self._path(start), at - start, until - at)
                self._allocated = until
            at = stop

    def append(self, unit: BatchUnit) -> None:
        """Write a unit behind the last one, whose messages come before its own. Raises ``OSError``."""
        self.extend((unit,))

    def extend(self, units: Sequence[BatchUnit]) -> None:
        """Write *units* behind the last one, in their order. Raises ``OSError``; none is written then."""
        self.make_room(len(units))
        done, position = 0, self.position
        while done < len(units):
            start = position - position % self.file_size
            view = self._mapped.view(self._path(start), self.file_size, self, start)
            self._changes.paths.add(self._path(start))
            for unit in units[done : done + (start + self.file_size - position) // UNIT_BYTES]:
                UNIT.pack_into(view, position - start, *unit, *_NOT_COMPACTED)
                position += UNIT_BYTES
                done += 1
        if units:
            self.position, self.next_offset = position, units[-1].next_offset

    def put(self, number: int, unit: BatchUnit) -> None:
        """Write the unit at position *number* * 46, which is there, anew."""
        position = number * UNIT_BYTES
        start = position - position % self.file_size
        view = self._mapped.view(self._path(start), self.file_size, self, start)
        UNIT.pack_into(view, position - start, *unit, *_NOT_COMPACTED)
        self._changes.paths.add(self._path(start))

    def find(self, offset: int) -> BatchUnit | None:
        """Return the unit that holds queue offset *offset*."""
        unit = self.find_from(offset)
        return unit if unit is not None and unit.first <= offset else None

    def find_from(self, offset: int) -> BatchUnit | None:
        """Return the unit that holds queue offset *offset*, or else the next one behind it; None behind the last."""
        number = self.number_from(offset)
        return self.unit(number) if number < self.end else None

    def units_from(self, offset: int) -> list[BatchUnit]:
        """Return the unit that holds queue offset *offset*, or else the next one, and all behind it."""
        numbers = range(self.number_from(offset), self.end)
        return [unit for unit in map(self.unit, numbers) if unit is not None]

    def min_offset(self, log_min: int) -> int:
        """Return the first queue offset whose record is still in a log that starts at *log_min*."""
        number, place = self.number_at(log_min), self._physical_offset
        before = [place(each) for each in range(max(number - 2, self.first), number)]
        if before != sorted(before):  # one has rotted, by which the search was misled; it may be the first itself
            number = next((each for each in range(self.first, self.end) if place(each) >= log_min), self.end)
            while number - 1 > self.first and place(number - 1) < place(number - 2):
                number -= 1
        unit = self.unit(number) if number < self.end else None
        following = self.unit(number + 1) if number + 1 < self.end else None
        if unit is None or following is None or following.physical == unit.physical:
            return unit.first if unit is not None else self.next_offset
        if unit.next_offset > following.first:  # it has rotted
            return max(following.first - unit.messages, 0)
        return unit.first

    # Ends

    def recover(self, limit: int) -> None:
        """Find the end in files that nobody has doubts about: the first unit that points to *limit* or after it.

        What is lost in them ends the queue, and whoever counts its messages will see.
        """
        used = self._used()
        if used is None:
            self.recover_all(limit, lambda unit: True)
        else:
            self._end_at(self.first + bisect_left(range(self.first, used), limit, key=self._physical_offset))

    def recover_all(self, limit: int, matches: Callable[[BatchUnit], bool]) -> None:
        """Find the end in files that may be damaged: the first unit that is empty, wrong, or points behind the log.

        Args:
            limit: physical offset where the log ends at most.
            matches: tells whether a unit is that of a record of this queue.
        """
        number, before = self.first, BatchUnit(-1, 0, 0, 0, 0, 0)
        for unit in self._all():
            follows = unit.size > 0 and unit.messages > 0 and unit.physical > before.physical
            if not follows or unit.first < before.next_offset or unit.physical >= limit or not matches(unit):
                break
            number, before = number + 1, unit
        self._end_at(number)
        self.torn = self._has_bytes_behind()

    def cut(self, physical: int) -> None:
        """Drop the units of records at *physical* and after it, and zero what follows."""
        self._keep(self.number_at(physical))

    def begin_again(self, physical: int) -> None:
        """Drop the same, as it will be entered again; until :meth:`end_again` nobody who had read it is sent back."""
        self.ends_before = self.shown_end, self.written_end
        self.cut(physical)

    def end_again(self) -> None:
        """Take what was entered for all that there is."""
        self.ends_before = 0, 0

    def forget_from(self, offset: int) -> None:
        """Drop the units of queue offset *offset* and after it: the queue was deleted and made again."""
        number = self.number_from(offset)
        unit = self.unit(number) if number < self.end else None
        if unit is not None and unit.first < offset:
            number += 1
        self._keep(number)

    def delete_before(self, log_min: int) -> None:
        """Delete leading files, never the last one with a unit, whose records are all before *log_min*."""
        while len(self.starts) > 1 and self.starts[1] < self.position:  # what numbers the next message stays
            last = self.unit(self.starts[1] // UNIT_BYTES - 1)
            if last is None or last.physical >= log_min:
                break
            self._delete_file(self.starts[0])

    def doubt(self) -> None:
        """Count everything as not durable: another process wrote it."""
        self._changes.paths.update(self.paths())
        self._note_folders()

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        return [self._path(start) for start in self.starts]

    # Inside

    def _next_offset(self, number: int) -> int:
        unit = self.unit(number)
        return unit.next_offset if unit is not None else -1

    def _physical_offset(self, number: int) -> int:
        unit = self.unit(number)
        return unit.physical if unit is not None else -1

    def _used(self) -> int | None:
        """Return the number of the unit behind the last that is not empty; ``None`` when an empty one comes before."""
        end = self.first
        for number, start in enumerate(self.starts):
            content = bytes(self._mapped.view(self._path(start), self.file_size, self, start)).rstrip(b"\0")
            if not content:
                continue
            follows = start == self.starts[0] + number * self.file_size == end * UNIT_BYTES
            if not follows or _NOTHING in content:
                return None
            end += -(-len(content) // UNIT_BYTES)
        return end

    def _all(self) -> Iterator[BatchUnit]:
        """Return the units of all files, whatever they hold, up to a file that is missing."""
        for number, start in enumerate(self.starts):
            if start != self.starts[0] + number * self.file_size:
                return
            view = self._mapped.view(self._path(start), self.file_size, self, start)
            yield from (BatchUnit._make(fields[:-2]) for fields in UNIT.iter_unpack(bytes(view)))

    def _end_at(self, number: int) -> None:
        self.position = number * UNIT_BYTES
        last = self.last_unit()
        self.next_offset = self.max_offset = last.next_offset if last is not None else 0

    def _keep(self, end: int) -> None:
        shown = self.max_offset
        self._end_at(end)
        self.max_offset = min(shown, self.next_offset)
        self._clear_after_end()

    def _clear_after_end(self) -> None:
        """Zero what lies after the write position and delete the files after it."""
        last = self.position - self.position % self.file_size
        for start in [start for start in self.starts if start > last]:
            self._delete_file(start)
        if last in self.starts:
            file = self._disk.open(self._path(last))
            try:
                file.truncate(self.position - last)
                file.truncate(self.file_size)
            finally:
                file.close()
            self._changes.paths.add(self._path(last))
        self._allocated = 0  # the space behind was given back

    def _has_bytes_behind(self) -> bool:
        last = self.position - self.position % self.file_size
        if self.starts and self.starts[-1] > last:
            return True
        if last not in self.starts:
            return False
        rest = bytes(self._mapped.view(self._path(last), self.file_size, self, last)[self.position - last :])
        return rest.count(0) != len(rest)

    def _add_file(self, start: int) -> None:
        if not self.starts:
            self._disk.make_folder(self.folder)
            self._note_folders()
        self._mapped.view(self._path(start), self.file_size, self, start)
        self.starts.append(start)
        self._changes.folders.add(self.folder)

    def _delete_file(self, start: int) -> None:
        path = self._path(start)
        self._mapped.drop(path)
        self._disk.remove(path)
        self._changes.paths.discard(path)
        self._changes.folders.add(self.folder)
        self.starts.remove(start)

    def _note_folders(self) -> None:
        topic_folder = os.path.dirname(self.folder)
        root = os.path.dirname(topic_folder)
        self._changes.folders.update((self.folder, topic_folder, root, os.path.dirname(root)))

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, file_name(start))
