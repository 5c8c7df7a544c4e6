"""PySpark data sources for store files: `spark.read.format("rocketmq_commitlog").option("path", store).load()`.

Formats: rocketmq_commitlog, rocketmq_consumequeue, rocketmq_offsets, rocketmq_index, rocketmq_faults. All of them take

* `path` (required): a store directory, or several as `name=path` pairs separated by `;`;
* `columns`: comma-separated columns to produce (column pruning; `.schema("topic string, ...")` does the same);
* `splitBytes`: how much of a file one task reads (64 MiB);
* `pushFilters`: `false` for sessions without `spark.sql.python.filterPushdown.enabled=true`.

Filters on `store`, `topic`, `queue_id`, `physical_offset`, `queue_offset` and `store_timestamp` are applied while
reading; those on files and queues spare whole tasks. Spark evaluates every filter again, so a pushed filter only ever
saves work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.kernels import consumequeue, index, records, tables
from understudy.spark_tools.kernels.commitlog import Chunk
from understudy.spark_tools.kernels.damage import Damage
from understudy.spark_tools.layout import Layout, LogFile, Queue, Store, read_layout
from understudy.spark_tools.storage import data_end, map_range, read_file
from understudy.spark_tools.windows import SPLIT_BYTES, read_records, splits

BATCH_ROWS = 65536
SMALL_PARTS_PER_TASK = 64

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
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, wanted: value in wanted,
}


class OptionError(ValueError):
    """An option of a data source is missing or not understood."""


def parse_stores(text: str) -> list[Store]:
    """Stores out of a `path` option: one path, or `name=path` pairs separated by `;`."""
    stores = []
    for number, part in enumerate(piece for piece in text.split(";") if piece.strip()):
        name, separator, path = part.partition("=")
        stores.append(Store(name.strip(), path.strip()) if separator else Store(f"store{number}", part.strip()))
    return stores


@dataclass(frozen=True)
class Slice:
    """Bytes [start, stop) of a file, and the file that follows it."""

    file: LogFile
    start: int
    stop: int
    following: LogFile | None = None


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: about `splitBytes` of one store."""

    store: Store
    slices: tuple[Slice, ...] = ()
    queues: tuple[Queue, ...] = ()
    names: tuple[str, ...] = ()
    kind: str = ""


def pack(store: Store, slices: Iterable[Slice], split_bytes: int) -> Iterator[Part]:
    """Parts of about `split_bytes` each, so that many small files do not become many tasks."""
    pending: list[Slice] = []
    size = 0
    for piece in slices:
        pending.append(piece)
        size += piece.stop - piece.start
        if size >= split_bytes:
            yield Part(store, tuple(pending))
            pending, size = [], 0
    if pending:
        yield Part(store, tuple(pending))


