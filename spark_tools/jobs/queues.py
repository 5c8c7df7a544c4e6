"""Ranges every queue can serve on every replica, and where replicas' queues differ, as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.facts import LogRange, QueueRange, queue_ranges, range_facts
from understudy.spark_tools.jobs.committed import share_of
from understudy.spark_tools.jobs.judging import Served
from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.layout import Store
from understudy.spark_tools.reading import settle_worker

TOPICS_PER_ITEM = 16

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


def served_by_share(
    spark: SparkSession, stores: Sequence[Store], logs: dict[str, LogRange], shares: int
) -> RDD[tuple[int, list[Served]]]:
    """What every queue can serve on every replica, and where replicas' queues differ, by share of `committed`."""
    names = sorted({name for store in stores for name in layouts.topics(store)})
    items = [names[at : at + TOPICS_PER_ITEM] for at in range(0, len(names), TOPICS_PER_ITEM)]
    chosen = list(stores)
    ranges = deal(spark, items, partial(_ranges_of, stores=chosen))
    # round robin: the ranges of one large topic go to all tasks
    spread_out = ranges.repartition(spark.sparkContext.defaultParallelism * 2)
    return spread_out.mapPartitions(partial(_served, stores=chosen, logs=logs, shares=shares))


def _ranges_of(names: list[tuple[str, bool]], stores: Sequence[Store]) -> Iterator[QueueRange]:
    for topic, batched in names:
        yield from queue_ranges(stores, topic, batched)


def _served(
    ranges: Iterable[QueueRange], stores: Sequence[Store], logs: dict[str, LogRange], shares: int
) -> Iterator[tuple[int, list[Served]]]:
    settle_worker()
    found: dict[int, list[Served]] = {}
    for part in ranges:
        found.setdefault(share_of(part.topic, part.queue_id, shares), []).extend(
            Served(part.topic, part.queue_id, fact.store, fact.min_offset, fact.max_offset, fact.diverged_at)
            for fact in range_facts(stores, logs, part)
        )
    yield from found.items()
