"""The drill of a failover: its timeline is complete and its verdict is right."""

from __future__ import annotations

import pytest

from understudy.testkit.drills.acting_master import main, play


def test_a_failover_loses_and_disorders_nothing() -> None:
    first = play(5, "kill", quiet_seconds=3.0)
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
    result = play(3, "kill", quiet_seconds=3.0, halves=True)
    assert result.ok, (result.verdict.violations, result.problems)
    counts = result.counts
    assert counts["half prepared"] > counts["half committed"] == counts["half delivered"] > 20
    assert counts["half repeated"] == 0


@pytest.mark.covers("R63", "CT-31")
def test_what_is_popped_comes_until_it_is_acknowledged_through_a_failover() -> None:
    result = play(3, "kill", quiet_seconds=3.0, pops=True)
    assert result.verdict.ok, result.verdict.violations
    assert not [each for each in result.problems if each.startswith("pop-")]
    counts = result.counts
    assert counts["pop sent"] == counts["pop delivered"] == counts["pop acknowledged"] > 50
    assert counts["pop again after that"] == 0
