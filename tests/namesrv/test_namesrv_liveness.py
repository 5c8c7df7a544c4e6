"""Silence, closed connections and unregistrations, on a virtual clock."""

from __future__ import annotations

import pytest
import trio
from namesrv_registrations import registration

from understudy.namesrv.liveness import GRACE_MS, STALL_MS, Liveness
from understudy.namesrv.records import MinBrokerIdNotice
from understudy.namesrv.route_table import RouteTable
from understudy.runtime.clock import SystemClock


class StoppedClock(SystemClock):
    """A clock on which the process can be found to have slept."""

    slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept


class Room:
    def __init__(self, clock: SystemClock | None = None) -> None:
        self.table = RouteTable()
        self.told: list[MinBrokerIdNotice] = []
        self.liveness = Liveness(self.table, clock or SystemClock(), self.told.extend)

    def register(self, name: str, broker_id: int = 0, timeout_ms: int = 1000, connection: object = None) -> None:
        event = registration(name, broker_id, acting=True, timeout_ms=timeout_ms)
        self.table.register(event, connection, self.liveness.now_ms())
        self.liveness.registered(self.table.live[("C", f"{name}{broker_id}:1")].deadline_ms)

    def heartbeat(self, name: str) -> None:
        self.table.heartbeat(("C", f"{name}0:1"), None, self.liveness.now_ms())


@pytest.mark.covers("NS-12")
async def test_a_silent_broker_goes_at_its_deadline(autojump_clock: trio.testing.MockClock) -> None:
    # given a broker that may be silent for 10 s and one for 120 s
    room = Room()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.liveness.run_expiry)
        room.register("slow", timeout_ms=120_000)
        await trio.sleep(1)
        room.register("quick", timeout_ms=10_000)
        await trio.sleep(9.9)
        room.heartbeat("quick")
        # when it is not heard any more, then it stays until then and is gone right after
        await trio.sleep(10.0)
        assert sorted(room.table.groups) == ["quick", "slow"]
        await trio.sleep(0.01)
        assert sorted(room.table.groups) == ["slow"]
        await trio.sleep(120)
        assert room.table.groups == {}
        nursery.cancel_scope.cancel()


async def test_a_name_server_that_slept_hears_its_brokers_before_it_drops_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    # given two brokers and a name server that was stopped for longer than their timeout
    clock = StoppedClock()
    room = Room(clock)
    room.register("dead")
    room.register("alive")
    clock.slept = (1000 + STALL_MS) / 1000 + 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.liveness.run_expiry)
        # when it wakes up, finds the deadlines long passed, and a heartbeat that had waited arrives
        await trio.sleep(GRACE_MS / 2000)
        assert sorted(room.table.groups) == ["alive", "dead"]
        room.heartbeat("alive")
        # then only the broker that stays silent goes
        await trio.sleep(GRACE_MS / 2000 + 0.01)
        assert sorted(room.table.groups) == ["alive"]
        nursery.cancel_scope.cancel()


@pytest.mark.covers("NS-04")
async def test_unregistrations_of_one_moment_are_one_step(autojump_clock: trio.testing.MockClock) -> None:
    # given a group of three and room for two unregistrations
    room = Room()
    for broker_id in range(3):
        room.register("a", broker_id)
    members = [room.table.live[("C", f"a{broker_id}:1")] for broker_id in range(3)]
    # when three ask to leave at once
    assert [room.liveness.unregister(member, 2) for member in members] == [True, True, False]
    assert len(room.table.live) == 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.liveness.run_unregistrations)
        await trio.testing.wait_all_tasks_blocked()
        # then the two leave in one step, with one notice to who is left
        assert room.table.groups["a"].addresses() == {2: "a2:1"}
        assert [(notice.broker_id, notice.offline_address) for notice in room.told] == [(2, "a1:1")]
        # and there is room again
        assert room.liveness.unregister(members[2], 2)
        await trio.testing.wait_all_tasks_blocked()
        assert room.table.groups == {}
        nursery.cancel_scope.cancel()
