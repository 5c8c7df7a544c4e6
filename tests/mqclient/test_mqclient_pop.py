"""Consumers that pop: what they acknowledge is done, what they do not comes again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from mqclient_rig import TOPIC, send_numbered

from understudy.mqclient.admin import topics
from understudy.mqclient.errors import BrokerError, InvalidMessageError, InvalidOptionError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeResult
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer, run_pop_listener
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import Producer
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually, until


async def pop_all(consumer: PopConsumer, count: int, seconds: float = 20) -> list[PoppedMessage]:
    """Pop until there are *count* messages."""
    got: list[PoppedMessage] = []
    with trio.fail_after(seconds):
        while len(got) < count:
            got += await consumer.pop(TOPIC, hold_ms=1_000)
    return got


@pytest.mark.covers("PP-21")
async def test_acknowledged_alone_and_in_batches(cluster: LocalCluster, producer: Producer, world: World) -> None:
    bodies = await send_numbered(producer, 40)
    patient, hasty = PopConsumerOptions(invisible_ms=120_000), PopConsumerOptions(invisible_ms=2_000)
    servers = cluster.namesrv_address
    async with (
        open_pop_consumer(world, servers, "pops", {TOPIC: "*"}, patient) as consumer,
        open_pop_consumer(world, servers, "pops", {TOPIC: "*"}, hasty) as other,
    ):
        popped = await pop_all(consumer, 40)
        assert sorted(each.message.body.decode() for each in popped) == sorted(bodies)
        longer = await consumer.change_invisible(popped.pop(), 240_000)
        await consumer.ack(popped[0])
        await consumer.ack(*popped[1:])
        await producer.send(message(TOPIC, b"left"))
        (left,) = await pop_all(other, 1)
        (again,) = await pop_all(consumer, 1)
        assert (again.message.body, again.message.reconsume_times) == (left.message.body, 1)
        assert again.stored_topic == f"%RETRY%pops_{TOPIC}"
        await consumer.ack(again, longer)
        assert await consumer.pop(TOPIC, hold_ms=0) == []


async def test_in_order(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 6, queue_id=1)
    options = PopConsumerOptions(in_order=True, max_messages=2)
    got: list[int] = []
    async with open_pop_consumer(world, cluster.namesrv_address, "ordered", {TOPIC: "*"}, options) as consumer:
        for _ in range(3):
            popped = await pop_all(consumer, 2)
            assert await consumer.pop(TOPIC, hold_ms=0) == []
            got += [each.message.queue_offset for each in popped]
            await consumer.ack(*popped)
    assert got == list(range(6))


async def test_a_listener_gets_everything_and_failures_again(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    bodies = await send_numbered(producer, 30)
    tries: Counter[str] = Counter()
    done: list[str] = []
    options = PopConsumerOptions(invisible_ms=30_000, hold_ms=1_000, retry_ms=1_000, max_reconsume_times=1)

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        body = message.body.decode()
        tries[body] += 1
        if body == bodies[0] and tries[body] == 1:
            raise ValueError("not now")
        if body == bodies[1]:
            return ConsumeResult.LATER
        done.append(body)
        return None

    async with (
        open_pop_consumer(world, cluster.namesrv_address, "push", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: len(done) == 29 and tries[bodies[1]] == 2, 40)
        await eventually(lambda: topics.exists(consumer.session, "%DLQ%push"))  # what is given up has gone there
        nursery.cancel_scope.cancel()
    assert sorted(done) == sorted(set(bodies) - {bodies[1]})
    async with open_pop_consumer(world, cluster.namesrv_address, "dead", {"%DLQ%push": "*"}) as consumer:
        with trio.fail_after(20):
            while not (dead := await consumer.pop("%DLQ%push", hold_ms=1_000)):
                pass
    assert [each.message.body.decode() for each in dead] == [bodies[1]]


async def test_what_is_refused(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 1)
    options = PopConsumerOptions(consume_from=ConsumeFrom.LAST_OFFSET)
    async with open_pop_consumer(world, cluster.namesrv_address, "bad", {TOPIC: "*"}, options) as consumer:
        with pytest.raises(InvalidMessageError, match="not subscribed"):
            await consumer.pop("Other")
        (popped,) = await pop_all(consumer, 1)
        with pytest.raises(BrokerError, match="invisibleTime"):
            await consumer.change_invisible(popped, -1)


async def test_a_listener_that_cannot_work_is_refused_before_anything_is_popped(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 1)
    called: list[ReceivedMessage] = []

    async def takes_two(message: ReceivedMessage, context: object) -> None: ...

    wrong: Any
    async with open_pop_consumer(world, cluster.namesrv_address, "wrong", {TOPIC: "*"}) as consumer:
        for wrong, says in ((called.append, "async def"), (takes_two, "one argument"), (None, "cannot be called")):
            with pytest.raises(InvalidOptionError, match=says), trio.fail_after(5):
                await run_pop_listener(consumer, wrong)
    assert not called


@pytest.mark.parametrize("wrong", [False, 0, "SUCCESS"])
async def test_an_answer_that_a_listener_may_not_give_is_no_acknowledgement(
    cluster: LocalCluster, producer: Producer, world: World, wrong: Any
) -> None:
    await send_numbered(producer, 1)
    answers, tries = [wrong], list[int]()

    async def listener(message: ReceivedMessage) -> Any:
        tries.append(message.reconsume_times)
        return answers.pop() if answers else None

    options = PopConsumerOptions(hold_ms=1_000, retry_ms=500)
    async with (
        open_pop_consumer(world, cluster.namesrv_address, "wrong", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: tries == [0, 1], 20)
        nursery.cancel_scope.cancel()
