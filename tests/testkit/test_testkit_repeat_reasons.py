"""The judge of repeats: stepped clocks, chains of copies, and faults of hosts that were silent already."""

from __future__ import annotations

import attrs
import pytest

from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.met_faults import Home, Met


@pytest.mark.parametrize(
    ("stepped", "allowed"),
    [
        pytest.param(Met("clock-forward", Home.MASTER, 90.0, 95.0, host="m"), True, id="while it waited"),
        pytest.param(Met("clock-forward", Home.MASTER, 80.0, 87.0, host="m"), False, id="before it was sent"),
        pytest.param(Met("clock-forward", Home.OTHER, 90.0, 95.0, host="o"), False, id="of another group"),
        pytest.param(Met("slow", Home.MASTER, 90.0, 95.0, host="m"), False, id="no clock"),
    ],
)
def test_what_a_stepped_clock_delays_is_judged_by_when_it_came(stepped: Met, allowed: bool) -> None:
    cut = Met("cut-out", Home.MASTER, 100.0, 120.0, host="m")
    late = Repeat("key", True, 98.0, (100.5, 113.0), (stepped, cut), frozenset({"m", "s"}))
    assert bool(judge([late])[1]) is not allowed


def test_each_copy_of_a_chain_has_a_reason_of_its_own() -> None:
    lost = Met("cut-out", Home.MASTER, 100.0, 130.0, host="m")
    second = Met("kill", Home.SLAVE, 112.0, 140.0, host="s")
    hosts = frozenset({"m", "s", "t"})
    chain = Repeat("key", True, 100.5, (100.6, 111.5, 113.0), (lost, second), hosts)
    counts, violations = judge([chain])
    assert (dict(counts), violations) == ({"silence": 1, "acting slave lost": 1}, [])
    # the first reason does not explain a third copy
    assert judge([attrs.evolve(chain, met=(lost,))])[1]
    assert judge([attrs.evolve(chain, came=(100.6, 105.0, 113.0))])[1]


@pytest.mark.parametrize(("asleep", "allowed"), [(True, True), (False, False)])
def test_what_a_sleeping_host_had_not_told_when_it_lost_its_power_may_come_again(asleep: bool, allowed: bool) -> None:
    power = Met("power", Home.MASTER, 106.0, 111.0, host="m")
    sleep = [Met("suspend", Home.MASTER, 100.0, 112.0, host="m")] if asleep else []
    told = Repeat("key", True, 99.5, (99.5, 117.0), (*sleep, power), frozenset({"m", "s"}))
    counts, violations = judge([told])
    assert (bool(violations), bool(counts)) == (not allowed, allowed)
    # and what was due when it slept, and was dead, is nothing that it can have put out
    assert judge([attrs.evolve(told, due=108.0, came=(108.0, 117.0))])[1]


@pytest.mark.parametrize(("kind", "allowed"), [("cut-out", True), ("cut-off-servers", False)])
def test_what_slaves_copied_from_a_master_without_name_servers_does_not_come_again(kind: str, allowed: bool) -> None:
    alone, cut = Met(kind, Home.MASTER, 100.0, 130.0, host="m"), Met("cut", Home.MASTER, 108.0, 140.0, host="m")
    counts, violations = judge([Repeat("key", True, 106.0, (106.0, 121.0), (alone, cut), frozenset({"m", "s"}))])
    assert (bool(violations), bool(counts)) == (not allowed, allowed)


def test_a_master_that_comes_back_without_its_deaf_slave_delivers_again() -> None:
    hosts = frozenset({"m", "s"})
    away, deaf = Met("kill", Home.MASTER, 100.0, 120.0, host="m"), Met("cut-in", Home.SLAVE, 117.0, 137.0, host="s")
    counts, violations = judge([Repeat("key", True, 108.0, (108.0, 138.0), (away, deaf), hosts)])
    assert (dict(counts), violations) == ({"last member lost": 1}, [])
    # a slave that was deaf only when the master was back already had given it back
    late = attrs.evolve(deaf, begin=122.0)
    assert judge([Repeat("key", True, 108.0, (108.0, 138.0), (away, late), hosts)])[1]


@pytest.mark.parametrize(("due", "allowed"), [(99.5, True), (108.0, False)])
def test_a_host_that_slept_delivers_nothing_when_it_wakes(due: float, allowed: bool) -> None:
    sleep = Met("suspend", Home.MASTER, 100.0, 112.0, host="m")
    repeat = Repeat("key", True, due, (110.0, 112.5), (sleep,), frozenset({"m", "s"}))
    assert bool(judge([repeat])[1]) is not allowed
