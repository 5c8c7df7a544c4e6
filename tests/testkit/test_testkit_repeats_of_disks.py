"""Repeats of what escaped to a master whose disk was slow."""

from __future__ import annotations

import pytest
from test_testkit_repeats import repeat

from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.met_faults import Home, Met


@pytest.mark.parametrize(
    ("kind", "due", "allowed"),
    [
        ("stalled-disk", 118.0, True),
        ("stalled-disk", 90.0, True),  # nobody acted yet then
        ("stalled-disk", 85.0, False),
        ("stalled-disk", 122.0, False),
        ("slow-disk", 118.0, False),
    ],
)
def test_what_another_master_could_not_flush_in_time_may_come_again(kind: str, due: float, allowed: bool) -> None:
    disk, cut = Met(kind, Home.OTHER, 100.0, 120.0, host="o"), Met("cut", Home.MASTER, 80.0, 125.0)
    counts, violations = judge([repeat(due, disk, cut)])
    assert (counts["disk stalled"], bool(violations)) == (int(allowed), not (allowed or counts))
