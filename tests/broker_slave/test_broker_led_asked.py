"""What a led master asked its controllers for, and that they accept late."""

from __future__ import annotations

import itertools
import random
from math import inf

import pytest
import trio
from test_broker_led_replaced import others
from test_broker_led_rows import part

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import Word
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.led.group import API_PORT, CONTROLLERS, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {
    "allAckInSyncStateSet": "true",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "2",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "800",
}
LATE_SECONDS = 2.0


class LateControllers:
    """Controllers that take a question for a set with *away* long after its asker gave up, and none meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, *, never: bool = False) -> None:
        self.away = 0
        self.left = trio.Event()
        self._nursery = nursery
        self._taken, self._never = False, never
        self._alter = Controllers.alter_set
        monkeypatch.setattr(Controllers, "alter_set", lambda *words: self._alter_set(*words))

    async def _alter_set(self, controllers: Controllers, leader: str, role: Word, members: frozenset[int]) -> Word:
        if self.away not in members or self._taken:
            return await self._alter(controllers, leader, role, members)
        if not self.left.is_set():
            self.left.set()
            if not self._never:
                self._nursery.start_soon(self._late, controllers, leader, role, members)
        raise UnansweredError("no answer in time")

    async def _late(self, controllers: Controllers, leader: str, role: Word, members: frozenset[int]) -> None:
        await trio.sleep(LATE_SECONDS)
        self._taken = True
        await self._alter(controllers, leader, role, members)


async def elect(group: LedGroup, name: str) -> None:
    """Have *name* elected as an operator does."""
    leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
    own_id = str(part(group, name).own_id)
    fields = {"clusterName": "", "brokerName": "g", "brokerId": own_id, "designateElect": "true"}
    address = f"{group.cluster.address(leader)}:{API_PORT}"
    answer = await group.client.invoke(address, request(RequestCode.CONTROLLER_ELECT_MASTER, fields), 3000)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def keep_sending(group: LedGroup, name: str, acknowledged: list[bytes]) -> None:
    """Send to *name* again and again; note what it acknowledges."""
    for number in itertools.count():
        body = b"%d" % number
        if await group.send(name, body) == 0:
            acknowledged.append(body)
        await trio.sleep(0.02)


async def left_alone(group: LedGroup) -> tuple[str, str]:
    """Create the topic, and have both slaves leave; return the hosts of the master and of one who may come back."""
    first = await group.ready(3)
    await group.create_topic(first)
    comes, gone = others(first)
    for each in (gone, comes):
        await group.kill(each)
    await until(lambda: group.members() == [first], 10)
    return first, comes


def test_a_slave_that_controllers_let_in_late_lacks_nothing_that_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group, trio.open_nursery() as nursery:
            late = LateControllers(monkeypatch, nursery)
            first = await group.ready(3)
            await group.create_topic(first)
            stays, comes = others(first)
            group.cluster.partition([comes], [first, stays])
            await until(lambda: len(group.members()) == 2, 20)
            # given a slave that comes back; nobody hears what became of the question, and it is away again
            late.away = part(group, comes).own_id
            group.cluster.heal()
            await late.left.wait()
            group.cluster.partition([comes], [first, stays])
            await until(lambda: late.away not in part(group, first).followers(), 20)
            # when the controllers let it in all the same, and an operator has it elected at once
            acknowledged: list[bytes] = []
            nursery.start_soon(keep_sending, group, first, acknowledged)
            await until(lambda: len(group.members()) == 3, 20, 0.001)
            await elect(group, comes)
            group.cluster.heal()
            # then it has all that was acknowledged
            await until(lambda: group.master() == comes, 20)
            await group.ready(3)
            assert set(acknowledged) <= set(group.bodies(comes))
            nursery.cancel_scope.cancel()

    run_seed(scenario, 3)


def test_a_question_that_nobody_answered_holds_up_a_master_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group, trio.open_nursery() as nursery:
            late = LateControllers(monkeypatch, nursery, never=True)
            first = await group.ready(3)
            await group.create_topic(first)
            stays, comes = others(first)
            group.cluster.partition([comes], [first, stays])
            await until(lambda: len(group.members()) == 2, 20)
            late.away = part(group, comes).own_id
            group.cluster.heal()
            await late.left.wait()
            # given a slave that is gone for good, and a question that never came to the controllers
            group.cluster.partition([comes], [*CONTROLLERS, first, stays])
            acknowledged: list[bytes] = []
            nursery.start_soon(keep_sending, group, first, acknowledged)
            await until(lambda: len(acknowledged) > 10, 20)
            nursery.cancel_scope.cancel()

    run_seed(scenario, 5)


def test_who_was_let_in_by_an_answer_that_was_lost_counts_for_as_long_as_nobody_says_otherwise() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, "minInSyncReplicas": "1"}) as group:
            first, comes = await left_alone(group)
            # given a slave that comes back, and controllers that let it in, whose answer does not come
            keeper = part(group, first)._keeper
            assert keeper is not None
            await group.start_broker(comes)
            await until(lambda: any(len(each.members) == 2 for each in keeper.state.asked), 20, 0.0005)
            network, address = group.cluster.network, group.cluster.address
            for each in CONTROLLERS:
                network.cut(address(each), address(first))
            await until(lambda: len(group.members()) == 2, 5, 0.001)
            # when the master is cut off for much longer than a question may wait, and the other one is elected
            group.cluster.partition([first], [comes, *CONTROLLERS])
            await until(lambda: group.master() == comes, 20)
            ended = trio.current_time() + 25
            codes = []
            while trio.current_time() < ended:
                codes.append(await group.send(first, b"%d" % len(codes)))
                await trio.sleep(1)
            # then it acknowledges nothing
            assert 0 not in codes
            group.cluster.heal()
            await group.ready(2, 60)

    run_seed(scenario, 1)


def test_a_question_that_the_network_holds_back_counts_for_as_long_as_controllers_take_its_asker_for_alive() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {**ALL, "inSyncReplicas": "1", "minInSyncReplicas": "1", "controllerHeartBeatTimeoutMills": "30000"}
        async with led_group(source, keys) as group:
            first, comes = await left_alone(group)
            # given a question for a slave that is back, which does not come to the leader of the controllers
            network, address = group.cluster.network, group.cluster.address
            leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
            network.cut(address(first), address(leader))
            keeper = part(group, first)._keeper
            assert keeper is not None
            await group.start_broker(comes)
            await until(lambda: any(len(each.members) == 2 and each.until < inf for each in keeper.state.asked), 20)
            # when the slave is gone, and another controller leads and says that the set is as before
            network.cut(address(first), address(comes))
            network.cut(address(comes), address(first))
            rest = [each for each in CONTROLLERS if each != leader]
            group.cluster.partition([leader], rest)
            await until(lambda: any(group.controllers[each].member.leads() for each in rest), 10)
            await trio.sleep(20)
            # then it may be accepted yet
            assert await group.send(first, b"too early") != 0
            assert len(keeper.state.everybody) == 2
            await trio.sleep(20)
            assert await group.send(first, b"alone") == 0

    run_seed(scenario, 1)


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (UnansweredError("no answer"), True),
        (UnansweredError("it does not lead", certain=True), False),
        (RefusedError(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "not alive"), False),
        (RefusedError(ResponseCode.SUCCESS, "cannot be read"), True),
        (RefusedError(ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR, "leader steps down"), True),
    ],
    ids=["unanswered", "never taken", "refused", "unreadable", "lost its lead meanwhile"],
)
def test_only_a_question_that_may_have_been_taken_counts(
    monkeypatch: pytest.MonkeyPatch, error: UnansweredError | RefusedError, counts: bool
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            keeper_state = part(group, first)

            async def fails(*words: object) -> Word:
                raise error

            monkeypatch.setattr(Controllers, "alter_set", fails)
            group.cluster.partition([others(first)[0]], [first, others(first)[1]])
            await until(lambda: len(keeper_state.followers()) == 1, 20)
            await trio.sleep(1)
            keeper = keeper_state._keeper
            assert keeper is not None
            assert bool(keeper.state.asked) is counts

    run_seed(scenario, 4)
