"""Opens the part of a commit-log file that one split needs."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from understudy.spark_tools.kernels.commitlog import LOOK_BACK_BYTES, walk
from understudy.spark_tools.kernels.damage import Damage
from understudy.spark_tools.kernels.window import Chunk, Window
from understudy.spark_tools.layout import LogFile
from understudy.spark_tools.storage import data_end, map_range

LOOK_AHEAD_BYTES = 16 * 1024 * 1024
SPLIT_BYTES = 64 * 1024 * 1024
_MADV_POPULATE_READ = 22


def open_window(file: LogFile, start: int, stop: int) -> Window:
    """Maps (or reads) the bytes of a file that the records of [start, stop) can touch.

    Raises:
        OSError: when the file cannot be read any more.
    """
    end = data_end(file.path, file.size_bytes)
    begin = max(0, start - LOOK_BACK_BYTES)
    wanted = min(stop + LOOK_AHEAD_BYTES, end)
    data, base = map_range(file.path, begin, max(0, wanted - begin))
    if isinstance(data, mmap.mmap):
        populate(data, max(0, start - base), min(stop, wanted) - base)
    return Window(file.path, file.start_offset, file.size_bytes, base, data, reaches_end=wanted >= end)


def populate(data: mmap.mmap, start: int, stop: int) -> None:
    """Asks the kernel to map the range at once; saves a fault per page, changes nothing where it is not known."""
    begin = start - start % mmap.PAGESIZE
    if stop > begin:
        try:
            data.madvise(_MADV_POPULATE_READ, begin, min(stop, len(data)) - begin)
        except (OSError, ValueError):  # an older kernel: pages are mapped one by one as they are read
            return


def splits(file: LogFile, split_bytes: int = SPLIT_BYTES) -> list[tuple[int, int]]:
    """Ranges of a file to be read as separate tasks, cut at equal distances; holes at its end are left out."""
    end = min(file.size_bytes, data_end(file.path, file.size_bytes) + 8)
    return [(at, min(at + split_bytes, file.size_bytes)) for at in range(0, end, split_bytes)]


def read_records(file: LogFile, start: int, stop: int) -> Iterator[tuple[Window, Chunk | Damage]]:
    """Records and faults of a split, with the window their columns are read from."""
    window = open_window(file, start, stop)
    for item in walk(window, start, stop):
        yield window, item
