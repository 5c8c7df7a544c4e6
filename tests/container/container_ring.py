"""A ring of three containers in virtual time, and what is asked of it and sent to it; for tests of failovers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from understudy.broker.broker import Broker
from understudy.format.json_dialect import dumps, loads
from understudy.format.record import Record, decode_records
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.testkit.drills.ring import THREE
from understudy.testkit.drills.ring import Ring as RingShape
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

T = TypeVar("T")
TOPIC = "orders"
HOSTS = ("c1", "c2", "c3", "n1")


class Ring:
    def __init__(
        self, cluster: SimCluster, client: RemotingClient, producer: Producer, shape: RingShape = THREE
    ) -> None:
        self.shape = shape
        self.cluster = cluster
        self.client = client
        self.producer = producer

    def broker(self, group: str, broker_id: int) -> Broker:
        broker = self.shape.broker_of(self.cluster, group, broker_id)
        assert broker is not None, f"{group} {broker_id} does not run"
        return broker

    async def ask(
        self, broker: Broker, code: int, ext: dict[str, str] | None = None, body: bytes = b"", timeout_ms: int = 5_000
    ) -> Command:
        return await self.client.invoke(broker.identity.address, request(code, ext, body), timeout_ms)

    async def info(self, broker: Broker) -> dict[str, str]:
        table = loads((await self.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        return dict(table)

    async def topic_everywhere(self, topic: str = TOPIC) -> None:
        for group in self.shape.groups:
            made = await self.ask(self.broker(group, 0), RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
            assert made.code == 0

    async def commit(self, broker: Broker, offset: int, group: str = "readers", queue_id: int = 0) -> None:
        """Commit as a client does; beyond the end of a master's queue, where none may, as if messages were there."""
        broker.groups.get(group)
        if not broker.role.is_slave and offset > broker.store.max_queue_offset(TOPIC, queue_id):
            broker.offsets.commit(group, TOPIC, queue_id, offset)
            return
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
        answer = await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == 0, answer.remark

    async def online(self) -> None:
        """Wait until every broker of the ring is registered and every slave has copied its master."""

        def ready() -> bool:
            wanted = self.shape.replicas
            for group in self.shape.groups:
                for broker_id in range(wanted):
                    broker = self.shape.broker_of(self.cluster, group, broker_id)
                    if broker is None or broker.registration.isolated:
                        return False
                    if len(broker.member_group.members or {}) < wanted:
                        return False
                    if broker.role.is_slave and not broker.slave_sync.synced:
                        return False
            return True

        await until(ready, 60)


@asynccontextmanager
async def open_ring(
    source: random.Random,
    extra: dict[str, str] | None = None,
    name_servers: Sequence[str] = ("n1",),
    replicas: int = 3,
) -> AsyncIterator[Ring]:
    shape = RingShape(replicas, len(name_servers))
    async with SimCluster(source) as cluster:
        await shape.start(cluster, extra)
        async with (
            open_client(cluster.client_world()) as client,
            open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
        ):
            ring = Ring(cluster, client, producer, shape)
            await ring.online()
            await ring.topic_everywhere()
            await trio.sleep(4)  # slaves look at topics every three seconds
            yield ring


@asynccontextmanager
async def reading(ring: Ring) -> AsyncIterator[list[ReceivedMessage]]:
    """Consume the topic from its beginning; yield the list that everything received is added to."""
    received: list[ReceivedMessage] = []

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        received.extend(batch)

    world, servers = ring.cluster.client_world("reader"), ring.cluster.name_servers
    options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options):
        yield received


def run(scenario: Callable[[random.Random], Awaitable[T]], seed: int = 1) -> T:
    return run_seed(scenario, seed)


def records(broker: Broker, topic: str = TOPIC) -> list[Record]:
    found = []
    for name, queue_id in sorted(broker.store.queues()):
        if name == topic:
            offset = 0
            while (read := broker.store.get(name, queue_id, offset, 32, 1 << 20)).count:
                found += [record for part in read.parts for record in decode_records(part)]
                offset = read.next_begin_offset
    return found


