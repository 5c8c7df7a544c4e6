"""Opening the compaction log of a queue, and cutting it back, around what a crash, or another broker, has left.

Units are made again from their records where they are missing. Closed files were durable before the next one was made;
of the last one, every record is looked at after an unclean end, and what follows the last whole one goes. The records
that were lost that way are copied again: the commit log keeps them until their copies are durable.
"""

from __future__ import annotations

import os.path
from bisect import bisect_left

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.store.batch_queue import UNIT, UNIT_BYTES, BatchUnit
from understudy.store.compaction.files import TEMPORARY, CompactedFile, CompactedQueue
from understudy.store.compaction.layout import FileLengths, copy_of, whole
from understudy.store.segments import numbered_files

log = get_logger("store.compaction")


def open_queue(disk: Disk, queue: CompactedQueue, *, unclean: bool) -> None:
    """Find what is in the folders of *queue*. Blocking.

    Args:
        disk: where they are.
        queue: gets its files.
        unclean: the process that wrote them did not end as it should.
    """
    for folder in (queue.log_folder, queue.queue_folder):
        make_folder_durably(disk, folder)
    remove_temporary(disk, queue)
    starts = numbered_files(disk, queue.log_folder)
    for start in set(numbered_files(disk, queue.queue_folder)).difference(starts):
        disk.remove(queue.file(start).paths[1])
    queue.lengths = _lengths_found(disk, queue, starts)
    files: list[CompactedFile] = []
    for start in starts:
        file = queue.file(start)
        _open_file(disk, file, check=unclean and start == starts[-1])
        if not file.count or (files and file.first <= files[-1].last):
            if file.count:
                log.error("a file of a compaction log does not follow the one before it; it is left out", file=start)
            _remove(disk, file)
            continue
        files.append(file)
    for file in files[:-1]:
        file.is_closed = True
    queue.files = tuple(files)
    queue.copied_to = queue.last + 1
    queue.is_open = True


def remove_temporary(disk: Disk, queue: CompactedQueue) -> None:
    """Remove what a round has left that did not come to its end. Blocking."""
    for folder in (queue.log_folder, queue.queue_folder):
        left = [name for name in disk.listdir(folder) if name.endswith(TEMPORARY)]
        for name in left:
            disk.remove(os.path.join(folder, name))
        if left:
            disk.sync_folder(folder)


def _lengths_found(disk: Disk, queue: CompactedQueue, starts: list[int]) -> FileLengths:
    """Return the lengths that the files have, which stay whatever the settings say; those of the settings for none."""
    for start in starts:
        log_path, units_path = queue.file(start).paths
        if disk.exists(units_path):
            found = FileLengths(disk.size(log_path), disk.size(units_path))
            if found.log and found.queue and found.queue % UNIT_BYTES == 0:
                return found
    return queue.lengths


def _open_file(disk: Disk, file: CompactedFile, *, check: bool) -> None:
    """Find out what one file holds.

    Args:
        disk: where it is.
        file: takes note of it.
        check: look at every record, and cut off what is not whole.
    """
    log_path, units_path = file.paths
    known = disk.exists(units_path) and disk.size(units_path) == file.lengths.queue
    records = disk.map(log_path, file.lengths.log)
    units = disk.map(units_path, file.lengths.queue)
    try:
        count = _count(units.view, file) if known else 0
        if check:
            count = _whole_count(records.view, units.view, file, count)
        if not count:
            count = _make_units(records.view, units.view, file)
            units.sync(0, file.lengths.queue)
        if count:
            first, last = _unit(units.view, 0), _unit(units.view, count - 1)
            file.note(count, last.end - file.start, first.first, last.first)
        marked = count * UNIT_BYTES < file.lengths.queue and _unit(units.view, count).physical == -1
        file.is_closed = marked or not count
    finally:
        records.close()
        units.close()
    if check and count:
        _cut_file(disk, file, count)


def _unit(view: memoryview, number: int) -> BatchUnit:
    return BatchUnit._make(UNIT.unpack_from(view, number * UNIT_BYTES)[:-2])


def _count(view: memoryview, file: CompactedFile) -> int:
    """Return how many units a file has: they stand side by side from its beginning."""

    def is_empty(number: int) -> bool:
        unit = _unit(view, number)
        return unit.size <= 0 or unit.physical < file.start

    return bisect_left(range(file.lengths.queue // UNIT_BYTES), True, key=is_empty)


def _whole_count(records: memoryview, units: memoryview, file: CompactedFile, count: int) -> int:
    """Return how many units from the first on have their record."""
    end, before = file.start, -1
    for number in range(count):
        unit = _unit(units, number)
        head = whole(records, unit.physical - file.start, file.start) if unit.physical == end else None
        if head is None or head.size_bytes != unit.size or head.queue_offset != unit.first or unit.first <= before:
            log.warning("the end of a compaction log is cut off", path=file.paths[0], kept=number, units=count)
            return number
        end, before = unit.end, unit.first
    return count


def _make_units(records: memoryview, units: memoryview, file: CompactedFile) -> int:
    """Write the units of the whole records that a file begins with; return how many."""
    end = count = 0
    while (count + 1) * UNIT_BYTES < file.lengths.queue and (head := whole(records, end, file.start)) is not None:
        copy = copy_of(head, records[end : end + head.size_bytes])
        if copy is None:
            break
        units[count * UNIT_BYTES : (count + 1) * UNIT_BYTES] = copy.unit(file.start + end)
        count, end = count + 1, end + head.size_bytes
    units[count * UNIT_BYTES :] = bytes(len(units) - count * UNIT_BYTES)
    if count:
        log.warning("the queue of a compaction log is made again", path=file.paths[1], records=count)
    return count


def _cut_file(disk: Disk, file: CompactedFile, count: int) -> None:
    """Zero what follows the first *count* records of the last file, which can be added to then."""
    if file.is_closed and count == file.count:
        return
    for path, length, keep in zip(file.paths, file.lengths, (file.end, count * UNIT_BYTES), strict=True):
        handle = disk.open(path, create=False)
        try:
            handle.truncate(keep)
            handle.truncate(length)
            handle.sync()
        finally:
            handle.close()
    file.is_closed = False


def _remove(disk: Disk, file: CompactedFile) -> None:
    for path in file.paths:
        disk.remove(path)
        disk.sync_folder(os.path.dirname(path))


def cut_queue(disk: Disk, queue: CompactedQueue, offset: int) -> None:
    """Remove the records of *queue* from queue offset *offset* on. Blocking; durable when it returns.

    Args:
        disk: where it is.
        queue: nobody adds to it meanwhile.
        offset: readers see nothing from there on any more.
    """
    kept: list[CompactedFile] = []
    for file in queue.files:
        if not file.count or file.first >= offset:
            _remove(disk, file)
            continue
        if file.last >= offset:
            units = disk.map(file.paths[1], file.lengths.queue)
            try:
                count = bisect_left(range(file.count), offset, key=lambda number: _unit(units.view, number).first)
                last = _unit(units.view, count - 1)
            finally:
                units.close()
            file.note(count, last.end - file.start, file.first, last.first)
            file.is_closed = False
            _cut_file(disk, file, count)
        kept.append(file)
    queue.files = tuple(kept)
    queue.must_be_cut = False
