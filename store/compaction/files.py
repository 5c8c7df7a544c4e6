"""The compaction log of one queue: its files, what they hold, and how records get in.

Readers and the one who adds are different threads, so what a file holds is said by its count, which grows last; nobody
reads units behind it.
"""

from __future__ import annotations

import os.path
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from understudy.format.record import BLANK, BLANK_MAGIC
from understudy.runtime.disk import Disk, Mapping
from understudy.store.batch_queue import UNIT, UNIT_BYTES, BatchUnit
from understudy.store.compaction.layout import END_UNIT, Copy, FileLengths, fits
from understudy.store.mapped_files import MappedFiles
from understudy.store.segments import file_name

TEMPORARY = ".compacting"
"""Ends the names of files that a round has written and that are not in their place yet."""
_CHUNK_BYTES = 1 << 20


class CompactedFile:
    """One file of the log and the file of units beside it.

    Args:
        log_folder, queue_folder: where the two are.
        start: the position in the log where it begins; its name.
        lengths: of the two files.
        mapped: the files that are mapped.
        suffix: ends the names of both for now.

    Attributes:
        count: records in it.
        end: bytes of records in it.
        first, last: queue offsets of the first and the last of them; -1 without any.
        is_closed: nothing can be added.
    """

    def __init__(
        self,
        log_folder: str,
        queue_folder: str,
        start: int,
        lengths: FileLengths,
        mapped: MappedFiles,
        suffix: str = "",
    ) -> None:
        self._folders = log_folder, queue_folder
        self._mapped = mapped
        self._pinned: tuple[Mapping, Mapping] | None = None
        self.start = start
        self.lengths = lengths
        self.suffix = suffix
        self.count = self.end = 0
        self.first = self.last = -1
        self.is_closed = False

    @property
    def paths(self) -> tuple[str, str]:
        """Paths of the log file and of the file of units."""
        name = file_name(self.start) + self.suffix
        return os.path.join(self._folders[0], name), os.path.join(self._folders[1], name)

    def unmapped(self, start: int) -> None:
        """Nothing to forget: views are asked for at each use."""

    def pin(self, disk: Disk) -> None:
        """Keep both files mapped, whatever becomes of their names."""
        log, units = self.paths
        self._pinned = (
            disk.map(log, self.lengths.log, create=False),
            disk.map(units, self.lengths.queue, create=False),
        )

    def unpin(self) -> None:
        """Let both files be mapped as others are, under their names."""
        if self._pinned is not None:
            for mapping in self._pinned:
                mapping.close()
        self._pinned = None

    def unit(self, number: int) -> BatchUnit:
        """Return one unit, from 0."""
        if self._pinned is not None:
            view = self._pinned[1].view
        else:
            view = self._mapped.view(self.paths[1], self.lengths.queue, self, self.start, create=False)
        return BatchUnit._make(UNIT.unpack_from(view, number * UNIT_BYTES)[:-2])

    def log_view(self) -> memoryview:
        """Return the bytes of the log file."""
        if self._pinned is not None:
            return self._pinned[0].view
        return self._mapped.view(self.paths[0], self.lengths.log, self, self.start, create=False)

    def number_from(self, offset: int) -> int:
        """Return the number of the first unit with queue offset *offset* or a larger one."""
        if offset <= self.first:
            return 0
        return bisect_left(range(self.count), offset, key=lambda number: self.unit(number).first)

    def number_at(self, store_ms: int, *, after: bool = False) -> int:
        """Return the number of the first unit stored at *store_ms* or later, or only *after* it."""
        return bisect_left(range(self.count), store_ms + after, key=lambda number: self.unit(number).store_ms)

    def note(self, count: int, end: int, first: int, last: int) -> None:
        """Take note of what the file holds now.

        Args:
            count, end, first, last: see the attributes.
        """
        self.end, self.first, self.last = end, first, last
        self.count = count

    def drop_mapped(self) -> None:
        """Give both files back if they are mapped."""
        for path in self.paths:
            self._mapped.drop(path)


def make_file(disk: Disk, file: CompactedFile) -> None:
    """Make both files of *file* durably, in their full lengths and empty. Blocking."""
    for path, length in zip(file.paths, file.lengths, strict=True):
        handle = disk.open(path)
        try:
            handle.truncate(0)
            handle.truncate(length)
            handle.sync()
        finally:
            handle.close()
    for path in file.paths:
        disk.sync_folder(os.path.dirname(path))


def close_file(disk: Disk, file: CompactedFile) -> None:
    """Write the marks behind the last record and unit of *file*; nothing is added any more. Blocking."""
    log, units = file.paths
    blank = BLANK.pack(file.lengths.log - file.end, BLANK_MAGIC)
    for path, at, mark in ((log, file.end, blank), (units, file.count * UNIT_BYTES, END_UNIT)):
        handle = disk.open(path, create=False)
        try:
            handle.write_at(at, mark)
            handle.sync()
        finally:
            handle.close()
    file.is_closed = True


def _write(disk: Disk, file: CompactedFile, copies: list[Copy]) -> None:
    """Add *copies*, which fit, to *file*: first the records, then, once these are durable, their units. Blocking."""
    position, records, units = file.start + file.end, bytearray(), bytearray()
    for copy in copies:
        records += copy.placed(position + len(records))
        units += copy.unit(position + len(records) - len(copy.record))
    for path, at, data in zip(file.paths, (file.end, file.count * UNIT_BYTES), (records, units), strict=True):
        handle = disk.open(path, create=False)
        try:
            handle.write_at(at, data)
            handle.sync()
        finally:
            handle.close()
    first = copies[0].offset if file.count == 0 else file.first
    file.note(file.count + len(copies), file.end + len(records), first, copies[-1].offset)