class StoreReader(DataSourceReader):
    """Reads the parts of one format; subclasses say which parts there are and how one becomes record batches."""

    whole_schema: pa.Schema

    def __init__(self, schema: StructType, options: MutableMapping[str, str]) -> None:
        self.schema = schema
        self.columns = schema.fieldNames()
        self.stores = parse_stores(options["path"])
        self.split_bytes = int(options.get("splitBytes", SPLIT_BYTES))
        self.filters: list[Filter] = []
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self.options = dict(options)
        self.verify = options.get("verify", "false").lower() == "true"

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keeps the comparisons it can use early and gives all of them back for Spark to evaluate again."""
        self.filters = [item for item in filters if type(item) in _COMPARE and len(item.attribute) == 1]  # type: ignore[attr-defined]
        return filters

    def keeps(self, **values: object) -> bool:
        """Whether rows with these constant column values can pass the pushed filters."""
        return all(
            _COMPARE[type(item)](values[item.attribute[0]], item.value)  # type: ignore[attr-defined]
            for item in self.filters
            if item.attribute[0] in values  # type: ignore[attr-defined]
        )

    def bounds(self, column: str) -> tuple[int, int]:
        """Smallest and largest value of an integer column that can pass the pushed filters."""
        low, high = -(1 << 62), 1 << 62
        for item in self.filters:
            if item.attribute[0] != column:  # type: ignore[attr-defined]
                continue
            value = item.value  # type: ignore[attr-defined]
            if isinstance(item, EqualTo):
                low, high = max(low, value), min(high, value)
            elif isinstance(item, In):
                low, high = max(low, min(value)), min(high, max(value))
            elif isinstance(item, GreaterThan | GreaterThanOrEqual):
                low = max(low, value)
            elif isinstance(item, LessThan | LessThanOrEqual):
                high = min(high, value)
        return low, high

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that pass the pushed filters on the columns it has."""
        mask = None
        for item in self.filters:
            name = item.attribute[0]  # type: ignore[attr-defined]
            if name not in batch.schema.names:
                continue
            column, value = batch.column(name), item.value  # type: ignore[attr-defined]
            if isinstance(item, In):
                test = pc.is_in(column, pa.array(list(value), column.type))
            else:
                compare = {
                    EqualTo: pc.equal,
                    GreaterThan: pc.greater,
                    GreaterThanOrEqual: pc.greater_equal,
                    LessThan: pc.less,
                    LessThanOrEqual: pc.less_equal,
                }[type(item)]
                test = compare(column, pa.scalar(value, column.type))
            mask = test if mask is None else pc.and_(mask, test)
        return batch if mask is None else batch.filter(mask)

    def finish(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Filters, merges small batches and gives them exactly the schema Spark asked for."""
        pending: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            kept = self.filtered(batch)
            if not kept.num_rows:
                continue
            pending.append(kept)
            rows += kept.num_rows
            if rows >= BATCH_ROWS:
                yield self._merge(pending)
                pending, rows = [], 0
        if pending:
            yield self._merge(pending)

    def _merge(self, pending: list[pa.RecordBatch]) -> pa.RecordBatch:
        table = pa.Table.from_batches(pending).select(self.columns).cast(self.arrow_schema).combine_chunks()
        return table.to_batches()[0]

    @property
    def needed(self) -> list[str]:
        """Columns to compute: those asked for and those filtered on."""
        extra = [item.attribute[0] for item in self.filters]  # type: ignore[attr-defined]
        wanted = dict.fromkeys([*self.columns, *extra])
        return [name for name in wanted if name in self.whole_schema.names]

    def layouts(self) -> list[Layout]:
        """Layouts of the stores that can pass a filter on `store`."""
        return [read_layout(store) for store in self.stores if self.keeps(store=store.name)]


class CommitLogReader(StoreReader):
    """Records of commit logs, a task per split of a file."""

    whole_schema = records.SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        low, high = self.bounds("physical_offset")
        parts: list[InputPartition] = []
        for found in self.layouts():
            wanted = [
                Slice(file, start, stop)
                for file in found.commit_log
                if file.start_offset <= high and file.start_offset + file.size_bytes > low
                for start, stop in splits(file, self.split_bytes)
                if file.start_offset + start <= high and file.start_offset + stop > low
            ]
            parts += pack(found.store, wanted, self.split_bytes)
        return parts

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
    rows: list[tuple[str, str, int, int]] = []
    version = tables.DataVersion(0, 0, 0)
    data = read_file(path)
    try:
        table = tables.loads(data)
        rows, odd = tables.offset_rows(table)
        version = tables.DataVersion.of(table.get("dataVersion") if isinstance(table, dict) else None)
        found += [Damage(path, 0, len(data), "bad-offset-entry", text) for text in odd]
    except tables.TableError as error:
        found.append(Damage(path, error.offset_bytes, -1, "bad-json", str(error)))
    count = len(rows)
    topics, groups, queues, offsets = zip(*rows, strict=True) if rows else ((), (), (), ())

    def text(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), count)

    def number(value: int) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.int64()), count)

    return pa.RecordBatch.from_arrays(
        [
            text(store.name),
            text(path),
            text(name),
            pa.array(topics, pa.string()),
            pa.array(groups, pa.string()),
            pa.array(queues, pa.int32()),
            pa.array(offsets, pa.int64()),
            number(version.state_version),
            number(version.counter),
            number(version.timestamp),
        ],
        schema=OFFSETS_SCHEMA,
    ), found


class IndexReader(StoreReader):
    """Entries of index files, a task per file."""

    whole_schema = index.SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        return [Part(found.store, names=(entry.path,)) for found in self.layouts() for entry in found.indexes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return iter(())
        return self.finish(batch for path in partition.names for batch in self._entries(partition.store, path))

    def _entries(self, store: Store, path: str) -> Iterator[pa.RecordBatch]:
        data, _ = map_range(path, 0, 1 << 40)
        if len(data) < index.HEADER_BYTES:
            return
        header = index.read_header(data)
        slots = index.slot_count(data, header)
        if slots is None:
            return
        table = index.entries(data, slots, header)
        for at in range(0, len(table), BATCH_ROWS):
            yield index.batch(table[at : at + BATCH_ROWS], at + 1, header, store.name, path, self.needed)


class FaultsReader(StoreReader):
    """Everything that is wrong with the files of a store, a task per split of the log and per group of small files."""

    whole_schema = FAULTS_SCHEMA

    def partitions(self) -> Sequence[InputPartition]:
        from understudy.spark_tools.faults import small_file_parts

        parts: list[InputPartition] = []
        for found in self.layouts():
            files = found.commit_log
            first = 0 if self.options.get("log", "all") == "all" else tail_start(files)
            wanted = [
                Slice(file, start, stop, files[number + 1] if number + 1 < len(files) else None)
                for number, file in enumerate(files)
                if number >= first
                for start, stop in splits(file, self.split_bytes)
            ]
            parts += pack(found.store, wanted, self.split_bytes)
            names = ["layout", *small_file_parts(found)]
            parts += [
                Part(found.store, names=tuple(names[at : at + SMALL_PARTS_PER_TASK]))
                for at in range(0, len(names), SMALL_PARTS_PER_TASK)
            ]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from understudy.spark_tools.faults import log_part_faults, part_faults

        if not isinstance(partition, Part):
            return iter(())
        found: list[Damage] = []
        for piece in partition.slices:
            found += log_part_faults(piece.file, piece.start, piece.stop, piece.following, verify=self.verify)
        for name in partition.names:
            found += part_faults(partition.store, name)
        return self.finish(iter([faults_batch(partition.store.name, found)]))


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


class StoreDataSource(DataSource):
    """Common part of the formats: options, schema, and the choice of a reader with or without filter push-down."""

    reader_class: type[StoreReader]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        if "path" not in options:
            raise OptionError('give the store directory: .option("path", "/path/of/store")')
        super().__init__(options)

    def schema(self) -> StructType:
        """The columns asked for by the `columns` option, all but the heavy ones otherwise."""
        whole = self.reader_class.whole_schema
        wanted = self.options.get("columns")
        names = [name.strip() for name in wanted.split(",")] if wanted else whole.names
        unknown = [name for name in names if name not in whole.names]
        if unknown:
            raise OptionError(f"unknown columns {', '.join(unknown)}; there are {', '.join(whole.names)}")
        return from_arrow_schema(pa.schema([whole.field(name) for name in names]))

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = self.reader_class(schema, self.options)
        if self.options.get("pushFilters", "true").lower() == "false":
            return _Unfiltered(reader)
        return reader


class _Unfiltered(DataSourceReader):
    """A reader as a session without filter push-down must see it: without the method."""

    def __init__(self, inner: StoreReader) -> None:
        self.inner = inner

    def partitions(self) -> Sequence[InputPartition]:
        return self.inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.inner.read(partition)


class CommitLogSource(StoreDataSource):
    """Format rocketmq_commitlog."""

    reader_class = CommitLogReader

    @classmethod
    def name(cls) -> str:
        return "rocketmq_commitlog"


class ConsumeQueueSource(StoreDataSource):
    """Format rocketmq_consumequeue."""

    reader_class = ConsumeQueueReader

    @classmethod
    def name(cls) -> str:
        return "rocketmq_consumequeue"


class OffsetsSource(StoreDataSource):
    """Format rocketmq_offsets."""

    reader_class = OffsetsReader

    @classmethod
    def name(cls) -> str:
        return "rocketmq_offsets"


class IndexSource(StoreDataSource):
    """Format rocketmq_index."""

    reader_class = IndexReader

    @classmethod
    def name(cls) -> str:
        return "rocketmq_index"


class FaultsSource(StoreDataSource):
    """Format rocketmq_faults."""

    reader_class = FaultsReader

    @classmethod
    def name(cls) -> str:
        return "rocketmq_faults"


SOURCES = (CommitLogSource, ConsumeQueueSource, OffsetsSource, IndexSource, FaultsSource)


def register(spark: SparkSession) -> None:
    """Makes the formats known to a session and switches filter push-down on for it."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in SOURCES:
        spark.dataSource.register(source)
