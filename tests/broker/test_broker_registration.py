"""What name servers hear of a broker, and what clients hear when there is none."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.broker.identity import Identity
from understudy.broker.presence import Presence
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.registration import Registration
from understudy.broker.role import Role
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.container.hosted import host_broker
from understudy.format.json_dialect import dumps, loads
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import ConnectionLostError
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.runtime.signal import Signal
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import SMALL_FILES, LocalCluster
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

TOPICS = ("one", "two", "three")


class ListeningNameServer:
    """A name server that keeps what brokers register and says when something came."""

    def __init__(self, server: RemotingServer) -> None:
        self.server = server
        self.bodies: list[dict[str, object]] = []
        self.heard = Signal()
        self.address = ""
        server.register(RequestCode.REGISTER_BROKER, self.register)
        server.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route)
        server.default(lambda connection, command: response(command, body=b"{}"))

    def route(self, connection: Connection, command: Command) -> Command:
        members = {"0": self.address} if self.address else {}
        group = {"brokerName": "broker-a", "cluster": "DefaultCluster", "brokerAddrs": members}
        return response(command, body=dumps({"brokerDatas": [group]}))

    def register(self, connection: Connection, command: Command) -> Command:
        self.address = (command.ext or {})["brokerAddr"]
        self.bodies.append(loads(command.body)["topicConfigSerializeWrapper"])
        self.heard.set()
        return response(command, 0, None, {})

    async def next_body(self) -> dict[str, object]:
        with trio.fail_after(20):
            await self.heard.wait()
        return self.bodies[-1]


@asynccontextmanager
async def name_server() -> AsyncIterator[ListeningNameServer]:
    server = RemotingServer(real_world(), "127.0.0.1", 0)
    async with open_background() as nursery:
        await server.bind()
        nursery.start_soon(server.run)
        yield ListeningNameServer(server)


@pytest.mark.covers("CU-02")
async def test_an_incremental_registration_names_its_topics_under_the_brokers_permission(tmp_path: Path) -> None:
    async with name_server() as listening, open_background() as nursery:
        address = f"127.0.0.1:{listening.server.address[1]}"
        options, _ = BrokerOptions.from_properties(
            {
                "brokerName": "broker-a",
                "listenPort": "0",
                "enableSlaveActingMaster": "true",
                "namesrvAddr": address,
                "storePathRootDir": str(tmp_path),
                "storePathCommitLog": str(tmp_path / "commitlog"),
                **SMALL_FILES,
            },
            machine=Machine("localhost", "127.0.0.1", str(tmp_path), None, address),
        )
        broker: Broker = await nursery.start(host_broker, real_world(), options)
        if not listening.bodies:  # it looks for its group before it registers
            await listening.next_body()
        assert "TBW102" in listening.bodies[0]["topicConfigTable"]  # type: ignore[operator]  # a JSON object

        for number, (permission, expected) in enumerate([(6, 6), (4, 4), (2, 2)]):
            options.broker.broker_permission = permission
            names = {f"one-{number}", f"two-{number}"}
            before = broker.topics.version
            async with open_client(real_world()) as client:
                body = b'{"topicConfigList":[%s]}' % b",".join(
                    b'{"topicName":"%s","readQueueNums":2,"writeQueueNums":2,"perm":6,"topicFilterType":"SINGLE_TAG"}'
                    % name.encode()
                    for name in sorted(names)
                )
                code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
                with trio.fail_after(20):
                    answer = await client.invoke(broker.identity.address, request(code, None, body), 10_000)
            assert 0 == answer.code, answer.remark
            seen = [body for body in listening.bodies if names <= set(body["topicConfigTable"])]  # type: ignore[call-overload]
            table = seen[-1]["topicConfigTable"]
            assert names == set(table)  # type: ignore[call-overload]
            assert {expected} == {row["perm"] for row in table.values()}  # type: ignore[attr-defined]
            version = seen[-1]["dataVersion"]
            assert broker.topics.version.to_json() == version
            assert broker.topics.version.counter > before.counter
            assert {6} == {broker.topics.rows[name].perm for name in names}  # masking changes no stored row


@pytest.mark.covers("R99")
async def test_without_its_only_broker_a_cluster_takes_nothing() -> None:
    async with LocalCluster(1) as cluster, open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
        assert "broker-a" == (await producer.send(Message("orders", b"x"))).queue.broker_name
        (hosted,) = cluster.container.brokers()
        await cluster.container.remove_broker(hosted.identity)
        with pytest.raises(ClientError):
            await producer.send(Message("orders", b"y"))


@pytest.mark.covers("R110")
async def test_brokers_are_one_group_by_their_name() -> None:
    async with LocalCluster(1) as cluster, open_client(real_world()) as client:
        await cluster.add_broker("broker-a-slave", {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": "1"})
        await cluster.add_broker("broker-b", {"brokerRole": "SLAVE", "brokerId": "1"})
        answer = await client.invoke(cluster.namesrv_address, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3000)
        groups = {name: set(row["brokerAddrs"]) for name, row in loads(answer.body)["brokerAddrTable"].items()}
        assert {"broker-a": {"0", "1"}, "broker-b": {"1"}} == groups


class ClosingClient:
    """Connections that end as soon as something is asked: there is somebody at the address, but no name server."""

    def __init__(self) -> None:
        self.on_close: list[Callable[[str, object], None]] = []
        self.asked: list[float] = []

    def current(self, address: str) -> None:
        pass

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        for callback in self.on_close:
            callback(address, self)
        raise ConnectionLostError(address, "bad frame")


async def test_whoever_hangs_up_at_each_registration_is_asked_again_after_the_retry_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    options, _ = BrokerOptions.from_properties(
        {"namesrvAddr": "127.0.0.1:80", "brokerIP1": "127.0.0.1", "storePathRootDir": "/tmp/nowhere"}
    )
    world, client = real_world(), ClosingClient()
    identity = Identity("C", "broker-a", Role("ASYNC_MASTER", 0), "127.0.0.1", 10911, "127.0.0.1:10912", "127.0.0.1")
    topics = TopicTable(world.clock.wall_ms)
    presence = Presence(world.clock, options, identity)
    registration = Registration(
        world,
        options,
        identity,
        topics,
        QueueMappings(world.clock.wall_ms),
        client,  # type: ignore[arg-type]  # asked only
        presence,
        lambda address, ha_address: None,
    )
    await registration.servers.refresh()
    with trio.move_on_after(60):
        await registration.run()
    pauses = [later - earlier for earlier, later in itertools.pairwise(client.asked)]
    assert len(pauses) >= 9
    assert min(pauses) >= 5


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_several_topics_at_the_same_time_reach_a_name_server_that_goes_by_versions(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a name server, which takes changed rows only with a version that it does not have yet
            name_server = await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            topics = cluster.brokers("c1")["a"].topics
            for queues in range(1, 30):
                # when topics are changed while the registration of another one is being made
                for topic in TOPICS:
                    topics.update([TopicConfig(topic, queues, queues)])
                    await trio.lowlevel.checkpoint()
                await trio.sleep(0.1)
                # then it has all of them
                known = {topic: name_server.table.topics.queues[topic]["a"].write_queues for topic in TOPICS}
                assert dict.fromkeys(TOPICS, queues) == known

    run_seed(scenario, seed)
