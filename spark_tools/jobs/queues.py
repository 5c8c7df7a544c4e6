"""Ranges every queue can serve on every replica, and where replicas' queues differ, as a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.facts import LogRange, QueueRange, queue_ranges, range_facts
from understudy.spark_tools.layout import Store

_RANGES = "topic string, batched boolean, queue_id int, start long, stop long"
_FACTS = "topic string, queue_id int, store string, min_offset long, max_offset long, diverged_at long"


def queue_facts(spark: SparkSession, stores: Sequence[Store], logs: dict[str, LogRange]) -> DataFrame:
    """One row per topic, queue and store: topic, queue_id, store, min_offset, max_offset, diverged_at (-1: nowhere)."""
    names = sorted({name for store in stores for name in layouts.topics(store)})
    slices = max(1, min(len(names) // 16, spark.sparkContext.defaultParallelism * 4))
    topics = spark.createDataFrame(names, "topic string, batched boolean").repartition(slices)
    chosen = list(stores)

    def expand(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                (part.topic, part.batched, part.queue_id, part.start, part.stop)
                for row in batch.to_pylist()
                for part in queue_ranges(chosen, row["topic"], row["batched"])
            ]
            columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], [], [], []]
            kinds = (pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.int64())
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
                names=["topic", "batched", "queue_id", "start", "stop"],
            )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                (row["topic"], row["queue_id"], fact.store, fact.min_offset, fact.max_offset, fact.diverged_at)
                for row in batch.to_pylist()
                for fact in range_facts(chosen, logs, QueueRange(**row))
            ]
            columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], [], [], [], []]
            kinds = (pa.string(), pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.int64())
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
                names=["topic", "queue_id", "store", "min_offset", "max_offset", "diverged_at"],
            )

    ranges = topics.mapInArrow(expand, _RANGES)
    # round robin: the ranges of one large topic go to all tasks
    facts = ranges.repartition(spark.sparkContext.defaultParallelism * 2).mapInArrow(read, _FACTS)
    served = F.col("max_offset") > F.col("min_offset")
    return facts.groupBy("topic", "queue_id", "store").agg(
        F.coalesce(F.min(F.when(served, F.col("min_offset"))), F.max("min_offset")).alias("min_offset"),
        F.coalesce(F.max(F.when(served, F.col("max_offset"))), F.max("max_offset")).alias("max_offset"),
        F.min(F.when(F.col("diverged_at") >= 0, F.col("diverged_at"))).alias("diverged_at"),
    )
