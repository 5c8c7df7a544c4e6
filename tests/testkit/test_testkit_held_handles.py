"""What held handles may be answered, with made-up histories."""

from __future__ import annotations

import pytest

from understudy.testkit.drills.held_handles import MARGIN_SECONDS, OK, Fault, Settled, judge

FAULT = Fault(100.0, 110.0)
END = 110.0 + MARGIN_SECONDS
GOOD = Settled("good", 50.0, OK)


@pytest.mark.parametrize(
    ("at", "code", "rules"),
    [
        (105.0, "40013", []),
        (END, "50001", []),
        (99.9, "40013", ["answer"]),
        (END + 0.1, "40013", ["answer"]),
        (105.0, "no answer: gone", ["answer"]),
    ],
)
def test_only_a_handle_of_a_fault_may_fail(at: float, code: str, rules: list[str]) -> None:
    assert rules == [each.rule for each in judge([GOOD, Settled("a", at, code)], [], [FAULT])]


@pytest.mark.parametrize(("at", "rules"), [(99.0, []), (END, []), (98.9, ["repeated"]), (END + 0.1, ["repeated"])])
def test_only_what_was_acknowledged_around_a_fault_may_come_again(at: float, rules: list[str]) -> None:
    assert rules == [each.rule for each in judge([GOOD, Settled("a", at, OK)], [("a", 300.0)], [FAULT])]


def test_faults_all_along_show_nothing() -> None:
    assert ["answer"] == [each.rule for each in judge([Settled("a", 105.0, OK)], [], [FAULT])]
