"""Find the end of a consume queue after a stop, reading files without mapping them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from understudy.runtime.disk import Disk, File
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue, first_lost

#: Asked with (queue, physical offset, size): does the log hold a message of that queue and size there?
Matches = Callable[[ConsumeQueue, int, int], bool]
#: How many of the last files are walked when nothing else says where the end is; as many as by the reference.
_FILES_WALKED = 3
#: Units that begin in the first block of a file, which is looked at in every file.
BLOCK_UNITS = -(-4096 // UNIT_BYTES)


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

    def heads_lost(self, end: int) -> list[int]:
        """Return a lost unit of the first block of each file that has one, among those before queue offset *end*."""
        found = []
        for start in self._queue.starts:
            first = start // UNIT_BYTES
            count = min(end - first, BLOCK_UNITS)
            number = first_lost(self.file(start).read_at(0, count * UNIT_BYTES)) if count > 0 else -1
            if number >= 0:
                found.append(first + number)
        return found

    def back_to_match(self, end: int, matches: Matches) -> int:
        """Return the end without the last units that point to no message of the queue."""
        bottom = self._queue.starts[0] // UNIT_BYTES if self._queue.starts else 0
        while end > bottom:
            unit = self.unit(end - 1)
            if unit is not None and (unit[1] == FILLER_SIZE or matches(self._queue, *unit)):
                break
            end -= 1
        return end

    def last_life(self, end: int, matches: Matches) -> int:
        """Return the end without units of former lives, which are behind the newer ones but point before them.

        The reference leaves a file of a deleted queue in place while something reads or flushes it, and the queue that
        is made again writes over its beginning only.

        Args:
            end: queue offset behind the last unit, which points to a message of the queue.
            matches: says whether a unit points to a record that is there.
        """
        bottom = self._queue.starts[0] // UNIT_BYTES if self._queue.starts else 0
        while end > bottom:
            last = self.unit(end - 1)
            if last is None or last[1] == FILLER_SIZE:
                break
            low, high = bottom, end
            while low < high:
                middle = (low + high) // 2
                unit = self.unit(middle)
                if unit is not None and unit[1] > 0 and (unit[1] == FILLER_SIZE or unit[0] > last[0]):
                    low = middle + 1
                else:
                    high = middle
            newer = self.unit(low - 1) if low > bottom else None
            # A unit that is wrong may point anywhere.
            if newer is None or newer[1] == FILLER_SIZE or not matches(self._queue, *newer):
                break
            end = low
        return end


def recover_below(disk: Disk, queue: ConsumeQueue, limit: int, matches: Matches) -> list[int]:
    """Set the offsets of *queue* to what its files hold of the log before *limit*.

    Everything before *limit* is expected to be complete, so the end is searched, not walked to.

    Args:
        disk: where its files are.
        queue: whose ends are set.
        limit: byte of the log where the walk begins.
        matches: says whether a unit points to a record that is there.

    Returns:
        Queue offsets of lost units, as far as the first blocks of the files show.
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
        return files.heads_lost(queue.next_offset)


def recover_all(disk: Disk, queue: ConsumeQueue, matches: Matches) -> list[int]:
    """Set the offsets of *queue* to the units up to the last one that is valid.

    Returns:
        Queue offsets of lost units, as far as the last files and the first blocks of the others show.
    """
    walked = queue.starts[-_FILES_WALKED:]
    end = walked[0] // UNIT_BYTES if walked else 0
    with _QueueFiles(disk, queue) as files:
        for start in walked:
            raw = files.file(start).read_at(0, queue.file_size)
            used = len(raw.rstrip(b"\0"))
            if used:
                end = start // UNIT_BYTES + -(-used // UNIT_BYTES)
        end = files.back_to_match(end, matches)
        end = files.last_life(end, matches)
        queue.next_offset = queue.max_offset = end
        lost = files.heads_lost(end)
        for start in walked:
            count = min(end - start // UNIT_BYTES, queue.file_size // UNIT_BYTES)
            raw = files.file(start).read_at(0, max(count, 0) * UNIT_BYTES)
            at = 0
            while (found := first_lost(memoryview(raw)[at * UNIT_BYTES :])) >= 0:
                at += found
                lost.append(start // UNIT_BYTES + at)
                while at < count and UNIT.unpack_from(raw, at * UNIT_BYTES)[1] == 0:
                    at += 1
        return lost
