"""When brokers that are not heard leave the routes, and which members of their group are told, in virtual time."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from namesrv_wire import registration_body

from understudy.namesrv.config import read_config
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import ONEWAY_BIT, Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.background import open_background
from understudy.runtime.properties import parse_properties
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import eventually, until

TOPIC = "T1"
SCAN_SECONDS = 5.0
LOOK_SECONDS = 0.1
STUB_PORT = 10911

Notice = dict[str, str]


class Desk:
    """Somebody who registers brokers and asks for routes over one connection."""

    def __init__(self, client: RemotingClient, server: str) -> None:
        self.client = client
        self.server = server

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.invoke(self.server, request(code, ext, body), 3_000)

    async def register(self, broker_id: int, address: str, name: str = "a", timeout_ms: int | None = None) -> None:
        ext = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "C",
            "haServerAddr": f"{address}1",
            "brokerId": str(broker_id),
            "enableActingMaster": "true",
        }
        if timeout_ms is not None:
            ext["heartbeatTimeoutMillis"] = str(timeout_ms)
        answer = await self.ask(103, ext, registration_body({TOPIC: 6, "T2": 6}))
        assert answer.code == 0, answer.remark

    async def beat_for_ever(self, address: str, name: str = "a") -> None:
        while True:
            ext = {"brokerName": name, "brokerAddr": address, "clusterName": "C"}
            await self.client.invoke_oneway(self.server, request(904, ext, oneway=True), 1_000)
            await trio.sleep(1)

    async def listed(self, topic: str = TOPIC) -> dict[str, list[str]]:
        """Return the addresses that the route of *topic* shows, by broker name."""
        answer = await self.ask(105, {"topic": topic})
        if answer.code == 17:
            return {}
        assert answer.code == 0, answer.remark
        body: dict[str, Any] = json.loads(answer.body)
        return {each["brokerName"]: sorted(each["brokerAddrs"].values()) for each in body["brokerDatas"]}

    async def until_gone(self, address: str, seconds: float) -> float:
        """Wait until no route shows *address*; return how long it took."""

        async def gone() -> bool:
            return all(address not in addresses for addresses in (await self.listed()).values())

        return await eventually(gone, seconds, LOOK_SECONDS)


@asynccontextmanager
async def open_desk(cluster: SimCluster, host: str = "desk") -> AsyncIterator[Desk]:
    async with open_client(cluster.client_world(host)) as client:
        yield Desk(client, cluster.name_servers)


@asynccontextmanager
async def stub_member(cluster: SimCluster, host: str) -> AsyncIterator[tuple[str, list[Notice]]]:
    """Run a broker that only listens; yield its address and the notices it got."""
    told: list[Notice] = []

    def note(_: Connection, command: Command) -> None:
        assert command.flag & ONEWAY_BIT
        told.append(dict(command.ext or {}))

    server = RemotingServer(cluster.client_world(host), "0.0.0.0", STUB_PORT, name=f"stub {host}")
    server.register(905, note)
    await server.bind()
    async with open_background() as nursery:
        nursery.start_soon(server.run)
        yield f"{cluster.address(host)}:{STUB_PORT}", told
        nursery.cancel_scope.cancel()


def run(scenario: Callable[[SimCluster], Awaitable[None]], **settings: object) -> None:
    """Run *scenario* beside one name server with *settings*."""

    async def whole(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1", **settings)
            await scenario(cluster)

    run_seed(whole, 1)


# --- silence -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("R33", "R35")
def test_a_frozen_broker_leaves_the_route_after_its_timeout_and_comes_back_by_itself() -> None:
    async def scenario(cluster: SimCluster) -> None:
        # given a broker with the default timeout of ten seconds
        await cluster.start_container("c1", [{"brokerName": "a", "enableSlaveActingMaster": "true"}])
        async with open_desk(cluster) as desk:
            address = cluster.brokers("c1")["a"].identity.address
            await trio.sleep(5)
            assert await desk.listed("TBW102") == {"a": [address]}
            server = cluster.host("n1").network
            held = {key for key, stream in server.streams.items() if stream.peer[0] == cluster.address("c1")}
            assert held
            # when its process is stopped, so that it says nothing and its connection stays as it is
            stopped = Accident(cluster, Fault("pause", "c1"), ("c1", "n1", "desk"))
            await stopped.begin()

            async def gone() -> bool:
                assert held <= server.streams.keys() or await desk.listed("TBW102") == {}
                return await desk.listed("TBW102") == {}

            took = await eventually(gone, 20, LOOK_SECONDS)
            # then the route loses it when its last heartbeat is ten seconds old, a look every five seconds at most
            assert 10 - 1.1 <= took <= 10 + SCAN_SECONDS
            # and when it goes on, it is back
            await stopped.end()

            async def back() -> bool:
                return await desk.listed("TBW102") == {"a": [address]}

            assert await eventually(back, 10, LOOK_SECONDS) < 5

    run(scenario)


@pytest.mark.covers("R34")
@pytest.mark.parametrize(("timeout_ms", "seconds"), [(3_000, 3.0), (20_000, 20.0), (None, 120.0)])
def test_how_long_a_broker_may_be_silent_is_said_by_its_registration(timeout_ms: int | None, seconds: float) -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with open_desk(cluster, "container") as container, open_desk(cluster) as desk:
            # given a broker that registers, with or without a timeout of its own, and is not heard any more
            await container.register(0, "10.9.9.1:1", timeout_ms=timeout_ms)
            # then
            took = await desk.until_gone("10.9.9.1:1", 200)
            assert seconds <= took <= seconds + SCAN_SECONDS
            # and a new registration counts, not the first one
            await container.register(0, "10.9.9.1:1", timeout_ms=30_000)
            await container.register(0, "10.9.9.1:1", timeout_ms=3_000)
            assert 3 <= await desk.until_gone("10.9.9.1:1", 60) <= 3 + SCAN_SECONDS

    run(scenario)


@pytest.mark.covers("R33", "R35")
def test_a_silent_broker_goes_although_its_connection_is_open_and_busy() -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with open_desk(cluster, "container") as container, open_desk(cluster) as desk:
            # given two brokers on one connection, one of which sends heartbeats
            await container.register(0, "10.9.9.1:1", name="heard", timeout_ms=3_000)
            await container.register(0, "10.9.9.1:2", name="silent", timeout_ms=3_000)
            connection = container.client.open_connection(container.server)
            assert connection is not None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(container.beat_for_ever, "10.9.9.1:1", "heard")
                took = await desk.until_gone("10.9.9.1:2", 20)
                # then only the other one is gone, and the connection is the same, and open, also much later
                assert 3 <= took <= 3 + SCAN_SECONDS
                assert await desk.listed() == {"heard": ["10.9.9.1:1"]}
                await trio.sleep(60)
                assert await container.listed() == {"heard": ["10.9.9.1:1"]}
                assert container.client.open_connection(container.server) is connection
                nursery.cancel_scope.cancel()

    run(scenario)


@pytest.mark.covers("R80")
@pytest.mark.parametrize("interval_ms", [None, 5_000, 1_000])
def test_a_silent_broker_is_gone_within_the_interval_of_looks_after_its_timeout(interval_ms: int | None) -> None:
    interval_seconds = 5.0 if interval_ms is None else interval_ms / 1_000

    async def scenario(cluster: SimCluster) -> None:
        async with open_desk(cluster, "container") as container, open_desk(cluster) as desk:

            async def shown() -> str:
                return parse_properties((await desk.ask(319)).body.decode(), "answer")["scanNotActiveBrokerInterval"]

            async def lateness() -> list[float]:
                """Return how long brokers that fall silent at different moments live beyond their timeout."""
                late = []
                for number in range(12):
                    await container.register(0, "10.9.9.1:1", timeout_ms=2_000)
                    late.append(await desk.until_gone("10.9.9.1:1", 30) - 2)
                    await trio.sleep(0.7 * number)
                return late

            # given a name server whose interval is the default or a given one
            assert await shown() == str(interval_ms or 5_000)
            # then nobody lives longer than the timeout and one interval, nor shorter than the timeout
            late = await lateness()
            assert all(0 <= each <= interval_seconds for each in late), late
            # and so it is with another interval, given while it runs
            assert (await desk.ask(318, body=b"scanNotActiveBrokerInterval=500\n")).code == 0
            assert await shown() == "500"
            late = await lateness()
            assert all(0 <= each <= 0.5 for each in late), late

    run(scenario, **({} if interval_ms is None else {"scan_not_active_broker_interval": interval_ms}))


def test_an_interval_of_looks_in_a_file_is_taken_with_a_warning() -> None:
    config, warnings = read_config(parse_properties("scanNotActiveBrokerInterval=7000\n", "n.conf"))
    assert config.scan_not_active_broker_interval == 7_000
    assert ["scanNotActiveBrokerInterval has no effect here" in each for each in warnings] == [True]


# --- who is told ---------------------------------------------------------------------------------------------------


@pytest.mark.covers("R36")
def test_members_hear_of_a_smaller_id_when_it_registers() -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with (
            open_desk(cluster) as desk,
            stub_member(cluster, "s2") as (second, second_told),
            stub_member(cluster, "s1") as (first, first_told),
            stub_member(cluster, "other") as (other, other_told),
        ):
            await desk.register(2, second)
            await desk.register(1, other, name="b")
            # when a larger id registers, nobody is told
            await desk.register(3, "10.9.9.1:3")
            await trio.sleep(2)
            assert (second_told, other_told) == ([], [])
            # when a smaller one does, the members that were there before are told at once, of no offline address
            await desk.register(1, first)
            came = {"minBrokerId": "1", "minBrokerAddr": first, "haBrokerAddr": f"{first}1"}
            assert await until(lambda: second_told == [came], 5) < 0.1
            # when the master registers, and once more, all hear of it once, but for other groups
            await desk.register(0, "10.9.9.1:9")
            await desk.register(0, "10.9.9.1:9")
            master = {"minBrokerId": "0", "minBrokerAddr": "10.9.9.1:9", "haBrokerAddr": "10.9.9.1:91"}
            await until(lambda: second_told == [came, master] and master in first_told, 5)
            await trio.sleep(2)
            assert second_told == [came, master]
            assert first_told.count(master) == 1
            assert other_told == []

    run(scenario)


@pytest.mark.covers("R37")
@pytest.mark.parametrize("how", ["unregistered", "connection closed", "silent"])
def test_the_members_that_are_left_hear_of_the_smallest_id_that_is_gone(how: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with (
            open_desk(cluster) as desk,
            stub_member(cluster, "s1") as (first, first_told),
            stub_member(cluster, "s2") as (second, second_told),
        ):
            master = "10.9.9.1:1"
            went = {"minBrokerId": "1", "minBrokerAddr": first, "offlineBrokerAddr": master}
            async with trio.open_nursery() as nursery, open_desk(cluster, "container") as container:
                await container.register(0, master, timeout_ms=3_000)
                for broker_id, address in ((1, first), (2, second)):
                    await desk.register(broker_id, address, timeout_ms=3_000)
                    nursery.start_soon(desk.beat_for_ever, address)
                assert first_told == second_told == []
                # when the smallest id leaves, in whatever way
                if how == "unregistered":
                    ext = {"brokerName": "a", "brokerAddr": master, "clusterName": "C", "brokerId": "0"}
                    await container.ask(104, ext)
                elif how == "connection closed":
                    cluster.network.kill(cluster.address("container"))
                took = await until(lambda: [went] == first_told == second_told, 20)
                # then who is left is told whose turn it is and who is offline, as soon as it is out of the route
                assert took <= (3.1 if how == "silent" else 0.1)
                assert await desk.listed() == {"a": [first, second]}
                # and when somebody leaves who was not the smallest, nobody is told
                await desk.ask(104, {"brokerName": "a", "brokerAddr": second, "clusterName": "C", "brokerId": "2"})
                await desk.until_gone(second, 5)
                await trio.sleep(1)
                assert first_told == [went]
                nursery.cancel_scope.cancel()

    run(scenario)
