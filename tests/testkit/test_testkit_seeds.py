"""The runner of seeds, the faults it draws, and clocks that stand still."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.testkit.drills import acting_seeds
from understudy.testkit.drills.acting_faults import (
    FAULTS,
    LATER_FAULTS,
    SLOW_DISKS,
    Accident,
    Fault,
    draw_elsewhere_plan,
    draw_later_plan,
    draw_plan,
)
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.clock import StoppableClock
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.seeds import FailedRun, play_seeds


@attrs.define
class Played(FailedRun):
    measures: dict[str, float] = attrs.field(factory=dict)


def play(seed: int) -> Played:
    if seed == 3:
        raise ExceptionGroup("two", [ValueError("it broke"), ValueError("also")])
    broken = [f"seed {seed} lost a message"] if seed == 2 else []
    return Played(seed, broken, Counter({"sent": 10, "fault kill": 1}), {"T1": float(seed)})


def test_seeds_are_summed_up_and_failing_ones_say_how_to_replay_them(capsys: pytest.CaptureFixture[str]) -> None:
    summary = play_seeds(play, range(5), 2, lambda seed: f"again --replay {seed}")
    assert (summary.seeds, [each.seed for each in summary.failing]) == (5, [2, 3])
    assert (summary.rest, summary.faults, summary.worst) == ({"sent": 40}, {"kill": 4}, {"T1": 4.0})
    printed = capsys.readouterr().out
    assert "VIOLATION seed 2: seed 2 lost a message\n  replay: again --replay 2\n" in printed
    assert "it broke" in printed
    assert "kill 4" in acting_seeds.tell(summary)


@given(st.integers(0, 10_000))
def test_the_watched_host_meets_the_first_fault_and_others_the_rest(seed: int) -> None:
    plan = draw_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert plan == draw_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert (plan[0].host, plan[0].begins_seconds) == ("c1", 0.0)
    assert {each.host for each in plan[1:]} <= {"c2", "c3", "n1"}


@given(st.integers(0, 10_000))
def test_later_seeds_draw_more_faults_and_the_same_ones_before(seed: int) -> None:
    others = ("c2", "c3", "n1")
    plan = draw_later_plan(random.Random("later"), random.Random(seed), "c1", "c2", others)
    before = draw_plan(random.Random(seed), "c1", "c2", others)
    assert plan[: len(before)] == before
    assert len(plan) == len(before) + 1


def test_a_few_later_seeds_draw_every_later_kind() -> None:
    plans = [draw_later_plan(random.Random(seed), random.Random(seed), "c1", "c2", ("c2",)) for seed in range(50)]
    assert set(LATER_FAULTS) <= {each.kind for plan in plans for each in plan}


def test_a_few_seeds_draw_every_kind_of_fault() -> None:
    drawn = [each.kind for seed in range(100) for each in draw_plan(random.Random(seed), "c1", "c2", ("c2",))]
    assert set(drawn) == set(FAULTS)


def test_a_seed_of_random_faults_keeps_every_promise() -> None:
    outcome = acting_seeds.play(2)
    assert (outcome.violations, outcome.counts["lost"], outcome.counts["out of order"]) == ([], 0, 0)
    assert outcome.counts["sent"] > 50
    assert sum(count for name, count in outcome.counts.items() if name.startswith("fault ")) >= 1


@pytest.mark.parametrize(("counted", "expected"), [(True, 100.0), (False, 103.0)])
async def test_who_sleeps_on_a_stopped_clock_does_not_go_on(
    counted: bool, expected: float, autojump_clock: MockClock
) -> None:
    clock = StoppableClock()
    began, wall_ms = clock.monotonic(), clock.wall_ms()
    woke: list[float] = []

    async def sleeper() -> None:
        with clock.move_on_after(3):
            await trio.sleep_forever()
        woke.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        await trio.lowlevel.checkpoint()
        # when the clock stands still for a hundred seconds
        clock.stop()
        await trio.sleep(100)
        assert (woke, clock.monotonic()) == ([], began)
        clock.go_on(counted=counted)
    # then a stopped process is late at once, a suspended machine sleeps on; wall time has passed for both
    assert woke == [pytest.approx(expected)]
    assert clock.monotonic() - began == pytest.approx(expected if counted else expected - 100)
    assert clock.wall_ms() - wall_ms == pytest.approx(expected * 1000, abs=1)


@pytest.mark.parametrize("apart", [False, True])
def test_no_two_members_of_a_group_share_a_container_and_slaves_that_are_apart_are_beside_no_master(
    apart: bool,
) -> None:
    ring = Ring(3, apart=apart)
    for group in ring.groups:
        master, *slaves = (ring.container_of(group, number) for number in range(3))
        assert len({master, *slaves}) == 3
        assert ring.members_of(group) == {master, *slaves}
        assert master in ring.masters
        assert apart is not bool(set(slaves) & set(ring.masters))
    listed = {
        (keys["brokerName"], int(keys["brokerId"])): name for name in ring.containers for keys in ring.brokers_of(name)
    }
    assert listed == {(group, number): ring.container_of(group, number) for group in ring.groups for number in range(3)}
    assert [ring.brokers_of(name)[0]["brokerId"] for name in ring.masters] == ["0", "0", "0"]
    assert ring.members_of(None) == set(ring.containers)


def elsewhere(seed: int, *, slow_disks: bool) -> list[Fault]:
    return draw_elsewhere_plan(("c1", "c2", "c3"), ("n1",), slow_disks, random.Random(seed), "c1", "s1", ())


def test_plans_for_slaves_apart_lose_a_master_to_escape_to_before_the_other_one_is_back() -> None:
    kinds = set[str]()
    for seed in range(60):
        home, target, *rest = elsewhere(seed, slow_disks=False)
        assert (home.host, target.host in ("c2", "c3")) == ("c1", True)
        assert home.lasts_seconds - 6 <= target.begins_seconds < home.lasts_seconds
        kinds |= {each.kind for each in rest}
    assert kinds == {"slow", "sign-off"}


def test_plans_for_slow_disks_meet_masters_to_escape_to_and_lose_none_of_them() -> None:
    met, kinds = set[tuple[str, ...]](), dict[int, str]()
    for seed in range(60):
        home, *rest = elsewhere(seed, slow_disks=True)
        kinds |= {each.slower: each.kind for each in rest}
        assert all(home.lasts_seconds - 9 <= each.begins_seconds < home.lasts_seconds for each in rest)
        met.add(tuple(each.host for each in rest))
    assert met == {("c2",), ("c3",), ("c2", "c3")}
    assert kinds == {300: "slow-disk", 700: "slow-disk", 1_500: "stalled-disk", 4_000: "stalled-disk"}


@pytest.mark.parametrize("kind", SLOW_DISKS)
async def test_a_slow_disk_is_as_fast_as_before_when_its_accident_is_over(kind: str) -> None:
    async with SimCluster(random.Random(1)) as cluster:
        disk = cluster.host("c1").disk
        before, accident = disk.sync_seconds, Accident(cluster, Fault(kind, "c1"), ("c1",))
        await accident.begin()
        assert disk.sync_seconds == pytest.approx(700 * before)
        await accident.end()
        assert disk.sync_seconds == pytest.approx(before)
