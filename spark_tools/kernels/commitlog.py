"""Finding the records of a commit log: where each starts, how long it is, where the file is damaged.

Laws of this file:

* A record belongs to the split in which its first byte lies, so splits never overlap and never lose a record.
* A split that starts inside a file finds its first record by itself: it looks back for the last record before its
  start (magic, and PHYSICALOFFSET equal to the place it was found at) and walks forward from there. What the split
  before sees at the border and what this one sees is therefore the same.
* The chain of sizes is followed in many lanes at once (`chain.py`); everything else, too, is done for thousands of
  records at once.
* Damage never ends a walk: it is reported and the walk goes on at the next record that proves itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from understudy.format.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, SMALLEST_RECORD_BYTES
from understudy.format.record_layout import layout
from understudy.spark_tools.kernels.chain import follow_many, follow_one
from understudy.spark_tools.kernels.damage import WARNING, Damage
from understudy.spark_tools.kernels.search import find_record, last_record_before
from understudy.spark_tools.kernels.window import Bytes, Chunk, Window, cut, examine

LOOK_BACK_BYTES = 8 * 1024 * 1024
RECORDS_ONE_BY_ONE = 4096
RECORDS_PER_CHUNK = 16384

_HEAD = layout("size", "magic")
_PHYSICAL_OFFSET = struct.Struct(">q")


def _why(window: Window, at: int, limit: int) -> str:
    if at + 8 > limit:
        return f"only {limit - at} bytes remain where a record should start"
    size, magic = _HEAD.unpack_from(window.data, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        if magic in (0xA720A3DA, 0xAB20A3DA):
            return "wrong byte order: the magic is little endian"
        return f"unknown magic 0x{magic:08X} where a record should start"
    if size < SMALLEST_RECORD_BYTES or at + size > limit:
        return f"record size {size} does not fit: at least {SMALLEST_RECORD_BYTES}, at most {limit - at} are possible"
    (physical,) = _PHYSICAL_OFFSET.unpack_from(window.data, at + PHYSICAL_OFFSET_AT)
    expected = window.file_offset_bytes + window.base + at
    if physical != expected:
        return f"the record says physical offset {physical}, it lies at {expected}"
    return "body, topic and properties lengths do not add up to the record size"


def _first_nonzero(array: Bytes) -> int:
    step = 1 << 20
    for at in range(0, array.shape[0], step):
        piece = array[at : at + step]
        if piece.any():
            return at + int((piece != 0).argmax())
    return -1


def walk(window: Window, start: int, stop: int) -> Iterator[Chunk | Damage]:
    """Yields the records whose first byte lies in [start, stop) of the file, in order, and every fault on the way.

    Args:
        window: bytes of the file; must reach from at most `start - LOOK_BACK_BYTES` (or 0) to beyond the last record.
        start, stop: the split, in bytes from the file's start.

    A zero tail is the normal end of a log and is reported as a warning of kind "end-of-log" with the byte where it
    begins; a blank marker ends the file silently.
    """
    base, limit = window.base, min(len(window.data), window.file_size_bytes - window.base)
    stop_at = min(stop - base, limit)
    at = start - base
    if start > 0:
        before = last_record_before(window, at)
        if before >= 0:
            at = before
        else:
            at = find_record(window, at, stop_at)
            if at < 0:
                return
    first = start - base
    lanes = True
    while at < stop_at:
        positions, met = follow_many(window, at, stop_at) if lanes else (np.empty(0, dtype=np.int64), False)
        # where lanes do not meet something is damaged: past it one by one, then in lanes again
        lanes = met or not lanes
        if not len(positions):
            positions = follow_one(window, at, RECORDS_ONE_BY_ONE)
        good = 0
        for row in range(0, len(positions), RECORDS_PER_CHUNK):
            wanted = positions[row : row + RECORDS_PER_CHUNK]
            chunk, count = examine(window, wanted)
            if count:
                at = int(chunk.positions[-1]) + int(chunk.header["size"][-1])
                if int(chunk.positions[0]) < first or int(chunk.positions[-1]) >= stop_at:
                    low, high = np.searchsorted(chunk.positions, (first, stop_at))
                    chunk = cut(chunk, int(low), int(high))
                if len(chunk.positions):
                    yield chunk
            good += count
            if count < len(wanted):
                break
        if good and good == len(positions):
            continue
        if at >= stop_at:
            return
        found = _fault(window, at, limit)
        if found is None:
            return
        fault, resume = found
        if at >= first:
            yield fault
        if resume < 0:
            return
        at = resume


def _fault(window: Window, at: int, limit: int) -> tuple[Damage, int] | None:
    """What is wrong at `at`, and where to go on (-1: nowhere in this window); None for a proper blank marker."""
    file_at = window.base + at
    if at + 8 <= limit:
        size, magic = _HEAD.unpack_from(window.data, at)
        if magic == BLANK_MAGIC:
            if size == window.file_size_bytes - file_at:
                return None
            detail = f"blank marker says {size} bytes, {window.file_size_bytes - file_at} remain"
            return Damage(window.path, file_at, 8, "bad-blank", detail), -1
    resume = find_record(window, at + 1, limit)
    tail = window.array[at : limit if resume < 0 else resume]
    nonzero = _first_nonzero(tail)
    if nonzero < 0 and resume < 0:
        length = window.file_size_bytes - file_at if window.reaches_end else -1
        detail = f"zeros from here on, {length} bytes" if length >= 0 else "zeros from here on"
        return Damage(window.path, file_at, length, "end-of-log", detail, WARNING), -1
    if nonzero < 0:
        detail = f"{len(tail)} zero bytes, records go on at byte {window.base + resume}"
        return Damage(window.path, file_at, len(tail), "hole", detail), resume
    why = _why(window, at, limit)
    if resume < 0:
        length = window.file_size_bytes - file_at if window.reaches_end else -1
        return Damage(window.path, file_at, length, "damaged-tail", why + "; no record follows"), -1
    return (
        Damage(window.path, file_at, resume - at, "damaged", f"{why}; records go on at byte {window.base + resume}"),
        resume,
    )
