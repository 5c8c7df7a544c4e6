"""How late what is due may come while a ring loses a master, and that the drill's verdict says so."""

from __future__ import annotations

import pytest

from understudy.testkit.drills.acting_applications import Wanted
from understudy.testkit.drills.acting_master import play, told
from understudy.testkit.drills.lateness import PRECISION_SECONDS, Due, Gap, judge_lateness


def late(
    due: float, came: float, *, stored: float = 0.0, unserved: list[Gap], cut_off: list[Gap] | None = None
) -> float:
    """Return how late the message "x" of g0 was beyond what nobody could help; below zero: it was in time."""
    found = judge_lateness([Due("x", "g0", stored, due, came)], {"g0": unserved}, {"g0": cut_off or []})
    assert bool(found.violations) == (found.latest > PRECISION_SECONDS)
    return found.latest


@pytest.mark.covers("R54")
def test_what_is_due_while_nobody_delivers_comes_when_somebody_does() -> None:
    gaps = [(10.0, 20.0), (30.0, 31.0)]
    assert late(5.0, 6.0, unserved=gaps) == 1.0
    assert late(9.0, 20.5, unserved=gaps) == 0.5  # it was on its way
    assert late(15.0, 20.5, unserved=gaps) == 0.5
    assert late(21.0, 26.0, unserved=gaps) == 5.0
    assert late(21.0, 31.5, unserved=gaps) == 10.5  # the second gap began too late to excuse it
    assert late(19.0, 23.0, unserved=[(10.0, 20.0), (21.0, 22.5)]) == 0.5
    assert late(15.0, 20.5, unserved=[]) == 5.5  # another group's


def test_what_a_master_took_while_it_was_cut_off_waits_for_its_return() -> None:
    gaps, cut_off = [(10.0, 20.0), (30.0, 31.0)], [(10.0, 30.0)]
    assert late(21.0, 31.5, stored=9.0, unserved=gaps, cut_off=cut_off) == 10.5  # its slaves had it
    assert late(21.0, 31.5, stored=12.0, unserved=gaps, cut_off=cut_off) == 0.5


def test_a_verdict_says_what_came_too_late_and_what_was_allowed() -> None:
    dues = [Due("a", "g0", 0.0, 15.0, 24.0), Due("b", "g0", 0.0, 21.0, 21.5), Due("c", "g1", 0.0, 15.0, 18.5)]
    found = judge_lateness(dues, {"g0": [(10.0, 20.0)]}, {})
    assert [each.detail for each in found.violations] == [
        "a of g0 came 9.000 s after it was due, 3 s and 5.000 s in which nobody could deliver it are allowed",
        "c of g1 came 3.500 s after it was due, 3 s are allowed",
    ]
    assert found.sentence() == (
        "nobody delivered for 10.000 s at the most; what was due came 4.000 s after somebody could deliver it, "
        "at the most: 3 s are allowed, 2 came later"
    )


@pytest.mark.covers("R54")
def test_the_drill_judges_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = play(3, "cut", quiet_seconds=3.0, wanted=Wanted(timers=True))
    assert right.ok, right.violations
    assert right.lateness is not None
    assert right.lateness.longest_gap > 5
    assert f"  {right.lateness.sentence()}" in told(right)
    # a bound that nobody keeps is broken, by no more than what was late
    monkeypatch.setattr("understudy.testkit.drills.lateness.PRECISION_SECONDS", -20.0)
    wrong = play(3, "cut", quiet_seconds=3.0, wanted=Wanted(timers=True))
    assert not wrong.ok
    assert {each.rule for each in wrong.verdict.violations} == {"late"}


def test_nothing_is_promised_of_a_clock_that_is_set() -> None:
    assert play(3, "clock-forward", quiet_seconds=3.0, wanted=Wanted()).lateness is None
