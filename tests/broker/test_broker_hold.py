"""Parked pulls: who is answered when, and how many may wait."""

from __future__ import annotations

from typing import cast

import trio
from broker_rig import FakeConnection
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.hold import PullHold
from understudy.broker.parked_pulls import AT_ONCE, ENTRY_BYTES, ParkedPull
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime.load import Budget
from understudy.testkit.sim.clock import VirtualClock


def parked(connection: FakeConnection, codes: frozenset[int] | None = None) -> ParkedPull:
    return ParkedPull(cast(Connection, connection), Command(11), codes)


class TestHold:
    async def hold(self, nursery: trio.Nursery) -> tuple[PullHold, list[ParkedPull]]:
        hold, answered = PullHold(VirtualClock()), list[ParkedPull]()
        hold.answer = answered.append
        nursery.start_soon(hold.run)
        await wait_all_tasks_blocked()
        return hold, answered

    async def test_arrival_answers_the_pulls_of_that_queue_once(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            here, there = parked(FakeConnection()), parked(FakeConnection())
            hold.park(here, ("T", 0), 60_000)
            hold.park(there, ("T", 1), 60_000)

            hold.arrived("T", 0, 1, 0, 0, None)
            hold.arrived("T", 0, 2, 0, 0, None)
            await wait_all_tasks_blocked()

            assert answered == [here]
            assert len(hold) == 1
            nursery.cancel_scope.cancel()

    async def test_message_that_the_filter_refuses_wakes_nobody(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            wants_seven = parked(FakeConnection(), frozenset({7}))
            hold.park(wants_seven, ("T", 0), 60_000)
            hold.arrived("T", 0, 1, 8, 0, None)
            await wait_all_tasks_blocked()
            assert answered == []
            hold.arrived("T", 0, 2, 7, 0, None)
            await wait_all_tasks_blocked()
            assert answered == [wants_seven]
            nursery.cancel_scope.cancel()

    async def test_deadlines_in_any_order_of_parking(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            late, early = parked(FakeConnection()), parked(FakeConnection())
            hold.park(late, ("T", 0), 15_000)
            await wait_all_tasks_blocked()
            hold.park(early, ("T", 0), 5_000)
            await trio.sleep(4.9)
            assert answered == []
            await trio.sleep(0.2)
            assert answered == [early]
            await trio.sleep(10)
            assert answered == [early, late]
            assert len(hold) == 0
            nursery.cancel_scope.cancel()

    async def test_everybody_is_woken_when_the_role_changes(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            pulls = [parked(FakeConnection()) for _ in range(4)]
            for number, pull in enumerate(pulls):
                hold.park(pull, ("T", number % 2), 60_000)
            hold.wake_all()
            await wait_all_tasks_blocked()
            assert sorted(map(id, answered)) == sorted(map(id, pulls))
            assert len(hold) == 0
            nursery.cancel_scope.cancel()

    async def test_ended_connections_are_dropped(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            gone, lives = FakeConnection(), FakeConnection()
            hold.park(parked(gone), ("T", 0), 5_000)
            stays = parked(lives)
            hold.park(stays, ("T", 0), 5_000)
            hold.drop(cast(Connection, gone))
            assert len(hold) == 1
            await trio.sleep(6)
            assert answered == [stays]
            nursery.cancel_scope.cancel()

    async def test_above_the_limit_a_pull_is_answered_at_once(self, autojump_clock: MockClock) -> None:
        hold, answered = PullHold(VirtualClock(), lambda: 2), list[ParkedPull]()
        hold.answer = answered.append
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold.run)
            pulls = [parked(FakeConnection()) for _ in range(3)]
            for pull in pulls:
                hold.park(pull, ("T", 0), 60_000)
            await wait_all_tasks_blocked()
            assert answered == pulls[2:]
            assert len(hold) == 2
            nursery.cancel_scope.cancel()

    async def test_what_a_receive_stored_is_answered_without_another_turn(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            # given a parked pull
            hold, answered = await self.hold(nursery)
            waiting = parked(FakeConnection())
            hold.park(waiting, ("T", 0), 60_000)
            # when two messages of one receive arrived and the receive is done
            hold.arrived("T", 0, 1, 0, 0, None)
            hold.arrived("T", 0, 2, 0, 0, None)
            hold.answer_ready()
            # then it is answered at once, and not again by the service
            assert [waiting] == answered
            await wait_all_tasks_blocked()
            assert [waiting] == answered
            nursery.cancel_scope.cancel()

    async def test_one_failing_pull_does_not_stop_the_others(self, autojump_clock: MockClock) -> None:
        hold, answered = PullHold(VirtualClock()), list[ParkedPull]()
        broken, good = parked(FakeConnection()), parked(FakeConnection())

        def answer(pull: ParkedPull) -> None:
            if pull is broken:
                raise RuntimeError("boom")
            answered.append(pull)

        hold.answer = answer
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold.run)
            hold.park(broken, ("T", 0), 60_000)
            hold.park(good, ("T", 0), 60_000)
            hold.arrived("T", 0, 1, 0, 0, None)
            await wait_all_tasks_blocked()
            assert answered == [good]
            nursery.cancel_scope.cancel()

    async def test_shed_deadlines_do_not_pile_up(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            for number in range(5_000):
                hold.park(parked(FakeConnection()), ("T", 0), 60_000)
                hold.arrived("T", 0, number, 0, 0, None)
                if number % 500 == 0:
                    await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
            assert len(answered) == 5_000
            assert len(hold._deadlines) <= 2_000
            nursery.cancel_scope.cancel()

    async def test_twenty_thousand_pulls_of_one_queue_are_answered_in_small_parts(
        self, autojump_clock: MockClock
    ) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            for _ in range(20_000):
                hold.park(parked(FakeConnection()), ("T", 0), 60_000)
            await wait_all_tasks_blocked()
            hold.arrived("T", 0, 1, 0, 0, None)
            hold.answer_ready()
            assert AT_ONCE == len(answered)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert len(answered) <= 4 * AT_ONCE  # others had their turn meanwhile
            await wait_all_tasks_blocked()
            assert (20_000, 0) == (len(answered), len(hold))
            nursery.cancel_scope.cancel()

    async def test_a_peer_that_does_not_read_gets_no_more_until_it_does(self, autojump_clock: MockClock) -> None:
        async with trio.open_nursery() as nursery:
            hold, answered = await self.hold(nursery)
            slow, quick = FakeConnection(), FakeConnection()
            late, soon = parked(slow), parked(quick)
            hold.park(late, ("T", 0), 60_000)
            hold.park(soon, ("T", 0), 60_000)
            slow.choked = True
            hold.arrived("T", 0, 1, 0, 0, None)
            await wait_all_tasks_blocked()
            assert answered == [soon]
            slow.choked = False
            (drained,) = slow.drained
            drained()
            await wait_all_tasks_blocked()
            assert answered == [soon, late]
            nursery.cancel_scope.cancel()

    async def test_pulls_leave_no_trace_when_their_connection_ends(self, autojump_clock: MockClock) -> None:
        budget = Budget(1 << 30)
        hold = PullHold(VirtualClock(), budget=budget)
        connection = FakeConnection()
        for number in range(100):
            pull = parked(connection, frozenset({1, 2, 3}) if number % 2 else None)
            hold.park(pull, ("T", number % 3), 10**12)
        hold.arrived("T", 0, 1, 2, 0, None)  # some are ready, some wait
        assert budget.used >= 100 * ENTRY_BYTES
        hold.drop(cast(Connection, connection))
        assert (0, 0) == (len(hold), budget.used)

    async def test_the_connections_that_keep_most_are_refused_first(self, autojump_clock: MockClock) -> None:
        hold = PullHold(VirtualClock(), budget=Budget(1 << 20))
        greedy = FakeConnection()
        while hold.has_room(parked(greedy)):
            hold.park(parked(greedy), ("T", 0), 60_000)
        assert 500 < len(hold) < 530
        assert hold.has_room(parked(FakeConnection()))
