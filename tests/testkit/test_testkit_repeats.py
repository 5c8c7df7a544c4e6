"""The judge of repeats and losses: what a row of the table covers, and what no row does."""

from __future__ import annotations

import attrs
import pytest

from understudy.testkit.drills.acting_repeats import ALLOWED, FLUSH_SECONDS, Home, Met, Repeat, judge, may_be_lost

CUT = Met("cut", Home.MASTER, 100.0, 120.0)
POWER = Met("power", Home.MASTER, 100.0, 102.0, flushed=False)


def repeat(due: float, *met: Met, came: int = 2, delayed: bool = True) -> Repeat:
    return Repeat("key", delayed, due, (due,) * came, met)


@pytest.mark.parametrize(
    ("met", "due", "row"),
    [
        (Met("kill", Home.MASTER, 100.0, 110.0), 99.5, "sudden death"),
        (CUT, 99.5, "silence"),
        (CUT, 103.5, "silence"),
        (Met("pause", Home.SLAVE, 100.0, 120.0), 110.5, "acting slave lost"),
        (POWER, 90.0, "not flushed"),
    ],
)
def test_a_row_covers_what_was_due_in_its_window(met: Met, due: float, row: str) -> None:
    counts, violations = judge([repeat(due, met)])
    assert (dict(counts), violations) == ({row: 1}, [])


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(repeat(99.5), id="no fault at all"),
        pytest.param(repeat(104.5, CUT), id="the master knew it by then"),
        pytest.param(repeat(98.5, CUT), id="its slaves knew it by then"),
        pytest.param(repeat(100.5, Met("kill", Home.MASTER, 100.0, 110.0)), id="due after the death"),
        pytest.param(repeat(90.0, attrs.evolve(POWER, flushed=True)), id="it was on the disk"),
        pytest.param(repeat(103.0, Met("cut", Home.MASTER, 100.0, 101.0)), id="the fault was over"),
        pytest.param(repeat(103.5, Met("cut", Home.SERVER, 100.0, 120.0)), id="another one's fault"),
        pytest.param(repeat(99.5, CUT, came=3), id="three times"),
        pytest.param(repeat(99.5, CUT, delayed=False), id="a plain message"),
    ],
)
def test_every_other_repeat_is_a_violation(found: Repeat) -> None:
    counts, violations = judge([found])
    assert not counts
    assert [each.rule for each in violations] == ["repeated"]


def test_every_row_says_why_and_is_told_apart_by_its_name() -> None:
    assert len({row.name for row in ALLOWED}) == len(ALLOWED)
    assert all(row.why and row.most == 2 for row in ALLOWED)


@pytest.mark.parametrize(
    ("acknowledged", "due", "met", "expected"),
    [
        (99.0, None, POWER, True),
        (100.0 - FLUSH_SECONDS - 0.1, None, POWER, False),
        (100.1, None, POWER, False),
        (99.0, None, attrs.evolve(POWER, flushed=True), False),
        (99.0, None, attrs.evolve(POWER, home=Home.SLAVE), False),
        (50.0, 99.0, attrs.evolve(POWER, home=Home.SLAVE), True),
        (99.0, None, Met("kill", Home.MASTER, 100.0, 102.0, flushed=False), False),
    ],
)
def test_only_what_had_not_been_flushed_may_be_lost(
    acknowledged: float, due: float | None, met: Met, expected: bool
) -> None:
    assert may_be_lost(acknowledged, due, [met]) is expected
