"""Index files: header, entries, and whether both agree."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from understudy.spark_tools.kernels.damage import Damage

HEADER_BYTES = 40
SLOT_BYTES = 4
ENTRY_BYTES = 20
ENTRY = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_difference_s", ">i4"), ("previous", ">i4")])
_HEADER = struct.Struct(">qqqqii")
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
DEFAULT_FILE_BYTES = HEADER_BYTES + SLOT_BYTES * DEFAULT_SLOTS + ENTRY_BYTES * DEFAULT_ENTRIES

SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("path", pa.string()),
        ("entry", pa.int32()),
        ("key_hash", pa.int32()),
        ("physical_offset", pa.int64()),
        ("store_second", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Header of an index file, times in milliseconds; `entries` counts from 1, entry 0 is never used."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slots_used: int
    entries: int


def read_header(data: bytes | memoryview) -> IndexHeader:
    """Header of an index file; an entry count of 0 or less counts as 1 (IndexHeader.java)."""
    begin, end, begin_offset, end_offset, used, count = _HEADER.unpack_from(data, 0)
    return IndexHeader(begin, end, begin_offset, end_offset, used, max(count, 1))


def slot_count(data: bytes | memoryview, header: IndexHeader) -> int | None:
    """Number of hash slots of a file, found from its size and contents (the file does not say it).

    The slot of entry n points to n when n is the newest entry of its chain, so a candidate must place the last entry
    there. Returns None when no candidate fits.
    """
    size = len(data)
    if size == DEFAULT_FILE_BYTES:
        return DEFAULT_SLOTS
    room = size - HEADER_BYTES
    last = header.entries - 1
    if room <= 0 or room % 4:
        return None
    most = (room - ENTRY_BYTES * header.entries) // SLOT_BYTES
    words = np.frombuffer(data, dtype=">i4", offset=HEADER_BYTES, count=room // 4)
    if last < 1:
        return 1
    step = 5  # room - 4*slots must be a multiple of 20
    begin = (room // SLOT_BYTES) % step
    for slots in range(begin or step, most + 1, step):
        entry = slots + 5 * last
        if entry + 5 > len(words):
            break
        key_hash = int(words[entry])
        if key_hash >= 0 and int(words[key_hash % slots]) == last and _agrees(words, slots, header):
            return slots
    return None


def _agrees(words: npt.NDArray[np.int32], slots: int, header: IndexHeader) -> bool:
    used = words[:slots]
    if int((used != 0).sum()) != header.slots_used or int(used.max(initial=0)) >= header.entries:
        return False
    table = words[slots : slots + 5 * header.entries].reshape(-1, 5)[1:]
    return bool((table[:, 0] >= 0).all() and (table[:, 4] < np.arange(1, header.entries)).all())


def entries(data: bytes | memoryview, slots: int, header: IndexHeader) -> npt.NDArray[np.void]:
    """Entries 1 and up of a file."""
    start = HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES
    room = max(0, (len(data) - start) // ENTRY_BYTES)
    return (
        np.frombuffer(data, dtype=ENTRY, offset=start, count=min(header.entries - 1, room))
        if room
        else np.empty(0, ENTRY)
    )


def faults(data: bytes | memoryview, path: str) -> tuple[list[Damage], int | None]:
    """What is wrong with one index file, and its slot count if it could be found."""
    if len(data) < HEADER_BYTES:
        return [
            Damage(path, 0, len(data), "short-file", f"{len(data)} bytes, an index header has {HEADER_BYTES}")
        ], None
    header = read_header(data)
    slots = slot_count(data, header)
    found: list[Damage] = []
    if slots is None:
        found.append(Damage(path, 0, HEADER_BYTES, "bad-index", "entries, slots and header do not fit together"))
        return found, None
    if header.begin_timestamp > header.end_timestamp or header.begin_physical_offset > header.end_physical_offset:
        found.append(Damage(path, 0, HEADER_BYTES, "bad-index", "header begins after it ends"))
    table = entries(data, slots, header)
    if len(table):
        outside = (table["physical_offset"] < 0) | (table["physical_offset"] > header.end_physical_offset)
        if outside.any():
            row = int(outside.argmax())
            at = HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * (row + 1)
            detail = f"entry {row + 1} points to {int(table['physical_offset'][row])}, outside of the file's range"
            found.append(Damage(path, at, ENTRY_BYTES, "bad-index-entry", detail))
    return found, slots


def batch(
    table: npt.NDArray[np.void], first_entry: int, header: IndexHeader, store: str, path: str, columns: list[str]
) -> pa.RecordBatch:
    """One record batch of entries with the named columns of `SCHEMA`; `store_second` is begin time plus difference.

    Args:
        table: the entries.
        first_entry: number of the first one in its file.
        header: of the file.
        store: name of the store.
        path: of the file.
        columns: names in the order that is wanted.
    """
    count = len(table)
    makers = {
        "store": lambda: pa.repeat(pa.scalar(store, pa.string()), count),
        "path": lambda: pa.repeat(pa.scalar(path, pa.string()), count),
        "entry": lambda: pa.array(np.arange(first_entry, first_entry + count, dtype=np.int32)),
        "key_hash": lambda: pa.array(table["key_hash"].astype(np.int32)),
        "physical_offset": lambda: pa.array(table["physical_offset"].astype(np.int64)),
        "store_second": lambda: pa.array(header.begin_timestamp // 1000 + table["time_difference_s"].astype(np.int64)),
    }
    return pa.RecordBatch.from_arrays(
        [makers[name]() for name in columns], schema=pa.schema([SCHEMA.field(name) for name in columns])
    )
