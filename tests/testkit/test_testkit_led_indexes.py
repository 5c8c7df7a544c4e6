"""What the drills of led groups make of Spark's report: an index that a real broker did not cut is no fault of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from understudy.testkit.drills.led_runs import only_real_indexes

KINDS = ("ours", "java", "java")


def report(folder: Path, *repairs: tuple[int, str], divergences: int = 0) -> Path:
    tables = [{"title": "Divergences", "total": divergences}, {"title": "Repair plan", "total": len(repairs)}]
    (folder / "report.json").write_text(json.dumps({"tables": tables}))
    rows = [json.dumps({"store": f"broker-a/{number}", "action": action}) for number, action in repairs]
    (folder / "repair.jsonl").write_text("\n".join(rows))
    return folder


@pytest.mark.parametrize(
    ("repairs", "divergences", "expected"),
    [
        ([(1, "rebuild-index"), (2, "rebuild-index")], 0, True),
        ([(1, "rebuild-index")], 1, False),
        ([(0, "rebuild-index"), (1, "rebuild-index")], 0, False),
        ([(1, "rebuild-index"), (1, "rebuild-queues")], 0, False),
        ([], 0, False),
    ],
    ids=["real indexes", "logs differ", "one of ours", "real queues", "nobody knows what"],
)
def test_only_indexes_of_real_brokers_may_differ(
    tmp_path: Path, repairs: list[tuple[int, str]], divergences: int, expected: bool
) -> None:
    assert only_real_indexes(report(tmp_path, *repairs, divergences=divergences), KINDS) is expected
