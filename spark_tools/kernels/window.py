"""Windows onto commit-log files, and the columns of a run of records found in one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
SMALLEST_RECORD_BYTES = 91

Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEADER = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)


@dataclass(slots=True)
class Chunk:
    """A run of valid records: start of each in the window, and the columns needed to find the rest of its fields."""

    positions: Int64
    header: npt.NDArray[np.void]
    store_timestamp_at: Int64
    body_length: Int64
    body_at: Int64
    topic_length: Int64
    topic_at: Int64
    properties_length: Int64
    properties_at: Int64


@dataclass(slots=True)
class Window:
    """Part of one commit-log file: `data` holds the bytes from `base` on, both measured from the file's start.

    `reaches_end` says that the file has nothing but zeros (or nothing at all) after `data`.
    """

    path: str
    file_offset_bytes: int
    file_size_bytes: int
    base: int
    data: bytes | memoryview
    reaches_end: bool = True
    array: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self.array = np.frombuffer(self.data, dtype=np.uint8)


def gather(array: Bytes, positions: Int64, kind: str | np.dtype[np.void]) -> npt.NDArray[Any]:
    """Reads one value of the given dtype at each position, whatever its alignment.

    Errors: IndexError when a position (plus the width) lies outside the array.
    """
    dtype = np.dtype(kind)
    count = array.shape[0] - dtype.itemsize + 1
    if count <= 0:
        if len(positions):
            raise IndexError("position outside of the buffer")
        return np.empty(0, dtype)
    view: npt.NDArray[Any] = np.ndarray((count,), dtype, buffer=array, strides=(1,))
    return view[positions]


def cut(chunk: Chunk, start: int, stop: int | None = None) -> Chunk:
    """The records [start, stop) of a chunk."""
    part = slice(start, stop)
    return Chunk(
        chunk.positions[part],
        chunk.header[part],
        chunk.store_timestamp_at[part],
        chunk.body_length[part],
        chunk.body_at[part],
        chunk.topic_length[part],
        chunk.topic_at[part],
        chunk.properties_length[part],
        chunk.properties_at[part],
    )


def select(chunk: Chunk, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Chunk:
    """The chosen records of a chunk."""
    return Chunk(
        chunk.positions[rows],
        chunk.header[rows],
        chunk.store_timestamp_at[rows],
        chunk.body_length[rows],
        chunk.body_at[rows],
        chunk.topic_length[rows],
        chunk.topic_at[rows],
        chunk.properties_length[rows],
        chunk.properties_at[rows],
    )


def examine(window: Window, positions: Int64) -> tuple[Chunk, int]:
    """Reads the headers of records and checks each against itself.

    Returns: the columns of the leading records that hold together, and how many those are (all of `positions`, or the
    index of the first whose address, lengths or total size disagree).
    """
    array = window.array
    inside = (positions >= 0) & (positions <= array.shape[0] - HEADER.itemsize)
    if not inside.all():
        positions = positions[: int(inside.argmin())]
    header = gather(array, positions, HEADER)
    assert header.dtype.names is not None
    size = header["size"].astype(np.int64)
    sys_flag = header["sys_flag"].astype(np.int64)
    end = positions + size
    store_timestamp_at = positions + np.where(sys_flag & 0x10, 68, 56)
    body_length_at = store_timestamp_at + np.where(sys_flag & 0x20, 40, 28)
    last = array.shape[0]
    good = header["physical_offset"] == positions + (window.file_offset_bytes + window.base)
    good &= (size >= SMALLEST_RECORD_BYTES) & (body_length_at + 4 <= end)
    good &= end <= min(last, window.file_size_bytes - window.base)
    good &= (header["magic"] == MAGIC_V1) | (header["magic"] == MAGIC_V2)

    def read(at: Int64, kind: str, width: int) -> Int64:
        safe = np.minimum(at, last - width)
        return gather(array, np.maximum(safe, 0), kind).astype(np.int64)

    body_length = read(body_length_at, ">i4", 4)
    body_at = body_length_at + 4
    topic_length_at = body_at + body_length
    good &= (body_length >= 0) & (topic_length_at + 3 <= end)
    second = header["magic"] == MAGIC_V2
    topic_length_at = np.where(good, topic_length_at, positions)
    topic_length = read(topic_length_at, "i1", 1)
    if second.any():
        topic_length = np.where(second, read(topic_length_at, ">i2", 2), topic_length)
    topic_at = topic_length_at + np.where(second, 2, 1)
    properties_length_at = topic_at + topic_length
    good &= (topic_length >= 0) & (properties_length_at + 2 <= end)
    properties_length_at = np.where(good, properties_length_at, positions)
    properties_length = read(properties_length_at, ">i2", 2)
    properties_at = properties_length_at + 2
    good &= (properties_length >= 0) & (properties_at + properties_length == end)
    count = len(positions) if good.all() else int(good.argmin())
    cut = slice(0, count)
    chunk = Chunk(
        positions[cut],
        header[cut],
        store_timestamp_at[cut],
        body_length[cut],
        body_at[cut],
        topic_length[cut],
        topic_at[cut],
        properties_length[cut],
        properties_at[cut],
    )
    return chunk, count
