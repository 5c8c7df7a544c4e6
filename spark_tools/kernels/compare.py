"""Two replicas of one log, byte range by byte range: where they first differ, and in which record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from understudy.spark_tools.kernels.commitlog import walk
from understudy.spark_tools.kernels.extents import NOTHING, Extents, joined
from understudy.spark_tools.kernels.window import Chunk, Window

MOST_EXTENTS = 1024
"""Of one range: more differences than that are told as fewer, longer ones."""


@dataclass(frozen=True, slots=True)
class Difference:
    """First differing record of a range: its physical offset, the first differing byte, and how many bytes differ."""

    record_offset: int
    byte_offset: int
    differing_bytes: int


def record_spans(window: Window, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Starts and ends, in bytes of the file, of the records that touch [start, stop)."""
    starts: list[npt.NDArray[np.int64]] = []
    ends: list[npt.NDArray[np.int64]] = []
    # a record that begins before the range may reach into it
    begin = max(window.base, 0)
    for item in walk(window, begin if begin == 0 else max(begin + 1, start - (1 << 23)), stop):
        if isinstance(item, Chunk):
            starts.append(item.positions + window.base)
            ends.append(item.positions + window.base + item.header["size"])
    if not starts:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    return np.concatenate(starts), np.concatenate(ends)


def first_difference(left: Window, right: Window, start: int, stop: int) -> Difference | None:
    """Where two copies of the same file differ within [start, stop), bytes outside of records left aside.

    What lies behind a blank marker or the end of the log is never read by a broker and may differ.

    Args:
        left: bytes of one copy.
        right: bytes of the other one.
        start: first byte that counts, from the beginning of the file.
        stop: byte of the file before which they count.
    """
    one = left.array[start - left.base : stop - left.base]
    other = right.array[start - right.base : stop - right.base]
    length = min(len(one), len(other))
    if np.array_equal(one[:length], other[:length]):
        return None
    different = np.flatnonzero(one[:length] != other[:length]) + start
    found: list[tuple[int, int]] = []
    inside = np.zeros(len(different), dtype=bool)
    for window in (left, right):
        starts, ends = record_spans(window, start, stop)
        hit = _inside(different, starts, ends)
        if hit.any():
            byte = int(different[hit.argmax()])
            found.append((int(starts[np.searchsorted(starts, byte, "right") - 1]), byte))
        inside |= hit
    if not found:
        return None
    record, _ = min(found)
    byte = int(different[inside.argmax()])
    return Difference(left.file_offset_bytes + record, left.file_offset_bytes + byte, int(inside.sum()))


def differing_records(left: Window, right: Window, start: int, stop: int) -> Extents:
    """Physical extents of the records of [start, stop) in which two copies of the same file differ.

    Only the part of a record that lies in the range is looked at, and the rest of it is looked at with its neighbour;
    the extent is always the whole record.

    Args:
        left: bytes of one copy.
        right: bytes of the other one.
        start: first byte that counts, from the beginning of the file.
        stop: byte of the file before which they count.
    """
    one = left.array[start - left.base : stop - left.base]
    other = right.array[start - right.base : stop - right.base]
    length = min(len(one), len(other))
    if np.array_equal(one[:length], other[:length]):
        return NOTHING
    # one behind the end: a record may end there
    unlike = np.append(one[:length] != other[:length], False)
    starts, ends = [], []
    for window in (left, right):
        begins, stops = record_spans(window, start, start + length)
        low, high = np.maximum(begins, start) - start, np.minimum(stops, start + length) - start
        touched = low < high
        begins, stops, low, high = begins[touched], stops[touched], low[touched], high[touched]
        if len(low):
            hit = np.logical_or.reduceat(unlike, np.stack([low, high], axis=1).ravel())[::2]
            starts.append(begins[hit])
            ends.append(stops[hit])
    if not starts:
        return NOTHING
    first = left.file_offset_bytes
    return joined(np.concatenate(starts) + first, np.concatenate(ends) + first, MOST_EXTENTS)


def _inside(
    places: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    if not len(starts):
        return np.zeros(len(places), dtype=bool)
    before = np.searchsorted(starts, places, "right") - 1
    return (before >= 0) & (places < ends[np.maximum(before, 0)])
