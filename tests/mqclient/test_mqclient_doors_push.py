"""Push consumers of both doors while they run: other subscriptions, progress that is stored, and how much is pulled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.errors import InvalidMessageError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pull_consumer import PullConsumerOptions
from understudy.mqclient.window import WindowLimits
from understudy.testkit.blocking import BlockingCluster, local_cluster

LISTEN = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
LIMIT_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with local_cluster() as running:
        for topic in ("First", "Second", "Many"):
            running.make_topic(topic, queues=1)
        yield running


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def stored(cluster: BlockingCluster, group: str, topic: str) -> int | None:
    """Return what the broker has of the group's progress in the only queue of *topic*."""
    with blocking.open_pull_consumer(cluster.namesrv_address, group, PullConsumerOptions()) as consumer:
        (queue,) = consumer.topic_queues(topic)
        return consumer.committed(queue)


def test_a_blocking_push_consumer_takes_and_gives_up_topics_and_stores_its_progress(cluster: BlockingCluster) -> None:
    got: list[str] = []

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        got.append(messages[0].topic)

    with (
        blocking.open_producer(cluster.namesrv_address, "pg") as producer,
        blocking.open_push_consumer(cluster.namesrv_address, "bp", {"First": "*"}, listen, LISTEN) as consumer,
    ):
        producer.send(message("First", b"1"))
        assert wait_for(lambda: got == ["First"])
        with pytest.raises(InvalidMessageError, match="names no tag"):
            consumer.subscribe("Second", "||")
        consumer.subscribe("Second")
        producer.send(message("Second", b"2"))
        assert wait_for(lambda: got == ["First", "Second"])
        consumer.unsubscribe("First")
        assert wait_for(lambda: "First" not in {queue.topic for queue in consumer.queues})
        consumer.persist()
        assert [stored(cluster, "bp", topic) for topic in ("First", "Second")] == [1, 1]


def test_an_asyncio_push_consumer_takes_and_gives_up_topics_and_stores_its_progress(cluster: BlockingCluster) -> None:
    async def main() -> list[int | None]:
        came: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            await came.put(messages[0].body)

        async with (
            aio.open_producer(cluster.namesrv_address, "pg") as producer,
            aio.open_push_consumer(cluster.namesrv_address, "ap", {"Second": "TagA"}, listen, LISTEN) as consumer,
        ):
            await consumer.subscribe("Second", "TagB")
            sent = await producer.send(message("Second", b"other", tag="TagB"))
            assert await asyncio.wait_for(came.get(), LIMIT_S) == b"other"
            await consumer.unsubscribe("Second")
            assert await asyncio.to_thread(wait_for, lambda: "Second" not in {queue.topic for queue in consumer.queues})
            await consumer.persist()
            return [sent.queue_offset + 1, await asyncio.to_thread(stored, cluster, "ap", "Second")]

    wanted, found = asyncio.run(main())
    assert wanted == found


def test_listeners_that_are_slow_bound_what_is_pulled(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        producer.send_batches([message("Many", b"x") for _ in range(200)])
    busy, most, begun, goes_on = 0, 0, 0, threading.Event()
    lock = threading.Lock()

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal busy, most, begun
        with lock:
            busy, begun = busy + 1, begun + 1
            most = max(most, busy)
        goes_on.wait(LIMIT_S)
        with lock:
            busy -= 1

    options = PushConsumerOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, consume_tasks=3, pull_batch=4, limits=WindowLimits(messages=8)
    )
    with blocking.open_push_consumer(cluster.namesrv_address, "slow", {"Many": "*"}, listen, options) as consumer:
        assert wait_for(lambda: begun == 3)
        (held,) = [held for queue, held in consumer._inner.held.items() if queue.topic == "Many"]
        assert wait_for(lambda: len(held.window) > 8)
        assert (most, len(held.window) <= 12) == (3, True)
        goes_on.set()
        assert wait_for(lambda: begun == 200)
    assert most == 3
