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

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from understudy.spark_tools.readers import (
    CommitLogReader,
    ConsumeQueueReader,
    FaultsReader,
    IndexReader,
    OffsetsReader,
)
from understudy.spark_tools.reading import StoreReader


class OptionError(ValueError):
    """An option of a data source is missing or not understood."""


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
