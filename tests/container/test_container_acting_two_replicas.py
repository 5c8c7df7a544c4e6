"""Two machines, each a master and the slave of the other: no majority anywhere, and a failover misses nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from container_ring import Ring, records, run

from understudy.broker.broker import Broker
from understudy.format.json_dialect import dumps, loads
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
KEYS = {
    "totalReplicas": "2",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "true",
    "enableSlaveActingMaster": "true",
    "slaveReadEnable": "true",
    "flushDiskType": "SYNC_FLUSH",
}
MASTER = {**KEYS, "brokerId": "0", "brokerRole": "SYNC_MASTER"}
SLAVE = {**KEYS, "brokerId": "1", "brokerRole": "SLAVE"}


def hosted(cluster: SimCluster, host: str, group: str) -> Broker:
    return cluster.brokers(host)[group]


async def lock(ring: Ring, broker: Broker, client_id: str) -> int:
    queue = {"topic": TOPIC, "brokerName": "left", "queueId": 0}
    body = {"clientId": client_id, "consumerGroup": "ordered", "mqSet": [queue], "onlyThisBroker": False}
    answer = await ring.ask(broker, RequestCode.LOCK_BATCH_MQ, {}, dumps(body))
    return len(loads(answer.body)["lockOKMQSet"])


@pytest.mark.covers("R28")
@pytest.mark.parametrize("power", [False, True], ids=["crash", "loss of power"])
def test_one_slave_is_enough_to_go_on_without_a_master_and_to_give_everything_back(power: bool) -> None:
    async def scenario(source: random.Random) -> None:
        received: Counter[bytes] = Counter()
        late: dict[bytes, float] = {}

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            received.update(each.body for each in batch)
            late.update((each.body, trio.current_time()) for each in batch)

        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # given two containers, two groups of two replicas each
            await cluster.start_container("c1", [{**MASTER, "brokerName": "left"}, {**SLAVE, "brokerName": "right"}])
            await cluster.start_container("c2", [{**MASTER, "brokerName": "right"}, {**SLAVE, "brokerName": "left"}])
            world, servers = cluster.client_world(), cluster.name_servers
            async with open_client(world) as client, open_producer(world, servers, "writers") as producer:
                ring = Ring(cluster, client, producer)
                slave = hosted(cluster, "c2", "left")
                for master in (hosted(cluster, "c1", "left"), hosted(cluster, "c2", "right")):
                    await until(lambda: not master.registration.isolated, 30)  # noqa: B023 - waited for in place
                    answer = await ring.ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
                    assert answer.code == 0
                await until(lambda: slave.topics.get(TOPIC) is not None, 10)
                reader = cluster.client_world("reader")
                options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, persist_ms=500)
                due: dict[bytes, float] = {}
                async with open_push_consumer(reader, servers, "readers", {TOPIC: "*"}, listen, options) as consumer:
                    wanted = set()
                    for number in range(40):
                        body = b"before %d" % number
                        await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, "left", number % 2))
                        wanted.add(body)
                    await until(lambda: wanted <= set(received), 30)
                    # and messages that nobody has read yet, and delayed ones
                    consumer.pause()
                    for number in range(20):
                        body = b"unread %d" % number
                        await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, "left", number % 2))
                        wanted.add(body)
                        body = b"delayed %d" % number
                        await producer.send(
                            Message(TOPIC, body, {"DELAY": "3"}), queue=MessageQueue(TOPIC, "left", number % 2)
                        )
                        due[body] = trio.current_time() + 10
                    await until(
                        lambda: (
                            slave.store.max_physical_offset == hosted(cluster, "c1", "left").store.max_physical_offset
                        ),
                        5,
                    )
                    # when one of the two machines is gone
                    await cluster.kill("c1", power=power)
                    await until(lambda: "schedule" in slave.services.running(), 15)
                    end = slave.store.max_physical_offset
                    consumer.resume()
                    # then what is stored is read, delayed messages arrive in time, locks are granted by the one that
                    # is left, and producers go on with the other group
                    await until(lambda: wanted <= set(received), 40)
                    await until(lambda: set(due) <= set(received), 40)
                    assert all(-0.1 < late[body] - at < (15 if power else 2) for body, at in due.items())
                    assert await lock(ring, slave, "one") == 1
                    assert await lock(ring, slave, "two") == 0
                    for number in range(10):
                        body = b"during %d" % number
                        sent = await producer.send(Message(TOPIC, body))
                        assert sent.queue.broker_name == "right"
                        wanted.add(body)
                    await until(lambda: wanted <= set(received), 30)
                    assert slave.store.max_physical_offset == end
                    await trio.sleep(2)
                    # when it is back, it has every offset, the slave stops, and both logs are one
                    await cluster.restart("c1")
                    master = hosted(cluster, "c1", "left")
                    await until(lambda: not master.registration.isolated, 30)
                    committed = [master.offsets.query("readers", TOPIC, number) for number in (0, 1)]
                    assert committed == [30, 30]
                    await until(lambda: "schedule" not in slave.services.running(), 5)
                    await trio.sleep(31)  # clients look at routes twice a minute
                    for number in range(10):
                        body = b"after %d" % number
                        await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, "left", number % 2))
                        wanted.add(body)
                    await until(lambda: wanted <= set(received), 30)
                    await trio.sleep(20)
                # then everything was delivered, and nothing twice
                assert set(received) == wanted | set(due)
                assert set(received.values()) == {1}
                await until(lambda: records(slave) == records(master), 10)

    run(scenario)
