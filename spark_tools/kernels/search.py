"""Finding a record in a commit log without knowing where the one before it ends."""

from __future__ import annotations

from understudy.format.record import MAGIC_V1, MAGIC_V2, SMALLEST_RECORD_BYTES
from understudy.format.record_layout import layout
from understudy.spark_tools.kernels.window import Window

MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]  # both versions share it

_HEAD = layout("size", "magic", "physical_offset")
_SEARCH_PIECE = 1 << 20


def proves_itself(window: Window, at: int) -> bool:
    """Whether a record with the magic and its own address starts at byte `at` of the window."""
    data = window.data
    if at < 0 or at + _HEAD.size > len(data):
        return False
    size, magic, physical = _HEAD.unpack_from(data, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    if size < SMALLEST_RECORD_BYTES or window.base + at + size > window.file_size_bytes:
        return False
    return bool(physical == window.file_offset_bytes + window.base + at)


def find_record(window: Window, start: int, stop: int) -> int:
    """First record that proves itself and starts in [start, stop) of the window, or -1."""
    limit = min(stop + 7, len(window.data))
    for at in range(max(start, 0) + 4, limit, _SEARCH_PIECE):
        end = min(at + _SEARCH_PIECE + 3, limit)
        if not window.array[at:end].any():
            continue
        block = bytes(window.data[at:end])
        hit = block.find(MAGIC_PREFIX)
        while hit >= 0:
            position = at + hit - 4
            if position < stop and proves_itself(window, position):
                return position
            hit = block.find(MAGIC_PREFIX, hit + 1)
    return -1


def last_record_before(window: Window, start: int) -> int:
    """Start of the last record that proves itself in the part of the window before `start`, or -1."""
    stop = min(start + 7, len(window.data))
    piece = 1 << 16
    while stop > 7:
        low = max(0, stop - piece)
        block = bytes(window.data[low:stop])
        hit = block.rfind(MAGIC_PREFIX)
        while hit >= 0:
            position = low + hit - 4
            if position < start and proves_itself(window, position):
                return position
            hit = block.rfind(MAGIC_PREFIX, 0, hit + 2)
        if low == 0:
            return -1
        stop = low + 3
        piece = min(piece * 4, 1 << 22)
    return -1
