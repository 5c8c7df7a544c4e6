"""What a report shows first, and times as people read them."""

from __future__ import annotations

import json
import os
import resource
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from understudy.spark_tools import evidence as evidences
from understudy.spark_tools import exits, rules
from understudy.spark_tools.commands import evidence_place, worst_first
from understudy.spark_tools.evidence import KEY, merged, proposed_changes, top_groups, worst_rows
from understudy.spark_tools.jobs.judging import EVIDENCE
from understudy.spark_tools.plan import load_plan, write_plan
from understudy.spark_tools.report import Report, Table, as_json, render
from understudy.spark_tools.times import moment, span

TIME_MS = 1_700_000_000_123


def evidence(folder: Path, rows: list[tuple[str, str, int]]) -> str:
    """Two files with keys of these groups, classes and messages saved."""
    folder.mkdir()
    for number in range(2):
        columns: dict[str, list[Any]] = {name: [None] * len(rows[number::2]) for name in EVIDENCE.names}
        for at, (group, kind, saved) in enumerate(rows[number::2]):
            known = {"topic": "T", "consumer_group": group, "queue_id": 0, "class": kind, "saved": saved}
            for name, value in (known | {"repeated": 0, "skipped": 0}).items():
                columns[name][at] = value
        parquet.write_table(pa.table(columns, schema=EVIDENCE), folder / f"part-{number}.parquet")
    return str(folder)


def test_the_worst_keys_come_first_and_are_those_that_are_shown(tmp_path: Path) -> None:
    place = evidence(
        tmp_path / "evidence",
        [
            ("a", rules.BEHIND, 900),
            ("b", rules.LOST, 5),
            ("c", rules.EQUAL, 0),
            ("d", rules.LOST, 70),
            ("e", rules.DIVERGED, 0),
            ("f", rules.LOST, 5),
        ],
    )

    assert [row["consumer_group"] for row in worst_rows(place, 10)] == ["e", "d", "b", "f", "a"]
    assert [row["consumer_group"] for row in worst_rows(place, 2)] == ["e", "d"]


@pytest.mark.parametrize("at_once", [2, 3, 100])
def test_the_groups_with_most_messages_are_found_also_where_not_all_are_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    saved = [(f"group-{number % 20}", rules.BEHIND, 7 * number % 31) for number in range(100)]
    places = [evidence(tmp_path / name, rows) for name, rows in (("a", saved[:60]), ("b", saved[60:]))]
    sums: dict[str, int] = {}
    for group, _, number in saved:
        sums[group] = sums.get(group, 0) + number
    monkeypatch.setattr(evidences, "GROUPS_AT_ONCE", at_once)
    taken: list[int] = []
    kept = evidences._sums_by_group

    def watched(*arguments: Any) -> Any:
        sums = kept(*arguments)
        taken.append(len(sums) if sums is not None else 0)
        return sums

    monkeypatch.setattr(evidences, "_sums_by_group", watched)

    found = top_groups(places, "saved", 5)

    assert found == sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert max(taken) <= at_once
    assert top_groups(places, "repeated", 5) == []


def large_evidence(folder: Path, files: int, rows: int) -> str:
    """Keys that all differ, dealt to files in turn, each file in order as the job writes it."""
    folder.mkdir()
    for number in range(files):
        groups = [f"group-{row:08d}" for row in range(number, files * rows, files)]
        columns: dict[str, list[Any]] = {name: [None] * rows for name in EVIDENCE.names}
        columns |= {"topic": ["T"] * rows, "consumer_group": groups, "queue_id": [0] * rows}
        columns |= {"offsets": [[1, None]] * rows, "proposed": [5] * rows, "class": [rules.BEHIND] * rows}
        columns |= {"reason": ["a reason of forty bytes for every key here"] * rows}
        table = pa.table(columns, schema=EVIDENCE)
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=1000)
    return str(folder)


def test_differing_keys_are_merged_into_the_plan_in_order_without_being_held(tmp_path: Path) -> None:
    files, rows = 3, 100_000
    place = large_evidence(tmp_path / "evidence", files, rows)
    whole_bytes = parquet.read_table(place).nbytes
    before = pa.total_allocated_bytes()
    highest = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal highest
        for batch in proposed_changes(place):
            highest = max(highest, pa.total_allocated_bytes() - before)
            yield batch

    stores = [{"name": "a"}, {"name": "b"}]
    count, _ = write_plan(str(tmp_path / "plan.json"), "default", stores, watched(), 0)

    assert count == files * rows
    changes = load_plan(str(tmp_path / "plan.json")).changes()
    assert all(change.group == f"group-{number:08d}" for number, change in enumerate(changes))
    assert highest < whole_bytes / 3


