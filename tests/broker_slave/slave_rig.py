"""A simulated pair of a master and its slave, and a name server that listens to what brokers tell it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from understudy.broker.admin.topics import TopicList, topic_list_parts
from understudy.broker.broker import Broker
from understudy.format.json_dialect import dumps, loads
from understudy.format.record import decode_records
from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer, open_producer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

GROUP = {"brokerName": "broker-a"}
SLAVE = {**GROUP, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
T = TypeVar("T")


class Pair:
    """A name server, a master on c1 and a slave on c2."""

    def __init__(self, cluster: SimCluster, client: RemotingClient, producer: Producer) -> None:
        self.cluster = cluster
        self.client = client
        self.producer = producer

    @property
    def master(self) -> Broker:
        return self.cluster.brokers("c1")["broker-a"]

    @property
    def slave(self) -> Broker:
        return self.cluster.brokers("c2")["broker-a"]

    async def send(self, count: int, topic: str = "orders", timeout_ms: int = 10_000) -> None:
        for number in range(count):
            await self.producer.send(Message(topic, b"body %d" % number, {"KEYS": f"k{number}"}))

    async def ask(self, broker: Broker, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.invoke(broker.identity.address, request(code, ext, body), 5_000)

    async def commit(
        self, offset: int, group: str = "readers", queue_id: int = 0, broker: Broker | None = None
    ) -> None:
        """Commit as a client does; at the master, unless *broker* is given.

        Beyond the end of a master's queue, where no client may: as if messages had been there.
        """
        at = broker or self.master
        at.groups.get(group)
        if not at.role.is_slave and offset > at.store.max_queue_offset("orders", queue_id):
            at.offsets.commit(group, "orders", queue_id, offset)
            return
        ext = {"consumerGroup": group, "topic": "orders", "queueId": str(queue_id), "commitOffset": str(offset)}
        assert (await self.ask(broker or self.master, RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0

    async def in_step(self, messages: int, offset: int) -> None:
        """Send messages, commit, and wait until the slave knows the commit, too."""
        await self.send(messages)
        await self.commit(offset)
        await until(lambda: self.slave.offsets.query("readers", "orders", 0) == offset, 5)


@asynccontextmanager
async def open_pair(
    source: random.Random, master: dict[str, str] | None = None, slave: dict[str, str] | None = None
) -> AsyncIterator[Pair]:
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{**GROUP, **(master or {})}])
        await cluster.start_container("c2", [{**SLAVE, **(slave or {})}])
        async with (
            open_client(cluster.client_world()) as client,
            open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
        ):
            yield Pair(cluster, client, producer)


def bodies(broker: Broker, topic: str = "orders") -> list[bytes]:
    found = []
    for name, queue_id in sorted(broker.store.queues()):
        if name == topic:
            offset = 0
            while (read := broker.store.get(name, queue_id, offset, 32, 1 << 20)).count:
                found += [record.body for part in read.parts for record in decode_records(part)]
                offset = read.next_begin_offset
    return sorted(found)


def log_of(broker: Broker) -> bytes:
    """Return the whole log of *broker*, which begins at 0."""
    found = bytearray()
    while len(found) < broker.store.max_physical_offset:
        found += broker.store.slice(len(found), broker.store.max_physical_offset - len(found))
    return bytes(found)


def run(scenario: Callable[[random.Random], Awaitable[T]], seed: int = 1) -> T:
    return run_seed(scenario, seed)


@asynccontextmanager
async def open_listening_name_server(
    cluster: SimCluster, host: str, hear: Callable[[Command], None]
) -> AsyncIterator[str]:
    """Run a name server that answers everything with nothing and tells what it hears; give its address."""

    def answer(connection: Connection, command: Command) -> Command:
        hear(command)
        return response(command, body=b"{}", ext={})

    server = RemotingServer(cluster.client_world(host), "0.0.0.0", 9876, name="name server that listens")
    server.default(answer)
    async with open_background() as nursery:
        await server.bind()
        nursery.start_soon(server.run)
        yield f"{cluster.address(host)}:9876"
        nursery.cancel_scope.cancel()


def change_topics_answer(master: Broker, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Have *master* answer with its topics as *change* makes them, as a master of another kind might."""
    handlers = TopicList(topic_list_parts(master))

    async def changed(connection: Connection, command: Command) -> Command:
        answer = await handlers.get_all(connection, command)
        content = change(loads(answer.body))
        answer.body = dumps(content)
        answer.ext = {**(answer.ext or {}), "totalTopicNum": str(len(content["topicConfigTable"]))}
        return answer

    master.server.register_async(RequestCode.GET_ALL_TOPIC_CONFIG, changed)
