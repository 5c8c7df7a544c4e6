"""Finding the records of a commit log: where each starts, how long it is, where the file is damaged.

Laws of this file:

* A record belongs to the split in which its first byte lies, so splits never overlap and never lose a record.
* A split that starts inside a file finds its first record by itself: it looks back for the last record before its
  start (magic, and PHYSICALOFFSET equal to the place it was found at) and walks forward from there. What the split
  before sees at the border and what this one sees is therefore the same.
* The chain of sizes is serial. Records of equal size are stepped over in one strided comparison; the others cost one
  small read each. Everything else is done for thousands of records at once.
* Damage never ends a walk: it is reported and the walk goes on at the next record that proves itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import repeat

import numpy as np

from understudy.spark_tools.kernels.damage import WARNING, Damage
from understudy.spark_tools.kernels.window import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD_BYTES,
    Bytes,
    Chunk,
    Window,
    cut,
    examine,
)

LOOK_BACK_BYTES = 8 * 1024 * 1024
RECORDS_PER_CHUNK = 4096

_HEAD = struct.Struct(">iI")
_SIZE = struct.Struct(">i")
_PHYSICAL_OFFSET = struct.Struct(">q")
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]  # both versions share it
_SEARCH_PIECE = 1 << 20
_PROBE_RECORDS = 16
_CACHE_LINE_BYTES = 64


def _proves_itself(window: Window, at: int) -> bool:
    """Whether a record with the magic and its own address starts at byte `at` of the window."""
    data = window.data
    if at < 0 or at + 36 > len(data):
        return False
    size, magic = _HEAD.unpack_from(data, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    if size < SMALLEST_RECORD_BYTES or window.base + at + size > window.file_size_bytes:
        return False
    (physical,) = _PHYSICAL_OFFSET.unpack_from(data, at + 28)
    return bool(physical == window.file_offset_bytes + window.base + at)


def find_record(window: Window, start: int, stop: int) -> int:
    """First record that proves itself and starts in [start, stop) of the window, or -1."""
    limit = min(stop + 7, len(window.data))
    for at in range(max(start, 0) + 4, limit, _SEARCH_PIECE):
        end = min(at + _SEARCH_PIECE + 3, limit)
        if not window.array[at:end].any():
            continue
        block = bytes(window.data[at:end])
        hit = block.find(_MAGIC_PREFIX)
        while hit >= 0:
            position = at + hit - 4
            if position < stop and _proves_itself(window, position):
                return position
            hit = block.find(_MAGIC_PREFIX, hit + 1)
    return -1


def _last_record_before(window: Window, start: int) -> int:
    """Start of the last record that proves itself in the part of the window before `start`, or -1."""
    stop = min(start + 7, len(window.data))
    piece = 1 << 16
    while stop > 7:
        low = max(0, stop - piece)
        block = bytes(window.data[low:stop])
        hit = block.rfind(_MAGIC_PREFIX)
        while hit >= 0:
            position = low + hit - 4
            if position < start and _proves_itself(window, position):
                return position
            hit = block.rfind(_MAGIC_PREFIX, 0, hit + 2)
        if low == 0:
            return -1
        stop = low + 3
        piece = min(piece * 4, 1 << 22)
    return -1


def _chain(window: Window, at: int, stop: int, limit: int, most: int) -> list[int]:
    """Starts of up to `most` records from `at` on, following the sizes; the last ones may lie behind `stop`.

    `examine` proves every record. What is no record therefore only leads astray for the rest of the chunk: it is found
    there, together with everything that was read behind it.
    """
    data = window.data
    positions: list[int] = []
    append = positions.append
    unpack = _HEAD.unpack_from
    try:
        for _ in repeat(None, min(most, _PROBE_RECORDS)):
            size, magic = unpack(data, at)
            if magic != MAGIC_V1 and magic != MAGIC_V2:
                return positions
            append(at)
            at += size
        if size == at - positions[-1] and positions[-1] - positions[-2] == size:
            # records of one size: compare the heads of many of them at once
            while SMALLEST_RECORD_BYTES <= size and at < stop and len(positions) < most:
                count = min((limit - at) // size, (stop - at + size - 1) // size, most - len(positions))
                if count <= 0:
                    break
                words = np.ndarray((count,), ">u8", buffer=window.array, offset=at, strides=(size,))
                same = words == np.uint64(size << 32 | magic)
                run = count if same.all() else int(same.argmin())
                positions.extend(range(at, at + run * size, size))
                at += run * size
                if run < count:
                    break
        size_of = _SIZE.unpack_from
        for _ in repeat(None, most - len(positions)):
            append(at)
            (size,) = size_of(data, at)
            at += size
    except struct.error:  # the chain left the window
        pass
    return positions


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
    (physical,) = _PHYSICAL_OFFSET.unpack_from(window.data, at + 28)
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


def _touch(lines: Bytes) -> None:
    if len(lines):
        lines.max()


def _sizes_vary(chunk: Chunk) -> bool:
    sizes = chunk.header["size"]
    return bool((sizes != sizes[0]).any())


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
        before = _last_record_before(window, at)
        if before >= 0:
            at = before
        else:
            at = find_record(window, at, stop_at)
            if at < 0:
                return
    first = start - base
    span = 0
    while at < stop_at:
        # touching the lines in order first lets the processor fetch ahead, which following the chain does not
        _touch(window.array[at : at + span : _CACHE_LINE_BYTES])
        positions = _chain(window, at, stop_at, limit, RECORDS_PER_CHUNK)
        if positions:
            starts = np.array(positions, dtype=np.int64)
            chunk, count = examine(window, starts)
            if count:
                following = int(chunk.positions[-1]) + int(chunk.header["size"][-1])
                span = following - at if _sizes_vary(chunk) else 0
                low, high = np.searchsorted(chunk.positions, (first, stop_at))
                if low or high < count:
                    chunk = cut(chunk, int(low), int(high))
                if len(chunk.positions):
                    yield chunk
                at = following
            if count == len(positions):
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
        if magic == MAGIC_BLANK:
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
