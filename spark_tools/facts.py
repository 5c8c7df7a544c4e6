"""What the replicas' consume queues can serve and where they differ, range by range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.kernels import consumequeue
from understudy.spark_tools.kernels.consumequeue import BATCH_UNIT, UNIT, Units
from understudy.spark_tools.kernels.divergence import NOWHERE, first_differing_message, first_divergence
from understudy.spark_tools.kernels.extents import NOTHING, Extents
from understudy.spark_tools.layout import LogFile, Queue, Store
from understudy.spark_tools.storage import join, list_directory, map_range

RANGE_UNITS = 1 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """Physical offsets a store's log covers; `end` is exclusive, None when it was not looked for."""

    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A run of units of one queue to be read on all replicas."""

    topic: str
    batched: bool
    queue_id: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """What one replica holds of a range: offsets it can serve (None: nothing), first offset that differs (-1: none)."""

    store: str
    min_offset: int | None
    max_offset: int | None
    diverged_at: int


def queue_ranges(stores: Sequence[Store], topic: str, batched: bool) -> Iterator[QueueRange]:
    """Ranges that cover every queue of a topic on all replicas together."""
    spans: dict[int, tuple[int, int]] = {}
    width = BATCH_UNIT.itemsize if batched else UNIT.itemsize
    for store in stores:
        for queue in layouts.queues(store, topic, batched, []):
            if not queue.files:
                continue
            start = queue.files[0].start_offset // width
            stop = (queue.files[-1].start_offset + queue.files[-1].size_bytes) // width
            low, high = spans.get(queue.queue_id, (start, stop))
            spans[queue.queue_id] = (min(low, start), max(high, stop))
    for queue_id, (low, high) in sorted(spans.items()):
        for at in range(low, high, RANGE_UNITS):
            yield QueueRange(topic, batched, queue_id, at, min(at + RANGE_UNITS, high))


def read_units(queue: Queue, start: int, stop: int) -> tuple[Units, int]:
    """Units of a queue at positions [start, stop) up to the last valid one, and the position of the first one.

    Invalid units before a valid one, and zeros for those of a missing file, are a hole and not the end of the queue; it
    is the fault scan that names it.
    """
    dtype = BATCH_UNIT if queue.batched else UNIT
    width = dtype.itemsize
    pieces: list[Units] = []
    first = reached = -1
    for file in queue.files:
        begin = file.start_offset // width
        low, high = max(start, begin, reached), min(stop, begin + file.size_bytes // width)
        if low >= high:
            continue
        if first < 0:
            first = low
        elif low > reached:
            pieces.append(np.zeros(low - reached, dtype))
        data, base = map_range(file.path, (low - begin) * width, (high - low) * width)
        offset = (low - begin) * width - base
        array = np.frombuffer(data, dtype=dtype, offset=offset, count=min(high - low, (len(data) - offset) // width))
        pieces.append(array)
        reached = low + len(array)
    if not pieces:
        return np.empty(0, dtype), start
    return consumequeue.up_to_last_valid(pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), first


def next_unit(queue: Queue, position: int) -> Units:
    """The first valid unit at a position or behind it, nothing at the end of a queue."""
    dtype = BATCH_UNIT if queue.batched else UNIT
    for file in queue.files:
        begin = file.start_offset // dtype.itemsize
        end = begin + file.size_bytes // dtype.itemsize
        if end > position:
            units, _ = read_units(queue, max(begin, position), end)
            valid = np.flatnonzero(consumequeue.is_valid(units))
            if len(valid):
                return units[valid[:1]]
    return np.empty(0, dtype)


def range_units(queue: Queue, part: QueueRange) -> tuple[Units, int, Units]:
    """Units of a range, the position of the first one, and where a hole reaches its end the next unit behind it."""
    units, first = read_units(queue, part.start, part.stop)
    width = units.itemsize
    begin = max(part.start, queue.files[0].start_offset // width)
    end = (queue.files[-1].start_offset + queue.files[-1].size_bytes) // width
    nothing = units[:0]
    if begin >= part.stop or (first + len(units) if len(units) else begin) >= min(part.stop, end):
        return units, first, nothing
    following = next_unit(queue, part.stop)
    if not len(following):
        return units, first, nothing
    first = first if len(units) else begin
    hole = np.zeros(part.stop - first - len(units), units.dtype)
    return np.concatenate([units, hole]), first, following


def range_facts(
    stores: Sequence[Store], logs: dict[str, LogRange], part: QueueRange, differing: Extents = NOTHING
) -> list[RangeFacts]:
    """Facts of every replica about one range of a queue; `differing` is where the bytes of their logs differ.

    Args:
        stores: the replicas.
        logs: bytes between which each one's log is there, by name of the store.
        part: range of the queue.
        differing: where the bytes of their logs differ.
    """
    held: dict[str, tuple[Units, int]] = {}
    following: dict[str, Units] = {}
    starts: dict[str, int] = {}
    for store in stores:
        queue = queue_of(store, part)
        if queue is not None:
            units, first, following[store.name] = range_units(queue, part)
            held[store.name] = units, first
            starts[store.name] = queue.files[0].start_offset // units.itemsize
    filled = list(held.values())
    parted = first_divergence(filled, batched=part.batched), first_differing_message(filled, differing, part.batched)
    diverged = min((at for at in parted if at != NOWHERE), default=NOWHERE)
    result = []
    for store in stores:
        found, first = held.get(store.name, (None, 0))
        if found is None or not len(found):
            # an empty queue serves the empty range at its start, a missing one serves nothing
            known = found is not None and starts[store.name] == first
            result.append(RangeFacts(store.name, first if known else None, first if known else None, -1))
            continue
        log = logs[store.name]
        # a hole in a queue is none in the log; batches say their queue offsets themselves, a lost one does not
        units = (
            found[consumequeue.is_valid(found)]
            if part.batched
            else consumequeue.without_holes(found, following[store.name])
        )
        served = ~consumequeue.is_filler(units) & (units["physical_offset"] >= log.begin)
        if log.end is not None:
            served &= units["physical_offset"] + units["size"].astype(np.int64) <= log.end
        rows = np.flatnonzero(served)
        if not len(rows):
            # nothing of this range is left in the log: what was has gone below it, the rest lies above
            below = consumequeue.is_filler(units) | (units["physical_offset"] < log.begin)
            edge = first + int(np.count_nonzero(below))
            # a range that lies above as a whole says nothing unless the queue begins with it
            counts = edge > first or starts[store.name] == first
            result.append(RangeFacts(store.name, edge if counts else None, edge if counts else None, diverged))
        elif part.batched:
            low, high = units[rows[0]], units[rows[-1]]
            end = int(high["base_offset"]) + int(high["batch_size"])
            result.append(RangeFacts(store.name, int(low["base_offset"]), end, diverged))
        else:
            result.append(RangeFacts(store.name, first + int(rows[0]), first + int(rows[-1]) + 1, diverged))
    return result


def queue_of(store: Store, part: QueueRange) -> Queue | None:
    """The queue of a range in a store, None when the store has no file of it."""
    base = "batchconsumequeue" if part.batched else "consumequeue"
    path = join(store.path, base, part.topic, str(part.queue_id))
    files = layouts.log_files(list_directory(path)[0], "a consume queue", [])
    return Queue(part.topic, part.queue_id, part.batched, tuple(files)) if files else None


def log_file_of(files: Sequence[LogFile], physical_offset: int) -> LogFile | None:
    """The file that holds a physical offset."""
    for file in files:
        if file.start_offset <= physical_offset < file.start_offset + file.size_bytes:
            return file
    return None
