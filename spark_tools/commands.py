"""What each command does: runs its job, writes evidence, plan and report, and says what was found."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

from understudy.spark_tools import exits, session
from understudy.spark_tools.layout import Store
from understudy.spark_tools.report import MOST_ROWS, Report, Table, bars, write_report
from understudy.spark_tools.times import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from understudy.spark_tools.jobs.scan import StoreFacts
    from understudy.spark_tools.kernels.extents import Extents

Say = Callable[[str], None]
PLOTTED_GROUPS = 15


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
    from understudy.spark_tools.evidence import class_counts, proposed_changes, top_groups
    from understudy.spark_tools.jobs import reconcile as job
    from understudy.spark_tools.plan import describe_store, remove_plan, write_plan

    os.makedirs(out, exist_ok=True)
    plan_path, evidence = os.path.join(out, "plan.json"), evidence_place(spark, options, out, "evidence")
    # a run that is killed must not leave the plan of an earlier one beside new evidence
    remove_plan(plan_path)
    for stale in (os.path.join(out, "report.html"), os.path.join(out, "report.json")):
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
    described = [
        describe_store(item.layout, item.log.begin, item.log.end, items.reading.loaded(item.store.name))
        for item in facts
    ]
    changes = proposed_changes(evidence)
    proposals, digest = write_plan(plan_path, name, described, changes, options.now_ms, options.key)
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
    worst = top_groups([evidence], "saved", PLOTTED_GROUPS)
    if worst:
        report.plots.append(bars("Messages the plan keeps from being delivered again, by group", worst))
    page = write_report(report, out)
    say(verdict_line(code, text))
    for fault in (fault for item in facts for fault in item.faults if fault.severity == "damage"):
        say(f"  {fault}")
    say(f"report: {page}")
    say(f"plan:   {plan_path}")
    return code


def evidence_place(spark: SparkSession, options: Namespace, out: str, name: str) -> str:
    """URI the job's tasks write Parquet to: below --evidence, which a cluster's executors can reach, or below --out.

    Args:
        spark: the session; its master says whether tasks run elsewhere.
        options: of the command; ``--evidence`` counts here.
        out: folder of the report.
        name: of the evidence, which becomes that of the file.

    Raises:
        ValueError: on a cluster without --evidence.
    """
    if options.evidence:
        return f"{options.evidence.rstrip('/')}/{os.path.basename(os.path.abspath(out))}/{name}.parquet"
    master = spark.sparkContext.master or "a cluster"
    if not master.startswith("local"):
        raise ValueError(
            f"tasks of {master} cannot write to {out} of this machine: give --evidence URI, which all machines reach"
        )
    return f"file:{quote(os.path.abspath(out))}/{name}.parquet"


def _offset_table(evidence: str, names: list[str], total: int) -> Table:
    from understudy.spark_tools.evidence import worst_rows

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
