"""Index files read piece by piece, so that a file of any size needs little memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from understudy.spark_tools.kernels import index
from understudy.spark_tools.kernels.index import IndexHeader
from understudy.spark_tools.storage import map_range

ENTRIES_PER_PIECE = 1 << 20


def header_of(path: str) -> IndexHeader | None:
    """Header of an index file, None when the file is too short to have one."""
    data, _ = map_range(path, 0, index.HEADER_BYTES)
    return index.read_header(data) if len(data) >= index.HEADER_BYTES else None


def entry_pieces(path: str, size_bytes: int) -> Iterator[tuple[IndexHeader, int, npt.NDArray[np.void]]]:
    """Header, number of the first entry and entries of each piece of a file; nothing for a file that is no index."""
    header = header_of(path)
    if header is None:
        return
    if size_bytes == index.DEFAULT_FILE_BYTES:
        slots: int | None = index.DEFAULT_SLOTS
    else:
        slots = index.slot_count(map_range(path, 0, size_bytes)[0], header)
    if slots is None:
        return
    begin = index.HEADER_BYTES + index.SLOT_BYTES * slots
    for first in range(1, header.entries, ENTRIES_PER_PIECE):
        count = min(ENTRIES_PER_PIECE, header.entries - first)
        start = begin + first * index.ENTRY_BYTES
        data, base = map_range(path, start, count * index.ENTRY_BYTES)
        room = (len(data) - (start - base)) // index.ENTRY_BYTES
        if room > 0:
            yield header, first, np.frombuffer(data, index.ENTRY, min(count, room), start - base)
