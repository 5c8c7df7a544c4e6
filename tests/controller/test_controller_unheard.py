"""Controllers that have just started, and have not heard the master: whom a question replaces, and whom it does not."""

from __future__ import annotations

import pytest
import trio
from controller_desk import Desk
from trio.testing import MockClock

from understudy.controller.commands import ApplyBrokerId, ElectMaster, encode
from understudy.controller.election import Live
from understudy.controller.metadata import Group
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command

GRACE = 10.0
STILL = ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def desk_with_master(*members: int) -> Desk:
    """A desk that has heard nobody; broker 1 is the master of *members*."""
    desk = Desk()
    for broker_id in (1, 2, 3):
        claim = ApplyBrokerId("C", "a", broker_id, f"10.0.0.{broker_id}:10911;{broker_id}")
        desk.metadata.apply(1, 0, 4, encode(claim))
    desk.metadata.apply(1, 0, 4, encode(ElectMaster("a", 1, False, {1: Live()}, False)))
    group_of(desk).sync_state_set = list(members)
    return desk


def group_of(desk: Desk) -> Group:
    return desk.metadata.groups["a"]


async def elect(desk: Desk, broker_id: int, *, designate: bool = False) -> Command:
    fields = {"clusterName": "C", "brokerName": "a", "brokerId": str(broker_id)}
    return await desk.ask(RequestCode.CONTROLLER_ELECT_MASTER, {**fields, "designateElect": str(designate).lower()})


async def test_the_first_master_of_a_group_is_one_of_whose_log_something_is_known(autojump_clock: MockClock) -> None:
    desk = Desk()
    desk.metadata.apply(1, 0, 4, encode(ApplyBrokerId("C", "a", 1, "10.0.0.1:10911;1")))
    answer = await elect(desk, 1)
    assert (answer.code, group_of(desk).master_id) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, None)
    assert "no heartbeat of broker 1 was heard yet, ask again" in (answer.remark or "")
    desk.alive("a", [1])
    assert (await elect(desk, 1)).code == 0
    assert group_of(desk).master_id == 1


@pytest.mark.parametrize("asks", [2, -1], ids=["a slave", "nobody in particular"])
async def test_a_question_replaces_no_master_that_may_live(asks: int, autojump_clock: MockClock) -> None:
    desk = desk_with_master(1, 2, 3)
    desk.alive("a", [2])
    answer = await elect(desk, asks)
    assert (answer.code, (answer.ext or {})["masterBrokerId"], (answer.ext or {})["masterEpoch"]) == (STILL, "1", "1")
    assert b'"syncStateSet":[1,2,3]' in answer.body
    assert group_of(desk).master_epoch == 1
    # when it has had the time to be heard
    await trio.sleep(GRACE)
    desk.alive("a", [2])
    assert (await elect(desk, asks)).code == 0
    assert group_of(desk).master_id == 2


async def test_an_operator_has_whom_he_wants(autojump_clock: MockClock) -> None:
    desk = desk_with_master(1, 2, 3)
    desk.alive("a", [2])
    assert (await elect(desk, 2, designate=True)).code == 0
    assert group_of(desk).master_id == 2


async def test_a_master_that_asks_itself_waits_for_those_who_could_replace_it(autojump_clock: MockClock) -> None:
    desk = desk_with_master(1, 2, 3)
    desk.alive("a", [2])
    assert (await elect(desk, 1)).code == STILL
    desk.alive("a", [3])
    assert (await elect(desk, 1)).code == 0
    assert group_of(desk).master_id in (2, 3)


async def test_a_master_that_asks_itself_is_not_expected_for_ever(autojump_clock: MockClock) -> None:
    desk = desk_with_master(1, 2, 3)
    for _ in range(int(GRACE)):
        assert (await elect(desk, 1)).code == STILL
        await trio.sleep(1)
    desk.alive("a", [2])
    assert desk.metadata.needs_election(
        "a", [2], lambda one: desk.liveness.maybe_alive("a", one, trio.current_time()), unclean_allowed=False
    )
    assert (await elect(desk, 1)).code == 0
    assert group_of(desk).master_id == 2


async def test_a_master_that_was_heard_and_asks_waits_though_nobody_is_heard(autojump_clock: MockClock) -> None:
    desk = desk_with_master(1, 2)
    desk.alive("a", [1, 2])
    # given its host loses its power, and a moment later nobody else is heard either
    for _ in range(int(GRACE)):
        assert (await elect(desk, 1)).code == STILL
        await trio.sleep(1)
    await trio.sleep(1)
    desk.liveness.expire(trio.current_time())
    assert (await elect(desk, -1)).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert group_of(desk).master_id is None


@pytest.mark.parametrize("members", [(1,), (1, 9)], ids=["alone", "with one that was removed"])
async def test_a_master_that_asks_itself_and_is_alone_is_none_at_once(
    members: tuple[int, ...], autojump_clock: MockClock
) -> None:
    desk = desk_with_master(*members)
    assert (await elect(desk, 1)).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert (group_of(desk).master_id, group_of(desk).master_epoch) == (None, 2)
    # then it is elected in an epoch of its own
    desk.alive("a", [1])
    assert (await elect(desk, 1)).code == 0
    assert (group_of(desk).master_id, group_of(desk).master_epoch) == (1, 3)


async def test_a_master_that_is_heard_is_kept_whoever_asks(autojump_clock: MockClock) -> None:
    desk = desk_with_master(1)
    desk.alive("a", [1])
    for asks in (1, 2, -1):
        assert (await elect(desk, asks)).code == STILL
