"""Consume queues and indexes against the log of the same store, split by split, without a shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from understudy.format import record_layout
from understudy.format.java_hash import index_key_hash
from understudy.format.names import LIGHT_PREFIX, SCHEDULE_TOPIC
from understudy.format.record import (
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_ROLLBACK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_TIME_AT,
)
from understudy.spark_tools.facts import LogRange, QueueRange, log_file_of, queue_of, read_units
from understudy.spark_tools.index_files import entry_pieces, header_of
from understudy.spark_tools.kernels import consumequeue, records
from understudy.spark_tools.kernels.properties import property_column
from understudy.spark_tools.kernels.window import HEADER, Chunk, Int64, Window, gather, select
from understudy.spark_tools.layout import Layout, LogFile, Queue, Store
from understudy.spark_tools.storage import data_end, map_range
from understudy.spark_tools.windows import SPLIT_BYTES, read_records

_MAGIC_AND_FLAGS = record_layout.layout("magic", "sys_flag")
_TIMED_BYTES = max(STORE_TIME_AT) + HEADER["store_timestamp"].itemsize
EXTENSION_ADDRESS_LIMIT = -2147483649
FINDINGS_PER_PART = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement between the log and what was derived from it."""

    kind: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    path: str
    offset_bytes: int
    detail: str


def log_against_queues(store: Store, file: LogFile, start: int, stop: int) -> list[Finding]:
    """Records of a split whose unit in the consume queue is missing or differs.

    Args:
        store: whose log and queues they are.
        file: of the log.
        start: first byte of the split, counted from the file's beginning.
        stop: byte before which its records begin.
    """
    found: list[Finding] = []
    for window, item in read_records(file, start, stop):
        if isinstance(item, Chunk) and len(found) < FINDINGS_PER_PART:
            kind = item.header["sys_flag"].astype(np.int64) & FLAG_TRANSACTION_MASK
            chosen = select(item, (kind == 0) | (kind == 8))
            if len(chosen.positions):
                found += _chunk_against_queues(store, window, chosen)
    return found[:FINDINGS_PER_PART]


def _chunk_against_queues(store: Store, window: Window, chunk: Chunk) -> list[Finding]:
    found: list[Finding] = []
    topic = records.topics(window, chunk)
    properties = records.raw_properties(window, chunk)
    codes = records.tags_codes(window, chunk, topic, properties)
    encoded = topic.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    queue_ids = chunk.header["queue_id"].astype(np.int64)
    keys = numbers << 32 | queue_ids
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        name, queue_id = names[int(key) >> 32], int(key) & 0xFFFFFFFF
        expected = chunk.header[rows]
        offsets = expected["queue_offset"].astype(np.int64)
        part = QueueRange(name, False, queue_id, int(offsets.min()), int(offsets.max()) + 1)
        queue = queue_of(store, part)
        if queue is None:
            batched = queue_of(store, QueueRange(name, True, queue_id, 0, 0))
            if batched is not None:
                found += _against_batches(batched, expected)
                continue
        units, first = (
            read_units(queue, part.start, part.stop) if queue else (np.empty(0, consumequeue.UNIT), part.start)
        )
        found += _compare_units(queue, name, queue_id, units, first, expected, offsets, codes[rows])
    return found


def _compare_units(
    queue: Queue | None,
    topic: str,
    queue_id: int,
    units: consumequeue.Units,
    first: int,
    expected: npt.NDArray[np.void],
    offsets: Int64,
    codes: Int64,
) -> list[Finding]:
    place = offsets - first
    present = (place >= 0) & (place < len(units))
    present[present] = consumequeue.is_valid(units)[place[present]]
    found: list[Finding] = []

    def note(row: int, kind: str, detail: str) -> None:
        path, at = unit_place(queue, int(offsets[row]))
        physical = int(expected["physical_offset"][row])
        found.append(Finding(kind, topic, queue_id, int(offsets[row]), physical, path, at, detail))

    missing = np.flatnonzero(~present)
    if len(missing):
        row = int(missing[0])
        note(row, "missing-unit", f"{len(missing)} records from queue offset {int(offsets[row])} on have no unit")
    rows = np.flatnonzero(present)
    if not len(rows):
        return found
    held = units[place[rows]]
    wrong = (held["physical_offset"] != expected["physical_offset"][rows]) | (held["size"] != expected["size"][rows])
    code = held["tags_code"].astype(np.int64)
    checked = (code > EXTENSION_ADDRESS_LIMIT) & (topic != SCHEDULE_TOPIC)
    wrong_tag = ~wrong & checked & (code != codes[rows])
    for bad in np.flatnonzero(wrong)[:FINDINGS_PER_PART]:
        detail = f"unit points to {int(held['physical_offset'][bad])} with {int(held['size'][bad])} bytes"
        note(int(rows[bad]), "wrong-unit", detail)
    for bad in np.flatnonzero(wrong_tag)[:FINDINGS_PER_PART]:
        note(int(rows[bad]), "wrong-tags-code", f"unit has {int(code[bad])}, the record gives {int(codes[rows[bad]])}")
    return found


