"""What each command does: runs its job, writes evidence, plan and report, and says what was found."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from heapq import merge, nlargest, nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from understudy.spark_tools import exits, rules, session
from understudy.spark_tools.layout import Store
from understudy.spark_tools.report import MOST_ROWS, Report, Table, bars, write_report
from understudy.spark_tools.storage import local_path, remote
from understudy.spark_tools.times import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from understudy.spark_tools.jobs.scan import StoreFacts
    from understudy.spark_tools.kernels.extents import Extents

Say = Callable[[str], None]
ROWS_AT_ONCE = 256


def replica_sets(stores: list[Store]) -> dict[str, list[Store]]:
    """Stores by the set they are replicas of."""
    found: dict[str, list[Store]] = {}
    for store in stores:
        found.setdefault(store.replica_set, []).append(store)
    return found


def fault_table(facts: list[StoreFacts]) -> Table:
    """Every fault of the inputs with its place; where a log ends is no fault."""
    rows = [
        (item.store.name, fault.severity, fault.kind, fault.path, fault.offset_bytes, fault.length_bytes, fault.detail)
        for item in facts
        for fault in item.faults
        if fault.kind != "end-of-log"
    ]
    rows.sort(key=lambda row: (row[1] != "damage", row[0], row[3], row[4]))
    columns = ("store", "severity", "kind", "path", "byte offset", "length", "detail")
    return Table("Faults of the inputs", columns, rows[:MOST_ROWS], total=len(rows))


def store_table(facts: list[StoreFacts]) -> Table:
    """What each store is and how far its log reaches."""
    rows = [
        (
            item.store.name,
            item.store.path,
            len(item.layout.commit_log),
            item.log.begin,
            item.log.end,
            item.checkpoint.confirm_offset if item.checkpoint else None,
            ", ".join(f"{epoch.epoch} from {epoch.start_offset}" for epoch in item.epochs[-5:]),
            "yes" if item.layout.unclean else "no",
            sum(fault.severity == "damage" for fault in item.faults),
        )
        for item in facts
    ]
    columns = (
        "store",
        "path",
        "log files",
        "log begin",
        "log end",
        "confirm offset",
        "epochs",
        "unclean stop",
        "faults",
    )
    return Table("Stores", columns, rows)


def progress_table(facts: list[StoreFacts]) -> Table:
    """Delay levels, timer and checkpoint of each store beside each other; escaped deliveries depend on them."""
    from understudy.spark_tools.jobs.scan import progress_of

    held = [progress_of(item) for item in facts]
    names = sorted({name for values in held for name in values})
    rows = [
        (
            name,
            *(moment(values.get(name)) if "timestamp" in name else values.get(name) for values in held),
            len({values.get(name) for values in held}) == 1,
        )
        for name in names
    ]
    return Table("Delay and timer progress", ("what", *(item.store.name for item in facts), "equal"), rows)


def exit_code(facts: list[StoreFacts], differ: bool) -> int:
    """The exit code of a job: damage outranks difference."""
    if any(item.damaged for item in facts):
        return exits.DAMAGED
    return exits.DIFFER if differ else exits.AGREE


def worst_first(code: int, found: list[Table], faults: Table) -> list[Table]:
    """Tables of a report: faults of the inputs stand in front where they make the rest doubtful."""
    return [faults, *found] if code == exits.DAMAGED else [*found, faults]


def verdict_line(code: int, text: str) -> str:
    """The one line a reader sees first."""
    word = {exits.AGREE: "Agree", exits.DIFFER: "Differ", exits.DAMAGED: "Damaged input"}[code]
    return f"{word}: {text}"


def logs_line(differing: Extents | None) -> str:
    """What the comparison of the logs' bytes found, in one line."""
    if differing is None:
        return "not compared: only their ends were looked for"
    if not len(differing):
        return "alike in every record that two of them hold"
    return (
        f"differ in records of {differing.bytes} bytes, from physical offset {differing.starts[0]} on; "
        "see verify-replicas"
    )


