"""Listeners of consumers that pop: what cannot be read, what goes wrong, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from mqclient_rig import QUEUE, TOPIC, send_numbered, send_undecodable

from understudy.format.names import dead_letter_topic
from understudy.mqclient import asyncio as aio
from understudy.mqclient.admin import topics
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer, run_pop_listener
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import Producer
from understudy.runtime.world import World
from understudy.testkit import blocking as blocking_testkit
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually, until

QUICK = PopConsumerOptions(hold_ms=500, retry_ms=100, invisible_ms=60_000, max_reconsume_times=0)


def noting_acks(consumer: PopConsumer) -> list[bytes]:
    """Return the bodies of what *consumer* acknowledges from now on, once the broker has taken it."""
    acked, real = list[bytes](), consumer.ack

    async def ack(*popped: PoppedMessage) -> None:
        await real(*popped)
        acked.extend(each.message.body for each in popped)

    consumer.ack = ack  # type: ignore[method-assign]
    return acked


async def test_a_body_that_cannot_be_read_is_not_given_to_the_listener_and_becomes_a_dead_letter(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await producer.send(message(TOPIC, b"before"))
    await send_undecodable(producer)
    await producer.send(message(TOPIC, b"after"))
    told, got = list[str](), list[bytes]()

    async def listener(received: ReceivedMessage) -> None:
        got.append(received.body)

    options = attrs.evolve(QUICK, on_error=lambda error, bad: told.append(f"{bad.body.decode()}: {error}"))
    async with (
        open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: len(got) == 2 and told)
        await eventually(lambda: topics.exists(consumer.session, dead_letter_topic("pops")))
        nursery.cancel_scope.cancel()
    assert sorted(got) == [b"after", b"before"]
    assert len(told) == 1 and told[0].startswith("no zlib at all: ") and "cannot be inflated" in told[0]


async def test_a_body_that_cannot_be_read_holds_up_nobody_who_pops_in_order(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_undecodable(producer)
    await producer.send(message(TOPIC, b"after"), queue=QUEUE)
    got: list[bytes] = []

    async def listener(received: ReceivedMessage) -> None:
        got.append(received.body)

    options = attrs.evolve(QUICK, in_order=True, retry_ms=600_000, max_reconsume_times=16)
    async with (
        open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: got == [b"after"])
        await eventually(lambda: topics.exists(consumer.session, dead_letter_topic("pops")))
        nursery.cancel_scope.cancel()


async def test_who_wants_damaged_messages_gets_and_acknowledges_their_raw_bytes(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_undecodable(producer)
    got: list[ReceivedMessage] = []

    async def listener(received: ReceivedMessage) -> None:
        got.append(received)

    options = attrs.evolve(QUICK, take_damaged=True)
    async with (
        open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        acked = noting_acks(consumer)
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: acked == [b"no zlib at all"])
        nursery.cancel_scope.cancel()
    assert [(each.body, "cannot be inflated" in each.damage) for each in got] == [(b"no zlib at all", True)]


async def test_on_error_hears_of_a_listener_that_raises_and_may_itself_raise(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 1)
    told, tries = list[tuple[str, bytes]](), list[int]()

    async def listener(received: ReceivedMessage) -> None:
        tries.append(received.reconsume_times)
        if len(tries) == 1:
            raise ValueError("not now")

    def on_error(error: Exception, bad: ReceivedMessage) -> None:
        told.append((repr(error), bad.body))
        raise KeyError("again")

    options = attrs.evolve(QUICK, on_error=on_error, max_reconsume_times=3)
    async with (
        open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(run_pop_listener, consumer, listener)
        await until(lambda: len(tries) == 2)
        nursery.cancel_scope.cancel()
    assert told == [("ValueError('not now')", b"m0")] and tries == [0, 1]


async def cancel(_: PopConsumer, nursery: trio.Nursery) -> None:
    nursery.cancel_scope.cancel()


async def close(consumer: PopConsumer, _: trio.Nursery) -> None:
    await consumer.close()


@pytest.mark.parametrize("end", [cancel, close])
async def test_a_listener_that_runs_at_the_end_has_time_and_what_it_consumes_is_acknowledged(
    cluster: LocalCluster, producer: Producer, world: World, end: Callable[[PopConsumer, trio.Nursery], Awaitable[None]]
) -> None:
    await send_numbered(producer, 3)
    busy, told = list[bytes](), list[bytes]()
    ending = trio.Event()

    async def listener(received: ReceivedMessage) -> None:
        busy.append(received.body)
        await ending.wait()
        await trio.sleep(0.05)
        told.append(received.body)

    options = attrs.evolve(QUICK, consume_tasks=2)
    async with open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer:
        acked = noting_acks(consumer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_pop_listener, consumer, listener)
            await until(lambda: len(busy) == 2)
            ending.set()
            await end(consumer, nursery)
        assert sorted(busy) == sorted(told) == sorted(acked)  # the third never begins: it comes again


async def test_a_listener_that_takes_too_long_at_the_end_is_cut(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 1)
    busy, cut = trio.Event(), trio.Event()

    async def listener(received: ReceivedMessage) -> None:
        busy.set()
        try:
            await trio.sleep_forever()
        finally:
            cut.set()

    options = attrs.evolve(QUICK, close_timeout_ms=20)
    async with open_pop_consumer(world, cluster.namesrv_address, "pops", {TOPIC: "*"}, options) as consumer:
        acked = noting_acks(consumer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_pop_listener, consumer, listener)
            await busy.wait()
            nursery.cancel_scope.cancel()
            began = trio.current_time()
        assert cut.is_set() and not acked and trio.current_time() - began < 3


def test_a_cancelled_task_of_asyncio_leaves_its_listeners_their_time() -> None:
    told: list[str] = []

    async def main(servers: str) -> None:
        busy, ending = asyncio.Event(), asyncio.Event()

        async def listen(received: ReceivedMessage) -> None:
            busy.set()
            await ending.wait()
            await asyncio.sleep(0.05)
            told.append("finished")

        async with aio.open_producer(servers, "pg") as producer:
            await producer.send(message("PopEnds", b"x"))
        async with aio.open_pop_consumer(servers, "popa", {"PopEnds": "*"}, QUICK) as consumer:
            running = asyncio.create_task(consumer.run_listener(listen))
            await asyncio.wait_for(busy.wait(), 20)
            acked = noting_acks(consumer._inner)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            ending.set()
        assert acked == [b"x"]

    with blocking_testkit.local_cluster() as cluster:
        asyncio.run(main(cluster.namesrv_address))
    assert told == ["finished"]
