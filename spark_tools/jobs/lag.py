"""Backlog of every group, topic and queue, the age of its oldest message, and how it came about over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from understudy.spark_tools.crosscheck import record_time
from understudy.spark_tools.facts import QueueRange, queue_of, read_units
from understudy.spark_tools.jobs.queues import queue_facts
from understudy.spark_tools.jobs.reconcile import offset_table
from understudy.spark_tools.jobs.scan import StoreFacts, path_option, scan
from understudy.spark_tools.jobs.spread import spread
from understudy.spark_tools.layout import Layout, Store

CURVE_POINTS = 24
AGED_ROWS = 20_000

AGE_SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_timestamp", pa.int64()),
    ]
)
AGE_DDL = "store string, topic string, queue_id int, queue_offset long, store_timestamp long"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Backlog of one group on one queue; times in milliseconds, None where no message could be read."""

    store: str
    topic: str
    group: str
    queue_id: int
    committed: int
    end: int
    backlog: int
    oldest_timestamp: int | None


@dataclass(slots=True)
class Lag:
    """All backlogs, largest first, and for the largest the number of waiting messages by store time."""

    facts: list[StoreFacts]
    rows: list[Backlog]
    total: int
    curves: dict[str, list[tuple[float, float]]]
    now_ms: int


def offset_time(layout: Layout, topic: str, queue_id: int, queue_offset: int) -> int | None:
    """Store time of the message at a queue offset, None when it is not there.

    Args:
        layout: of the store.
        topic: of the queue.
        queue_id: of the queue.
        queue_offset: of the message.
    """
    queue = queue_of(layout.store, QueueRange(topic, False, queue_id, 0, 0))
    if queue is None:
        return None
    units, first = read_units(queue, queue_offset, queue_offset + 1)
    if not len(units) or first != queue_offset:
        return None
    return record_time(layout, int(units["physical_offset"][0]))


def backlogs(spark: SparkSession, stores: Sequence[Store], facts: list[StoreFacts], groups: Sequence[str]) -> DataFrame:
    """Rows of store, topic, consumer_group, queue_id, committed, end, backlog (never negative).

    Args:
        spark: the session.
        stores: to be read.
        facts: what a scan found of each.
        groups: only these; all if empty.
    """
    logs = {item.store.name: item.log for item in facts}
    served = queue_facts(spark, stores, logs)
    offsets = spark.read.format("rocketmq_offsets").option("path", path_option(stores)).load()
    used = F.lit(False)
    for item in facts:
        used = used | ((F.col("store") == item.store.name) & (F.col("file") == (offset_table(item) or "")))
    chosen = offsets.where(used)
    if groups:
        chosen = chosen.where(F.col("consumer_group").isin(*groups))
    joined = chosen.join(served, ["store", "topic", "queue_id"], "left")
    start = F.greatest(F.col("committed_offset"), F.coalesce("min_offset", F.lit(0)))
    return joined.select(
        "store",
        "topic",
        "consumer_group",
        "queue_id",
        F.col("committed_offset").alias("committed"),
        F.coalesce("max_offset", F.lit(0)).alias("end"),
        F.greatest(F.coalesce("max_offset", F.lit(0)) - start, F.lit(0)).alias("backlog"),
        start.alias("next_offset"),
    )


def lag(spark: SparkSession, stores: Sequence[Store], *, groups: Sequence[str] = (), now_ms: int | None = None) -> Lag:
    """Backlogs on each store; ages are measured at `now_ms`, at the newest store time otherwise.

    Args:
        spark: the session.
        stores: to be read.
        groups: only these; all if empty.
        now_ms: moment that ages are counted to (wall time).
    """
    facts = scan(spark, stores, whole_log=False)
    frame = backlogs(spark, stores, facts, groups).cache()
    total = frame.count()
    top = frame.where("backlog > 0").orderBy(F.desc("backlog")).limit(AGED_ROWS).collect()
    layouts = {item.store.name: item.layout for item in facts}
    wanted = sorted({(row.store, row.topic, row.queue_id, row.next_offset) for row in top})
    for row in top[:8]:
        step = max(1, row.backlog // CURVE_POINTS)
        wanted += [(row.store, row.topic, row.queue_id, at) for at in range(row.next_offset, row.end, step)]

    def work(item: tuple[str, str, int, int]) -> Iterable[tuple[object, ...]]:
        store, topic, queue_id, offset = item
        yield (store, topic, queue_id, offset, offset_time(layouts[store], topic, queue_id, offset))

    aged = spread(spark, sorted(set(wanted)), work, AGE_SCHEMA, AGE_DDL).collect() if wanted else []
    times = {(row.store, row.topic, row.queue_id, row.queue_offset): row.store_timestamp for row in aged}
    rows = [
        Backlog(
            row.store,
            row.topic,
            row.consumer_group,
            row.queue_id,
            row.committed,
            row.end,
            row.backlog,
            times.get((row.store, row.topic, row.queue_id, row.next_offset)),
        )
        for row in top
    ]
    newest = max((item.checkpoint.physic_timestamp for item in facts if item.checkpoint), default=0)
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in top[:8]:
        points = [
            (float(time), float(offset - row.next_offset + 1))
            for (store, topic, queue_id, offset), time in times.items()
            if (store, topic, queue_id) == (row.store, row.topic, row.queue_id) and time and offset >= row.next_offset
        ]
        curves[f"{row.consumer_group} {row.topic}/{row.queue_id}"] = sorted(points)
    frame.unpersist()
    return Lag(facts, rows, total, curves, now_ms if now_ms is not None else newest)