def reconcile(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Evidence, plan and report of each replica set."""
    sets = replica_sets(options.store)
    codes = []
    for name, stores in sets.items():
        out = options.out if len(sets) == 1 else os.path.join(options.out, name.replace("/", "__"))
        # by name: the order on the command line leaves no trace in a plan
        in_order = sorted(stores, key=lambda store: store.name)
        codes.append(_reconcile_set(spark, options, name, in_order, out, say))
    return max(codes, key=[exits.AGREE, exits.DIFFER, exits.DAMAGED].index)


def _reconcile_set(spark: SparkSession, options: Namespace, name: str, stores: list[Store], out: str, say: Say) -> int:
    from understudy.spark_tools.jobs import reconcile as job
    from understudy.spark_tools.plan import Change, describe_store, write_plan

    os.makedirs(out, exist_ok=True)
    plan_path, evidence = os.path.join(out, "plan.jsonl"), evidence_place(options, out, "evidence")
    # a run that is killed must not leave the plan of an earlier one beside new evidence
    for stale in (plan_path, os.path.join(out, "report.html"), os.path.join(out, "report.json")):
        if os.path.exists(stale):
            os.unlink(stale)
    resets = job.load_resets(options.resets)
    with session.progress(spark, "reading stores", shown=not options.quiet):
        items, known, facts = job.reconcile(
            spark, stores, resets=resets, whole_log=options.log == "all", verify=options.verify
        )
    with session.progress(spark, "comparing offsets", shown=not options.quiet):
        job.write_evidence(items, known, facts, evidence)
    counts, keys = class_counts(evidence)
    names = [item.store.name for item in facts]

    def changes() -> Iterator[Change]:
        number = 0
        for row in differing_rows(evidence):
            current = dict(zip(row["stores"], row["offsets"], strict=True))
            if row["proposed"] is None or all(value == row["proposed"] for value in current.values()):
                continue
            number += 1
            yield Change(
                number,
                row["topic"],
                row["consumer_group"],
                row["queue_id"],
                row["class"],
                row["proposed"],
                current,
                row["reason"],
                row["repeated"],
                row["skipped"],
                row["saved"],
            )

    described = [
        describe_store(item.layout, item.log.begin, item.log.end, items.reading.loaded(item.store.name))
        for item in facts
    ]
    temporary = f"{plan_path}.understudy-new"
    proposals, digest = write_plan(temporary, name, described, changes(), options.now_ms, options.key)
    os.replace(temporary, plan_path)
    differ = keys - counts.get("equal", 0)
    code = exit_code(facts, differ > 0)
    text = f"{keys} queues of groups on {len(stores)} stores, {differ} differ, {proposals} changes proposed"
    if items.differing is None:
        text += "; the bytes of the logs were not compared"
    report = Report(
        f"Offsets of {name}",
        verdict_line(code, text),
        {
            "stores": ", ".join(f"{store.name} = {store.path}" for store in stores),
            "logs": logs_line(items.differing),
            "plan": plan_path,
            "plan digest": digest,
            "evidence": evidence,
        },
        [bars("Queues of groups by class", sorted(counts.items(), key=lambda item: -item[1]))] if counts else [],
        worst_first(
            code,
            [_offset_table(evidence, names, differ), progress_table(facts), store_table(facts)],
            fault_table(facts),
        ),
    )
    worst = _saved_by_group(evidence)
    if worst:
        report.plots.append(bars("Messages the plan keeps from being delivered again, by group", worst))
    page = write_report(report, out)
    say(verdict_line(code, text))
    for fault in (fault for item in facts for fault in item.faults if fault.severity == "damage"):
        say(f"  {fault}")
    say(f"report: {page}")
    say(f"plan:   {plan_path}")
    return code


def evidence_place(options: Namespace, out: str, name: str) -> str:
    """URI the job's tasks write Parquet to: below --evidence, which a cluster's executors can reach, or below --out."""
    if options.evidence:
        return f"{options.evidence.rstrip('/')}/{os.path.basename(os.path.abspath(out))}/{name}.parquet"
    return f"file:{quote(os.path.abspath(out))}/{name}.parquet"


def open_dataset(evidence: str) -> Any:
    """Parquet files of a job, wherever they lie."""
    from pyarrow import dataset

    local = local_path(evidence)
    if local is not None:
        return dataset.dataset(local)
    system, inner = remote(evidence)
    return dataset.dataset(inner, filesystem=system)


def class_counts(evidence: str) -> tuple[dict[str, int], int]:
    """Keys by class, and how many there are, out of the evidence."""
    counts: dict[str, int] = {}
    for batch in open_dataset(evidence).to_batches(columns=["class"]):
        for item in batch.column("class").value_counts().to_pylist():
            counts[item["values"]] = counts.get(item["values"], 0) + item["counts"]
    return counts, sum(counts.values())


def differing_rows(evidence: str) -> Iterator[dict[str, Any]]:
    """Evidence of the keys on which replicas or logs do not agree, in the order of their names.

    The files of the evidence are in this order each and are merged as they are read: what is held does not grow with
    the number of keys.
    """
    found = open_dataset(evidence)
    files = [_differing(path, found.filesystem) for path in found.files]
    return merge(*files, key=itemgetter("topic", "consumer_group", "queue_id"))


def _differing(path: str, filesystem: Any) -> Iterator[dict[str, Any]]:
    from pyarrow import compute, parquet

    # not a scan of the dataset, which reads far ahead of the rows that are taken
    with filesystem.open_input_file(path) as source, parquet.ParquetFile(source) as file:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
            yield from batch.filter(compute.not_equal(batch.column("class"), "equal")).to_pylist()


def worst_rows(evidence: str, most: int) -> list[dict[str, Any]]:
    """The worst keys of the evidence: by class, then by messages lost or repeated, then by name.

    Reads batch by batch and keeps no more than `most` rows.
    """
    from pyarrow import compute

    rank = {name: number for number, name in enumerate(rules.WORST_FIRST)}

    def severity(row: dict[str, Any]) -> tuple[object, ...]:
        messages = row["repeated"] + row["skipped"] + row["saved"]
        return rank[row["class"]], -messages, row["topic"], row["consumer_group"], row["queue_id"]

    batches = open_dataset(evidence).to_batches(filter=compute.field("class") != "equal", batch_size=10_000)
    return nsmallest(most, (row for batch in batches for row in batch.to_pylist()), key=severity)


def _offset_table(evidence: str, names: list[str], total: int) -> Table:
    rows = [
        (
            row["topic"],
            row["consumer_group"],
            row["queue_id"],
            row["class"],
            *row["offsets"],
            row["proposed"],
            row["repeated"],
            row["skipped"],
            row["saved"],
            row["reason"],
        )
        for row in worst_rows(evidence, MOST_ROWS)
    ]
    columns = ("topic", "group", "queue", "class", *names, "proposed", "repeated", "skipped", "saved", "reason")
    return Table("Offsets that differ", columns, rows, "the worst ones first", total=total)


def _saved_by_group(evidence: str) -> list[tuple[str, float]]:
    from pyarrow import compute

    saved: dict[str, int] = {}
    columns = ["consumer_group", "saved"]
    for batch in open_dataset(evidence).to_batches(columns=columns, filter=compute.field("saved") > 0):
        for group, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            saved[group] = saved.get(group, 0) + count
    return nlargest(15, saved.items(), key=itemgetter(1))
