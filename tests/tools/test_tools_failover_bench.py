"""What the bench of failovers makes of its figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.failover import TARGETS, Target, main, medians, table

BOUND = Target("a", "bound", must_s=0.5, goal_ratio=0.1)
RATIO = Target("b", "ratio", must_ratio=1 / 3, goal_ratio=1 / 5)


@pytest.mark.parametrize(
    ("target", "ours", "java", "verdict"),
    [
        (BOUND, 0.6, 12.0, "MISS"),
        (BOUND, 0.4, None, "pass"),
        (BOUND, 0.4, 2.0, "pass"),
        (BOUND, 0.1, 2.0, "goal"),
        (BOUND, None, 2.0, "-"),
        (RATIO, 4.0, 10.0, "MISS"),
        (RATIO, 3.0, 10.0, "pass"),
        (RATIO, 1.0, 10.0, "goal"),
        (RATIO, 1.0, None, "-"),
    ],
)
def test_a_figure_is_judged_by_its_bound_and_beside_the_real_system(
    target: Target, ours: float | None, java: float | None, verdict: str
) -> None:
    assert verdict == target.verdict(ours, java)


def test_rounds_become_medians_and_a_table_of_what_was_measured() -> None:
    ours = medians([{"kill_route_s": 0.1}, {"kill_route_s": 0.3}, {"kill_route_s": 0.2, "merge_s": 1.5}])
    assert {"kill_route_s": 0.2, "merge_s": 1.5} == ours
    lines = table(ours, {"kill_route_s": 10.0})
    assert len(lines) == 3
    assert lines[1].endswith("goal")
    assert "0.020" in lines[1]
    assert len({target.key for target in TARGETS}) == len(TARGETS)


def test_unknown_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "ours", "--steps", "kill,explode"]) == 2
    assert "no step explode" in capsys.readouterr().err
