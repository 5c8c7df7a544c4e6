"""Windows onto commit-log files, and the columns of a run of records found in one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.format.record import (
    BODY_LENGTH_AT,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD_BYTES,
    STORE_TIME_AT,
)

Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: The fixed part of a record with IPv4 hosts, as :data:`understudy.format.record.FIXED` has it.
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
        # from here on only as long as both hosts are IPv4
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
#: From the store time to the body, where the store host is IPv6 and where it is not.
_TO_BODY = tuple(BODY_LENGTH_AT[hosts] - STORE_TIME_AT[hosts] + HEADER["body_length"].itemsize for hosts in (2, 0))
_HEADER_BYTES = np.dtype(f"V{HEADER.itemsize}")


@dataclass(slots=True)
class Chunk:
    """A run of valid records: start of each in the window, and the columns needed to find the rest of its fields.

    `plain` says that all hosts are IPv4, so that `header` holds every field of it.
    """

    positions: Int64
    header: npt.NDArray[np.void]
    store_timestamp_at: Int64
    body_length: Int64
    body_at: Int64
    topic_length: Int64
    topic_at: Int64
    properties_length: Int64
    properties_at: Int64
    plain: bool


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

    Raises:
        IndexError: when a position (plus the width) lies outside the array.
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
    return _part(chunk, slice(start, stop))


def select(chunk: Chunk, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Chunk:
    """The chosen records of a chunk."""
    return _part(chunk, rows)


def _part(chunk: Chunk, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Chunk:
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
        chunk.plain,
    )


def examine(window: Window, positions: Int64) -> tuple[Chunk, int]:
    """Reads the headers of records and checks each against itself.

    Returns: the columns of the leading records that hold together, and how many those are (all of `positions`, or the
    index of the first whose address, lengths or total size disagree).
    """
    array = window.array
    last = array.shape[0]
    inside = (positions >= 0) & (positions <= last - HEADER.itemsize)
    if not inside.all():
        positions = positions[: int(inside.argmin())]
    # as plain bytes, since numpy copies a structured value field by field
    header = gather(array, positions, _HEADER_BYTES).view(HEADER)
    size = header["size"].astype(np.int64)
    sys_flag = header["sys_flag"]
    magic = header["magic"]
    end = positions + size
    good = header["physical_offset"] == positions + (window.file_offset_bytes + window.base)
    good &= (magic == MAGIC_V1) | (magic == MAGIC_V2)
    good &= (size >= SMALLEST_RECORD_BYTES) & (end <= min(last, window.file_size_bytes - window.base))
    plain = not (sys_flag & (FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)).any()
    if plain:
        store_timestamp_at = positions + STORE_TIME_AT[0]
        body_length = header["body_length"].astype(np.int64)
        body_at = positions + HEADER.itemsize
    else:
        store_timestamp_at = positions + np.where(sys_flag & FLAG_BORN_HOST_V6, STORE_TIME_AT[1], STORE_TIME_AT[0])
        body_at = store_timestamp_at + np.where(sys_flag & FLAG_STORE_HOST_V6, *_TO_BODY)
        good &= body_at <= end
        body_length = gather(array, np.where(good, body_at - 4, positions), ">i4").astype(np.int64)
    topic_length_at = body_at + body_length
    good &= (body_length >= 0) & (topic_length_at + 3 <= end)
    # what is no record is read at its own start, where there are bytes
    topic_length_at = np.where(good, topic_length_at, positions)
    topic_length = gather(array, topic_length_at, "i1").astype(np.int64)
    topic_at = topic_length_at + 1
    second = magic == MAGIC_V2
    if second.any():
        topic_length = np.where(second, gather(array, topic_length_at, ">i2"), topic_length)
        topic_at = topic_at + second
    properties_length_at = topic_at + topic_length
    good &= (topic_length >= 0) & (properties_length_at + 2 <= end)
    properties_length_at = np.where(good, properties_length_at, positions)
    properties_length = gather(array, properties_length_at, ">i2").astype(np.int64)
    properties_at = properties_length_at + 2
    good &= (properties_length >= 0) & (properties_at + properties_length == end)
    count = len(positions) if good.all() else int(good.argmin())
    chunk = Chunk(
        positions,
        header,
        store_timestamp_at,
        body_length,
        body_at,
        topic_length,
        topic_at,
        properties_length,
        properties_at,
        plain,
    )
    return (chunk if count == len(positions) else cut(chunk, 0, count)), count
