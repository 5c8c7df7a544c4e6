"""Jobs over single messages: duplicates, gaps, and the translation of offsets to another cluster's logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from understudy.format.names import (
    DEAD_LETTER_PREFIX,
    LIGHT_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from understudy.format.record import (
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_NONE,
)
from understudy.spark_tools.jobs.scan import StoreFacts, path_option
from understudy.spark_tools.jobs.spread import spread
from understudy.spark_tools.kernels import records
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.layout import LogFile, Store, read_layout
from understudy.spark_tools.windows import read_records, splits

BROADCAST_TABLE_BYTES = 8 << 20
"""A table of offsets of that size goes to every task by way of the driver; a larger one is dealt out by topic."""
UNTOLD_PREFIXES = (RETRY_PREFIX, DEAD_LETTER_PREFIX, LIGHT_PREFIX, SYSTEM_TOPIC_PREFIX)
"""Topics whose messages a broker puts or derives itself."""

RUN_SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("first", pa.int64()),
        ("stop", pa.int64()),
        ("physical_offset", pa.int64()),
    ]
)
RUN_DDL = "store string, topic string, queue_id int, first long, stop long, physical_offset long"


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Queue offsets [start, stop) of a queue that no record of a store's log has."""

    store: str
    topic: str
    queue_id: int
    start: int
    stop: int
    physical_offset: int


def user_messages(spark: SparkSession, stores: Sequence[Store], columns: Sequence[str]) -> DataFrame:
    """Records of user topics, prepared and rolled-back halves left out, with the wanted columns plus `replica_set`."""
    wanted = [*dict.fromkeys(["store", "topic", "sys_flag", "physical_offset", "uniq_key", *columns])]
    reader = spark.read.format("rocketmq_commitlog").option("path", path_option(stores))
    frame = reader.option("columns", ",".join(wanted)).load()
    system = F.col("topic").isin(*sorted(SYSTEM_TOPICS))
    for prefix in UNTOLD_PREFIXES:
        system = system | F.col("topic").startswith(prefix)
    kind = F.col("sys_flag").bitwiseAND(FLAG_TRANSACTION_MASK)
    sets = F.create_map(*[F.lit(text) for store in stores for text in (store.name, store.replica_set)])
    delivered = kind.isin(FLAG_TRANSACTION_NONE, FLAG_TRANSACTION_COMMIT)
    return frame.where(~system & delivered).withColumn("replica_set", sets[F.col("store")])


def duplicates(spark: SparkSession, stores: Sequence[Store]) -> DataFrame:
    """Messages stored more than once: topic, uniq_key, copies, places, first and last store time.

    The replicas of a set hold one log, so a copy is a distinct physical offset of a replica set.
    """
    frame = user_messages(spark, stores, ["store_timestamp", "queue_id", "queue_offset"]).where("uniq_key is not null")
    place = F.struct("replica_set", "physical_offset", "queue_id", "queue_offset")
    return (
        frame.groupBy("topic", "uniq_key")
        .agg(
            F.countDistinct("replica_set", "physical_offset").alias("copies"),
            F.array_sort(F.collect_set(place)).alias("places"),
            F.min("store_timestamp").alias("first_timestamp"),
            F.max("store_timestamp").alias("last_timestamp"),
        )
        .where("copies > 1")
    )


def missing_acknowledged(spark: SparkSession, stores: Sequence[Store], path: str) -> DataFrame:
    """Acknowledged sends (JSON lines with topic and uniq_key) that no log has."""
    sent = spark.read.schema("topic string, uniq_key string").json(path).where("uniq_key is not null").distinct()
    stored = user_messages(spark, stores, []).select("topic", "uniq_key").distinct()
    return sent.join(stored, ["topic", "uniq_key"], "left_anti")


def runs(work: tuple[str, LogFile, int, int]) -> Iterable[tuple[object, ...]]:
    """Runs of consecutive queue offsets of one split, per topic and queue, as rows."""
    store, file, start, stop = work
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for window, item in read_records(file, start, stop):
        if not isinstance(item, Chunk):
            continue
        kind = item.header["sys_flag"].astype(np.int64) & FLAG_TRANSACTION_MASK
        delivered = (kind == FLAG_TRANSACTION_NONE) | (kind == FLAG_TRANSACTION_COMMIT)
        encoded = records.topics(window, item).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        chosen = np.flatnonzero(delivered & ((item.header["sys_flag"] & FLAG_INNER_BATCH) == 0))
        keys = encoded.indices.to_numpy().astype(np.int64) << 32 | item.header["queue_id"].astype(np.int64)
        for key in np.unique(keys[chosen]):
            rows = chosen[keys[chosen] == key]
            offsets = item.header["queue_offset"][rows].astype(np.int64)
            breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
            where = item.header["physical_offset"][rows].astype(np.int64)
            for low, high in zip(np.r_[0, breaks], np.r_[breaks, len(offsets)], strict=True):
                run = (int(offsets[low]), int(offsets[high - 1]) + 1, int(where[low]))
                mine = found.setdefault((names[int(key) >> 32], int(key) & 0xFFFFFFFF), [])
                if mine and mine[-1][1] == run[0]:
                    mine[-1] = (mine[-1][0], run[1], mine[-1][2])
                else:
                    mine.append(run)
    for (topic, queue_id), pieces in found.items():
        for first, last, physical in pieces:
            yield (store, topic, queue_id, first, last, physical)


