"""Replicas of one log against each other, and each store's queues and indexes against its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from understudy.spark_tools import layout as layouts
from understudy.spark_tools.crosscheck import Finding, log_against_index, log_against_queues, queue_against_log
from understudy.spark_tools.facts import QueueRange, log_file_of, queue_ranges
from understudy.spark_tools.jobs.log_bytes import compare_range, comparisons
from understudy.spark_tools.jobs.scan import StoreFacts, scan
from understudy.spark_tools.jobs.spread import spread
from understudy.spark_tools.kernels.progress import epoch_at
from understudy.spark_tools.layout import Store
from understudy.spark_tools.windows import splits

DIFFERENCE_SCHEMA = pa.schema(
    [("left", pa.string()), ("right", pa.string()), ("record", pa.int64()), ("byte", pa.int64()), ("bytes", pa.int64())]
)
DIFFERENCE_DDL = "left string, right string, record long, byte long, bytes long"
FINDING_SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("path", pa.string()),
        ("offset_bytes", pa.int64()),
        ("detail", pa.string()),
    ]
)
FINDING_DDL = (
    "store string, kind string, topic string, queue_id long, queue_offset long, physical_offset long, path string,"
    " offset_bytes long, detail string"
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two replicas of a log part: first differing record, its epoch on each side, whether it was confirmed."""

    left: str
    right: str
    record_offset: int
    byte_offset: int
    left_epoch: int | None
    right_epoch: int | None
    confirmed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    """One proposed step; nothing here is carried out."""

    store: str
    action: str
    what: str
    reason: str


@dataclass(slots=True)
class Verification:
    """Everything the job found."""

    facts: list[StoreFacts]
    divergences: list[Divergence]
    findings: list[tuple[str, Finding]]
    repairs: list[Repair]

    @property
    def differ(self) -> bool:
        """Whether replicas or derived files disagree."""
        return bool(self.divergences or self.findings)


def confirm_offset(facts: Sequence[StoreFacts]) -> int | None:
    """Smallest confirm offset any store recorded, None without one."""
    known = [item.checkpoint.confirm_offset for item in facts if item.checkpoint and item.checkpoint.confirm_offset > 0]
    return min(known, default=None)


def verify(
    spark: SparkSession, stores: Sequence[Store], *, bodies: bool = False, to: int | None = None
) -> Verification:
    """Compares the stores of one replica set and checks each store in itself.

    Args:
        bodies: also check each body against its CRC.
        to: physical offset to compare up to; the end of the shortest log otherwise.
    """
    facts = scan(spark, stores, verify=bodies)
    work = comparisons(facts, to)
    rows = spread(spark, work, compare_range, DIFFERENCE_SCHEMA, DIFFERENCE_DDL).collect() if work else []
    divergences = []
    by_name = {item.store.name: item for item in facts}
    for right in facts[1:]:
        mine = [row for row in rows if row.right == right.store.name]
        if mine:
            first = min(mine, key=lambda row: row.record)
            left = by_name[first.left]
            divergences.append(_divergence(left, right, first.record, first.byte, confirm_offset(facts)))
    findings = check_derived(spark, facts)
    return Verification(facts, divergences, findings, repairs(facts, divergences, findings))


def _divergence(left: StoreFacts, right: StoreFacts, record: int, byte: int, confirm: int | None) -> Divergence:
    epochs = epoch_at(left.epochs, record), epoch_at(right.epochs, record)
    confirmed = confirm is None or record < confirm
    where = log_file_of(left.layout.commit_log, byte)
    detail = f"first differing byte is {byte - where.start_offset if where else byte} of {where.path if where else '?'}"
    return Divergence(left.store.name, right.store.name, record, byte, *epochs, confirmed, detail)


def check_derived(spark: SparkSession, facts: Sequence[StoreFacts]) -> list[tuple[str, Finding]]:
    """Disagreements between each store's log and its consume queues and index."""
    by_name = {item.store.name: (item.store, item.layout, item.log) for item in facts}
    log_work = [
        ("log", item.store.name, (file, start, stop))
        for item in facts
        for file in item.layout.commit_log
        for start, stop in splits(file)
    ]
    topic_work = [("topic", item.store.name, topic) for item in facts for topic in layouts.topics(item.store)]

    def run(work: tuple[str, str, Any]) -> Iterable[tuple[object, ...]]:
        kind, name, what = work
        store, layout, log = by_name[name]
        found: list[Finding] = []
        if kind == "log":
            file, start, stop = what
            found = log_against_queues(store, file, start, stop) + log_against_index(layout, file, start, stop)
        else:
            topic, batched = what
            for part in queue_ranges([store], topic, batched):
                found += queue_against_log(store, layout, log, QueueRange(*astuple(part)))
        return [(name, *astuple(finding)) for finding in found]

    rows = spread(spark, [*log_work, *topic_work], run, FINDING_SCHEMA, FINDING_DDL).collect()
    findings = [(row.store, Finding(*tuple(row)[1:])) for row in rows]
    return sorted(
        findings, key=lambda item: (item[0], item[1].kind, item[1].topic, item[1].queue_id, item[1].queue_offset)
    )


def repairs(
    facts: Sequence[StoreFacts], divergences: Sequence[Divergence], findings: Sequence[tuple[str, Finding]]
) -> list[Repair]:
    """Steps that would make the stores agree, to be taken by an operator with the brokers stopped."""
    steps: list[Repair] = []
    for item in divergences:
        if item.left_epoch is not None and item.right_epoch is not None and item.left_epoch != item.right_epoch:
            loser = item.left if item.left_epoch < item.right_epoch else item.right
            reason = f"epoch {min(item.left_epoch, item.right_epoch)} was overtaken by the other's"
        else:
            loser = item.right
            reason = "of stores that hold the record the first one of the command line is taken as the right one"
        what = f"cut its log at {item.record_offset} and replicate again from there"
        steps.append(Repair(loser, "truncate", what, reason))
    queues = sorted(
        {(name, f.topic, f.queue_id) for name, f in findings if f.kind.endswith("unit") or "tags" in f.kind}
    )
    for name, topic, queue_id in queues:
        reason = next(f.detail for n, f in findings if (n, f.topic, f.queue_id) == (name, topic, queue_id))
        what = f"remove consumequeue/{topic}/{queue_id} and create `abort`, so that the start rebuilds it from the log"
        steps.append(Repair(name, "rebuild-queue", what, reason))
    for name in sorted({name for name, finding in findings if "index" in finding.kind}):
        what = "remove index/ and create `abort`, so that the start rebuilds it from the log"
        steps.append(Repair(name, "rebuild-index", what, "entries are missing or wrong"))
    for found in facts:
        for fault in found.faults:
            if fault.kind in ("damaged", "damaged-tail", "hole", "missing-file", "short-file"):
                what = f"{fault.path} from byte {fault.offset_bytes}: copy the file from a replica that has it"
                steps.append(Repair(found.store.name, "restore-file", what, fault.detail))
    return steps
