"""Routes of topics with very many queues or brokers are read beside the event loop, wherever a broker asks for one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from understudy.broker.admin.assignment import AssignmentAdmin, AssignmentParts
from understudy.broker.admin.cluster_queues import ClusterQueues
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.catalog import Catalog
from understudy.broker.node import Node
from understudy.container.escape.parts import EscapeParts
from understudy.container.escape.routes import Routes
from understudy.container.log_topics import LogTopics
from understudy.format.json_dialect import dumps
from understudy.remoting.bodies import LARGE_BODY_BYTES
from understudy.remoting.command import Command, request
from understudy.runtime.load import Load
from understudy.testkit.sim.clock import VirtualClock

T = TypeVar("T")


class Noted:
    """Threads that note how much work they were given."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.count += 1
        return function()


class NameServer:
    """Answers every question with one route."""

    def __init__(self, groups: int) -> None:
        each = {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
        names = [f"broker-{number:05}" for number in range(groups)]
        self.body = dumps(
            {
                "brokerDatas": [
                    {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": "10.0.0.1:10911"}} for name in names
                ],
                "queueDatas": [{**each, "brokerName": name} for name in names],
            }
        )

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        return Command(0, "JAVA", 493, command.opaque, 1, None, None, self.body)


def world(threads: Noted) -> Any:
    return SimpleNamespace(clock=VirtualClock(), threads=threads, load=Load())


async def assignment(client: NameServer, threads: Noted) -> int:
    nothing = cast(Any, SimpleNamespace(get=lambda *key: None))
    config = BrokerConfig(server_load_balancer_enable=False)
    node = Node(cast(Any, None), cast(Any, SimpleNamespace(broker=config)), world(threads))
    queues = ClusterQueues(node, nothing, cast(Any, client), lambda: ["n:1"])
    admin = AssignmentAdmin(AssignmentParts(node, Catalog(nothing, nothing, nothing), nothing, nothing, queues))
    answer = await admin.query(cast(Any, None), request(400, None, b'{"topic":"T","consumerGroup":"g"}'))
    return answer.body.count(b"queueId") // 4


async def escape(client: NameServer, threads: Noted) -> int:
    nothing = cast(Any, None)
    name_servers = ["n:1"]
    node = Node(nothing, cast(Any, SimpleNamespace(broker=BrokerConfig())), world(threads))
    parts = EscapeParts(node, cast(Any, client), lambda: name_servers, nothing, nothing, ())
    route = await Routes(parts).route("T")
    assert route is not None
    return len(route.brokers)


async def log_topic(client: NameServer, threads: Noted) -> int:
    broker = SimpleNamespace(
        registration=SimpleNamespace(name_servers=["n:1"]),
        client=client,
        world=world(threads),
        identity=SimpleNamespace(name="broker-00000"),
        store=SimpleNamespace(batch_topics=frozenset[str](), queues=list[tuple[str, int]]),
    )
    row = await LogTopics(cast(Any, broker))._row("T", 1)
    assert row is not None
    assert row.read_queue_nums == 4
    return client.body.count(b'"brokerName"') // 2


@pytest.mark.parametrize("ask", [assignment, escape, log_topic])
@pytest.mark.parametrize(("groups", "beside"), [(2, 0), (2_000, 1)])
async def test_a_large_route_is_read_in_a_thread(
    ask: Callable[[NameServer, Noted], Any], groups: int, beside: int
) -> None:
    client, threads = NameServer(groups), Noted()
    assert (len(client.body) >= LARGE_BODY_BYTES) is bool(beside)
    assert (await ask(client, threads), threads.count) == (groups, beside)