def test_more_files_than_a_process_may_open_are_merged(tmp_path: Path) -> None:
    place = large_evidence(tmp_path / "evidence", 120, 30)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        found = [group for batch in proposed_changes(place) for group in batch.column("group").to_pylist()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found == [f"group-{number:08d}" for number in range(120 * 30)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 5)), max_size=30), st.data())
def test_sources_in_order_are_merged_in_order(keys: list[tuple[str, str, int]], data: st.DataObject) -> None:
    sources: list[list[tuple[str, str, int]]] = [[], [], []]
    for key in keys:
        data.draw(st.sampled_from(sources)).append(key)

    def batches(rows: list[tuple[str, str, int]]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), 3):
            columns = zip(*sorted(rows)[at : at + 3], strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=KEY)

    found = [tuple(row.values()) for batch in merged(map(batches, sources)) for row in batch.to_pylist()]

    assert found == sorted(keys)


def test_only_keys_with_a_proposal_that_some_replica_lacks_are_changes(tmp_path: Path) -> None:
    held = [([5, 7], 7), ([7, 7], 7), ([None, 7], 7), ([5, 7], None), ([8, 8], 7)]
    rows: list[dict[str, Any]] = [
        dict.fromkeys(EVIDENCE.names)
        | {"topic": "T", "consumer_group": "g", "queue_id": queue, "class": "c", "offsets": offsets, "proposed": best}
        for queue, (offsets, best) in enumerate(held)
    ]
    (tmp_path / "evidence").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows, EVIDENCE), tmp_path / "evidence" / "part.parquet")

    found = [row for batch in proposed_changes(str(tmp_path / "evidence")) for row in batch.to_pylist()]

    assert [(row["queue_id"], row["current"]) for row in found] == [(0, [5, 7]), (2, [None, 7]), (4, [8, 8])]


@pytest.mark.parametrize(
    ("master", "evidence", "place"),
    [
        ("local[2]", None, "file:/tmp/out/x.parquet"),
        ("local[2]", "hdfs://n/e/", "hdfs://n/e/out/x.parquet"),
        ("spark://n:7077", "hdfs://n/e", "hdfs://n/e/out/x.parquet"),
        ("spark://n:7077", None, None),
        ("yarn", None, None),
    ],
)
def test_tasks_of_a_cluster_write_where_they_are_told(master: str, evidence: str | None, place: str | None) -> None:
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    options = Namespace(evidence=evidence)

    if place is None:
        with pytest.raises(ValueError, match="give --evidence"):
            evidence_place(spark, options, "/tmp/out", "x")  # type: ignore[arg-type]
    else:
        assert evidence_place(spark, options, "/tmp/out", "x") == place  # type: ignore[arg-type]


def test_faults_stand_in_front_of_what_they_make_doubtful() -> None:
    found, faults = Table("Found", (), ()), Table("Faults", (), ())

    assert worst_first(exits.DAMAGED, [found], faults) == [faults, found]
    assert worst_first(exits.DIFFER, [found], faults) == [found, faults]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(TIME_MS, "2023-11-14 22:13:20.123 UTC"), (None, "–"), (0, "–"), (1 << 62, str(1 << 62))],
)
def test_a_moment_is_a_date(time_ms: int | None, text: str) -> None:
    assert moment(time_ms) == text


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (250, "250 ms"),
        (61_000, "1 min 1 s"),
        (360_000, "6 min"),
        (3_600_000 + 5_000, "1 h"),
        (93_784_000, "1 d 2 h"),
        (-1_500, "-1 s 500 ms"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(length_ms: int | None, text: str) -> None:
    assert span(length_ms) == text


def test_pages_word_times_and_files_for_programs_keep_milliseconds() -> None:
    shown = {"stored (ms)": moment, "age (ms)": span}
    table = Table("Waiting", ("queue", "stored (ms)", "age (ms)"), [(3, TIME_MS, 61_000)], shown=shown)
    report = Report("Backlog", "Agree: all", tables=[table])

    page = render(report)

    assert '<th scope="col">stored</th><th scope="col">age</th>' in page
    assert f'data-v="{TIME_MS}">2023-11-14 22:13:20.123 UTC</td>' in page
    assert 'data-v="61000">1 min 1 s</td>' in page
    (kept,) = json.loads(as_json(report))["tables"]
    assert (kept["columns"][1], kept["rows"]) == ("stored (ms)", [[3, TIME_MS, 61_000]])
