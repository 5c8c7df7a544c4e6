"""The memory that all peers of a process share."""

from __future__ import annotations

from understudy.runtime.budget import Budget


def test_what_is_asked_for_counts_as_if_it_were_held_already() -> None:
    budget = Budget(1_000_000)
    assert (True, False) == (budget.allows("a", 500_000), budget.allows("a", 500_001))
    budget.change("b", 400_000)
    assert (True, False) == (budget.allows("a", 300_000), budget.allows("a", 300_001))
    assert (True, False) == (budget.allows("b", 100_000), budget.allows("b", 100_001))