def merge_runs(rows: Iterable[tuple[str, str, int, int, int, int]]) -> list[OffsetGap]:
    """Holes between runs of the same queue; a pure function of rows in any order."""
    by_queue: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {}
    for store, topic, queue_id, first, stop, physical in rows:
        by_queue.setdefault((store, topic, queue_id), []).append((first, stop, physical))
    gaps = []
    for (store, topic, queue_id), pieces in by_queue.items():
        reached: int | None = None
        for first, stop, physical in sorted(pieces):
            if reached is not None and first > reached:
                gaps.append(OffsetGap(store, topic, queue_id, reached, first, physical))
            reached = stop if reached is None else max(reached, stop)
    return sorted(gaps, key=lambda gap: (gap.store, gap.topic, gap.queue_id, gap.start))


def offset_gaps(spark: SparkSession, facts: Sequence[StoreFacts]) -> list[OffsetGap]:
    """Queue offsets in the middle of a queue that no record has, per store."""
    work = [
        (item.store.name, file, start, stop)
        for item in facts
        for file in item.layout.commit_log
        for start, stop in splits(file)
    ]
    rows = spread(spark, work, runs, RUN_SCHEMA, RUN_DDL).collect() if work else []
    return merge_runs(
        tuple(row) for row in rows if row.topic not in SYSTEM_TOPICS and not row.topic.startswith(UNTOLD_PREFIXES)
    )


def translate(
    spark: SparkSession, source: Store, table: str, target: Store, target_table: str | None, groups: Sequence[str]
) -> DataFrame:
    """Offsets of the source's groups in the target's log, and what the target's own table has (`current`).

    One row per topic, group and target queue: `proposed` is the lower end of what can be right: no message the group
    has not seen lies below it. `repeated` is the error bound: acknowledged messages at or above it, which will be
    delivered again. `method` is "uniq-key" where messages of the queue were found in the source, otherwise
    "store-time": the first message stored no earlier than the oldest one the group still has to see.

    Args:
        spark: the session.
        source: store whose groups move.
        table: its offset table, a path below the store.
        target: store that they move to.
        target_table: its offset table; ``None`` if it has none.
        groups: only these; all if empty.
    """
    columns = ["queue_id", "queue_offset", "store_timestamp"]
    mine = user_messages(spark, [source], columns).select(
        "topic",
        "uniq_key",
        F.col("queue_id").alias("source_queue"),
        F.col("queue_offset").alias("source_offset"),
        F.col("store_timestamp").alias("source_time"),
    )
    theirs = user_messages(spark, [target], columns).select(
        "topic", "uniq_key", "queue_id", "queue_offset", "store_timestamp"
    )
    offsets = spark.read.format("rocketmq_offsets").option("path", path_option([source])).load()
    entry = read_layout(source).tables.get(table)
    small = entry is None or entry.size_bytes <= BROADCAST_TABLE_BYTES

    def given(frame: DataFrame) -> DataFrame:
        """A frame with no more rows than the table of offsets has, for a join."""
        return F.broadcast(frame) if small else frame

    offsets = offsets.where(F.col("file") == table).select(
        "topic", "consumer_group", F.col("queue_id").alias("source_queue"), "committed_offset"
    )
    if groups:
        offsets = offsets.where(F.col("consumer_group").isin(*groups))
    subscribed = given(offsets.select("topic", "consumer_group").distinct())
    # a queue without an entry has not been consumed
    consumed = F.coalesce("committed_offset", F.lit(0)) > F.col("source_offset")
    judged = (
        mine.join(subscribed, "topic")
        .join(given(offsets), ["topic", "consumer_group", "source_queue"], "left")
        .withColumn("consumed", consumed)
    )
    pairs = judged.where("uniq_key is not null").join(theirs.where("uniq_key is not null"), ["topic", "uniq_key"])
    by_queue = ["topic", "consumer_group", "queue_id"]
    bounds = pairs.groupBy(*by_queue).agg(
        F.min(F.when(~F.col("consumed"), F.col("queue_offset"))).alias("first_left"),
        F.max(F.when(F.col("consumed"), F.col("queue_offset"))).alias("last_consumed"),
        F.count("*").alias("matched"),
    )
    bounds = bounds.withColumn("exact", F.coalesce("first_left", F.col("last_consumed") + 1))
    again = (
        (pairs.where("consumed").join(bounds.select(*by_queue, "exact"), by_queue).where("queue_offset >= exact"))
        .groupBy(*by_queue)
        .agg(F.countDistinct("queue_offset").alias("again"))
    )
    oldest = judged.groupBy("topic", "consumer_group").agg(
        F.min(F.when(~F.col("consumed"), F.col("source_time"))).alias("oldest_left")
    )
    late = F.col("oldest_left").isNotNull() & (F.col("store_timestamp") >= F.col("oldest_left"))
    by_time = (
        theirs.join(given(oldest), "topic")
        .groupBy(*by_queue)
        .agg(
            F.min(F.when(late, F.col("queue_offset"))).alias("time_offset"),
            F.count(F.when(late, F.lit(1))).alias("time_again"),
            (F.max("queue_offset") + 1).alias("end"),
        )
    )
    held = spark.read.format("rocketmq_offsets").option("path", path_option([target])).load()
    held = held.where(F.col("file") == (target_table or "")).select(
        *by_queue, F.col("committed_offset").alias("current")
    )
    joined = by_time.join(bounds, by_queue, "left").join(again, by_queue, "left").join(held, by_queue, "left")
    return joined.select(
        *by_queue,
        "current",
        F.coalesce("exact", "time_offset", "end").alias("proposed"),
        F.when(F.col("exact").isNotNull(), F.coalesce("again", F.lit(0)))
        .otherwise(F.col("time_again"))
        .alias("repeated"),
        F.when(F.col("exact").isNotNull(), F.lit("uniq-key")).otherwise(F.lit("store-time")).alias("method"),
        F.coalesce("matched", F.lit(0)).alias("matched"),
        "end",
    )
