"""What the bench of failovers makes of its figures."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.failover import main
from bench.failover_table import (
    NOT_MEASURED,
    TARGETS,
    Figures,
    Target,
    medians,
    page_table,
    put_into,
    table,
    table_of_page,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failover.md"
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


def test_a_page_gets_the_least_and_the_greatest_of_all_rounds(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "before\n\n| seconds, one round | Java 5.4.0 | here | |\n|---|---|---|---|\n| old | 1 | 2 | |\n\nafter\n"
    )
    ours = [{"kill_route_s": 0.0123}, {"kill_route_s": 0.2, "merge_s": 1.5}]
    put_into(path, page_table(ours, [{"kill_route_s": 13.14}, {"kill_route_s": 13.12}]))
    before, header, _, *rows, after = (line for line in path.read_text().splitlines() if line)
    assert (before, after) == ("before", "after")
    assert header.startswith("| seconds, least to greatest of 2 rounds |")
    shown = {target.key: line.split(" | ")[1:3] for target, line in zip(TARGETS, rows, strict=True)}
    assert shown == {target.key: ["not measured"] * 2 for target in TARGETS} | {
        "kill_route_s": ["13.1", "0.0123 to 0.2"],
        "merge_s": ["not measured", "1.5"],
    }


def test_the_page_of_failovers_holds_the_table_of_this_bench() -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = table_of_page(page)
    lines = page[begin:end].splitlines()
    rounds: tuple[list[Figures], ...] = ([], [])
    for each, line in zip(TARGETS, lines[2:], strict=True):
        for found, cell in zip(rounds, line.split(" | ")[1:3], strict=True):
            found += [{each.key: float(figure)} for figure in cell.split(" to ") if figure != NOT_MEASURED]
    java, ours = rounds
    printed = page_table(ours, java)
    assert lines[1:] == printed[1:], "refresh it: ./understudy bench failover --rounds 3 --into docs/failover.md"
    number = r"one round|least to greatest of \d+ rounds"
    assert re.fullmatch(rf"\| seconds, ({number}) \| Java 5\.4\.0 \| here \| \|", lines[0])


@pytest.mark.parametrize("text", ["nothing here\n", "| seconds, a |\n\n| seconds, b |\n"])
def test_a_page_without_one_such_table_is_refused_before_anything_is_measured(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    assert main(["--into", str(path)]) == 2
    assert "it must hold one table" in capsys.readouterr().err
    assert path.read_text() == text
