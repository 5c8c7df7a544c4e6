"""Parts of a failover in which delayed messages fall due, and the seeds whose messages wait for long."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.testkit.drills import acting_seeds
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_faults import ENDS_PROCESS, LONG_FAULTS, SILENT, draw_long_plan
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.acting_traffic import LONG_DELAYS, SHORT_DELAYS
from understudy.testkit.drills.acting_windows import (
    PAIR_SEEDS,
    WINDOW_SEEDS,
    WINDOWS,
    Failover,
    due_name,
    empty_pairs,
    empty_windows,
    in_windows,
)
from understudy.testkit.drills.met_faults import LONGEST_DELAY_SECONDS, Home, Met
from understudy.testkit.sim.seeds import Summary

FAILOVER = Failover(
    lost=100.0,
    ends=140.0,
    online=142.0,
    acted=[(50.0, "c3"), (110.0, "c2"), (125.0, "c3"), (141.0, "c2")],
    faults=[(60.0, 105.0, "c3"), (120.0, 130.0, "c2"), (115.0, 118.0, "c3"), (100.0, 140.0, "c1")],
)


@pytest.mark.parametrize(
    ("due", "window"),
    [
        (99.9, "before"),
        (100.0, "silence"),
        (104.0, "silence"),  # whoever acted once is hit, but it does not act now
        (109.9, "silence"),
        (110.0, "while a slave acts"),
        (116.0, "while a slave acts"),  # c3 is hit, and has not acted yet
        (120.0, "while the slave that acted is hit"),
        (127.0, "while the slave that acted is hit"),  # although another one acts by now
        (131.0, "while a slave acts"),
        (140.0, "give-back"),
        (142.0, "after"),
    ],
)
def test_a_message_falls_due_in_one_part_of_a_failover(due: float, window: str) -> None:
    assert FAILOVER.window(due) == window
    assert FAILOVER.counts("kill", [due, due]) == {due_name("kill", window): 2}


def test_windows_in_which_nothing_fell_due_are_named() -> None:
    assert empty_windows({}) == list(WINDOWS)
    assert empty_windows({due_name("cut", each): 1 for each in WINDOWS if each != "give-back"}) == ["give-back"]


def test_windows_of_each_kind_of_fault_are_named() -> None:
    full = {due_name(kind, window): 1 for kind in LONG_FAULTS for window in WINDOWS}
    assert in_windows(full) == dict.fromkeys(WINDOWS, len(LONG_FAULTS))
    assert empty_pairs(full) == []
    del full[due_name("pause", "silence")]
    assert empty_windows(full) == []
    assert empty_pairs(full) == ["pause: silence"]


@given(st.integers(0, 10_000))
def test_the_master_of_a_long_plan_is_away_until_what_waits_long_falls_due(seed: int) -> None:
    plan = draw_long_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert plan == draw_long_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert (plan[0].host, plan[0].begins_seconds) == ("c1", 0.0)
    assert plan[0].kind in (*SILENT, *ENDS_PROCESS)
    assert plan[0].lasts_seconds > 2 * LONGEST_DELAY_SECONDS


def test_a_stepped_clock_counts_as_long_as_a_message_of_the_run_may_have_waited() -> None:
    stepped = Met("clock-forward", Home.MASTER, 50.0, 60.0, host="m"), Met("kill", Home.MASTER, 100.0, 120.0, host="m")
    for longest, allowed in ((LONG_DELAYS.longest, True), (SHORT_DELAYS.longest, False)):
        late = Repeat("key", True, 90.0, (99.5, 113.0), stepped, frozenset({"m", "s"}), longest_delay_seconds=longest)
        assert bool(judge([late])[0]) is allowed


def test_a_seed_of_long_delays_has_messages_due_in_most_parts() -> None:
    result = acting_seeds.play(acting_seeds.LONG_SEEDS)
    assert not result.violations
    assert len(empty_windows(result.counts)) <= 2
    (timers,) = (each for each in result.kinds if each.name == "timer")
    assert timers.delivered == timers.sent > 20


def test_a_run_of_long_delays_fails_where_nothing_fell_due_in_a_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import sim_acting

    every, killed = (
        Counter({due_name(kind, window): 1 for kind in kinds for window in WINDOWS})
        for kinds in (LONG_FAULTS, ["kill"])
    )
    less = killed - Counter({due_name("kill", "silence"): 1})
    for totals, first, seeds, code in (
        (killed, acting_seeds.LONG_SEEDS, WINDOW_SEEDS, 0),
        (less, acting_seeds.LONG_SEEDS, WINDOW_SEEDS, 1),
        (less, acting_seeds.LONG_SEEDS, WINDOW_SEEDS - 1, 0),
        (less, acting_seeds.WORK_SEEDS, WINDOW_SEEDS, 0),
        (every, acting_seeds.LONG_SEEDS, PAIR_SEEDS, 0),
        (every - Counter({due_name("pause", "silence"): 1}), acting_seeds.LONG_SEEDS, PAIR_SEEDS, 1),
    ):
        monkeypatch.setattr(sim_acting, "play_seeds", lambda *_, totals=totals: Summary(totals=Counter(totals)))
        assert sim_acting.main(["--first", str(first), "--seeds", str(seeds)]) == code
        assert (code == 1) is any(line.endswith("silence") for line in capsys.readouterr().out.splitlines())
