"""Units of consume queues and batch consume queues."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from understudy.spark_tools.kernels.damage import WARNING, Damage

UNIT_BYTES = 20
BATCH_UNIT_BYTES = 46
FILLER_SIZE = 0x7FFFFFFF

UNIT = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
BATCH_UNIT = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)

SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("path", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int32()),
        ("tags_code", pa.int64()),
        ("batch_size", pa.int32()),
        ("store_timestamp", pa.int64()),
    ]
)

Units = npt.NDArray[np.void]


def units(data: bytes | memoryview, dtype: np.dtype[np.void] = UNIT) -> Units:
    """Whole units of a file or of a part of one, as a structured array over the same memory."""
    return np.frombuffer(data, dtype=dtype, count=len(data) // dtype.itemsize)


def is_valid(array: Units) -> npt.NDArray[np.bool_]:
    """Which units are valid: physical offset not negative and size above zero."""
    valid: npt.NDArray[np.bool_] = (array["size"] > 0) & (array["physical_offset"] >= 0)
    return valid


def valid_count(array: Units) -> int:
    """Number of leading valid units."""
    bad = ~is_valid(array)
    return int(bad.argmax()) if bad.any() else len(array)


def up_to_last_valid(array: Units) -> Units:
    """The units without the invalid ones at their end; those before a valid one are a hole in the queue."""
    valid = np.flatnonzero(is_valid(array))
    return array[: int(valid[-1]) + 1 if len(valid) else 0]


def without_holes(array: Units, following: Units) -> Units:
    """The units, each of a hole replaced by the next valid one.

    What a hole pointed to is gone, but its records lie in the log before that of the next unit, and after it has been
    deleted from the log's begin theirs have been, too.

    Args:
        following: the first valid unit behind the array, or nothing.
    """
    whole = np.concatenate([array, following])
    at = np.where(is_valid(whole), np.arange(len(whole)), len(whole))
    after = np.minimum.accumulate(at[::-1])[::-1][: len(array)]
    return whole[after[after < len(whole)]]


def is_filler(array: Units) -> npt.NDArray[np.bool_]:
    """Which units are fillers in front of the first real unit of a queue that was created at a later offset."""
    filler: npt.NDArray[np.bool_] = (array["physical_offset"] == 0) & (array["size"] == FILLER_SIZE)
    return filler


def faults(array: Units, path: str, position: int, file_bytes: int, unit_bytes: int = UNIT_BYTES) -> list[Damage]:
    """What is wrong with a run of units of one queue file.

    Args:
        array: the units of the file from byte `position` on.
        file_bytes: size of the whole file; a rest that is no whole unit is a fault.

    Found: units after the first invalid one (a hole), physical offsets that go back, fillers behind real units, a torn
    last unit, little-endian files.
    """
    found: list[Damage] = []
    count = valid_count(array)
    rest = array[count:]
    if len(rest):
        nonzero = (rest["physical_offset"] != 0) | (rest["size"] != 0) | (rest["tags_code"] != 0)
        if nonzero.any():
            first = int(nonzero.argmax())
            at = position + (count + first) * unit_bytes
            swapped = rest["size"][first : first + 1].astype("<i4").byteswap()[0]
            if first == 0:
                kind = "wrong-byte-order" if count == 0 and 0 < int(swapped) < 1 << 23 else "invalid-unit"
                offset, size = int(rest["physical_offset"][0]), int(rest["size"][0])
                found.append(Damage(path, at, unit_bytes, kind, f"unit with physical offset {offset} and size {size}"))
            else:
                begin = position + count * unit_bytes
                found.append(Damage(path, begin, at - begin, "hole", f"zero units, units go on at byte {at}"))
    good = array[:count]
    if count > 1:
        offsets = good["physical_offset"].astype(np.int64)
        filler = is_filler(good)
        back = (np.diff(offsets) < 0) if unit_bytes == BATCH_UNIT_BYTES else (np.diff(offsets) <= 0)
        back &= ~filler[1:] & ~filler[:-1]
        if back.any():
            row = int(back.argmax()) + 1
            detail = f"physical offset {int(offsets[row])} after {int(offsets[row - 1])}"
            found.append(Damage(path, position + row * unit_bytes, unit_bytes, "offset-goes-back", detail))
        late = filler[1:] & ~filler[:-1]
        if late.any():
            row = int(late.argmax()) + 1
            found.append(
                Damage(path, position + row * unit_bytes, unit_bytes, "late-filler", "filler unit after a real unit")
            )
    if file_bytes % unit_bytes:
        at = file_bytes - file_bytes % unit_bytes
        found.append(
            Damage(path, at, file_bytes % unit_bytes, "torn-unit", f"file size is no multiple of {unit_bytes}", WARNING)
        )
    return found


def batch(
    array: Units, store: str, path: str, topic: str, queue_id: int, first_offset: int, columns: list[str]
) -> pa.RecordBatch:
    """One record batch of units with the named columns of `SCHEMA`; `first_offset` is the queue offset of the first.

    Args:
        array: the units.
        store: name of the store.
        path: of the queue's file.
        topic: of the queue.
        queue_id: of the queue.
        first_offset: queue offset of the first unit.
        columns: names in the order that is wanted.
    """
    count = len(array)
    batched = array.dtype == BATCH_UNIT
    arrays: list[pa.Array] = []
    for name in columns:
        kind = SCHEMA.field(name).type
        if name in ("store", "path", "topic"):
            text = {"store": store, "path": path, "topic": topic}[name]
            arrays.append(pa.repeat(pa.scalar(text, pa.string()), count))
        elif name == "queue_id":
            arrays.append(pa.array(np.full(count, queue_id, np.int32)))
        elif name == "queue_offset":
            values = array["base_offset"].astype(np.int64) if batched else np.arange(first_offset, first_offset + count)
            arrays.append(pa.array(values, kind))
        elif name == "batch_size":
            arrays.append(pa.array(array["batch_size"].astype(np.int32) if batched else np.ones(count, np.int32)))
        elif name == "store_timestamp":
            arrays.append(
                pa.array(array["store_timestamp"].astype(np.int64)) if batched else pa.nulls(count, pa.int64())
            )
        else:
            arrays.append(pa.array(array[name].astype(kind.to_pandas_dtype()), kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in columns]))