def _against_batches(queue: Queue, expected: npt.NDArray[np.void]) -> list[Finding]:
    """Records of a batch queue: each must be pointed to by some unit."""
    width = consumequeue.BATCH_UNIT_BYTES
    begins = [(file.start_offset // width, file.size_bytes // width) for file in queue.files]
    pieces = [read_units(queue, begin, begin + count)[0]["physical_offset"] for begin, count in begins]
    pointed = np.concatenate(pieces).astype(np.int64)
    lost = ~np.isin(expected["physical_offset"].astype(np.int64), pointed)
    return [
        Finding(
            "missing-unit",
            queue.topic,
            queue.queue_id,
            int(expected["queue_offset"][row]),
            int(expected["physical_offset"][row]),
            queue.files[0].path,
            0,
            "no unit of the batch queue points to the record",
        )
        for row in np.flatnonzero(lost)[:FINDINGS_PER_PART]
    ]


def unit_place(queue: Queue | None, queue_offset: int) -> tuple[str, int]:
    """File and byte of a unit of a simple queue, for people to look at."""
    for file in queue.files if queue else ():
        at = queue_offset * consumequeue.UNIT_BYTES - file.start_offset
        if 0 <= at < file.size_bytes:
            return file.path, at
    return "", -1


def queue_against_log(store: Store, layout: Layout, log: LogRange, part: QueueRange) -> list[Finding]:
    """Units of a range that point to something that is not their record.

    Args:
        store: whose log and queues they are.
        layout: of the store, with the files of its log.
        log: bytes between which the log is there.
        part: range of the queue.
    """
    queue = queue_of(store, part)
    if queue is None:
        return []
    units, first = read_units(queue, part.start, part.stop)
    physical = units["physical_offset"].astype(np.int64)
    end = log.end if log.end is not None else 1 << 62
    real = consumequeue.is_valid(units) & ~consumequeue.is_filler(units)
    chosen = np.flatnonzero(real & (physical >= log.begin))
    found: list[Finding] = []

    def note(row: int, kind: str, detail: str) -> None:
        path, at = unit_place(queue, first + row) if not part.batched else (queue.files[0].path, row * 46)
        found.append(Finding(kind, part.topic, part.queue_id, first + row, int(physical[row]), path, at, detail))

    beyond = chosen[physical[chosen] >= end]
    if len(beyond):
        detail = f"{len(beyond)} units from queue offset {first + int(beyond[0])} on point behind the end of the log"
        note(int(beyond[0]), "unit-behind-log", detail)
    chosen = chosen[physical[chosen] < end]
    for file in layout.commit_log:
        rows = chosen[
            (physical[chosen] >= file.start_offset) & (physical[chosen] < file.start_offset + file.size_bytes)
        ]
        if len(rows):
            bad = _wrong_targets(file, units[rows], first + rows, part)
            for row in rows[bad][:FINDINGS_PER_PART]:
                note(int(row), "wrong-unit", f"no record of this queue offset and size at {int(physical[row])}")
    return found[:FINDINGS_PER_PART]


def _wrong_targets(file: LogFile, units: consumequeue.Units, offsets: Int64, part: QueueRange) -> npt.NDArray[np.bool_]:
    """Which units do not point to their record; the file is mapped piece by piece."""
    end = data_end(file.path, file.size_bytes)
    at = units["physical_offset"].astype(np.int64) - file.start_offset
    wrong = np.ones(len(units), dtype=bool)
    for start in range(0, end, SPLIT_BYTES):
        rows = np.flatnonzero((at >= start) & (at < start + SPLIT_BYTES))
        if not len(rows):
            continue
        data, base = map_range(file.path, start, min(SPLIT_BYTES + HEADER.itemsize, end - start))
        array = np.frombuffer(data, dtype=np.uint8)
        rows = rows[at[rows] - base + HEADER.itemsize <= len(array)]
        header = gather(array, at[rows] - base, HEADER)
        good = ((header["magic"] == MAGIC_V1) | (header["magic"] == MAGIC_V2)) & (header["size"] == units["size"][rows])
        if not part.batched and not part.topic.startswith(LIGHT_PREFIX):
            # units of light queues lead to records that live in another queue
            good &= (header["queue_offset"] == offsets[rows]) & (header["queue_id"] == part.queue_id)
        wrong[rows] = ~good
    return wrong


def log_against_index(layout: Layout, file: LogFile, start: int, stop: int) -> list[Finding]:
    """Keys of a split's records that no index file has, and entries of that range that belong to no key.

    Args:
        layout: of the store, with its index files.
        file: of the log.
        start: first byte of the split, counted from the file's beginning.
        stop: byte before which its records begin.
    """
    if not layout.indexes:
        return []
    low = file.start_offset + start
    expected: dict[int, tuple[str, int]] = {}
    last = low
    for window, item in read_records(file, start, stop):
        if isinstance(item, Chunk):
            last = int(item.header["physical_offset"][-1])
            _expected_entries(window, item, low, expected)
    held, path = _held_entries(layout, low, file.start_offset + stop)
    wanted = np.fromiter(expected, dtype=np.int64, count=len(expected))
    found: list[Finding] = []
    covered = _indexed_range(layout)
    for key in wanted[~np.isin(wanted, held)][:FINDINGS_PER_PART]:
        text, physical = expected[int(key)]
        # the newest records may not have reached an index yet, the oldest ones were deleted from it with their file
        if covered[0] <= physical <= covered[1]:
            found.append(Finding("missing-index-entry", "", -1, -1, physical, path, -1, f"key {text!r} is not indexed"))
    for key in held[~np.isin(held, wanted)][:FINDINGS_PER_PART]:
        physical = low + (int(key) >> 31)
        if physical <= last:
            detail = f"entry with hash {int(key) & 0x7FFFFFFF} belongs to no key of the record at {physical}"
            found.append(Finding("wrong-index-entry", "", -1, -1, physical, path, -1, detail))
    return found[:FINDINGS_PER_PART]


def _expected_entries(window: Window, chunk: Chunk, low: int, into: dict[int, tuple[str, int]]) -> None:
    kind = chunk.header["sys_flag"].astype(np.int64) & FLAG_TRANSACTION_MASK
    chosen = select(chunk, kind != FLAG_TRANSACTION_ROLLBACK)
    if not len(chosen.positions):
        return
    topics = records.topics(window, chosen).to_pylist()
    properties = records.raw_properties(window, chosen)
    columns = [property_column(properties, name).cast(pa.string()).to_pylist() for name in ("UNIQ_KEY", "KEYS", "TAGS")]
    places = chosen.header["physical_offset"].tolist()
    for topic, place, uniq_key, keys, tags in zip(topics, places, *columns, strict=True):
        names = [uniq_key] if uniq_key else []
        names += [key for key in (keys or "").split(" ") if key]
        if tags:
            names.append(f"T#{tags}")
        for name in names:
            into[(place - low) << 31 | index_key_hash(f"{topic}#{name}")] = (f"{topic}#{name}", place)


def _held_entries(layout: Layout, low: int, high: int) -> tuple[Int64, str]:
    """Entries of all index files that point into [low, high), as (offset - low) << 31 | hash."""
    pieces: list[Int64] = []
    path = ""
    for entry in layout.indexes:
        header = header_of(entry.path)
        if header is None or header.end_physical_offset < low or header.begin_physical_offset >= high:
            continue
        for _, _, table in entry_pieces(entry.path, entry.size_bytes):
            path = entry.path
            physical = table["physical_offset"].astype(np.int64)
            rows = (physical >= low) & (physical < high)
            pieces.append((physical[rows] - low) << 31 | table["key_hash"][rows].astype(np.int64))
    return (np.concatenate(pieces) if pieces else np.empty(0, np.int64)), path


def _indexed_range(layout: Layout) -> tuple[int, int]:
    """Physical offsets from the first to the last entry of the readable index files."""
    headers = [header for entry in layout.indexes if (header := header_of(entry.path)) is not None]
    if not headers:
        return 0, -1
    return min(item.begin_physical_offset for item in headers), max(item.end_physical_offset for item in headers)


def record_time(layout: Layout, physical_offset: int) -> int | None:
    """Store time in milliseconds of the record at a physical offset, None when there is none."""
    file = log_file_of(layout.commit_log, physical_offset)
    if file is None:
        return None
    data, base = map_range(file.path, physical_offset - file.start_offset, HEADER.itemsize)
    head = bytes(data[physical_offset - file.start_offset - base :][: HEADER.itemsize])
    if len(head) < _TIMED_BYTES:
        return None
    magic, sys_flag = _MAGIC_AND_FLAGS.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return None
    at = STORE_TIME_AT[sys_flag >> 4 & 3]
    return int.from_bytes(head[at : at + 8], "big", signed=True)
