"""The commands besides `reconcile` that run on Spark."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from dataclasses import asdict, astuple
from itertools import islice
from typing import TYPE_CHECKING

from understudy.spark_tools import exits, session
from understudy.spark_tools.commands import (
    PLOTTED_GROUPS,
    Say,
    evidence_place,
    exit_code,
    fault_table,
    replica_sets,
    store_table,
    verdict_line,
    worst_first,
)
from understudy.spark_tools.durable import replace_file
from understudy.spark_tools.report import MOST_ROWS, Report, Table, bars, lines, write_report
from understudy.spark_tools.times import moment, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _finish(report: Report, code: int, out: str, say: Say) -> int:
    page = write_report(report, out)
    say(report.verdict)
    say(f"report: {page}")
    return code


def verify_replicas(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Replicas of each set against each other, and queues and indexes against the log."""
    from understudy.spark_tools.jobs.verify_replicas import verify

    codes = []
    sets = replica_sets(options.store)
    for name, stores in sets.items():
        out = options.out if len(sets) == 1 else os.path.join(options.out, name.replace("/", "__"))
        os.makedirs(out, exist_ok=True)
        with session.progress(spark, f"verifying {name}", shown=not options.quiet):
            found = verify(spark, stores, bodies=options.verify, to=options.to)
        steps = "".join(json.dumps(asdict(step)) + "\n" for step in found.repairs)
        replace_file(os.path.join(out, "repair.jsonl"), steps.encode())
        code = exit_code(found.facts, found.differ)
        text = f"{len(found.divergences)} divergences, {len(found.findings)} disagreements of queues and indexes"
        kinds: dict[str, int] = {}
        for _, finding in found.findings:
            kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
        divergence_columns = ("left", "right", "record", "byte", "left epoch", "right epoch", "confirmed", "detail")
        finding_columns = ("store", "kind", "topic", "queue", "offset", "physical offset", "path", "byte", "detail")
        rows = [(store, *astuple(finding)) for store, finding in found.findings]
        report = Report(
            f"Replicas of {name}",
            verdict_line(code, text),
            {"repair plan": os.path.join(out, "repair.jsonl")},
            [bars("Disagreements by kind", sorted(kinds.items()))] if kinds else [],
            worst_first(
                code,
                [
                    Table("Divergences", divergence_columns, [astuple(item) for item in found.divergences]),
                    Table("Queues and indexes", finding_columns, rows[:MOST_ROWS], total=len(rows)),
                    Table(
                        "Repair plan", ("store", "action", "what", "reason"), [astuple(step) for step in found.repairs]
                    ),
                    store_table(found.facts),
                ],
                fault_table(found.facts),
            ),
        )
        codes.append(_finish(report, code, out, say))
    return max(codes, key=[exits.AGREE, exits.DIFFER, exits.DAMAGED].index)


