"""Readers of the formats: which parts a store has, and how one part becomes record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from understudy.format.data_version import DataVersion
from understudy.spark_tools import layout as layouts
from understudy.spark_tools.index_files import entry_pieces
from understudy.spark_tools.kernels import consumequeue, index, records, tables
from understudy.spark_tools.kernels.damage import Damage
from understudy.spark_tools.kernels.offset_tables import OffsetTable, read_offset_table
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.layout import Layout, LogFile, Queue, Store
from understudy.spark_tools.reading import BATCH_ROWS, Part, Slice, StoreReader, pack
from understudy.spark_tools.storage import data_end, map_range, read_file
from understudy.spark_tools.windows import read_records, splits

SMALL_PARTS_PER_TASK = 32

OFFSETS_SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("path", pa.string()),
        ("file", pa.string()),
        ("topic", pa.string()),
        ("consumer_group", pa.string()),
        ("queue_id", pa.int32()),
        ("committed_offset", pa.int64()),
        ("state_version", pa.int64()),
        ("version_counter", pa.int64()),
        ("version_timestamp", pa.int64()),
    ]
)
FAULTS_SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("path", pa.string()),
        ("offset_bytes", pa.int64()),
        ("length_bytes", pa.int64()),
        ("kind", pa.string()),
        ("detail", pa.string()),
        ("severity", pa.string()),
    ]
)


class CommitLogReader(StoreReader):
    """Records of commit logs, a task per split of a file."""

    whole_schema = records.SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        low, high = self.bounds("physical_offset")
        wanted = [
            (
                found.store,
                [
                    Slice(file, start, stop)
                    for file in found.commit_log
                    if file.start_offset <= high and file.start_offset + file.size_bytes > low
                    for start, stop in splits(file, self.split_bytes)
                    if file.start_offset + start <= high and file.start_offset + stop > low
                ],
            )
            for found in self.layouts()
        ]
        size = self.task_bytes(piece for _, slices in wanted for piece in slices)
        return [part for store, slices in wanted for part in pack(store, slices, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        return self.finish(batch for piece in partition.slices for batch in self._records(partition.store, piece))

    def _records(self, store: Store, piece: Slice) -> Iterator[pa.RecordBatch]:
        for window, item in read_records(piece.file, piece.start, piece.stop):
            if isinstance(item, Chunk):
                yield records.batch(window, item, store.name, self.needed)


class ConsumeQueueReader(StoreReader):
    """Units of consume queues and batch consume queues, a task per group of files."""

    whole_schema = consumequeue.SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        low, high = self.bounds("queue_offset")
        for store in self.stores:
            if not self.keeps(store=store.name):
                continue
            pending: list[Queue] = []
            size = 0
            for queue in self._pieces(store, low, high):
                pending.append(queue)
                size += sum(file.size_bytes for file in queue.files)
                if size >= self.split_bytes:
                    parts.append(Part(store, queues=tuple(pending)))
                    pending, size = [], 0
            if pending:
                parts.append(Part(store, queues=tuple(pending)))
        return parts

    def _pieces(self, store: Store, low: int, high: int) -> Iterator[Queue]:
        """The wanted files of every wanted queue, a large queue as several pieces."""
        for topic, batched in layouts.topics(store):
            if not self.keeps(topic=topic):
                continue
            width = consumequeue.BATCH_UNIT_BYTES if batched else consumequeue.UNIT_BYTES
            for queue in layouts.queues(store, topic, batched, []):
                if not self.keeps(queue_id=queue.queue_id):
                    continue
                pending: list[LogFile] = []
                for file in queue.files:
                    first = file.start_offset // width
                    if not batched and (first > high or first + file.size_bytes // width <= low):
                        continue
                    pending.append(file)
                    if len(pending) * file.size_bytes >= self.split_bytes:
                        yield Queue(topic, queue.queue_id, batched, tuple(pending))
                        pending = []
                if pending:
                    yield Queue(topic, queue.queue_id, batched, tuple(pending))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        store = partition.store
        return self.finish(batch for queue in partition.queues for batch in self._units(store, queue))

    def _units(self, store: Store, queue: Queue) -> Iterator[pa.RecordBatch]:
        dtype = consumequeue.BATCH_UNIT if queue.batched else consumequeue.UNIT
        for file in queue.files:
            data, _ = map_range(file.path, 0, file.size_bytes)
            array = consumequeue.units(data, dtype)
            array = array[: consumequeue.valid_count(array)]
            first = file.start_offset // dtype.itemsize
            skip = int(np.argmin(consumequeue.is_filler(array))) if len(array) and not queue.batched else 0
            for at in range(skip, len(array), BATCH_ROWS):
                piece = array[at : at + BATCH_ROWS]
                yield consumequeue.batch(
                    piece, store.name, file.path, queue.topic, queue.queue_id, first + at, self.needed
                )


class OffsetsReader(StoreReader):
    """Committed offsets of the consumer offset tables, a task per table."""

    whole_schema = OFFSETS_SCHEMA
    names = ("consumerOffset.json", "lmqConsumerOffset.json")

    def partitions(self) -> Sequence[InputPartition]:
        return [
            Part(found.store, kind=name, names=(found.tables[name].path,))
            for found in self.layouts()
            for name in (*self.names, *(f"{name}.bak" for name in self.names))
            if name in found.tables and self.keeps(file=name)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        return self.finish(offsets_batch(partition.store, partition.kind, path)[0] for path in partition.names)


def offsets_batch(store: Store, name: str, path: str) -> tuple[pa.RecordBatch, list[Damage]]:
    """All entries of one offset table, and what is wrong with it; a table that is no JSON gives no rows."""
    found: list[Damage] = []
    table = OffsetTable(DataVersion())
    data = read_file(path)
    try:
        table = read_offset_table(data)
        found += [Damage(path, 0, len(data), "bad-offset-entry", text) for text in table.odd]
    except tables.TableError as error:
        found.append(Damage(path, error.offset_bytes, -1, "bad-json", str(error)))
    count = len(table.keys)
    keys = pa.array(table.keys)

    def text(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), count)

    def number(value: int) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.int64()), count)

    return pa.RecordBatch.from_arrays(
        [
            text(store.name),
            text(path),
            text(name),
            pa.array(table.topics, pa.string()).take(keys),
            pa.array(table.groups, pa.string()).take(keys),
            pa.array(table.queues.astype(np.int32)),
            pa.array(table.offsets),
            number(table.version.state_version),
            number(table.version.counter),
            number(table.version.timestamp),
        ],
        schema=OFFSETS_SCHEMA,
    ), found


class IndexReader(StoreReader):
    """Entries of index files, a task per file."""

    whole_schema = index.SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        return [
            Part(found.store, slices=(Slice(LogFile(entry.path, 0, entry.size_bytes, entry.modified_ns), 0, 0),))
            for found in self.layouts()
            for entry in found.indexes
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        return self.finish(
            index.batch(table[at : at + BATCH_ROWS], first + at, header, partition.store.name, file.path, self.needed)
            for file in (piece.file for piece in partition.slices)
            for header, first, table in entry_pieces(file.path, file.size_bytes)
            for at in range(0, len(table), BATCH_ROWS)
        )


class FaultsReader(StoreReader):
    """Everything that is wrong with the files of a store, a task per split of the log and per group of small files."""

    whole_schema = FAULTS_SCHEMA

    def partitions(self) -> Sequence[Part]:
        from understudy.spark_tools.faults import small_file_parts

        parts: list[Part] = []
        wanted: list[tuple[Layout, list[Slice]]] = []
        for found in self.layouts():
            files = found.commit_log
            first = 0 if self.options.get("log", "all") == "all" else tail_start(files)
            slices = [
                Slice(file, start, stop, files[number + 1] if number + 1 < len(files) else None)
                for number, file in enumerate(files)
                if number >= first
                for start, stop in splits(file, self.split_bytes)
            ]
            wanted.append((found, slices))
        size = self.task_bytes(piece for _, slices in wanted for piece in slices)
        for found, slices in wanted:
            parts += pack(found.store, slices, size)
            names = ["layout", *small_file_parts(found)]
            parts += [
                Part(found.store, names=tuple(names[at : at + SMALL_PARTS_PER_TASK]))
                for at in range(0, len(names), SMALL_PARTS_PER_TASK)
            ]
        return parts

    def faults(self, part: Part) -> list[Damage]:
        """Everything that is wrong with one part."""
        from understudy.spark_tools.faults import log_part_faults, part_faults

        found: list[Damage] = []
        for piece in part.slices:
            found += log_part_faults(piece.file, piece.start, piece.stop, piece.following, verify=self.verify)
        for name in part.names:
            found += part_faults(part.store, name)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        return self.finish(iter([faults_batch(partition.store.name, self.faults(partition))]))


def tail_start(files: list[LogFile]) -> int:
    """Index of the last file with data, or of the one before it: where the end of the log is to be looked for."""
    for number in range(len(files) - 1, -1, -1):
        if data_end(files[number].path, files[number].size_bytes) > 0 and read_file(files[number].path, 8).strip(b"\0"):
            return max(0, number - 1)
    return 0


def faults_batch(store: str, found: list[Damage]) -> pa.RecordBatch:
    """Faults of one store as a record batch."""
    rows = [{"store": store, **item.as_row()} for item in found]
    return pa.RecordBatch.from_pylist(rows, schema=FAULTS_SCHEMA)
