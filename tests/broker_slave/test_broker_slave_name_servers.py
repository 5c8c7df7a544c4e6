"""Three name servers, one of them slow: what each of them knows decides for itself, and nobody waits for the slow."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
import trio
from slave_rig import GROUP, run

from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import dumps, loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

SLOW_SECONDS = 60.0
QUESTION_SECONDS = 3.0


class StubNameServer:
    """Answers whether a broker's topics have changed as it was told to, and notes what it hears.

    Args:
        changed: the answer to the question for versions.
        slow_seconds: how long every answer takes.
    """

    def __init__(self, cluster: SimCluster, host: str, changed: bool, slow_seconds: float = 0.0) -> None:
        self.heard: dict[int, list[tuple[float, Command]]] = defaultdict(list)
        self._changed = changed
        self._slow_seconds = slow_seconds
        self.address = f"{cluster.address(host)}:9876"
        self.server = RemotingServer(cluster.client_world(host), "0.0.0.0", 9876, name=f"stub {host}")
        for code in (RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER):
            self.server.register_async(code, self._answer)

    async def _answer(self, connection: Connection, command: Command) -> Command:
        self.heard[command.code].append((trio.current_time(), command))
        if command.code != RequestCode.UNREGISTER_BROKER:
            await trio.sleep(self._slow_seconds)
        if command.code == RequestCode.QUERY_DATA_VERSION:
            version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
            return response(command, body=dumps(version), ext={"changed": str(self._changed).lower()})
        return response(command, ext={})

    def registered(self, topic: str = "TBW102") -> list[float]:
        """Return when the broker registered *topic* here."""
        return [
            at
            for at, command in self.heard[RequestCode.REGISTER_BROKER]
            if topic in loads(command.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
        ]


@pytest.mark.covers("EB-15")
def test_each_name_server_is_asked_what_it_knows_and_a_slow_one_holds_up_nobody() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster, open_background() as nursery:
            behind = StubNameServer(cluster, "n1", changed=True)
            current = StubNameServer(cluster, "n2", changed=False)
            slow = StubNameServer(cluster, "n3", changed=True, slow_seconds=SLOW_SECONDS)
            for stub in (behind, current, slow):
                await stub.server.bind()
                nursery.start_soon(stub.server.run)
            # given a broker that registers only where something has changed
            listed = ";".join(stub.address for stub in (slow, behind, current))
            began = trio.current_time()
            keys = {"forceRegister": "false", "namesrvAddr": listed, "brokerPermission": "6"}
            await cluster.start_container("c1", [{**GROUP, **keys}])
            # then all three are asked at the same time, with its version
            broker = cluster.brokers("c1")["broker-a"]
            await until(lambda: behind.registered() != [], 1)
            for stub in (behind, current, slow):
                at, question = stub.heard[RequestCode.QUERY_DATA_VERSION][0]
                assert at - began < 0.5
                assert loads(question.body).keys() == {"counter", "stateVersion", "timestamp"}
            # and it registers where the answer says so, at once, and not where nothing has changed
            assert behind.registered()[0] - began < 0.5
            assert current.registered() == []
            # when the slow one has not answered, it is not believed to know anything once its time is over
            await until(lambda: slow.registered() != [], 2 * QUESTION_SECONDS)
            assert QUESTION_SECONDS <= slow.registered()[0] - began < QUESTION_SECONDS + 0.5
            # and while it still does not answer, a new topic is known to the others at once
            for number in range(3):
                await trio.sleep(4)
                topic = f"new-{number}"
                made = trio.current_time()
                broker.topics.update([TopicConfig(topic)])
                await until(lambda: behind.registered(topic) and current.registered(topic), 10)  # noqa: B023
                assert max(behind.registered(topic)[0], current.registered(topic)[0]) - made < QUESTION_SECONDS + 0.5
            # and it hears of everything when it answers again
            slow._slow_seconds = 0.0
            await until(lambda: slow.registered("new-2") != [], 60)
            await cluster.kill("c1")
            nursery.cancel_scope.cancel()

    run(scenario)


@pytest.mark.covers("EB-15")
def test_a_name_server_that_was_slow_costs_a_broker_no_registration() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster, open_background() as nursery:
            slow = StubNameServer(cluster, "n2", changed=True, slow_seconds=SLOW_SECONDS)
            await slow.server.bind()
            nursery.start_soon(slow.server.run)
            # given a broker that has to register at a slow name server and at one that answers
            listed = f"{slow.address};{cluster.address('n1')}:9876"
            await cluster.start_container("c1", [{**GROUP, "namesrvAddr": listed, "forceRegister": "true"}])
            first = await cluster.start_name_server("n1")
            await until(lambda: "broker-a" in first.table.groups, 10)
            assert slow.heard[RequestCode.REGISTER_BROKER] != []
            # when the one that answers forgets it, or starts again with nothing
            await cluster.kill("n1")
            await cluster.restart("n1")
            # then it is registered there again in seconds
            server = cluster.host("n1").name_server
            assert server is not None
            await until(lambda: "broker-a" in server.table.groups, 10)
            async with open_client(cluster.client_world()) as client:
                question = request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await client.invoke(cluster.name_servers, question, 3_000)
                assert "broker-a" in loads(answer.body)["brokerAddrTable"]
            await cluster.kill("c1")
            nursery.cancel_scope.cancel()

    run(scenario)
