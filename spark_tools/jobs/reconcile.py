"""Compares the committed offsets of all replicas and proposes what is right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from understudy.spark_tools import rules
from understudy.spark_tools.jobs.queues import queue_facts
from understudy.spark_tools.jobs.scan import StoreFacts, path_option, scan
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.kernels.tables import DataVersion
from understudy.spark_tools.layout import Store
from understudy.spark_tools.rules import Context, Replica, Reset
from understudy.spark_tools.storage import read_file

OFFSET_TABLES = ("lmqConsumerOffset.json", "consumerOffset.json")
SYSTEM_GROUP_PREFIXES = ("CID_RMQ_SYS_", "CID_ONS")
UNLISTED_TOPIC_PREFIXES = ("%LMQ%",)

EVIDENCE = pa.schema(
    [
        ("topic", pa.string()),
        ("consumer_group", pa.string()),
        ("queue_id", pa.int32()),
        ("class", pa.string()),
        ("proposed", pa.int64()),
        ("reason", pa.string()),
        ("repeated", pa.int64()),
        ("skipped", pa.int64()),
        ("saved", pa.int64()),
        ("stores", pa.list_(pa.string())),
        ("offsets", pa.list_(pa.int64())),
        ("previous_offsets", pa.list_(pa.int64())),
        ("min_offsets", pa.list_(pa.int64())),
        ("max_offsets", pa.list_(pa.int64())),
        ("versions", pa.list_(pa.string())),
        ("diverged_at", pa.int64()),
    ]
)
EVIDENCE_DDL = (
    "topic string, consumer_group string, queue_id int, class string, proposed long, reason string, repeated long,"
    " skipped long, saved long, stores array<string>, offsets array<long>, previous_offsets array<long>,"
    " min_offsets array<long>, max_offsets array<long>, versions array<string>, diverged_at long"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What every task needs to judge keys: stores in order, versions of their tables, names, recorded resets."""

    stores: tuple[str, ...]
    versions: tuple[DataVersion, ...]
    previous_versions: tuple[DataVersion, ...]
    topics: frozenset[str]
    groups: frozenset[str]
    resets: dict[tuple[str, str, int], tuple[Reset, ...]]

    def topic_known(self, topic: str) -> bool:
        """Whether any replica lists the topic; light queues are never listed."""
        return not self.topics or topic in self.topics or topic.startswith(UNLISTED_TOPIC_PREFIXES)

    def group_known(self, group: str) -> bool:
        """Whether any replica lists the group; the broker's own are never listed.

        Places of broadcasting members stand under `group@broadcast`: no group has an `@` in its name.
        """
        name = group.partition("@")[0]
        return not self.groups or name in self.groups or name.startswith(SYSTEM_GROUP_PREFIXES)