class RecordTooLargeError(Exception):
    """A record does not fit into an empty file; the message says which setting is too small."""


def add_records(
    disk: Disk, files: list[CompactedFile], copies: Iterable[Copy], make: Callable[[list[CompactedFile]], CompactedFile]
) -> None:
    """Add records behind those of *files*, to which new files are added. Blocking; durable when it returns.

    Args:
        disk: where they are.
        files: oldest first; only the last is added to.
        copies: in order of their queue offsets.
        make: returns the file that comes behind *files*, which is made here.

    Raises:
        OSError: the disk refused; some of them may be there.
        RecordTooLargeError: one of them fits in no file; those before it are there.
    """
    waiting: list[Copy] = []
    size = 0

    def settle() -> None:
        nonlocal size
        if waiting:
            _write(disk, files[-1], waiting)
        waiting.clear()
        size = 0

    for copy in copies:
        length = len(copy.record)
        last = files[-1] if files else None
        room = last is not None and not last.is_closed
        if last is None or not room or not fits(last.lengths, last.end + size, last.count + len(waiting), length):
            settle()
            file = make(files)
            if not fits(file.lengths, 0, 0, length):
                raise RecordTooLargeError(
                    f"a message of {length} bytes does not fit into a file of {file.lengths.log} bytes; "
                    "make compactionMappedFileSize larger"
                )
            if last is not None and room:
                close_file(disk, last)
            make_file(disk, file)
            files.append(file)
        waiting.append(copy)
        size += length
        if size >= _CHUNK_BYTES:
            settle()
    settle()


class CompactedQueue:
    """What is copied of one queue.

    Args:
        topic, queue_id: which queue.
        root: the folder of all compaction logs of the store.
        lengths: of new files.
        mapped: the files that are mapped.

    Attributes:
        files: oldest first. Replaced as a whole, never changed in place while readers may see it.
        copied_to: readers get messages before this queue offset from here, the others from the ordinary queue.
        generation: changes when what was copied is not to be continued.
        is_open: its folders were looked at, or made.
        must_be_cut: there are records that readers must not see.
        log_folder, queue_folder: its two folders.
    """

    def __init__(
        self, topic: str, queue_id: int, folders: tuple[str, str], lengths: FileLengths, mapped: MappedFiles
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.log_folder, self.queue_folder = (os.path.join(folder, topic, str(queue_id)) for folder in folders)
        self.lengths = lengths
        self._mapped = mapped
        self.files: tuple[CompactedFile, ...] = ()
        self.copied_to = 0
        self.generation = 0
        self.is_open = False
        self.must_be_cut = False

    @property
    def last(self) -> int:
        """Queue offset of the last record; -1 without any."""
        return next((file.last for file in reversed(self.files) if file.count), -1)

    @property
    def first(self) -> int:
        """Queue offset of the first record that readers see here; -1 without any."""
        first = next((file.first for file in self.files if file.count), -1)
        return first if first < self.copied_to else -1

    def file(self, start: int, suffix: str = "") -> CompactedFile:
        """Return a file of this queue that is not one of :attr:`files` yet."""
        return CompactedFile(self.log_folder, self.queue_folder, start, self.lengths, self._mapped, suffix)

    def next_file(self, files: list[CompactedFile]) -> CompactedFile:
        """Return the file that comes behind *files*."""
        return self.file(files[-1].start + self.lengths.log if files else 0)

    def units_from(self, offset: int) -> Iterator[tuple[CompactedFile, BatchUnit]]:
        """Return the units from queue offset *offset* on that readers see, each with its file."""
        for file in self.files:
            if file.count and file.last >= offset:
                if file.first >= self.copied_to:
                    return
                for number in range(file.number_from(offset), file.count):
                    unit = file.unit(number)
                    if unit.first >= self.copied_to:
                        return
                    yield file, unit

    def offset_by_time(self, store_ms: int, *, after: bool = False) -> int:
        """Return the queue offset of the first record stored at *store_ms* or later, or *after* it; -1 for none."""
        for file in self.files:
            if file.count and file.first < self.copied_to:
                number = file.number_at(store_ms, after=after)
                if number < file.count:
                    offset = file.unit(number).first
                    return offset if offset < self.copied_to else -1
        return -1

    def last_before(self, offset: int) -> int:
        """Return the queue offset of the last record before queue offset *offset*, or else of the first one."""
        found = self.first
        for file in self.files:
            if file.count and file.first < offset:
                found = file.unit(file.number_from(offset) - 1).first
        return found

    def add(self, disk: Disk, copies: list[Copy]) -> None:
        """Add records behind the last one. Blocking, see :func:`add_records`."""
        files = list(self.files)
        try:
            add_records(disk, files, copies, self.next_file)
        finally:
            self.files = tuple(files)

    def shorten(self, offset: int) -> None:
        """Show readers nothing from queue offset *offset* on: the queue was cut there, or deleted (0)."""
        if offset < self.copied_to:
            self.copied_to = offset
            self.generation += 1
            self.must_be_cut = True

    def give_back(self) -> None:
        """Give all files back that are mapped."""
        for file in self.files:
            file.drop_mapped()
