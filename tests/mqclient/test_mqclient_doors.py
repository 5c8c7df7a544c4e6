"""The blocking and the asyncio client: the trio client's results, errors and cancellation, in other programs."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from understudy.mqclient import aio, blocking
from understudy.mqclient.errors import InvalidMessageError, InvalidOptionError, RouteNotFoundError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pull_consumer import PullConsumerOptions
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.blocking import BlockingCluster, local_cluster

FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
LISTEN = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with local_cluster() as running:
        yield running


def test_blocking_sends_polls_and_errors(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        sent = [producer.send(message("Blocking", b"%d" % number)) for number in range(5)]
        assert len({each.message_id for each in sent}) == 5
        with pytest.raises(InvalidMessageError, match="at least one byte"):
            producer.send(message("Blocking", b""))
        producer.send_batch([message("Blocking", b"5"), message("Blocking", b"6")])
        producer.send_oneway(message("Blocking", b"7"))
    got: set[bytes] = set()
    with blocking.open_pull_consumer(cluster.namesrv_address, "cg", FIRST) as consumer:
        with pytest.raises(RouteNotFoundError):
            consumer.topic_queues("Missing")
        consumer.subscribe({"Blocking": "*"})
        for each in consumer:
            got.add(each.body)
            if len(got) == 8:
                break
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in consumer.queues) == 8
    assert got == {b"%d" % number for number in range(8)}


def test_a_plain_listener_runs_in_threads_and_its_answers_count(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        for number in range(6):
            producer.send(message("Listened", b"%d" % number))
    got: list[tuple[bytes, str]] = []
    all_there = threading.Event()
    failed = [b"3"]

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.delay_level = 1
        body = messages[0].body
        if body in failed:
            failed.remove(body)
            return ConsumeResult.LATER
        got.append((body, threading.current_thread().name))
        if len(got) == 6:
            all_there.set()
        return None

    with blocking.open_push_consumer(cluster.namesrv_address, "lg", {"Listened": "*"}, listen, LISTEN):
        assert all_there.wait(20)
    assert sorted(body for body, _ in got) == [b"%d" % number for number in range(6)]
    assert all("understudy-portal" != name for _, name in got)
    one_argument: Any = lambda messages: None  # noqa: E731  # the point of the test
    opened = blocking.open_push_consumer(cluster.namesrv_address, "lg", {"Listened": "*"}, one_argument)
    with pytest.raises(InvalidOptionError, match="two arguments"), opened:
        pass


def left(portals: int) -> tuple[int, int, list[str]]:
    """Return how many descriptors and objects of the client there are, and the threads beside *portals* portals."""
    gc.collect()
    kinds = Counter(type(each).__module__ for each in gc.get_objects())
    objects = sum(count for name, count in kinds.items() if name.startswith("understudy."))
    threads = sorted(each.name for each in threading.enumerate() if not each.name.startswith("Trio thread"))
    assert threads.count("understudy-portal") == portals
    return len(os.listdir("/proc/self/fd")), objects, threads


@pytest.mark.slow
def test_a_thousand_times_opened_and_closed_leaves_nothing_behind(cluster: BlockingCluster) -> None:
    def cycle(times: int) -> None:
        for number in range(times):
            with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
                if number % 10 == 0:
                    producer.send(message("Again", b"x"))

    async def cycle_of_asyncio(times: int) -> None:
        for number in range(times):
            async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
                if number % 10 == 0:
                    await producer.send(message("Again", b"x"))

    cycle(50)
    asyncio.run(cycle_of_asyncio(50))
    before = left(portals=1)  # that of the cluster
    cycle(500)
    asyncio.run(cycle_of_asyncio(500))
    after = left(portals=1)
    # What the cluster in this process keeps of former clients moves a little; one lost in each cycle would show.
    assert after[0] <= before[0] + 10 and after[1] <= before[1] + 300, (before, after)
    assert after[2] == before[2]


async def routed(consumer: aio.PullConsumer, topic: str) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic that a send has just made, once the name server knows it."""
    for _ in range(400):
        try:
            return await consumer.topic_queues(topic)
        except RouteNotFoundError:
            await asyncio.sleep(0.05)
    raise AssertionError(f"{topic} is not known within 20 s")


# --- asyncio -----------------------------------------------------------------------------------------------------


def test_asyncio_sends_listens_and_polls(cluster: BlockingCluster) -> None:
    async def main() -> None:
        got: list[bytes] = []
        all_there = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            got.append(messages[0].body)
            if len(got) == 64:
                all_there.set()

        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            await asyncio.gather(*(producer.send(message("Aio", b"%d" % number)) for number in range(64)))
        async with aio.open_push_consumer(cluster.namesrv_address, "ag", {"Aio": "*"}, listen, LISTEN):
            await asyncio.wait_for(all_there.wait(), 20)
        assert sorted(got) == sorted(b"%d" % number for number in range(64))
        async with aio.open_pull_consumer(cluster.namesrv_address, "bg", FIRST) as consumer:
            await consumer.assign(await routed(consumer, "Aio"))
            polled = 0
            while polled < 64:
                polled += len(await consumer.poll())
            with pytest.raises(RouteNotFoundError):
                await consumer.topic_queues("Missing")

    asyncio.run(main())


def test_a_cancelled_asyncio_task_cancels_its_call_and_the_consumer_goes_on(cluster: BlockingCluster) -> None:
    async def main() -> None:
        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            sent = await producer.send(message("Cancelled", b"first"))
            async with aio.open_pull_consumer(cluster.namesrv_address, "cc", FIRST) as consumer:
                await routed(consumer, "Cancelled")
                await consumer.assign([sent.queue])
                assert [each.body for each in await consumer.poll()] == [b"first"]
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(consumer.poll(60_000), 0.1)
                await producer.send(message("Cancelled", b"second"), queue=sent.queue)
                assert [each.body for each in await consumer.poll(20_000)] == [b"second"]

    asyncio.run(main())


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_cancelled_poll_had_taken_comes_with_the_next(cluster: BlockingCluster, *, committed: bool) -> None:
    async def main() -> None:
        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            topic = f"Taken{committed}"
            sent = await producer.send(message(topic, b"m0"))
            async with aio.open_pull_consumer(cluster.namesrv_address, f"tg{committed}", FIRST) as consumer:
                await routed(consumer, topic)
                await consumer.assign([sent.queue])
                polled = threading.Event()
                poll = consumer._inner.poll

                async def noted(timeout_ms: float = 5_000) -> list[ReceivedMessage]:
                    messages = await poll(timeout_ms)
                    if committed:  # as another task may, before the cancel is heard of
                        await consumer._inner.commit()
                    polled.set()
                    return messages

                consumer._inner.poll = noted  # type: ignore[method-assign]
                task = asyncio.create_task(consumer.poll(20_000))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert polled.wait(20)  # this loop stands still: it does not hear of the end before the cancel
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await consumer.commit()
                assert not await consumer.committed(sent.queue)
                assert [each.body for each in await consumer.poll(20_000)] == [b"m0"]
                await consumer.commit()
                assert await consumer.committed(sent.queue) == sent.queue_offset + 1

    asyncio.run(main())
