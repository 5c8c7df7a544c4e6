"""Who may speak for a broker that the controllers hear: itself and its host, and others when it is silent."""

from __future__ import annotations

import pytest
import trio
from controller_desk import Desk, FakeConnection
from trio.testing import MockClock

from understudy.controller.liveness import BrokerKey
from understudy.controller.trust import LONGEST_TIMEOUT_MS
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command

ADDRESS = "10.0.0.1:10911"
KEY = BrokerKey("C", "a", 1)
NAMES = {"clusterName": "C", "brokerName": "a", "brokerId": "1"}
SILENCE = 10.0


async def beat(desk: Desk, host: FakeConnection, **more: str) -> int:
    ext = {**NAMES, "brokerAddr": ADDRESS, "maxOffset": "5", **more}
    return (await desk.ask(RequestCode.BROKER_HEARTBEAT, ext, host=host)).code


async def register(desk: Desk, host: FakeConnection, **more: str) -> Command:
    ext = {**NAMES, "brokerAddress": ADDRESS, "storeIncarnation": "one", **more}
    return await desk.ask(RequestCode.CONTROLLER_REGISTER_BROKER, ext, host=host)


async def registered() -> Desk:
    """Return a controller that has given an id."""
    desk = Desk()
    ext = {"clusterName": "C", "brokerName": "a", "appliedBrokerId": "1", "registerCheckCode": f"{ADDRESS};1"}
    assert (await desk.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, ext)).code == 0
    return desk


async def with_master(own: FakeConnection) -> Desk:
    desk = await registered()
    assert (await register(desk, own)).code == 0
    assert await beat(desk, own, storeIncarnation="one") == 0
    assert (await desk.ask(RequestCode.CONTROLLER_ELECT_MASTER, NAMES, host=own)).code == 0
    assert desk.metadata.groups["a"].master_id == 1
    return desk


REFUSED = ResponseCode.CONTROLLER_INVALID_REQUEST


@pytest.mark.parametrize("source", ["10.0.0.1", "192.168.7.7"], ids=["at its address", "behind a router"])
async def test_another_host_keeps_no_master_alive_whose_connection_ends(source: str, autojump_clock: MockClock) -> None:
    own, stranger = FakeConnection(source), FakeConnection("6.6.6.6")
    desk = await with_master(own)
    # given a stranger that says all that the master says
    assert await beat(desk, stranger, heartbeatTimeoutMills=str(2**62), maxOffset=str(2**60)) == REFUSED
    record = desk.liveness.record("a", 1)
    assert record is not None and (record.connection, record.facts.max_offset_bytes) == (own, 5)
    # when the connection of the master ends, then it is missed at once, and not brought back
    assert desk.liveness.connection_closed(own) == [KEY]
    await trio.sleep(SILENCE / 2)
    assert await beat(desk, stranger) == REFUSED
    assert desk.liveness.alive("a", trio.current_time()) == {}
    # and the broker counts at once that connects again from its host
    assert await beat(desk, FakeConnection(source)) == 0
    assert desk.liveness.alive("a", trio.current_time()).keys() == {1}


async def test_another_host_keeps_no_master_alive_that_is_silent(autojump_clock: MockClock) -> None:
    own, stranger = FakeConnection("192.168.7.7"), FakeConnection("6.6.6.6")
    desk = await with_master(own)
    while trio.current_time() < SILENCE:
        assert await beat(desk, stranger) == REFUSED
        await trio.sleep(1)
    await trio.sleep(0.1)
    assert desk.liveness.expire(trio.current_time()) == [KEY]
    # it may have moved from then on
    assert await beat(desk, stranger) == 0


async def test_who_is_at_the_address_speaks_though_another_was_heard_first(autojump_clock: MockClock) -> None:
    desk, own, stranger = await registered(), FakeConnection("::ffff:10.0.0.1"), FakeConnection("6.6.6.6")
    assert await beat(desk, stranger) == 0
    assert await beat(desk, own) == 0
    assert await beat(desk, stranger) == REFUSED
    assert desk.liveness.connection_closed(own) == [KEY]


async def test_another_host_says_nothing_of_the_life_and_the_set_of_a_living_master(autojump_clock: MockClock) -> None:
    own, stranger = FakeConnection("10.0.0.1"), FakeConnection("6.6.6.6")
    desk = await with_master(own)
    group = desk.metadata.groups["a"]
    alter = {"brokerName": "a", "masterBrokerId": "1", "masterEpoch": str(group.master_epoch)}
    body = b'{"syncStateSet":[1],"syncStateSetEpoch":%d}' % group.set_epoch
    # when a stranger registers as the master with an empty store, or reports its set
    again = await register(desk, stranger, storeIncarnation="another")
    reported = await desk.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, body, stranger)
    # then both are refused, and the master lives
    assert (again.code, reported.code) == (REFUSED, REFUSED)
    assert "from another host" in (again.remark or "")
    assert desk.liveness.alive("a", trio.current_time()).keys() == {1}
    # and its own host may do both
    restarted = FakeConnection("10.0.0.1")
    reported = await desk.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, body, restarted)
    assert reported.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED  # it is the set already
    assert (await register(desk, restarted, storeIncarnation="another")).code == 0
    assert desk.liveness.alive("a", trio.current_time()) == {}


async def test_a_broker_that_moved_is_heard_at_once_where_it_is_registered(autojump_clock: MockClock) -> None:
    own, moved = FakeConnection("10.0.0.1"), FakeConnection("10.0.0.2")
    desk = await with_master(own)
    assert desk.liveness.connection_closed(own) == [KEY]
    assert (await register(desk, moved, brokerAddress="10.0.0.2:10911")).code == 0
    assert await beat(desk, moved, brokerAddr="10.0.0.2:10911") == 0
    assert desk.liveness.alive("a", trio.current_time()).keys() == {1}


@pytest.mark.parametrize("told", [2 * LONGEST_TIMEOUT_MS, 2**63 - 1])
async def test_nobody_is_silent_for_longer_than_ten_minutes(told: int, autojump_clock: MockClock) -> None:
    desk = await registered()
    assert await beat(desk, FakeConnection("10.0.0.1"), heartbeatTimeoutMills=str(told)) == 0
    await trio.sleep(LONGEST_TIMEOUT_MS / 1000 + 1)
    assert desk.liveness.expire(trio.current_time()) == [KEY]


async def test_a_broker_whose_way_here_has_changed_is_known_by_its_store(autojump_clock: MockClock) -> None:
    # given a broker behind a router that speaks from another address from one moment to the next
    own, elsewhere = FakeConnection("192.168.7.7"), FakeConnection("192.168.9.9")
    desk = await with_master(own)
    assert await beat(desk, elsewhere) == REFUSED
    assert await beat(desk, elsewhere, storeIncarnation="another") == REFUSED
    # then its heartbeats count, and so does all that it says on this way
    assert await beat(desk, elsewhere, storeIncarnation="one") == 0
    assert desk.liveness.connection_closed(own) == []
    assert desk.liveness.alive("a", trio.current_time()).keys() == {1}
    assert (await register(desk, FakeConnection("192.168.9.10"))).code == 0
