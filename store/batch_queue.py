"""Batch consume queues: queues whose entries are whole client batches stored as one record.

A unit has 46 bytes: physical offset 8, record size 4, tags code 8, store time 8, first queue offset 8, messages in the
record 2, compacted offset 4 (-1), reserved 4 (BatchConsumeQueue.java). A queue offset is found by searching the first
queue offsets, not by position. A topic has such queues when its attribute ``queue.type`` is ``BatchCQ``, which shows as
a folder here.
"""

from __future__ import annotations

import os.path
import struct
from bisect import bisect_right

from understudy.runtime.disk import Disk
from understudy.store.mapped_files import MappedFiles
from understudy.store.segments import file_name, numbered_files

UNIT = struct.Struct(">qiqqqhii")
UNIT_BYTES = UNIT.size
_FILES_MAPPED = 16


class BatchQueue:
    """One batch queue; its units are few (one for a whole batch) and searched in place.

    Attributes:
        position: bytes of units before the write position, counted from the start of the first file's name.
        next_offset: queue offset of the next message.
        min_offset: first queue offset whose record is in the log.
    """

    def __init__(self, disk: Disk, topic: str, queue_id: int, folder: str, file_size: int, mapped: MappedFiles) -> None:
        self._disk = disk
        self._mapped = mapped
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.file_size = file_size
        self.starts = numbered_files(disk, folder)
        self.position = self.starts[0] if self.starts else 0
        self.next_offset = 0
        self.min_offset = 0
        self.dirty = False

    def unmapped(self, start: int) -> None:
        """Nothing to forget: views are asked for at each use."""

    def unit(self, number: int) -> tuple[int, int, int, int, int, int, int, int] | None:
        """Return the unit at position *number* * 46; None when its file is missing."""
        position = number * UNIT_BYTES
        start = position - position % self.file_size
        if start not in self.starts:
            return None
        view = self._mapped.view(self._path(start), self.file_size, self, start)
        unit: tuple[int, int, int, int, int, int, int, int] = UNIT.unpack_from(view, position - start)
        return unit

    def last_unit(self) -> tuple[int, int, int, int, int, int, int, int] | None:
        """Return the newest unit; None for an empty queue."""
        return self.unit(self.position // UNIT_BYTES - 1) if self.next_offset else None

    def recover(self, limit: int) -> None:
        """Find the end: the first unit that is empty or points to *limit* or after it."""
        number = self._first
        while (unit := self.unit(number)) is not None and unit[1] > 0 and 0 <= unit[0] < limit and unit[5] > 0:
            number += 1
            self.next_offset = unit[4] + unit[5]
        self.position = number * UNIT_BYTES

    def put(self, physical: int, size: int, code: int, store_ms: int, first: int, count: int) -> None:
        """Append the unit of one record; one that is there already, or of a former life of the queue, is left alone.

        Args:
            physical: where the record begins in the log (bytes).
            size: its length (bytes).
            code: its tags code.
            store_ms: when it was stored (wall time).
            first: queue offset of the first message in it.
            count: how many messages it holds.
        """
        newest = self.last_unit()
        if newest is not None and newest[0] >= physical:
            return
        if first < self.next_offset:  # the queue was deleted and made again
            self._forget_from(first)
        start = self.position - self.position % self.file_size
        if start not in self.starts:
            self._disk.make_folder(self.folder)
            self.starts.append(start)
        view = self._mapped.view(self._path(start), self.file_size, self, start)
        UNIT.pack_into(view, self.position - start, physical, size, code, store_ms, first, count, -1, 0)
        self.position += UNIT_BYTES
        if self.next_offset == 0 and first > 0:
            self.min_offset = first
        self.next_offset = first + count
        self.dirty = True

    def _forget_from(self, offset: int) -> None:
        """Drop the units of queue offset *offset* and after it."""
        number = self.position // UNIT_BYTES
        while number > self._first and (unit := self.unit(number - 1)) is not None and unit[4] >= offset:
            number -= 1
        last = self.unit(number - 1) if number > self._first else None
        self.next_offset = last[4] + last[5] if last is not None else 0
        self.position = number * UNIT_BYTES
        self.clear_after_end()

    def find(self, offset: int) -> tuple[int, int, int, int, int, int, int, int] | None:
        """Return the unit that holds queue offset *offset*."""
        numbers = range(self._first, self.position // UNIT_BYTES)
        index = bisect_right(numbers, offset, key=self._first_offset) - 1
        unit = self.unit(numbers[index]) if index >= 0 else None
        return unit if unit is not None and offset < unit[4] + unit[5] else None

    def correct_min(self, log_min: int) -> int:
        """Return the first queue offset whose record is still in a log that starts at *log_min*."""
        numbers = range(self._first, self.position // UNIT_BYTES)
        index = bisect_right(numbers, log_min - 1, key=self._physical_offset)
        unit = self.unit(numbers[index]) if index < len(numbers) else None
        self.min_offset = unit[4] if unit is not None else self.next_offset
        return self.min_offset

    def cut(self, physical: int) -> None:
        """Drop the units of records at *physical* and after it, and zero what follows."""
        numbers = range(self._first, self.position // UNIT_BYTES)
        keep = self._first + bisect_right(numbers, physical - 1, key=self._physical_offset)
        last = self.unit(keep - 1) if keep > self._first else None
        self.next_offset = last[4] + last[5] if last is not None else 0
        self.position = keep * UNIT_BYTES
        self.clear_after_end()

    def clear_after_end(self) -> None:
        """Zero what lies after the write position and delete the files after it."""
        last = self.position - self.position % self.file_size
        for start in [start for start in self.starts if start > last]:
            self._mapped.drop(self._path(start))
            self._disk.remove(self._path(start))
            self.starts.remove(start)
        if last in self.starts:
            file = self._disk.open(self._path(last))
            try:
                file.truncate(self.position - last)
                file.truncate(self.file_size)
            finally:
                file.close()
            self.dirty = True

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        return [self._path(start) for start in self.starts]

    def close(self) -> None:
        """Give the files back."""
        for start in self.starts:
            self._mapped.drop(self._path(start))

    @property
    def _first(self) -> int:
        return self.starts[0] // UNIT_BYTES if self.starts else 0

    def _first_offset(self, number: int) -> int:
        unit = self.unit(number)
        return unit[4] if unit is not None else -1

    def _physical_offset(self, number: int) -> int:
        unit = self.unit(number)
        return unit[0] if unit is not None else -1

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, file_name(start))


class BatchQueues:
    """All batch queues of one store.

    Args:
        disk: where they are.
        folder: ``batchconsumequeue`` of the store.
        file_size: bytes of one file, rounded up to a multiple of 46.
    """

    def __init__(self, disk: Disk, folder: str, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file_size = -(-file_size // UNIT_BYTES) * UNIT_BYTES
        self._mapped = MappedFiles(disk, _FILES_MAPPED)
        self.by_key: dict[tuple[str, int], BatchQueue] = {}
        self.topics: set[str] = set()

    def load(self) -> None:
        """Find the queues; every topic with a folder here has batch queues."""
        for topic in self._disk.listdir(self._folder):
            for name in self._disk.listdir(os.path.join(self._folder, topic)):
                if name.isascii() and name.isdigit():
                    self.create(topic, int(name))

    def create(self, topic: str, queue_id: int) -> BatchQueue:
        """Return the queue, added if it is new; from then on the topic has batch queues."""
        self.topics.add(topic)
        key = (topic, queue_id)
        if key not in self.by_key:
            folder = os.path.join(self._folder, topic, str(queue_id))
            self.by_key[key] = BatchQueue(self._disk, topic, queue_id, folder, self._file_size, self._mapped)
        return self.by_key[key]

    def next_offsets_total(self) -> int:
        """Return the sum of the next offsets."""
        return sum(queue.next_offset for queue in self.by_key.values())

    def take_dirty(self) -> set[str]:
        """Return the files that may have changed since the last call."""
        paths: set[str] = set()
        for queue in self.by_key.values():
            if queue.dirty:
                paths.update(queue.paths())
                queue.dirty = False
        return paths

    def delete(self, topic: str, queue_id: int) -> None:
        """Delete one queue; its topic still has batch queues."""
        queue = self.by_key.pop((topic, queue_id))
        queue.close()
        self._disk.remove_tree(queue.folder)

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic."""
        for key in [key for key in self.by_key if key[0] == topic]:
            self.by_key.pop(key).close()
        self._disk.remove_tree(os.path.join(self._folder, topic))
        self.topics.discard(topic)

    def close(self) -> None:
        """Give every mapping back."""
        self._mapped.close()
