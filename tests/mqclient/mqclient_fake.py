"""Servers that speak the protocol but keep nothing: for tests of what the client sends and does with refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from understudy.format.json_dialect import dumps
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world

Answer = Callable[[Command], Command | None]


def stored(command: Command) -> Command:
    """The answer of a broker that has stored the message."""
    ext = {
        "msgId": "7F00000100004E840000000000000107",
        "queueId": (command.ext or {}).get("e", "0"),
        "queueOffset": "9",
    }
    return response(command, 0, None, {**ext, "transactionId": "tx", "MSG_REGION": "DefaultRegion"})


@attrs.define(eq=False)
class FakeBroker:
    """A broker that answers sends as told and remembers every request."""

    name: str
    answer: Answer = stored
    address: str = ""
    requests: list[Command] = attrs.field(factory=list)
    answers: dict[int, Answer] = attrs.field(factory=dict)
    broker_id: int = 0
    permission: int = 6

    def __call__(self, connection: Connection, command: Command) -> Command | None:
        self.requests.append(command)
        if command.code in self.answers:
            return self.answers[command.code](command)
        if command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            return self.answer(command)
        return response(command)

    @property
    def sends(self) -> list[Command]:
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        return [command for command in self.requests if command.code in codes]


@attrs.define(eq=False)
class FakeCluster:
    """A name server that knows some topics on some brokers."""

    brokers: list[FakeBroker]
    topics: set[str]
    name_server: str = ""
    asked: list[str] = attrs.field(factory=list)

    def __call__(self, connection: Connection, command: Command) -> Command:
        topic = (command.ext or {})["topic"]
        self.asked.append(topic)
        if topic not in self.topics:
            return response(command, 17, f"No topic route info in name server for the topic: {topic}")
        body = {
            "brokerDatas": [
                {"brokerName": broker.name, "cluster": "C", "brokerAddrs": {str(broker.broker_id): broker.address}}
                for broker in self.brokers
            ],
            "queueDatas": [
                {"brokerName": broker.name, "readQueueNums": 8, "writeQueueNums": 8, "perm": broker.permission}
                for broker in self.brokers
            ],
        }
        return response(command, body=dumps(body))


@asynccontextmanager
async def open_fake(*brokers: FakeBroker, topics: tuple[str, ...] = ("T",)) -> AsyncIterator[FakeCluster]:
    """Run *brokers* and a name server that has *topics* on all of them."""
    world = real_world()
    cluster = FakeCluster(list(brokers), set(topics))
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            server = RemotingServer(world, "127.0.0.1", 0)
            server.default(broker)
            broker.address = f"127.0.0.1:{(await server.bind())[1]}"
            nursery.start_soon(server.run)
        server = RemotingServer(world, "127.0.0.1", 0)
        server.default(cluster)
        cluster.name_server = f"127.0.0.1:{(await server.bind())[1]}"
        nursery.start_soon(server.run)
        yield cluster
        nursery.cancel_scope.cancel()
