"""What the bench of failovers makes of its figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import failover, failover_led
from bench.failover import main
from bench.failover_table import (
    LED_TARGETS,
    NOT_MEASURED,
    TARGETS,
    Figures,
    Target,
    medians,
    missed,
    page_table,
    put_into,
    table,
    table_of_page,
)

from understudy.testkit.drills.led_outage import Outage
from understudy.testkit.drills.led_replicas import TIMEOUT_MS
from understudy.testkit.drills.ring_processes import DrillError

DOCS = Path(__file__).resolve().parents[2] / "docs"
OUTAGE = Outage(signalled=-0.01, decided=0.02, routed=0.05, accepted=0.06, started=0.1, up=1.1, back=1.5)
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
        (Target("c", "nothing is asked of it"), 1.0, 10.0, "-"),
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
    assert main(["--led", "--only", "ours", "--steps", "kill,merge"]) == 2
    assert "no step merge; there are: kill, longer, freeze" in capsys.readouterr().err


def test_a_page_gets_the_median_the_least_and_the_greatest_of_all_rounds(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "before\n\n| seconds, one round | Java 5.4.0 | here | |\n|---|---|---|---|\n| old | 1 | 2 | |\n\nafter\n"
    )
    ours = [{"kill_route_s": 0.2}, {"kill_route_s": 0.0123}, {"kill_route_s": 0.3, "merge_s": 1.5}]
    put_into(path, page_table(ours, [{"kill_route_s": 13.14}, {"kill_route_s": 13.12}]))
    before, header, _, *rows, after = (line for line in path.read_text().splitlines() if line)
    assert (before, after) == ("before", "after")
    assert header.startswith("| seconds, median (least to greatest) of 3 rounds |")
    shown = {target.key: line.split(" | ")[1:3] for target, line in zip(TARGETS, rows, strict=True)}
    assert shown == {target.key: ["not measured"] * 2 for target in TARGETS} | {
        "kill_route_s": ["13.1", "0.2 (0.0123 to 0.3)"],
        "merge_s": ["not measured", "1.5"],
    }


@pytest.mark.parametrize(
    ("page", "targets", "command"),
    [
        ("failover.md", TARGETS, "bench failover --rounds 3 --into docs/failover.md"),
        ("controller.md", LED_TARGETS, "bench failover --led --rounds 5 --into docs/controller.md"),
    ],
)
def test_the_pages_of_failovers_hold_the_tables_of_this_bench(
    page: str, targets: tuple[Target, ...], command: str
) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    begin, end = table_of_page(text)
    lines = text[begin:end].splitlines()
    rounds: tuple[list[Figures], ...] = ([], [])
    for each, line in zip(targets, lines[2:], strict=True):
        for found, cell in zip(rounds, line.split(" | ")[1:3], strict=True):
            found += [
                {each.key: float(figure)} for figure in re.findall(r"[\d.]+(?:e-\d+)?", cell) if cell != NOT_MEASURED
            ]
    java, ours = rounds
    assert lines[1:] == page_table(ours, java, targets)[1:], f"refresh it: ./understudy {command}"
    number = r"no round yet|one round|median \(least to greatest\) of \d+ rounds"
    assert re.fullmatch(rf"\| seconds, ({number}) \| Java 5\.4\.0 \| here \| \|", lines[0])


def test_each_step_of_a_led_group_has_its_figures() -> None:
    figures = {step: failover_led.figures_of(step, OUTAGE) for step in failover_led.STEPS}
    assert figures["kill"] == pytest.approx(
        {
            "led_kill_decided_s": 0.02,
            "led_kill_route_s": 0.05,
            "led_kill_send_s": 0.06,
            "led_signal_send_s": 0.07,
            "led_return_up_s": 1.0,
            "led_return_set_s": 0.4,
        }
    )
    assert figures["longer"] == pytest.approx({"led_longer_set_s": 0.4})
    assert figures["freeze"] == pytest.approx({"led_frozen_send_s": 0.06, "led_frozen_set_s": 0.4})
    assert {key for each in figures.values() for key in each} == {target.key for target in LED_TARGETS}


@pytest.mark.parametrize(
    ("ours", "java", "misses"),
    [
        ({"led_kill_send_s": 0.12, "led_longer_set_s": 0.9}, {"led_kill_send_s": 0.13, "led_longer_set_s": 5.2}, []),
        ({"led_kill_send_s": 0.14}, {}, []),
        ({"led_kill_send_s": 0.14}, {"led_kill_send_s": 0.13}, ["led_kill_send_s"]),
        ({"led_kill_send_s": 0.16}, {"led_kill_send_s": 0.29}, ["led_kill_send_s"]),
        ({"led_signal_send_s": 0.16}, {}, ["led_signal_send_s"]),
        ({"led_longer_set_s": 1.1}, {"led_longer_set_s": 5.2}, ["led_longer_set_s"]),
        ({"led_frozen_send_s": TIMEOUT_MS / 1000 + 0.19}, {"led_frozen_send_s": 2.9}, []),
        ({"led_frozen_send_s": TIMEOUT_MS / 1000 + 0.21}, {}, ["led_frozen_send_s"]),
    ],
)
def test_what_is_promised_of_a_led_group_is_judged(ours: Figures, java: Figures, misses: list[str]) -> None:
    assert misses == [target.key for target in missed(ours, java, LED_TARGETS)]
    printed = table(ours, java, LED_TARGETS)
    assert len(misses) == sum(line.endswith("MISS") for line in printed)


def play_of(monkeypatch: pytest.MonkeyPatch, rounds: list[Figures | DrillError]) -> None:
    """Has rounds of a led group of ours find these figures, one after the other."""
    left = iter(rounds)

    async def measure_led(java: bool, steps: Sequence[str]) -> Figures:
        await trio.lowlevel.checkpoint()
        assert (java, tuple(steps)) == (False, failover_led.STEPS)
        found = next(left)
        if isinstance(found, DrillError):
            raise found
        return found

    monkeypatch.setattr(failover_led, "measure_led", measure_led)


@pytest.mark.parametrize(("slowest", "code"), [(0.3, 0), (0.9, 1)])
def test_medians_of_the_rounds_of_a_led_group_are_judged_without_the_real_system(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, slowest: float, code: int
) -> None:
    page = tmp_path / "page.md"
    page.write_text("| seconds, no round yet | Java 5.4.0 | here | |\n")
    monkeypatch.setattr(failover, "missing", lambda: "no JDK")
    second = 0.14 if code == 0 else 0.16
    play_of(monkeypatch, [{"led_kill_send_s": each} for each in (0.05, slowest, second)])
    assert main(["--led", "--rounds", "3", "--into", str(page)]) == code
    told = capsys.readouterr()
    assert "Java is not measured: no JDK" in told.err
    assert ("MISS" in told.out) == bool(code)
    assert f"| not measured | {second:g} (0.05 to {slowest:g}) |" in page.read_text()


def test_rounds_before_one_that_fails_are_shown_but_not_in_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(before := "| seconds, no round yet | Java 5.4.0 | here | |\n")
    play_of(monkeypatch, [{"led_kill_send_s": 0.05}, DrillError("no new master")])
    assert main(["--led", "--only", "ours", "--rounds", "3", "--into", str(page)]) == 2
    told = capsys.readouterr()
    assert "ours, round 2: no new master" in told.err
    assert "0.050" in told.out
    assert before == page.read_text()


@pytest.mark.parametrize("text", ["nothing here\n", "| seconds, a |\n\n| seconds, b |\n"])
def test_a_page_without_one_such_table_is_refused_before_anything_is_measured(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    assert main(["--into", str(path)]) == 2
    assert "it must hold one table" in capsys.readouterr().err
    assert path.read_text() == text
