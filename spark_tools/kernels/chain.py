"""The chain of record sizes, followed in many places of a commit log at once.

Each record says where the next one starts, so a chain is serial. But a record can be recognised anywhere (its magic,
and a PHYSICALOFFSET equal to the place it lies at), so a stretch of the log is cut into lanes that each begin at such a
record, and one gather takes all lanes a record further. A lane counts only when the lane before it arrives exactly at
its start; what lies behind the first one that does not is thrown away, and the caller goes on one by one from there.
The starts found are therefore those of the serial chain, whatever the bytes are.
"""

from __future__ import annotations

import struct
from itertools import repeat

import numpy as np

from understudy.format.record import SMALLEST_RECORD_BYTES
from understudy.spark_tools.kernels.search import MAGIC_PREFIX, proves_itself
from understudy.spark_tools.kernels.window import Int64, Window, gather

LANE_BYTES = 256 * 1024
LANES = 128

_LANE_SEARCH_BYTES = 16 * 1024
_HEAD_BYTES = 8
_SIZE = struct.Struct(">i")


def follow_one(window: Window, at: int, most: int) -> Int64:
    """Starts of up to `most` records from `at` on; the last ones are no records where a size was wrong."""
    positions: list[int] = []
    append = positions.append
    size_of = _SIZE.unpack_from
    data = window.data
    try:
        for _ in repeat(None, most):
            (size,) = size_of(data, at)
            append(at)
            if size < SMALLEST_RECORD_BYTES:
                break
            at += size
    except struct.error:  # the chain left the window
        pass
    return np.array(positions, dtype=np.int64)


def follow_many(window: Window, at: int, stop: int) -> tuple[Int64, bool]:
    """Starts of records from `at` on, for at most `LANES` lanes and below `stop`, and whether all lanes met.

    As with `follow_one` the last starts may be no records; when the lanes did not meet, those before are still right.
    """
    starts = _lane_starts(window, at, min(stop, at + LANES * LANE_BYTES))
    if len(starts) < 2:
        return starts[:0], False
    bounds = np.append(starts[1:], min(stop, at + LANES * LANE_BYTES, window.array.shape[0] - _HEAD_BYTES))
    lanes = np.arange(len(starts))
    reached = np.full(len(starts), -1, dtype=np.int64)
    current, ends = starts, bounds
    steps: list[Int64] = []
    while len(current):
        steps.append(current)
        size = gather(window.array, current, ">i4")
        current = current + size
        going = current < ends
        if int(size.min()) < SMALLEST_RECORD_BYTES:
            broken = size < SMALLEST_RECORD_BYTES
            current[broken] = -1
            going &= ~broken
        if not going.all():
            ended = ~going
            reached[lanes[ended]] = current[ended]
            current, ends, lanes = current[going], ends[going], lanes[going]
    positions = np.concatenate(steps)
    positions.sort()
    missed = reached[:-1] != starts[1:]
    if missed.any():
        border = starts[int(missed.argmax()) + 1]
        return positions[: int(np.searchsorted(positions, border))], False
    return positions, True


_HEAD_BYTES = 8


def _lane_starts(window: Window, at: int, stop: int) -> Int64:
    """`at`, and the first record found near each lane's border."""
    starts = [at]
    for border in range(at + LANE_BYTES, stop - LANE_BYTES // 2, LANE_BYTES):
        block = bytes(window.data[border : min(border + _LANE_SEARCH_BYTES, stop)])
        hit = block.find(MAGIC_PREFIX, 4)
        while hit >= 0:
            if proves_itself(window, border + hit - 4):
                starts.append(border + hit - 4)
                break
            hit = block.find(MAGIC_PREFIX, hit + 1)
    return np.array(starts, dtype=np.int64)
