"""One round of compaction of one queue: write those records of its closed files that survive into new files.

Source: CompactionLog.java (doCompaction).
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Generator, Iterator

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.store.batch_queue import UNIT, UNIT_BYTES, BatchUnit
from understudy.store.compaction.files import TEMPORARY, CompactedFile, CompactedQueue, add_records, close_file
from understudy.store.compaction.layout import Copy, entry_of, whole
from understudy.store.compaction.survivors import Entry, Newest
from understudy.store.compaction.swaps import Swap

log = get_logger("store.compaction")

_STEP_BYTES = 1 << 20
_STEP_RECORDS = 1000
"""What of records is looked at between two steps."""

Round = Generator[None, None, tuple[list[CompactedFile], Swap]]


def is_due(queue: CompactedQueue, position: int) -> bool:
    """Whether files were closed that no round has seen; *position* is up to where the last one has seen them."""
    return any(file.last > position for file in queue.files[:-1])


def compact(disk: Disk, queue: CompactedQueue, position: int, most_bytes: int, now_ms: Callable[[], int]) -> Round:
    """Write the new generation of the closed files of *queue* beside them, in steps, each of them blocking.

    Args:
        disk: where it is.
        queue: its closed files are read; records may be added meanwhile.
        position: queue offset up to which rounds have seen them.
        most_bytes: of memory for the table of keys.
        now_ms: tells the wall time.

    Returns:
        The new files, durable under their temporary names, and what puts them into their place.
    """
    closed = queue.files[:-1]
    newest, size, count = Newest(most_bytes), 0, 0
    for unit, entry, _ in _records(disk, tuple(file for file in closed if file.last > position), with_copies=False):
        if entry is not None and unit.first > position and not newest.note(entry):
            log.warning(
                "not all keys of a queue fit into one round of its compaction; maxOffsetMapSize bounds them",
                topic=queue.topic,
                queueId=queue.queue_id,
                upTo=newest.last,
            )
            break
        size, count = size + unit.size, count + 1
        if size >= _STEP_BYTES or count >= _STEP_RECORDS:
            size = count = 0
            yield
    new: list[CompactedFile] = []
    last_start = queue.files[-1].start

    def make(files: list[CompactedFile]) -> CompactedFile:
        start = files[-1].start + queue.lengths.log if files else 0
        if start >= last_start:
            raise FileExistsError(f"{queue.log_folder}: what survives takes more files than there were")
        return queue.file(start, TEMPORARY)

    waiting, kept, dropped, size, count = list[Copy](), 0, 0, 0, 0
    for unit, entry, copy in _records(disk, closed, with_copies=True):
        if entry is None or copy is None or not newest.survives(entry, now_ms()):
            dropped += 1
        else:
            waiting.append(copy)
            kept += 1
        size, count = size + unit.size, count + 1
        if size >= _STEP_BYTES or count >= _STEP_RECORDS:
            add_records(disk, new, waiting, make)
            waiting, size, count = [], 0, 0
            yield
    add_records(disk, new, waiting, make)
    if new:
        close_file(disk, new[-1])
        for path in new[-1].paths:
            disk.sync_folder(os.path.dirname(path))
    log.info("compacted", topic=queue.topic, queueId=queue.queue_id, kept=kept, dropped=dropped, files=len(new))
    starts = tuple(file.start for file in closed), tuple(file.start for file in new)
    return new, Swap(queue.topic, queue.queue_id, *starts, max(newest.last, position))


def _records(
    disk: Disk, files: tuple[CompactedFile, ...], *, with_copies: bool
) -> Iterator[tuple[BatchUnit, Entry | None, Copy | None]]:
    """Return the records of *files* in order: unit, what a round must know, and their bytes if wanted.

    Nobody can read a record that is damaged: it has only its unit.
    """
    for file in files:
        log_path, units_path = file.paths
        records = disk.map(log_path, file.lengths.log, create=False)
        units = disk.map(units_path, file.lengths.queue, create=False)
        try:
            for number in range(file.count):
                unit = BatchUnit._make(UNIT.unpack_from(units.view, number * UNIT_BYTES)[:-2])
                at = unit.physical - file.start
                head = whole(records.view, at, file.start) if at >= 0 else None
                if head is None or head.queue_offset != unit.first or head.size_bytes != unit.size:
                    log.error("a record of a compaction log is damaged", path=log_path, at=at, queueOffset=unit.first)
                    yield unit, None, None
                    continue
                copy = None
                if with_copies:
                    copy = Copy(unit.first, unit.code, unit.store_ms, bytes(records.view[at : at + unit.size]))
                yield unit, entry_of(head, records.view, at), copy
        finally:
            records.close()
            units.close()
