"""A slave that acts with a part of its master's log: what it lacks is waited for, not asked for again and again."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from container_ring import Ring, records, run

from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

TOPIC = "orders"
KEYS = {"brokerName": "g", "totalReplicas": "2", "enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
BIG = random.Random(1).randbytes(60 * 1024)
"""Four of these fill a file of the log; they cannot be compressed."""


@pytest.mark.parametrize("queue_id", [0, 1], ids=["queue begins later there", "queue is not there"])
def test_consumers_of_what_an_acting_slave_lacks_wait_and_get_it_from_the_master(queue_id: int) -> None:
    async def scenario(source: random.Random) -> None:
        received: list[bytes] = []

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            received.extend(each.body[:5] for each in batch)

        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{**KEYS, "brokerId": "0", "brokerRole": "ASYNC_MASTER"}])
            world, servers = cluster.client_world(), cluster.name_servers
            async with open_client(world) as client, open_producer(world, servers, "writers") as producer:
                ring = Ring(cluster, client, producer)
                master = cluster.brokers("c1")["g"]
                assert (await ring.ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))).code == 0
                # given a master whose first file holds messages of two queues, its last file some of one
                for number in (0, 1, 0, 1, 0, 1, 0, 0):
                    await producer.send(Message(TOPIC, b"first" + BIG), queue=MessageQueue(TOPIC, "g", number))
                await producer.send(Message(TOPIC, b"later"), queue=MessageQueue(TOPIC, "g", 0))
                # a group that has read one message
                await ring.commit(master, 1, queue_id=queue_id)
                # and a slave that has copied the last file only
                await cluster.start_container("c2", [{**KEYS, "brokerId": "1", "brokerRole": "SLAVE"}])
                slave = cluster.brokers("c2")["g"]
                assert slave.slave_sync is not None
                await until(lambda: slave.slave_sync.synced and slave.store.max_physical_offset > 0, 20)  # type: ignore[union-attr]
                assert slave.store.min_physical_offset > 0
                # when the slave acts and the group goes on
                await cluster.kill("c1")
                await until(lambda: "schedule" in slave.services.running(), 20)
                options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
                reader = cluster.client_world("reader")
                async with open_push_consumer(reader, servers, "readers", {TOPIC: "*"}, listen, options):
                    await trio.sleep(5)
                    before = slave.stats.get_missed
                    await trio.sleep(20)
                    # then it pulls now and then, and skips nothing
                    assert slave.stats.get_missed - before < 20
                    assert slave.offsets.query("readers", TOPIC, queue_id) == 1
                    # and gets everything when the master is back
                    await cluster.restart("c1")
                    wanted = {0: 4, 1: 2}[queue_id]
                    await until(lambda: received.count(b"first") >= wanted, 60)

    run(scenario)


def test_delayed_messages_that_an_acting_slave_lacks_are_delivered_by_the_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{**KEYS, "brokerId": "0", "brokerRole": "ASYNC_MASTER"}])
            await until(lambda: not cluster.brokers("c1")["g"].registration.isolated, 60)
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                # given a master whose first file holds a delayed message, its last file another one of that level
                await producer.send(Message(TOPIC, b"delayed", {"DELAY": "5"}))
                for _ in range(5):
                    await producer.send(Message(TOPIC, BIG))
                await producer.send(Message(TOPIC, b"delayed", {"DELAY": "5"}))
                await cluster.start_container("c2", [{**KEYS, "brokerId": "1", "brokerRole": "SLAVE"}])
                slave = cluster.brokers("c2")["g"]
                await until(lambda: slave.slave_sync.synced and slave.store.max_physical_offset > 0, 20)
                assert slave.store.min_physical_offset > 0
                # when the slave acts while both fall due
                await cluster.kill("c1")
                await until(lambda: "schedule" in slave.services.running(), 20)
                await trio.sleep(70)
                # then it passes none
                assert slave.schedule_progress.offsets.get(5, 0) == 0
                await cluster.restart("c1")
                await until(lambda: cluster.brokers("c1")["g"].schedule_progress.offsets.get(5) == 2, 60)
                found = [record.body for record in records(cluster.brokers("c1")["g"])]
                assert found.count(b"delayed") == 2

    run(scenario)
