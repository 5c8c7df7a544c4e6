"""Everything that is wrong with the files of one store, found part by part so that parts can be read in parallel."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.inner_batches import inner_batch_fault, inner_batches
from understudy.spark_tools.kernels import consumequeue, index, progress, tables
from understudy.spark_tools.kernels.damage import WARNING, Damage
from understudy.spark_tools.kernels.offset_tables import OFFSET_TABLES, loaded_table, read_offset_table
from understudy.spark_tools.kernels.records import crc_matches
from understudy.spark_tools.layout import TABLES, Layout, LogFile, Queue, Store, read_layout
from understudy.spark_tools.storage import local_path, map_range, read_file
from understudy.spark_tools.windows import read_records

UNITS_PER_READ = 1 << 20
UNLOADABLE = ("empty-table", "bad-json", "missing-table")


def small_file_parts(layout: Layout) -> list[str]:
    """Names of the parts of a store besides its log: tables, small files, one part per topic and per index file."""
    parts = ["tables"]
    parts += [f"topic:{topic}:{int(batched)}" for topic, batched in layouts.topics(layout.store)]
    return parts + [f"index:{entry.path}:{entry.size_bytes}" for entry in layout.indexes]


def _unreadable(error: OSError, path: str) -> list[Damage]:
    return [Damage(str(error.filename or path), 0, -1, "unreadable", error.strerror or str(error))]


def part_faults(store: Store, part: str) -> list[Damage]:
    """Faults of one part of a store; a file that vanishes or cannot be read is a fault as well."""
    try:
        if part == "layout":
            return read_layout(store).damages
        if part == "tables":
            return table_faults(store)
        what, _, rest = part.partition(":")
        name, _, number = rest.rpartition(":")
        if what == "topic":
            return topic_faults(store, name, number == "1")
        return index.faults(map_range(name, 0, int(number))[0], name)[0]
    except OSError as error:
        return _unreadable(error, store.path)


def log_part_faults(file: LogFile, start: int, stop: int, following: LogFile | None, *, verify: bool) -> list[Damage]:
    """Faults of one split of the log; zeros are no end of the log when the next file has records.

    Args:
        file: of the log.
        start: first byte of the split, counted from the file's beginning.
        stop: byte before which its records begin.
        following: the next file of the log; ``None`` behind the last one.
        verify: check every body against its CRC, too.
    """
    try:
        found = log_faults(file, start, stop, verify)
        ends = [item for item in found if item.kind == "end-of-log"]
        if ends and following is not None and read_file(following.path, 8).strip(b"\0"):
            found = [item for item in found if item.kind != "end-of-log"]
            detail = f"zeros up to the end of the file, but the log goes on in {following.path}"
            found += [Damage(item.path, item.offset_bytes, item.length_bytes, "hole", detail) for item in ends]
        return found
    except OSError as error:
        return _unreadable(error, file.path)


def log_faults(file: LogFile, start: int, stop: int, verify: bool) -> list[Damage]:
    """Faults of one split of a commit-log file; `verify` also checks every body against its CRC.

    Args:
        file: of the log.
        start: first byte of the split, counted from the file's beginning.
        stop: byte before which its records begin.
        verify: check every body against its CRC, too.
    """
    found: list[Damage] = []
    first_batch, batches = -1, 0
    for window, item in read_records(file, start, stop):
        if isinstance(item, Damage):
            found.append(item)
            continue
        at, count = inner_batches(window.base, item)
        if count:
            first_batch, batches = (at if first_batch < 0 else first_batch), batches + count
        if verify:
            for row in np.flatnonzero(~crc_matches(window, item)):
                position = window.base + int(item.positions[row])
                found.append(
                    Damage(
                        file.path, position, int(item.header["size"][row]), "bad-crc", "the body does not match its CRC"
                    )
                )
    if batches:
        found.append(inner_batch_fault(file.path, first_batch, batches))
    local = local_path(file.path)
    if local is not None and os.stat(local).st_mtime_ns != file.modified_ns:
        detail = "the file changed while it was read: a broker is writing this store"
        found.append(Damage(file.path, start, stop - start, "growing-file", detail, WARNING))
    return found


def topic_faults(store: Store, topic: str, batched: bool) -> list[Damage]:
    """Faults of the queue files of one topic."""
    found: list[Damage] = []
    for queue in layouts.queues(store, topic, batched, found):
        found += queue_faults(queue)
    return found


def queue_faults(queue: Queue) -> list[Damage]:
    """Faults of the files of one queue: invalid units, holes, units after the end of the queue."""
    dtype = consumequeue.BATCH_UNIT if queue.batched else consumequeue.UNIT
    width = dtype.itemsize
    found: list[Damage] = []
    ended: str | None = None
    for file in queue.files:
        if file.size_bytes % width:
            found += consumequeue.faults(np.empty(0, dtype), file.path, 0, file.size_bytes, width)
        step = UNITS_PER_READ * width
        for at in range(0, file.size_bytes - width + 1, step):
            length = min(step, file.size_bytes - at)
            data, base = map_range(file.path, at, length)
            array = consumequeue.units(memoryview(data)[at - base : at - base + length], dtype)
            valid = consumequeue.valid_count(array)
            if ended and valid:
                found.append(Damage(file.path, at, width, "hole", f"units after the end of the queue in {ended}"))
                ended = None
            found += consumequeue.faults(array, file.path, at, file.size_bytes - file.size_bytes % width, width)
            if valid < len(array) and ended is None:
                ended = file.path
    return found


def json_faults(path: str, name: str) -> list[Damage]:
    """Faults of one JSON table; `name` is that of the table also for a copy of it."""
    data = read_file(path)
    if not data:
        return [Damage(path, 0, 0, "empty-table", "0 bytes")]
    try:
        if name in OFFSET_TABLES:
            return [Damage(path, 0, len(data), "bad-offset-entry", text) for text in read_offset_table(data).odd]
        if isinstance(tables.loads(data), dict):
            return []
    except tables.TableError as error:
        return [Damage(path, error.offset_bytes, len(data) - error.offset_bytes, "bad-json", str(error))]
    return [Damage(path, 0, len(data), "bad-json", "the table is no JSON object")]


def _with_its_copy(fault: Damage, layout: Layout, name: str) -> Damage:
    """A fault of a table that keeps a broker from loading it, with what the broker does then."""
    if fault.kind not in UNLOADABLE:
        return fault
    copy = layout.tables.get(f"{name}.bak")
    if copy is None:
        what = "there is no copy of it"
    elif any(item.kind in UNLOADABLE for item in json_faults(copy.path, name)):
        what = f"its copy {name}.bak cannot be read either: no broker starts with it"
    else:
        what = f"a broker loads {name}.bak instead, and so is it judged here"
    return replace(fault, detail=f"{fault.detail}; {what}")


def table_faults(store: Store) -> list[Damage]:
    """Faults of the JSON tables and the small binary files."""
    layout = read_layout(store)
    found: list[Damage] = []
    for name in TABLES:
        entry = layout.tables.get(name)
        if entry is not None:
            found += [_with_its_copy(item, layout, name) for item in json_faults(entry.path, name)]
        elif f"{name}.bak" in layout.tables:
            path = f"{store.path}/config/{name}"
            found.append(_with_its_copy(Damage(path, 0, 0, "missing-table", "there is only a copy"), layout, name))
    if layout.commit_log and loaded_table(layout.tables.keys(), ()) is None:
        path = f"{store.path}/config/consumerOffset.json"
        found.append(Damage(path, 0, 0, "missing-table", "the store has a log but no consumer offsets", WARNING))
    small = layout.small_files
    if "checkpoint" in small:
        found += progress.read_checkpoint(read_file(small["checkpoint"].path, 4096), small["checkpoint"].path)[1]
    if "epochFileCheckpoint" in small:
        path = small["epochFileCheckpoint"].path
        found += progress.read_epochs(read_file(path), path)[1]
    if "timercheck" in layout.tables:
        path = layout.tables["timercheck"].path
        found += progress.read_timer_check(read_file(path, 4096), path)[1]
    for file in layout.timer_log:
        found += progress.read_timer_log(read_file(file.path), file.path, file.start_offset)[1]
    return found
