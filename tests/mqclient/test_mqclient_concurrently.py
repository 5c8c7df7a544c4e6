"""Listeners that wait, and those that do not: what others see of it, and what a message costs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType

import trio
from mqclient_rig import FIRST, TOPIC

from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeResult,
    Producer,
    PushConsumerOptions,
    ReceivedMessage,
    World,
    message,
    open_push_consumer,
)
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
CALLS_OF_A_MESSAGE = 2.5
"""Most calls of functions of the client for each message: reading it, its listener, and progress."""


async def fill(producer: Producer, count: int) -> None:
    await producer.send_batches([message(TOPIC, b"%d" % number) for number in range(count)], queue=QUEUE)


async def test_a_listener_that_waits_leaves_the_rest_of_its_pull_to_other_tasks_and_is_seen(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await fill(producer, 32)  # all of them in one pull
    begun, ended, goes_on = list[int](), list[int](), trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        begun.append(int(batch[0].body))
        if begun[-1] >= 10:  # those before are consumed without waiting
            await goes_on.wait()
        ended.append(int(batch[0].body))

    options = PushConsumerOptions(consume_from=FIRST, consume_tasks=5)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options) as consumer:
        await until(lambda: len(begun) == 15)
        held = consumer.held[QUEUE]
        assert (held.busy, len(held.window), len(held.waiting)) == (5, 22, 17)
        assert consumer.offsets.known(QUEUE) == 10
        assert begun == list(range(15))
        goes_on.set()
        await until(lambda: len(ended) == 32)
        await until(lambda: not held.busy)
        assert (sorted(ended), len(held.window), consumer.offsets.known(QUEUE)) == (list(range(32)), 0, 32)
        assert consumer.consumption.statistics.figures(TOPIC).succeeded_per_second == 32 / 60


async def test_a_listener_that_waits_may_do_all_that_tasks_do(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await fill(producer, 3)
    heard, cleaned = list[str](), list[bytes]()

    async def steps(of: bytes) -> None:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            heard.append(f"{of.decode()}.{number}")

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(steps, batch[0].body)
            nursery.start_soon(steps, batch[0].body)
        with trio.move_on_after(0) as scope:
            try:
                await trio.sleep_forever()
            finally:
                cleaned.append(batch[0].body)
        assert scope.cancelled_caught
        return ConsumeResult.SUCCESS

    options = PushConsumerOptions(consume_from=FIRST)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options) as consumer:
        await until(lambda: consumer.offsets.known(QUEUE) == 3)
    assert sorted(cleaned) == [b"0", b"1", b"2"]
    assert Counter(heard) == Counter({f"{of}.{number}": 2 for of in range(3) for number in range(3)})


async def test_what_fails_at_once_or_later_holds_up_no_neighbour_and_is_counted(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await fill(producer, 40)
    consumed, errors = Counter[int](), list[str]()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        number, again = int(batch[0].body), batch[0].reconsume_times > 0
        context.delay_level = 1
        if number % 8 > 3:
            await trio.lowlevel.checkpoint()
        if again or number % 4 == 0:
            consumed[number] += 1
            return None
        if number % 4 == 1:
            raise ValueError(f"no {number}")
        if number % 4 == 2:
            return ConsumeResult.LATER
        return False  # type: ignore[return-value]  # the point of the test

    options = PushConsumerOptions(
        consume_from=FIRST, rebalance_ms=200, on_error=lambda error, first: errors.append(type(error).__name__)
    )
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options) as consumer:
        await until(lambda: consumer.offsets.known(QUEUE) == 40)
        figures = consumer.consumption.statistics.figures(TOPIC)
        assert figures.failed_total == 30
        await until(lambda: sum(consumed.values()) == 40, seconds=40)
    assert set(consumed) == set(range(40))
    assert Counter(errors) == {"ValueError": 10, "InvalidOptionError": 10}


async def test_a_message_costs_few_calls(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await fill(producer, 1_000)
    seen, calls = 0, Counter[str]()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal seen
        seen += len(batch)

    def count(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and "understudy/mqclient/" in code.co_filename + code.co_qualname:
            calls[f"{code.co_filename.rpartition('/')[2]} {code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        options = PushConsumerOptions(consume_from=FIRST)
        async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
            await until(lambda: seen == 1_000)
    finally:
        sys.setprofile(None)
    assert sum(calls.values()) <= CALLS_OF_A_MESSAGE * 1_000, calls.most_common(12)
