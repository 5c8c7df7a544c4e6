"""Calls to a broker whose role has gone to another replica, while the proxy's route still shows the former master."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from proxy_rig import GROUP, Rig, User, message, play, resource
from test_proxy_remoting import old_client

from understudy.broker.broker import Broker
from understudy.broker.role import Role
from understudy.proxy.core.durations import set_ms
from understudy.proxy.holders import is_overload
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request, response
from understudy.testkit.waiting import until

TOPICS = ("Normal", "Delay", "Tran")
KEYS = {"recallMessageEnable": "true", "transactionCheckInterval": "3600000", "transactionTimeOut": "3600000"}


@attrs.frozen
class Held:
    """What a client has of the former master."""

    receipt: str
    recall: str
    transaction: str


@attrs.define
class Replicas:
    """A master and its copy."""

    first: Broker
    second: Broker

    async def level(self) -> None:
        """Wait until the copy has everything."""
        await until(lambda: self.second.store.max_physical_offset == self.first.store.max_physical_offset, 60)
        await until(lambda: self.second.topics.rows.keys() >= set(TOPICS), 60)
        await until(lambda: GROUP in self.second.groups.rows, 60)

    async def hand_over(self) -> None:
        """Have the copy be master, after the former one is none; the proxy is told nothing."""
        await self.level()
        await self.first.change_role(Role("SLAVE", 2, 1, "handed over"))
        await self.take_over()
        await trio.sleep(2)

    async def stand_down(self) -> None:
        """Have the master be none any more, and nobody in its place yet; the proxy is told nothing."""
        await self.level()
        await self.first.change_role(Role("SLAVE", 2, 1, "handed over"))
        await trio.sleep(2)

    async def take_over(self) -> None:
        """Have the copy be master."""
        await self.second.change_role(Role("ASYNC_MASTER", 0, 2, "handed over"))


async def two(rig: Rig) -> Replicas:
    keys = {"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE", **KEYS}
    await rig.cluster.start_container("c9", [keys])
    first, second = (next(iter(rig.cluster.brokers(host).values())) for host in ("c1", "c9"))
    return Replicas(first, second)


async def holding(rig: Rig) -> Held:
    """Receive a message, send one that is due later, and one whose transaction is open."""
    user = rig.user
    await user.consume(GROUP, *TOPICS)
    for topic in TOPICS:
        await user.receive(GROUP, topic)
    assert v2.OK == (await user.send(message("Normal"))).status.code
    late = message("Delay", message_id="late")
    set_ms(late.system_properties.delivery_timestamp, rig.cluster.client_world().clock.wall_ms() + 600_000)
    recall = (await user.send(late)).entries[0].recall_handle
    half = await user.send(message("Tran", message_id="half", message_type=v2.TRANSACTION))
    _, (got,) = await user.receive(GROUP, "Normal", invisible_ms=60_000)
    return Held(got.system_properties.receipt_handle, recall, half.entries[0].transaction_id)


async def acknowledge(user: User, held: Held) -> v2.Status:
    return (await user.ack(GROUP, "Normal", held.receipt)).status


async def hide(user: User, held: Held) -> v2.Status:
    return (await user.change(GROUP, "Normal", held.receipt, 20_000)).status


async def give_up(user: User, held: Held) -> v2.Status:
    request = v2.ForwardMessageToDeadLetterQueueRequest(
        group=resource(GROUP), topic=resource("Normal"), receipt_handle=held.receipt, message_id="m1"
    )
    return (
        await user.ask("ForwardMessageToDeadLetterQueue", request, v2.ForwardMessageToDeadLetterQueueResponse)
    ).status


async def commit(user: User, held: Held) -> v2.Status:
    request = v2.EndTransactionRequest(
        topic=resource("Tran"), message_id="half", transaction_id=held.transaction, resolution=v2.COMMIT
    )
    return (await user.ask("EndTransaction", request, v2.EndTransactionResponse)).status


async def recall(user: User, held: Held) -> v2.Status:
    request = v2.RecallMessageRequest(topic=resource("Delay"), recall_handle=held.recall)
    return (await user.ask("RecallMessage", request, v2.RecallMessageResponse)).status


async def send(user: User, held: Held) -> v2.Status:
    return (await user.send(message("Normal", message_id="m2"))).status


@pytest.mark.parametrize("call", [acknowledge, hide, give_up, commit, recall, send])
def test_a_call_follows_the_role_to_another_replica_at_once(call: Callable[[User, Held], Awaitable[v2.Status]]) -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.hand_over()
        end = replicas.second.store.max_physical_offset
        status = await call(rig.user, held)
        assert v2.OK == status.code, status
        assert replicas.second.store.max_physical_offset > end

    play(test, broker_keys=KEYS)


@pytest.mark.parametrize("call", [acknowledge, commit, send])
def test_a_call_waits_a_moment_for_a_master_that_is_not_there_yet(
    call: Callable[[User, Held], Awaitable[v2.Status]],
) -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.stand_down()

        async def later() -> None:
            await trio.sleep(0.5)
            await replicas.take_over()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            status = await call(rig.user, held)
        assert v2.OK == status.code, status

    play(test, broker_keys=KEYS)


def test_a_broker_that_stays_a_slave_is_not_waited_for_for_long() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.stand_down()
        begin = trio.current_time()
        status = await acknowledge(rig.user, held)
        assert (v2.TOO_MANY_REQUESTS, True) == (status.code, "takes nothing now" in status.message)
        assert 1 < trio.current_time() - begin < 2

    play(test, broker_keys=KEYS)


def test_a_successor_that_does_not_answer_takes_no_more_time_than_one_broker_may() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.hand_over()
        rig.cluster.freeze("c9")
        begin = trio.current_time()
        status = await acknowledge(rig.user, held)
        assert status.code in (v2.PROXY_TIMEOUT, v2.INTERNAL_SERVER_ERROR), status
        assert 2.5 < trio.current_time() - begin < 4

    play(test, broker_keys=KEYS)


def test_a_client_of_the_remoting_port_finds_the_new_master_when_it_tries_again() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        await holding(rig)
        async with old_client(rig) as old:
            assert 0 == (await old.send("Normal", "broker-a", b"1")).code
            await replicas.hand_over()
            assert 0 != (await old.send("Normal", "broker-a", b"2")).code
            await trio.sleep(1.1)
            assert 0 == (await old.send("Normal", "broker-a", b"3")).code

    play(test, broker_keys=KEYS)


def test_who_has_many_messages_to_see_to_waits_for_no_successor() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        await rig.user.consume(GROUP, *TOPICS)
        await rig.user.receive(GROUP, "Normal")
        for number in range(320):  # 32 are seen to at a time
            await rig.user.send(message("Normal", message_id=f"m{number}"))
        async with rig.another_user("push") as push:
            await push.consume(GROUP, "Normal")
            count = 0
            while count < 320:
                count += len((await push.receive(GROUP, "Normal", auto_renew=True))[1])
            await replicas.stand_down()
            begin = trio.current_time()
            end = v2.NotifyClientTerminationRequest(group=resource(GROUP))
            await push.ask("NotifyClientTermination", end, v2.NotifyClientTerminationResponse)
            assert trio.current_time() - begin < 3

    play(test)


def test_a_name_server_that_does_not_answer_is_not_waited_for() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.stand_down()
        rig.cluster.freeze("n1")
        begin = trio.current_time()
        assert v2.TOO_MANY_REQUESTS == (await acknowledge(rig.user, held)).code
        assert trio.current_time() - begin < 2.5

    play(test, broker_keys=KEYS)


def test_a_message_that_is_acknowledged_at_the_new_master_does_not_come_again() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.hand_over()
        assert v2.OK == (await acknowledge(rig.user, held)).code
        with trio.move_on_after(90):
            while True:
                assert [] == (await rig.user.receive(GROUP, "Normal"))[1]

    play(test, broker_keys=KEYS)


def test_after_one_refused_receive_messages_come_from_the_new_master() -> None:
    async def test(rig: Rig) -> None:
        replicas = await two(rig)
        held = await holding(rig)
        await replicas.hand_over()
        assert v2.TOO_MANY_REQUESTS == (await rig.user.receive(GROUP, "Normal"))[0].code
        assert v2.MESSAGE_NOT_FOUND == (await rig.user.receive(GROUP, "Normal"))[0].code
        assert v2.OK == (await send(rig.user, held)).code
        _, (got,) = await rig.user.receive(GROUP, "Normal")
        assert "m2" == got.system_properties.message_id

    play(test, broker_keys=KEYS)


@pytest.mark.parametrize(
    ("code", "remark", "overload"),
    [
        (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, too many requests wait for copies", True),
        (ResponseCode.SYSTEM_BUSY, None, True),
        (
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: this is a slave",
            False,
        ),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: this is a slave", False),
    ],
)
def test_a_broker_that_has_too_much_to_do_is_told_from_one_that_is_no_master(
    code: int, remark: str | None, overload: bool
) -> None:
    assert overload == is_overload(response(request(RequestCode.ACK_MESSAGE, {}), code, remark))
