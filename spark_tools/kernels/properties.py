"""One property of many records at once, out of their property strings (`name 0x01 value 0x02`, repeated)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def parse_properties(raw: bytes) -> dict[str, str]:
    """All properties of one record; empty names and values are dropped (MessageDecoder.java)."""
    found: dict[str, str] = {}
    for piece in raw.decode("utf-8", "replace").split("\x02"):
        name, separator, value = piece.partition("\x01")
        if separator and name and value and len(piece) >= 3:
            found[name] = value
    return found


def property_column(properties: pa.LargeBinaryArray, name: str) -> pa.BinaryArray:
    """Value of the property `name` of each record, null where it is absent or empty.

    A hit counts only at the start of the string or after a 0x02, so a value that contains the name never matches;
    a record whose first hit is of that kind is parsed on its own.
    """
    count = len(properties)
    if count == 0:
        return pa.array([], pa.large_binary())
    pattern = name.encode() + b"\x01"
    hit = pc.find_substring(properties, pattern=pattern).to_numpy()
    offsets = np.frombuffer(properties.buffers()[1], dtype=np.int64)[properties.offset : properties.offset + count + 1]
    data = np.frombuffer(properties.buffers()[2] or b"", dtype=np.uint8)
    rows = np.flatnonzero(hit >= 0)
    if not len(rows):
        return pa.nulls(count, pa.large_binary())
    start = offsets[rows] + hit[rows]
    inside = (hit[rows] > 0) & (data[np.maximum(start - 1, 0)] != 2)
    low, high = int(offsets[0]), int(offsets[-1])
    separators = np.flatnonzero(data[low:high] == 2) + low
    value = start + len(pattern)
    place = np.searchsorted(separators, value)
    padded = np.append(separators, high)
    end = np.minimum(padded[place], offsets[rows + 1])
    length = np.zeros(count, dtype=np.int64)
    begin = np.zeros(count, dtype=np.int64)
    begin[rows], length[rows] = value, end - value
    valid = length > 0
    # null rows borrow an empty place that keeps the order of the interleaved offsets
    missing = ~valid
    begin[missing] = offsets[:-1][missing]
    length[missing] = 0
    interleaved = np.empty(2 * count + 1, dtype=np.int64)
    interleaved[0:-1:2] = begin
    interleaved[1::2] = begin + length
    interleaved[-1] = interleaved[-2]
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * count, [None, pa.py_buffer(interleaved), pa.py_buffer(data)]
    )
    indices = pa.array(np.arange(0, 2 * count, 2), mask=missing)
    result = whole.take(indices)
    if inside.any():
        values = result.to_pylist()
        for row in rows[inside]:
            text = parse_properties(properties[int(row)].as_py()).get(name)
            values[row] = None if text is None else text.encode()
        result = pa.array(values, pa.large_binary())
    return result
