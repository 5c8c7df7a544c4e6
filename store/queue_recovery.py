"""Find the end of a consume queue after a stop, reading files without mapping them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from understudy.runtime.disk import Disk, File
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue

#: Asked with (queue, physical offset, size): does the log hold a message of that queue and size there?
Matches = Callable[[ConsumeQueue, int, int], bool]
#: How many of the last files are walked when nothing else says where the end is; as many as by the reference.
_FILES_WALKED = 3


class _QueueFiles:
    """The files of one queue, opened when they are needed."""

    def __init__(self, disk: Disk, queue: ConsumeQueue) -> None:
        self._disk = disk
        self._queue = queue
        self._open: dict[int, File] = {}

    def __enter__(self) -> _QueueFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()

    def file(self, start: int) -> File:
        """Return the file that starts at byte *start*."""
        file = self._open.get(start)
        if file is None:
            file = self._open[start] = self._disk.open(self._queue.path(start), create=False)
        return file

    def unit(self, offset: int) -> tuple[int, int] | None:
        """Return (physical offset, size) of one unit; None when it is in no file."""
        start = self._queue.start_of(offset)
        if start not in self._queue.starts:
            return None
        raw = self.file(start).read_at(offset * UNIT_BYTES - start, UNIT_BYTES)
        if len(raw) < UNIT_BYTES:
            return None
        physical, size, _ = UNIT.unpack(raw)
        return physical, size

    def back_to_match(self, end: int, matches: Matches) -> int:
        """Return the end without the last units that point to no message of the queue."""
        bottom = self._queue.starts[0] // UNIT_BYTES if self._queue.starts else 0
        while end > bottom:
            unit = self.unit(end - 1)
            if unit is not None and (unit[1] == FILLER_SIZE or matches(self._queue, *unit)):
                break
            end -= 1
        return end


def recover_below(disk: Disk, queue: ConsumeQueue, limit: int, matches: Matches) -> int:
    """Set the offsets of *queue* to what its files hold of the log before *limit*; return ``next_offset``.

    Everything before *limit* is expected to be complete, so the end is searched, not walked to.
    """
    low = queue.starts[0] // UNIT_BYTES if queue.starts else 0
    high = (queue.starts[-1] + queue.file_size) // UNIT_BYTES if queue.starts else 0
    with _QueueFiles(disk, queue) as files:
        while low < high:
            middle = (low + high) // 2
            unit = files.unit(middle)
            if unit is not None and unit[1] > 0 and 0 <= unit[0] and (unit[1] == FILLER_SIZE or unit[0] < limit):
                low = middle + 1
            else:
                high = middle
        queue.next_offset = queue.max_offset = files.back_to_match(low, matches)
    return queue.next_offset


def recover_all(disk: Disk, queue: ConsumeQueue, matches: Matches) -> int:
    """Set the offsets of *queue* to the units that are valid without a hole up to its end; return ``next_offset``."""
    walked = queue.starts[-_FILES_WALKED:]
    end = walked[0] // UNIT_BYTES if walked else 0
    with _QueueFiles(disk, queue) as files:
        for start in walked:
            if start != end * UNIT_BYTES:
                break
            raw = files.file(start).read_at(0, queue.file_size)
            for physical, size, _ in UNIT.iter_unpack(raw[: len(raw) - len(raw) % UNIT_BYTES]):
                if physical < 0 or size <= 0:
                    break
                end += 1
        queue.next_offset = queue.max_offset = files.back_to_match(end, matches)
    return queue.next_offset