async def lock(ring: Ring, broker: Broker, client_id: str, queues: list[int], code: int = 41) -> list[int]:
    answer = await asked_to_lock(ring, broker, client_id, queues, code)
    assert answer.code == 0, answer.remark
    return sorted(each["queueId"] for each in loads(answer.body)["lockOKMQSet"]) if code == 41 else []


async def asked_to_lock(ring: Ring, broker: Broker, client_id: str, queues: list[int], code: int = 41) -> Command:
    listed = [{"topic": TOPIC, "brokerName": broker.identity.name, "queueId": number} for number in queues]
    body = {"clientId": client_id, "consumerGroup": "readers", "mqSet": listed, "onlyThisBroker": False}
    return await ring.ask(broker, code, {}, dumps(body))


async def assert_unclear(ring: Ring, broker: Broker, client_id: str, queues: list[int]) -> None:
    """Ask for *queues*, some of which the client holds, where nobody can say whether it still does."""
    answer = await asked_to_lock(ring, broker, client_id, queues)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "stays locked until it runs out" in (answer.remark or "")


async def send_delayed(ring: Ring, count: int, level: int, *, pause_seconds: float = 0.0) -> dict[str, float]:
    """Send to the master of g0; return keys and when they were sent."""
    sent = {}
    for number in range(count):
        message = Message(TOPIC, b"%d" % number, {"DELAY": str(level)})
        result = await ring.producer.send(message, queue=MessageQueue(TOPIC, "g0", number % 2))
        sent[result.message_id] = trio.current_time()
        await trio.sleep(pause_seconds)
    return sent


async def send_raw(
    ring: Ring, broker: Broker, body: bytes, properties: str, topic: str = TOPIC, queue_id: int = 0, flags: int = 0
) -> int:
    """Send to *broker* whatever routes say; return its answer."""
    values = ("p", topic, "TBW102", "4", str(queue_id), str(flags), "1", "0", properties, "0", "false", "false")
    command = request(RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghijkm", values, strict=True)), body)
    return (await ring.client.invoke(broker.identity.address, command, 10_000)).code


def delivered(ring: Ring) -> Counter[str]:
    """Return how often each key lies in the topic, over all masters."""
    return Counter(
        record.properties["UNIQ_KEY"]
        for group in ring.shape.groups
        if (master := ring.shape.broker_of(ring.cluster, group, 0)) is not None
        for record in records(master)
    )


def acting(ring: Ring) -> list[Broker]:
    shape = ring.shape
    slaves = [shape.broker_of(ring.cluster, group, id_) for group in shape.groups for id_ in range(1, shape.replicas)]
    return [each for each in slaves if each is not None and "schedule" in each.services.running()]


async def route_of(ring: Ring, topic: str) -> dict[str, Any]:
    question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer: Command = await ring.client.invoke(ring.cluster.name_servers, question, 3_000)
    assert answer.code == 0, answer.remark
    return dict(loads(answer.body))


async def drop(ring: Ring, broker: Broker, server: str = "n1") -> None:
    """Let a name server drop *broker* now: something on its own host signs it off, nobody else may."""
    own = broker.identity
    world = ring.cluster.client_world(ring.shape.container_of(own.name, own.broker_id))
    ext = {
        "clusterName": own.cluster,
        "brokerName": own.name,
        "brokerAddr": own.address,
        "brokerId": str(own.broker_id),
    }
    command = request(RequestCode.UNREGISTER_BROKER, ext)
    async with open_client(world) as client:
        answer = await client.invoke(f"{ring.cluster.address(server)}:9876", command, 3_000)
    assert answer.code == 0, answer.remark


def members_at(ring: Ring, server: str) -> list[int]:
    name_server = ring.cluster.host(server).name_server
    assert name_server is not None
    return sorted(name_server.table.groups["g0"].members)


def cut_between(ring: Ring, one: str, two: str) -> Callable[[], None]:
    """Cut the link between two hosts; return what mends it."""
    pairs = [(ring.cluster.address(near), ring.cluster.address(far)) for near, far in ((one, two), (two, one))]
    for pair in pairs:
        ring.cluster.network.cut(*pair)

    def mend() -> None:
        for pair in pairs:
            ring.cluster.network.mend(*pair)

    return mend
