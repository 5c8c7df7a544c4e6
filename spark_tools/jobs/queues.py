"""Ranges every queue can serve on every replica, and where replicas' queues differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.facts import LogRange, QueueRange, queue_ranges, range_facts
from understudy.spark_tools.jobs.committed import share_of
from understudy.spark_tools.jobs.judging import Bounds, Served, over_all_ranges
from understudy.spark_tools.jobs.spread import deal
from understudy.spark_tools.kernels.extents import NOTHING, Extents
from understudy.spark_tools.layout import Store
from understudy.spark_tools.reading import settle_worker

TOPICS_PER_ITEM = 16

_FACTS = "topic string, queue_id int, store string, min_offset long, max_offset long"


def queue_facts(spark: SparkSession, stores: Sequence[Store], logs: dict[str, LogRange]) -> DataFrame:
    """One row per topic, queue and store that has it: topic, queue_id, store, min_offset, max_offset."""
    shares = spark.sparkContext.defaultParallelism * 2
    served = served_by_share(spark, stores, logs, shares).partitionBy(shares, int)
    return spark.createDataFrame(served.mapPartitions(_whole_queues), _FACTS, verifySchema=False)


def _whole_queues(items: Iterable[tuple[int, list[Served]]]) -> Iterator[tuple[str, int, str, int, int]]:
    bounds: dict[tuple[str, int, str], list[Bounds]] = {}
    for _, served in items:
        for part in served:
            bounds.setdefault((part.topic, part.queue_id, part.store), []).append((part.min_offset, part.max_offset))
    for place, ranges in bounds.items():
        whole = over_all_ranges(ranges)
        if whole is not None:
            yield (*place, *whole)


def served_by_share(
    spark: SparkSession,
    stores: Sequence[Store],
    logs: dict[str, LogRange],
    shares: int,
    differing: Extents = NOTHING,
) -> RDD[tuple[int, list[Served]]]:
    """What every queue can serve on every replica, and where replicas' queues differ, by share of `committed`.

    Args:
        differing: where the bytes of the replicas' logs differ.
    """
    names = sorted({name for store in stores for name in layouts.topics(store)})
    items = [names[at : at + TOPICS_PER_ITEM] for at in range(0, len(names), TOPICS_PER_ITEM)]
    chosen = list(stores)
    ranges = deal(spark, items, partial(_ranges_of, stores=chosen))
    # round robin: the ranges of one large topic go to all tasks
    spread_out = ranges.repartition(spark.sparkContext.defaultParallelism * 2)
    return spread_out.mapPartitions(partial(_served, stores=chosen, logs=logs, shares=shares, differing=differing))


def _ranges_of(names: list[tuple[str, bool]], stores: Sequence[Store]) -> Iterator[QueueRange]:
    for topic, batched in names:
        yield from queue_ranges(stores, topic, batched)


def _served(
    ranges: Iterable[QueueRange],
    stores: Sequence[Store],
    logs: dict[str, LogRange],
    shares: int,
    differing: Extents = NOTHING,
) -> Iterator[tuple[int, list[Served]]]:
    settle_worker()
    found: dict[int, list[Served]] = {}
    for part in ranges:
        found.setdefault(share_of(part.topic, part.queue_id, shares), []).extend(
            Served(part.topic, part.queue_id, fact.store, fact.min_offset, fact.max_offset, fact.diverged_at)
            for fact in range_facts(stores, logs, part, differing)
        )
    yield from found.items()