def lag(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Backlogs, top offenders and ages."""
    from understudy.spark_tools.jobs.lag import lag as job

    with session.progress(spark, "measuring backlogs", shown=not options.quiet):
        found = job(spark, options.store, groups=options.group or (), now_ms=options.now)
    by_group: dict[str, float] = {}
    for row in found.rows:
        by_group[row.group] = by_group.get(row.group, 0) + row.backlog
    top = sorted(by_group.items(), key=lambda item: -item[1])[:15]
    rows = [
        (*astuple(row), found.now_ms - row.oldest_timestamp if row.oldest_timestamp else None) for row in found.rows
    ]
    columns = (
        "store",
        "topic",
        "group",
        "queue",
        "committed",
        "end",
        "backlog",
        "oldest stored (ms)",
        "oldest age (ms)",
    )
    code = exit_code(found.facts, False)
    waiting = sum(row.backlog for row in found.rows)
    report = Report(
        "Backlog",
        verdict_line(code, f"{waiting} messages wait in {len(found.rows)} of {found.total} queues of groups"),
        {"ages measured at": moment(found.now_ms)},
        [],
        worst_first(
            code,
            [
                Table(
                    "Backlog by queue",
                    columns,
                    rows[:MOST_ROWS],
                    total=len(rows),
                    shown={"oldest stored (ms)": moment, "oldest age (ms)": span},
                ),
                store_table(found.facts),
            ],
            fault_table(found.facts),
        ),
    )
    if top:
        report.plots.append(bars("Backlog by group", top))
    if found.curves:
        begin = min(point[0] for line in found.curves.values() for point in line) if any(found.curves.values()) else 0
        shifted = {name: [((x - begin) / 1000, y) for x, y in line] for name, line in found.curves.items()}
        report.plots.append(lines("Waiting messages by store time", shifted, "s", "messages"))
    return _finish(report, code, options.out, say)


def duplicates(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Messages stored more than once."""
    from understudy.spark_tools.jobs import messages
    from understudy.spark_tools.jobs.scan import scan

    with session.progress(spark, "looking for duplicates", shown=not options.quiet):
        facts = scan(spark, options.store)
        frame = messages.duplicates(spark, options.store)
        evidence = evidence_place(spark, options, options.out, "duplicates")
        frame.write.mode("overwrite").parquet(evidence)
        total = spark.read.parquet(evidence).count()
        found = spark.read.parquet(evidence).orderBy("first_timestamp", "uniq_key").limit(MOST_ROWS).collect()
    rows = [
        (
            row.topic,
            row.uniq_key,
            row.copies,
            "; ".join(
                f"{place.replica_set}@{place.physical_offset} queue {place.queue_id} offset {place.queue_offset}"
                for place in row.places
            ),
            row.first_timestamp,
            row.last_timestamp - row.first_timestamp,
        )
        for row in found
    ]
    code = exit_code(facts, total > 0)
    columns = ("topic", "uniq key", "copies", "places", "first stored (ms)", "apart (ms)")
    by_topic: dict[str, float] = {}
    for row in found:
        by_topic[row.topic] = by_topic.get(row.topic, 0) + row.copies - 1
    report = Report(
        "Duplicates",
        verdict_line(code, f"{total} messages are stored more than once"),
        {"evidence": evidence},
        [bars("Extra copies by topic", sorted(by_topic.items(), key=lambda item: -item[1])[:15])] if by_topic else [],
        worst_first(
            code,
            [
                Table(
                    "Messages stored more than once",
                    columns,
                    rows,
                    total=total,
                    shown={"first stored (ms)": moment, "apart (ms)": span},
                ),
                store_table(facts),
            ],
            fault_table(facts),
        ),
    )
    return _finish(report, code, options.out, say)


def gaps(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Acknowledged messages no log has, and holes in queues."""
    from understudy.spark_tools.jobs import messages
    from understudy.spark_tools.jobs.scan import scan

    with session.progress(spark, "looking for gaps", shown=not options.quiet):
        facts = scan(spark, options.store)
        holes = messages.offset_gaps(spark, facts)
        lost = []
        total = 0
        if options.acknowledged:
            evidence = evidence_place(spark, options, options.out, "missing")
            messages.missing_acknowledged(spark, options.store, options.acknowledged).write.mode("overwrite").parquet(
                evidence
            )
            total = spark.read.parquet(evidence).count()
            lost = spark.read.parquet(evidence).orderBy("topic", "uniq_key").limit(MOST_ROWS).collect()
    code = exit_code(facts, bool(holes) or total > 0)
    columns = ("store", "topic", "queue", "first missing", "next present", "physical offset of the next")
    report = Report(
        "Gaps",
        verdict_line(code, f"{total} acknowledged messages are missing, {len(holes)} holes in queues"),
        {"acknowledged": options.acknowledged or "not given"},
        [],
        worst_first(
            code,
            [
                Table("Acknowledged but missing", ("topic", "uniq key"), [tuple(row) for row in lost], total=total),
                Table("Holes in queues", columns, [astuple(hole) for hole in holes[:MOST_ROWS]], total=len(holes)),
                store_table(facts),
            ],
            fault_table(facts),
        ),
    )
    return _finish(report, code, options.out, say)


def translate(spark: SparkSession, options: Namespace, say: Say) -> int:
    """Offsets in another cluster's logs, as a table and as a plan for it."""
    from understudy.spark_tools import evidence
    from understudy.spark_tools.jobs import messages
    from understudy.spark_tools.jobs import reconcile as reconciling
    from understudy.spark_tools.jobs.scan import scan
    from understudy.spark_tools.plan import describe_store, remove_plan, write_plan

    os.makedirs(options.out, exist_ok=True)
    source = options.store[0]
    plans = {
        target.name: os.path.join(options.out, f"plan-{target.name.replace('/', '__')}.json")
        for target in options.target
    }
    for path in plans.values():
        remove_plan(path)
    places = {
        target.name: evidence_place(spark, options, options.out, f"translated-{target.name.replace('/', '__')}")
        for target in options.target
    }
    with session.progress(spark, "matching messages", shown=not options.quiet):
        facts = scan(spark, [source, *options.target])
        table = reconciling.offset_table(facts[0]) or "consumerOffset.json"
        for target, target_facts in zip(options.target, facts[1:], strict=True):
            held = reconciling.offset_table(target_facts)
            frame = messages.translate(spark, source, table, target, held, options.group or ())
            in_order = frame.orderBy("topic", "consumer_group", "queue_id")
            in_order.write.mode("overwrite").parquet(places[target.name])
    rows: list[tuple[object, ...]] = []
    total = 0
    code = exit_code(facts, False)
    for target, target_facts in zip(options.target, facts[1:], strict=True):
        place = places[target.name]
        described = describe_store(
            target_facts.layout, target_facts.log.begin, target_facts.log.end, reconciling.offset_table(target_facts)
        )
        changes = evidence.translated_changes(place)
        path = plans[target.name]
        count, _ = write_plan(path, target.replica_set, [described], changes, options.now_ms)
        say(f"plan:   {path} ({count} changes)")
        found = evidence.translated_rows(place)
        rows += [(target.name, *row) for row in islice(found, MOST_ROWS - len(rows))]
        total += evidence.row_count(place)
    columns = ("target", "topic", "group", "queue", "current", "proposed", "error bound", "end", "method", "matched")
    report = Report(
        f"Offsets of {source.name} in another cluster",
        verdict_line(code, f"{total} queues of groups translated"),
        {"source": source.path, "evidence": ", ".join(places.values())},
        [],
        worst_first(
            code, [Table("Translated offsets", columns, rows, total=total), store_table(facts)], fault_table(facts)
        ),
    )
    if rows:
        bound = evidence.top_groups(list(places.values()), "repeated", PLOTTED_GROUPS)
        report.plots.append(bars("Messages that may be delivered again, by group", bound))
    return _finish(report, code, options.out, say)
