"""The judge of pops: what is lost, and what came again although it was acknowledged."""

from __future__ import annotations

import pytest

from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.met_faults import Home, Met
from understudy.testkit.drills.pop_traffic import PopTraffic

KILL = Met("kill", Home.MASTER, 100.0, 110.0)


def traffic() -> PopTraffic:
    pops = PopTraffic(1, 0.4)
    pops.sent = {"a": (90.0, "g0"), "b": (91.0, "g1")}
    pops.tried = {"a"}
    return pops


def test_what_was_sent_and_never_tried_is_lost() -> None:
    (problem,) = traffic().problems(lambda group: (KILL,))
    assert problem.startswith("b was sent at 91.0 s and popped at no time")


def test_what_power_took_before_it_was_flushed_is_lost_only_while_another_host_is_away() -> None:
    power = Met("power", Home.MASTER, 91.5, 97.0, flushed=False, host="h1")
    slave = Met("kill", Home.SLAVE, 80.0, 92.0, host="h2")
    assert traffic().problems(lambda group: (power, slave) if group == "g1" else ()) == []
    # alone, a master takes back from its slaves what it has lost
    (problem,) = traffic().problems(lambda group: (power,) if group == "g1" else ())
    assert problem.startswith("b was sent")


@pytest.mark.parametrize(
    ("popped", "acked", "came", "row"),
    [
        (99.5, 99.8, 120.0, "sudden death"),  # acknowledged right before the fault
        (99.5, 103.0, 120.0, "sudden death"),  # handed out right before it
        (91.8, 98.0, 120.0, "sudden death"),  # came back right before it
        (80.0, 81.0, 120.0, ""),
        (101.0, 102.0, 120.0, ""),
    ],
)
def test_a_repeat_needs_a_fault_that_explains_it(popped: float, acked: float, came: float, row: str) -> None:
    pops = traffic()
    pops.came = {"a": [popped, came]}
    pops.again = [("a", acked, came)]
    allowed, violations = judge(pops.repeats(lambda group: (KILL,), lambda group: frozenset()))
    assert list(allowed) == ([row] if row else [])
    assert bool(violations) == (not row)