def load_resets(path: str | None) -> dict[tuple[str, str, int], tuple[Reset, ...]]:
    """Recorded resets: JSON lines with topic, group, queue_id (-1: all queues), offset and time_ms.

    Errors: ValueError naming the line that is not such a record; OSError when the file cannot be read.
    """
    found: dict[tuple[str, str, int], list[Reset]] = {}
    if path is not None:
        for number, line in enumerate(read_file(path).decode().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                key = (str(row["topic"]), str(row["group"]), int(row.get("queue_id", -1)))
                found.setdefault(key, []).append(Reset(int(row["offset"]), int(row["time_ms"])))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{path} line {number}: needs topic, group, offset and time_ms ({error})") from None
    return {key: tuple(value) for key, value in found.items()}


def table_version(facts: StoreFacts, suffix: str = "") -> DataVersion:
    """Version of a store's offset table, zero when there is none or it cannot be read."""
    for name in OFFSET_TABLES:
        entry = facts.layout.tables.get(name + suffix)
        if entry is None:
            continue
        try:
            table = tables.loads(read_file(entry.path))
        except tables.TableError:
            continue
        return DataVersion.of(table.get("dataVersion") if isinstance(table, dict) else None)
    return DataVersion(0, 0, 0)


def offset_table(facts: StoreFacts) -> str | None:
    """Name of the table the broker reads: the light-queue one replaces the other where it exists."""
    return next((name for name in OFFSET_TABLES if name in facts.layout.tables), None)


def reconcile(
    spark: SparkSession,
    stores: Sequence[Store],
    *,
    resets: dict[tuple[str, str, int], tuple[Reset, ...]] | None = None,
    whole_log: bool = True,
    verify: bool = False,
    facts: list[StoreFacts] | None = None,
) -> tuple[DataFrame, list[StoreFacts]]:
    """Verdicts on every group, topic and queue of one replica set, and what the scan of its stores found.

    Args:
        resets: recorded resets by (topic, group, queue id or -1).
        whole_log: walk whole logs for damage; otherwise only their ends.
        facts: a scan that was made already.
    """
    # offsets first: whatever a running broker appends and commits meanwhile cannot make one look ahead of its log
    offsets = spark.read.format("rocketmq_offsets").option("path", path_option(stores)).load().cache()
    offsets.count()
    facts = facts if facts is not None else scan(spark, stores, verify=verify, whole_log=whole_log)
    known = Known(
        tuple(item.store.name for item in facts),
        tuple(table_version(item) for item in facts),
        tuple(table_version(item, ".bak") for item in facts),
        frozenset().union(*(item.topics for item in facts)),
        frozenset().union(*(item.groups for item in facts)),
        resets or {},
    )
    logs = {item.store.name: item.log for item in facts}
    queues = queue_facts(spark, stores, logs)
    current = [F.col("file") == (offset_table(item) or "") for item in facts]
    previous = [F.col("file") == f"{offset_table(item)}.bak" for item in facts]
    pivot = []
    for number, item in enumerate(facts):
        mine = F.col("store") == item.store.name
        pivot.append(F.max(F.when(mine & current[number], F.col("committed_offset"))).alias(f"o{number}"))
        pivot.append(F.max(F.when(mine & previous[number], F.col("committed_offset"))).alias(f"p{number}"))
    keys = offsets.groupBy("topic", "consumer_group", "queue_id").agg(*pivot)
    held = F.coalesce(*(F.col(f"o{number}") for number in range(len(facts))))
    ranges = []
    for number, item in enumerate(facts):
        mine = F.col("store") == item.store.name
        ranges.append(F.max(F.when(mine, F.col("min_offset"))).alias(f"n{number}"))
        ranges.append(F.max(F.when(mine, F.col("max_offset"))).alias(f"x{number}"))
    served = queues.groupBy("topic", "queue_id").agg(*ranges, F.min("diverged_at").alias("diverged_at"))
    joined = keys.where(held.isNotNull()).join(served, ["topic", "queue_id"], "left")

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield verdicts(batch, known)

    return joined.mapInArrow(judge, EVIDENCE_DDL), facts


def verdicts(batch: pa.RecordBatch, known: Known) -> pa.RecordBatch:
    """Verdicts on a batch of keys with columns topic, consumer_group, queue_id, o*, p*, n*, x*, diverged_at."""
    count = len(known.stores)
    plain = plainly_equal(batch, known)
    columns: dict[str, list[Any]] = {
        name: batch.column(name).to_pylist() for name in batch.schema.names if name not in ("topic", "consumer_group")
    }
    topics = batch.column("topic").to_pylist()
    groups = batch.column("consumer_group").to_pylist()
    held = [columns[f"o{number}"] for number in range(count)]
    before = [columns[f"p{number}"] for number in range(count)]
    lowest = [columns[f"n{number}"] for number in range(count)]
    highest = [columns[f"x{number}"] for number in range(count)]
    results: list[rules.Verdict] = []
    same = "all replicas agree and can serve it"
    for row, is_plain in enumerate(plain):
        if is_plain:
            results.append(rules.Verdict(rules.EQUAL, held[0][row], same))
            continue
        topic, group, queue_id = topics[row], groups[row], columns["queue_id"][row]
        replicas = [
            Replica(
                known.stores[number],
                held[number][row],
                known.versions[number],
                before[number][row],
                known.previous_versions[number],
                lowest[number][row],
                highest[number][row],
            )
            for number in range(count)
        ]
        recorded = known.resets.get((topic, group, queue_id), ()) + known.resets.get((topic, group, -1), ())
        context = Context(known.topic_known(topic), known.group_known(group), columns["diverged_at"][row], recorded)
        results.append(rules.classify(replicas, context))
    versions = [f"{v.state_version}/{v.counter}/{v.timestamp}" for v in known.versions]
    rows = len(topics)
    return pa.RecordBatch.from_arrays(
        [
            batch.column("topic"),
            batch.column("consumer_group"),
            batch.column("queue_id"),
            pa.array([item.kind for item in results], pa.string()),
            pa.array([item.proposed for item in results], pa.int64()),
            pa.array([item.reason for item in results], pa.string()),
            pa.array([item.repeated for item in results], pa.int64()),
            pa.array([item.skipped for item in results], pa.int64()),
            pa.array([item.saved for item in results], pa.int64()),
            pa.array([list(known.stores)] * rows, pa.list_(pa.string())),
            _lists(batch, "o", count),
            _lists(batch, "p", count),
            _lists(batch, "n", count),
            _lists(batch, "x", count),
            pa.array([versions] * rows, pa.list_(pa.string())),
            batch.column("diverged_at"),
        ],
        schema=EVIDENCE,
    )


def _lists(batch: pa.RecordBatch, prefix: str, count: int) -> pa.ListArray:
    """Columns `prefix0`, `prefix1`, ... as one list per row."""
    rows = batch.num_rows
    whole = pa.concat_arrays([batch.column(f"{prefix}{number}").cast(pa.int64()) for number in range(count)])
    order = np.arange(rows * count).reshape(count, rows).T.reshape(-1)
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, rows * count + 1, count, dtype=np.int32)), whole.take(pa.array(order))
    )


def plainly_equal(batch: pa.RecordBatch, known: Known) -> np.ndarray:
    """Rows on which every replica holds the same offset, within each log, with nothing else to look at.

    A shortcut for the usual case: wherever it says yes, `rules.classify` says EQUAL.
    """
    rows = batch.num_rows
    first = batch.column("o0")
    yes = np.ones(rows, dtype=bool)

    def both(test: pa.Array) -> None:
        nonlocal yes
        yes &= pc.fill_null(test, False).to_numpy(zero_copy_only=False)

    both(pc.greater_equal(first, 0))
    for number in range(len(known.stores)):
        both(pc.equal(batch.column(f"o{number}"), first))
        both(pc.less_equal(batch.column(f"n{number}"), first))
        both(pc.greater_equal(batch.column(f"x{number}"), first))
        previous = batch.column(f"p{number}")
        yes &= pc.fill_null(pc.less_equal(previous, first), True).to_numpy(zero_copy_only=False)
    for column, test in (("topic", known.topic_known), ("consumer_group", known.group_known)):
        encoded = batch.column(column).dictionary_encode()
        table = np.array([test(name) for name in encoded.dictionary.to_pylist()] + [False])
        yes &= table[encoded.indices.fill_null(len(table) - 1).to_numpy()]
    if known.resets:
        yes[:] = False
    return yes
