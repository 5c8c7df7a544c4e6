"""Messages that consumers fail at: they come again, and end as dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import trio
from mqclient_rig import FIRST, TOPIC, Basket, send_numbered

from understudy.format.names import dead_letter_topic, retry_topic
from understudy.mqclient.admin import topics
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer
from understudy.mqclient.pull_consumer import PullConsumerOptions, open_pull_consumer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually


async def test_an_ordered_message_that_never_succeeds_becomes_a_dead_letter(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 3, queue_id=0)

    def verdict(got: ReceivedMessage, context: ConsumeContext) -> ConsumeResult | None:
        context.suspend_ms = 10
        return ConsumeResult.LATER if got.body == b"m1" else None

    basket = Basket(verdict)
    options = PushConsumerOptions(consume_from=FIRST, ordered=True, max_reconsume_times=2)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(2)
    assert basket.bodies == ["m0", "m2"]
    dead = await dead_letters(cluster, world, "cg")
    assert [got.body for got in dead] == [b"m1"]


async def dead_letters(cluster: LocalCluster, world: World, group: str) -> list[ReceivedMessage]:
    options = PullConsumerOptions(consume_from=FIRST)
    async with open_pull_consumer(world, cluster.namesrv_address, "dlq_reader", options) as reader:
        await eventually(lambda: topics.exists(reader.session, dead_letter_topic(group)))
        await reader.assign(await reader.topic_queues(dead_letter_topic(group)))
        return await reader.poll(5_000)


async def test_failed_messages_come_again_and_end_as_dead_letters(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    tries = Counter[bytes]()

    def verdict(got: ReceivedMessage, context: ConsumeContext) -> ConsumeResult | None:
        tries[got.body] += 1
        if got.body == b"raises" and got.reconsume_times == 0:
            context.delay_level = 1
            raise RuntimeError("the first try fails")
        if got.body == b"hopeless":
            context.delay_level = -1
            return ConsumeResult.LATER
        return None

    basket = Basket(verdict)
    for body in (b"fine", b"raises", b"hopeless"):
        await producer.send(message(TOPIC, body))
    options = PushConsumerOptions(consume_from=FIRST)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(2)
        dead = await dead_letters(cluster, world, "cg")
    again = next(got for got in basket.got if got.body == b"raises")
    assert (again.topic, again.stored_topic, again.reconsume_times) == (TOPIC, retry_topic("cg"), 1)
    assert tries == {b"fine": 1, b"raises": 2, b"hopeless": 1}
    assert [got.body for got in dead] == [b"hopeless"]


async def test_a_listener_that_hangs_is_cancelled_and_tried_again(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    done = trio.Event()

    async def listener(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        context.delay_level = 1
        if batch[0].reconsume_times == 0:
            await trio.sleep_forever()
        done.set()

    await producer.send(message(TOPIC, b"slow"))
    options = PushConsumerOptions(consume_from=FIRST, consume_timeout_ms=50)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listener, options):
        with trio.fail_after(20):
            await done.wait()
    assert done.is_set()
