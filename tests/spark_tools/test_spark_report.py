"""What a report shows first, and times as people read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet

from understudy.spark_tools import exits, rules
from understudy.spark_tools.commands import differing_rows, worst_first, worst_rows
from understudy.spark_tools.jobs.judging import EVIDENCE
from understudy.spark_tools.report import Report, Table, as_json, render
from understudy.spark_tools.times import moment, span

TIME_MS = 1_700_000_000_123


def test_every_class_has_its_severity() -> None:
    assert sorted(rules.WORST_FIRST) == sorted(rules.CLASSES)


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


def large_evidence(folder: Path, files: int, rows: int) -> str:
    """Keys that all differ, dealt to files in turn, each file in order as the job writes it."""
    folder.mkdir()
    for number in range(files):
        groups = [f"group-{row:08d}" for row in range(number, files * rows, files)]
        columns: dict[str, list[Any]] = {name: [None] * rows for name in EVIDENCE.names}
        columns |= {"topic": ["T"] * rows, "consumer_group": groups, "queue_id": [0] * rows}
        columns |= {"class": [rules.BEHIND] * rows, "reason": ["a reason of forty bytes for every key here"] * rows}
        table = pa.table(columns, schema=EVIDENCE)
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=1000)
    return str(folder)


def test_differing_keys_are_merged_in_order_without_being_held(tmp_path: Path) -> None:
    files, rows = 3, 20_000
    place = large_evidence(tmp_path / "evidence", files, rows)
    whole_bytes = parquet.read_table(place).nbytes
    before = pa.total_allocated_bytes()
    highest = 0
    found = 0

    for found, row in enumerate(differing_rows(place), start=1):
        assert row["consumer_group"] == f"group-{found - 1:08d}"
        if found % 1000 == 0:
            highest = max(highest, pa.total_allocated_bytes() - before)

    assert found == files * rows
    assert highest < whole_bytes / 3


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
