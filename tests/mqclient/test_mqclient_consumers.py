"""Consumers against a cluster in this process: every message once in the good case, at least once in the bad ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from mqclient_rig import FIRST, TOPIC, Basket, master, send_numbered, settle

from understudy.format.names import retry_topic
from understudy.mqclient.admin import groups, messages
from understudy.mqclient.allocation import BY_CIRCLE
from understudy.mqclient.errors import RouteNotFoundError, SendFailedError
from understudy.mqclient.heartbeat import ConsumeFrom, MessageModel
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import PushConsumer, open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import SessionOptions
from understudy.mqclient.window import WindowLimits
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually, until


async def test_every_message_is_consumed_once(cluster: LocalCluster, producer: Producer, world: World) -> None:
    bodies = await send_numbered(producer, 100)
    basket = Basket()
    async with open_push_consumer(
        world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, PushConsumerOptions(consume_from=FIRST)
    ):
        await basket.wait(100)
        bodies += [str(n) for n in range(3)]
        for body in bodies[-3:]:
            await producer.send(message(TOPIC, body.encode()))
        await basket.wait(103)
    assert sorted(bodies) == sorted(basket.bodies)


async def test_tags_are_filtered(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 20)
    basket = Basket()
    async with open_push_consumer(
        world, cluster.namesrv_address, "cg", {TOPIC: "TagA || Other"}, basket, PushConsumerOptions(consume_from=FIRST)
    ):
        await basket.wait(10)
    assert {got.tags for got in basket.got} == {"TagA"}
    assert len(basket.got) == 10


async def test_progress_survives_the_consumer(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 20)
    options = PushConsumerOptions(consume_from=FIRST)
    first, second = Basket(), Basket()
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, first, options):
        await first.wait(20)
    await producer.send(message(TOPIC, b"later"))
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, second, options):
        await second.wait(1)
    assert second.bodies == ["later"]


async def test_a_new_group_on_a_young_topic_starts_at_its_beginning(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    # As with the real broker: while a queue's first message is in memory, a group without progress is told 0.
    await send_numbered(producer, 8)
    basket = Basket()
    options = PushConsumerOptions(consume_from=ConsumeFrom.LAST_OFFSET)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(8)
    assert len(basket.got) == 8


async def test_order_is_kept_within_a_queue(cluster: LocalCluster, producer: Producer, world: World) -> None:
    bodies = await send_numbered(producer, 30, queue_id=2)
    refused = Counter[str]()

    def verdict(got: ReceivedMessage, context: ConsumeContext) -> ConsumeResult | None:
        context.suspend_ms = 10
        refused[got.body.decode()] += 1
        return ConsumeResult.LATER if got.body == b"m7" and refused["m7"] < 3 else None

    basket = Basket(verdict)
    options = PushConsumerOptions(consume_from=FIRST, ordered=True)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(30)
    assert bodies == basket.bodies
    assert refused["m7"] == 3


async def test_members_share_the_queues_and_take_over(cluster: LocalCluster, producer: Producer, world: World) -> None:
    basket = Basket()
    options = PushConsumerOptions(consume_from=FIRST, strategy=BY_CIRCLE)

    def of_topic(consumer: PushConsumer) -> set[int]:
        return {queue.queue_id for queue in consumer.queues if queue.topic == TOPIC}

    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options) as one:
        await settle(one)
        async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options) as two:
            await until(lambda: len(of_topic(one)) == len(of_topic(two)) == 2)
            assert of_topic(one) | of_topic(two) == {0, 1, 2, 3}
            # (what one has begun when the other takes over may come to both)
            await send_numbered(producer, 40)
            everything = {f"m{number}" for number in range(40)}
            await until(lambda: everything <= set(basket.bodies))
        await until(lambda: of_topic(one) == {0, 1, 2, 3})
        await producer.send(message(TOPIC, b"last"))
        await until(lambda: "last" in basket.bodies)
    assert set(basket.bodies) == everything | {"last"}


async def test_broadcasting_members_get_everything_and_remember(
    cluster: LocalCluster, producer: Producer, world: World, tmp_path: Path
) -> None:
    def options(client_id: str) -> PushConsumerOptions:
        return PushConsumerOptions(
            model=MessageModel.BROADCASTING,
            consume_from=FIRST,
            offset_folder=str(tmp_path),
            session=SessionOptions(client_id=client_id),
        )

    one, two, again = Basket(), Basket(), Basket()
    servers = cluster.namesrv_address
    await send_numbered(producer, 10)
    async with (
        open_push_consumer(world, servers, "bc", {TOPIC: "*"}, one, options("one")),
        open_push_consumer(world, servers, "bc", {TOPIC: "*"}, two, options("two")),
    ):
        await one.wait(10)
        await two.wait(10)
    await producer.send(message(TOPIC, b"later"))
    async with open_push_consumer(world, servers, "bc", {TOPIC: "*"}, again, options("one")):
        await again.wait(1)
    assert sorted(one.bodies) == sorted(two.bodies) == sorted(f"m{number}" for number in range(10))
    assert again.bodies == ["later"]


async def test_an_illegal_offset_is_corrected(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 4, queue_id=1)
    options = PushConsumerOptions(consume_from=FIRST)
    first, second = Basket(), Basket()
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, first, options):
        await first.wait(4)
    # given an offset that no broker of today would take, as another one may have written it
    (broker,) = cluster.brokers.values()
    broker.offsets.commit("cg", TOPIC, 1, 9999)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, second, options) as consumer:
        await settle(consumer)
        await until(lambda: consumer.held[MessageQueue(TOPIC, "broker-a", 1)].next_offset == 4)
        await producer.send(message(TOPIC, b"after"), queue=MessageQueue(TOPIC, "broker-a", 1))
        await second.wait(1)
    assert second.bodies == ["after"]


async def test_pulling_pauses_while_the_window_is_full(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 60, queue_id=0)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    go_on = trio.Event()
    got: list[bytes] = []

    async def listener(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        await go_on.wait()
        got.extend(each.body for each in batch)

    options = PushConsumerOptions(
        consume_from=FIRST, limits=WindowLimits(messages=8), pull_batch=4, consume_tasks=16, close_timeout_ms=100
    )
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listener, options) as consumer:
        await settle(consumer)
        await until(lambda: not (len(consumer.held[queue].window) <= 8))
        assert consumer.held[queue].window.full(options.limits, ordered=False) is not None
        assert len(consumer.held[queue].window) <= 12
        go_on.set()
        await until(lambda: not (len(got) < 60))
    assert len(set(got)) == 60


async def test_a_paused_consumer_gets_nothing_until_resumed(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    basket = Basket()
    options = PushConsumerOptions(consume_from=FIRST, hold_ms=50)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options) as consumer:
        # (four queues of the topic and one for failed messages, each with a pull under way)
        await until(lambda: len(consumer.held) == 5 and all(held.last_pull_ms for held in consumer.held.values()))
        consumer.pause()
        under_way = {queue: held.last_pull_ms for queue, held in consumer.held.items()}
        await until(lambda: all(held.last_pull_ms > under_way[queue] for queue, held in consumer.held.items()))
        await send_numbered(producer, 5)
        assert basket.got == []
        consumer.resume()
        await basket.wait(5)
    assert len(basket.got) == 5


async def test_subscriptions_change_while_running(cluster: LocalCluster, producer: Producer, world: World) -> None:
    basket = Basket()
    options = PushConsumerOptions(consume_from=FIRST)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {"Other": "*"}, basket, options) as consumer:
        await send_numbered(producer, 4)
        await consumer.subscribe(TOPIC)
        await basket.wait(4)
        await consumer.unsubscribe(TOPIC)
        await until(lambda: not (any(queue.topic == TOPIC for queue in consumer.queues)))
    assert len(basket.got) == 4


async def test_operators_see_and_move_a_consumer(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 12)
    address = await master(producer)
    basket = Basket()
    options = PushConsumerOptions(consume_from=FIRST, persist_ms=50)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options) as consumer:
        await basket.wait(12)
        client_id = consumer.session.client_id
        session = producer.session
        # Its report, when it has the queue of failed messages, too
        await until(lambda: len(consumer.held) == 5)
        report = await groups.running_info(session, address, "cg", client_id, stacks=True)
        assert report["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {entry["topic"] for entry in report["subscriptionSet"]} == {TOPIC, retry_topic("cg")}
        assert len(report["mqTable"]) == 5
        assert "task" in report["jstack"]
        # One message on demand
        (found,) = await messages.find_by_id(session, TOPIC, basket.got[0].message_id)
        result = await messages.consume_directly(session, address, "cg", client_id, TOPIC, found.offset_message_id)
        assert result["consumeResult"] == "CR_SUCCESS"
        await basket.wait(13)
        # What became of it

        async def consumed() -> bool:
            return [each.state for each in await messages.tracks(session, found) if each.group == "cg"] == ["CONSUMED"]

        await eventually(consumed)
        # Back to the start
        moved = await groups.reset_offset(session, address, "cg", TOPIC, timestamp_ms=0)
        assert set(moved.values()) == {0}
        await until(lambda: Counter(basket.bodies)["m11"] == 2)  # the member is told after the answer
        await send_numbered(producer, 4)
        await basket.wait(13 + 12 + 4)


async def test_consumers_and_producers_survive_a_restart_of_the_broker(cluster: LocalCluster, world: World) -> None:
    # Given both ends at work
    basket = Basket()
    options = PushConsumerOptions(
        consume_from=FIRST, pull_retry_ms=50, session=SessionOptions(route_refresh_ms=100, route_retry_ms=20)
    )
    async with (
        open_producer(world, cluster.namesrv_address, "pg") as producer,
        open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options),
    ):
        await producer.send(message(TOPIC, b"before"))
        await basket.wait(1)
        # When the broker stops and comes back with its data, at another port
        (hosted,) = cluster.container.brokers()
        await cluster.container.remove_broker(hosted.identity)
        with pytest.raises((SendFailedError, RouteNotFoundError)):
            await producer.send(message(TOPIC, b"meanwhile"), timeout_ms=500)
        await cluster.add_broker("broker-a")

        # Then sends succeed again and reach the same consumer
        async def sent() -> bool:
            try:
                await producer.send(message(TOPIC, b"after"), timeout_ms=1_000)
            except (SendFailedError, RouteNotFoundError):
                return False
            return True

        await eventually(sent)
        await until(lambda: "after" in basket.bodies)
    assert basket.bodies[0] == "before"
