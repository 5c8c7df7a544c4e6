"""The drill of a failover: its timeline is complete and its verdict is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from understudy.console.model.failovers import STEPS as CONSOLE
from understudy.testkit.drills import acting_processes, acting_scenario
from understudy.testkit.drills.acting_applications import Wanted
from understudy.testkit.drills.acting_master import changed_rows, excerpt_of, main, play, told
from understudy.testkit.drills.acting_steps import STEPS as DRILLS
from understudy.testkit.drills.acting_steps import step_line

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
REFRESH = "refresh it: ./understudy drill acting-master --seed 1 --into README.md"


def test_a_failover_loses_and_disorders_nothing() -> None:
    first = play(5, "kill", quiet_seconds=3.0, wanted=Wanted())
    assert first.ok, (first.verdict.violations, first.problems)
    assert first.verdict.sent > 100
    names = [step.name[:2] for step in first.steps]
    assert names[:6] == ["T0", "T1", "T2", "T3", "T4", "T5"]
    assert first.report is not None
    assert first.report.slaves


def test_unknown_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0"]) == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err


@pytest.mark.covers("R46")
def test_half_messages_are_decided_once_through_a_failover() -> None:
    result = play(3, "kill", quiet_seconds=3.0, wanted=Wanted(halves=True))
    assert result.ok, (result.verdict.violations, result.problems)
    counts = result.counts
    assert counts["half prepared"] > counts["half committed"] == counts["half delivered"] > 20
    assert counts["half repeated"] == 0


@pytest.mark.covers("CT-31")
def test_what_is_popped_comes_until_it_is_acknowledged_through_a_failover() -> None:
    result = play(3, "kill", quiet_seconds=3.0, wanted=Wanted(pops=True))
    assert result.verdict.ok, result.verdict.violations
    assert not [each for each in result.problems if each.startswith("pop-")]
    counts = result.counts
    assert counts["pop sent"] == counts["pop delivered"] == counts["pop acknowledged"] > 50
    assert counts["pop again after that"] == 0
    # and the report lists every offset that it counts
    assert result.report is not None
    assert result.report.changed == len(changed_rows(result.report.to_json())) > 0


def steps_of(lines: list[str]) -> dict[str, float]:
    """Return the steps of a timeline with their seconds."""
    return {found[2]: float(found[1]) for line in lines if (found := re.fullmatch(r" +(\d+\.\d{3})  (\w\d .+)", line))}


def test_the_readme_shows_what_the_drill_prints() -> None:
    page = README.read_text(encoding="utf-8")
    begin, end = excerpt_of(page)
    lines, shown = page[begin:end].splitlines(), told(play(1, "kill"))
    # The same steps at about the same times: the last figure of each moves with every byte that a change sends more.
    there, here = steps_of(lines), steps_of(shown)
    assert there.keys() == here.keys(), REFRESH
    assert there == pytest.approx(here, abs=0.3), REFRESH
    # the same table, and a verdict of the same words
    assert [line for line in lines if "topic@group" in line] == [line for line in shown if "topic@group" in line], (
        REFRESH
    )
    assert [any("the group went on" in line for line in each) for each in (lines, shown)] == [True, True], REFRESH
    assert re.sub(r"sent \d+, delivered \d+", "", lines[-1]) == re.sub(r"sent \d+, delivered \d+", "", shown[-1]), (
        REFRESH
    )


MEANINGS = {
    "T1": ("name server",),
    "T2": ("decide",),
    "T3": ("service",),
    "T4": ("route", "clients are told"),
    "T5": ("read", "request", "gives out"),
    "R1": ("pre-online",),
    "R2": ("register",),
}
"""What every text about a step names, in one of these words."""


def test_a_step_is_the_same_on_the_page_in_the_console_and_in_every_drill() -> None:
    page = (ROOT / "docs" / "failover.md").read_text(encoding="utf-8")
    of_page = dict(re.findall(r"^\| ([TR]\d) \| (.+?) \|", page, re.MULTILINE))
    assert list(DRILLS) == list(of_page)
    # the console follows what it sees from outside, where a process that starts is not to be seen
    assert list(CONSOLE) == [step for step in of_page if step != "R0"]
    for step, words in MEANINGS.items():
        for text in (of_page[step], CONSOLE[step], DRILLS[step]):
            assert any(word in text for word in words), (step, text)
    # no drill has words of its own for them, and the failover that the README shows is told in these
    for module in (acting_scenario, acting_processes):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert not re.findall(r'"[TR]\d[ ,]', source)
        assert set(re.findall(r"[TR]\d", " ".join(re.findall(r"step_line\((.*?)\)", source)))) == DRILLS.keys()
    begin, end = excerpt_of(README.read_text(encoding="utf-8"))
    shown = steps_of(README.read_text(encoding="utf-8")[begin:end].splitlines())
    assert [step_line(step) for step in DRILLS] == list(shown)
    assert list(shown.values()) == sorted(shown.values())


def test_the_real_drill_lists_what_it_counts() -> None:
    row = {"key": "k", "queueId": 0, "before": 1, "slave": 2, "merged": 2, "why": "the group went on"}
    kept = {**row, "slave": 0, "merged": 1}
    tables = {"consumerOffsets": [row, kept], "delayLevels": [row], "timer": [row], "pop": [row]}
    slave = {"brokerId": 1, "address": "a", "aheadBytes": 0, "takenBytes": 0, "reasons": {"x": 5}, **tables}
    assert 4 == len(changed_rows({"slaves": [slave]}))


@pytest.mark.parametrize("text", ["nothing here\n", "Timeline, seconds after the fault (virtual time)\n"])
def test_a_page_that_shows_no_run_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it must hold one block"):
        excerpt_of(text)
