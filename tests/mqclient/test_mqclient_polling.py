"""Consumers that ask for messages themselves."""

from __future__ import annotations

import pytest
import trio
from mqclient_rig import FIRST, TOPIC, send_numbered

from understudy.mqclient.errors import BrokerError, InvalidMessageError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.producer import Producer
from understudy.mqclient.pull import PullStatus
from understudy.mqclient.pull_consumer import PullConsumerOptions, open_pull_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster


async def test_polling_shares_seeks_and_commits(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 20)
    options = PullConsumerOptions(consume_from=FIRST)
    servers = cluster.namesrv_address
    async with open_pull_consumer(world, servers, "pull", options) as consumer:
        await consumer.subscribe({TOPIC: "*"})
        got: list[ReceivedMessage] = []
        with trio.fail_after(20):
            while len(got) < 20:
                got += await consumer.poll(1_000)
        await consumer.commit()
        stored = [await consumer.committed(queue) for queue in consumer.queues]
        queue = next(queue for queue in consumer.queues if queue == got[0].queue)
        await consumer.seek(queue, 0)
        again = await consumer.poll(5_000)
    assert sum(offset or 0 for offset in stored) == 20
    assert again[0].queue_offset == 0 and again[0].queue == queue


async def test_assigned_queues_are_read_whoever_else_reads_them(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 6, queue_id=3)
    options = PullConsumerOptions(consume_from=FIRST, hold_ms=100)
    queue = MessageQueue(TOPIC, "broker-a", 3)
    async with open_pull_consumer(world, cluster.namesrv_address, "assign", options) as consumer:
        await consumer.assign([queue], "TagA")
        assert [got.body for got in await consumer.poll()] == [b"m1", b"m3", b"m5"]
        consumer.pause([queue])
        consumer.resume([queue])
        with pytest.raises(InvalidMessageError, match="assigned by hand already"):
            await consumer.subscribe({TOPIC: "*"})
        with pytest.raises(InvalidMessageError, match="assign or subscribe first"):
            await consumer.seek(MessageQueue(TOPIC, "broker-a", 0), 0)
        assert (await consumer.pull(queue, 2)).messages[0].body == b"m2"
        assert (await consumer.pull(queue, 6)).status is PullStatus.NOTHING_NEW
        assert (await consumer.pull(queue, 99)).status is PullStatus.OFFSET_ILLEGAL
        with pytest.raises(BrokerError):
            await consumer.pull(MessageQueue(TOPIC, "broker-a", 77), 0)
