"""Seeds of every kind of message: kills in the midst of a work, plans of them, and the figures of kinds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from understudy.mqclient.transactions import TransactionState
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_faults import ENDS_PROCESS, WORKS, draw_work_plan
from understudy.testkit.drills.acting_kinds import Kind, kinds_table
from understudy.testkit.drills.half_traffic import HalfTraffic
from understudy.testkit.drills.met_faults import Home, Met
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

ROOT = Path(__file__).parents[2]


def test_a_process_ends_at_the_await_that_is_counted_and_starts_again() -> None:
    async def scenario(source: random.Random) -> list[float]:
        died = []
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            for number in (1, 2, 5):
                # given that it is waited for at an await of what saves tables
                began, process = trio.current_time(), cluster.host("c1").process
                assert process is not None
                assert await cluster.reach_await("c1", ("/broker/persistence.py",), number, 60)
                # then it reaches nobody from there on, and can be started again
                assert process.fenced
                died.append(trio.current_time() - began)
                await cluster.kill("c1")
                await cluster.restart("c1")
            # a work that it has not got is waited for in vain, and changes nothing
            assert not await cluster.reach_await("c1", ("/no/such/module.py",), 1, 5)
            assert cluster.brokers("c1").keys() == {"broker-a"}
        return died

    first, second, fifth = run_seed(scenario, 1)
    assert 0 < first <= 20
    assert max(first, second) + 5 < fifth  # it saves tables every few seconds
    assert [first, second, fifth] == run_seed(scenario, 1)


def test_a_process_that_is_killed_while_it_starts_is_gone_and_starts_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            for turns in range(0, 30, 3):
                await cluster.kill("c1")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cluster.restart, "c1")
                    for _ in range(turns):
                        await trio.lowlevel.checkpoint()
                    await cluster.kill("c1")
                assert cluster.host("c1").process is None or turns == 0
                if cluster.host("c1").process is None:
                    await cluster.restart("c1")
                assert cluster.brokers("c1")["broker-a"].role.is_slave is False

    run_seed(scenario, 2)


def test_every_work_names_modules_that_are_there() -> None:
    files = [f"/{path.relative_to(ROOT)}" for room in ("broker", "container") for path in (ROOT / room).rglob("*.py")]
    for name, modules in WORKS.items():
        for module in modules:
            assert any(module in file for file in files), (name, module)


@given(st.integers(0, 10_000))
def test_only_what_ends_a_process_meets_it_in_a_work(seed: int) -> None:
    plan = draw_work_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert plan == draw_work_plan(random.Random(seed), "c1", "c2", ("c2", "c3", "n1"))
    assert (plan[0].host, plan[0].begins_seconds) == ("c1", 0.0)
    assert all(each.kind in ENDS_PROCESS and each.work in WORKS for each in plan if each.work)


def test_a_few_seeds_draw_two_kills_in_one_give_back_and_every_work() -> None:
    plans = [draw_work_plan(random.Random(seed), "c1", "c2", ("c2", "c3")) for seed in range(100)]
    assert {each.work for plan in plans for each in plan} == {"", *WORKS}
    twice = [plan for plan in plans if sum(each.work == "give-back" for each in plan[1:]) == 2]
    assert {plan[2].host for plan in twice} == {"c1", "c2"}
    assert all(plan[1].begins_seconds >= plan[0].lasts_seconds for plan in twice)


def halves() -> HalfTraffic:
    traffic = HalfTraffic(1, 0.4)
    traffic.books = {"a": TransactionState.COMMIT, "b": TransactionState.COMMIT, "c": TransactionState.ROLLBACK}
    traffic.sent_at = {"a": 90.0, "b": 91.0, "c": 92.0}
    traffic.stored = dict.fromkeys("abc", "g0")
    return traffic


@pytest.mark.parametrize(("first", "row"), [(99.5, "sudden death"), (95.0, "")])
def test_a_half_message_that_is_stored_twice_needs_a_fault_that_explains_it(first: float, row: str) -> None:
    traffic = halves()
    traffic.came = {"a": [(first, ("g0", 0, 1)), (120.0, ("g1", 0, 1))], "b": [(95.0, ("g0", 0, 2))] * 2}
    kill = Met("kill", Home.MASTER, 100.0, 110.0)
    allowed, violations = judge(traffic.repeats(lambda group: (kill,), lambda group: frozenset()))
    assert list(allowed) == ([row] if row else [])
    assert [each.detail.split()[2] for each in violations] == (
        [] if row else ["a,"]
    )  # one place read twice is no other


def test_the_figures_of_half_messages_name_what_is_lost_and_what_was_not_committed() -> None:
    traffic = halves()
    traffic.came = {"a": [(92.0, ("g0", 0, 1))], "c": [(93.0, ("g0", 0, 2))]}
    assert traffic.kind(lambda group: ()) == Kind("half", 2, 1, 0, 1, 1, (2.0,))
    assert [each.split()[0] for each in traffic.problems(lambda group: ())] == ["b", "c"]


def test_the_table_of_kinds_has_percentiles() -> None:
    lines = kinds_table([Kind("timer", 100, 100, 1, 0, 0, tuple(float(each) for each in range(100)))])
    assert lines[1].split() == ["timer", "100", "100", "1", "0", "0", "49.000", "98.000", "99.000"]
    assert kinds_table([Kind("half", 0, 0, 0, 0, 0, ())])[1].split()[-3:] == ["nan"] * 3
