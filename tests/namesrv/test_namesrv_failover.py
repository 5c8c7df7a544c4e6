"""Deaths of containers and what the routes show when, on a simulated network and a virtual clock."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from namesrv_wire import registration_body

from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import request
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

TIMEOUT_MS = 10_000
HEARTBEAT_SECONDS = 1.0
TOPICS = {"T1": 6, "T2": 6}
ADDRESS = "ns:9876"

Route = dict[str, tuple[list[str], int]]


class Cluster:
    """A name server on its host and containers on theirs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.network = SimNetwork(random.Random(seed))
        self.watcher: RemotingClient

    def world(self, host: str) -> World:
        disk = SimDisk(random.Random(self.seed))
        return World(VirtualClock(), self.network.host(host), disk, random.Random(self.seed))

    async def container(self, host: str, brokers: list[tuple[str, int]]) -> None:
        """Register *brokers* over one connection, then send the heartbeats of each for ever."""
        async with open_client(self.world(host)) as client, trio.open_nursery() as nursery:
            for name, broker_id in brokers:
                await self.register(client, host, name, broker_id)
            for name, _ in brokers:
                nursery.start_soon(self.heartbeats, client, host, name)

    async def register(self, client: RemotingClient, host: str, name: str, broker_id: int) -> None:
        ext = {
            "brokerName": name,
            "brokerAddr": f"{host}:{name}",
            "clusterName": "C",
            "brokerId": str(broker_id),
            "enableActingMaster": "true",
            "heartbeatTimeoutMillis": str(TIMEOUT_MS),
        }
        answer = await client.invoke(ADDRESS, request(103, ext, registration_body(TOPICS)), 3000)
        assert answer.code == 0

    async def heartbeats(self, client: RemotingClient, host: str, name: str) -> None:
        ext = {"brokerName": name, "brokerAddr": f"{host}:{name}", "clusterName": "C"}
        while True:
            await trio.sleep(HEARTBEAT_SECONDS)
            if client.open_connection(ADDRESS) is not None:
                await client.invoke_oneway(ADDRESS, request(904, ext, oneway=True), 1000)

    async def route(self) -> Route:
        """Return group name to (ids and hosts, permission)."""
        answer = await self.watcher.invoke(ADDRESS, request(105, {"topic": "T1"}), 3000)
        if answer.code == 17:
            return {}
        body: dict[str, Any] = json.loads(answer.body)
        perms = {item["brokerName"]: item["perm"] for item in body["queueDatas"]}
        return {
            broker["brokerName"]: (
                [f"{broker_id}@{address.partition(':')[0]}" for broker_id, address in broker["brokerAddrs"].items()],
                perms[broker["brokerName"]],
            )
            for broker in body["brokerDatas"]
        }

    async def change(self, before: Route) -> tuple[float, Route]:
        """Wait until the route is another one than *before*; return after how many seconds, and the route."""
        start = trio.current_time()
        with trio.fail_after(300):
            while (route := await self.route()) == before:  # noqa: ASYNC110  # asked over the wire
                await trio.sleep(0.02)
        return trio.current_time() - start, route


@asynccontextmanager
async def cluster(seed: int = 3) -> AsyncIterator[Cluster]:
    """Two containers: the first hosts master a and slave b, the second slave a and master b."""
    made = Cluster(seed)
    settings = NamesrvConfig(kv_config_path="/ns/kv.json", support_acting_master=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(NameServer(made.world("ns"), settings).run)
        async with open_client(made.world("watcher")) as made.watcher:
            nursery.start_soon(made.container, "c1", [("a", 0), ("b", 1)])
            nursery.start_soon(made.container, "c2", [("a", 1), ("b", 0)])
            await trio.sleep(2)
            assert await made.route() == BOTH
            yield made
        nursery.cancel_scope.cancel()


BOTH: Route = {"a": (["0@c1", "1@c2"], 6), "b": (["0@c2", "1@c1"], 6)}
ONLY_SECOND: Route = {"a": (["0@c2"], 4), "b": (["0@c2"], 6)}


@pytest.mark.covers("R2", "NS-06")
async def test_a_killed_container_is_out_of_the_routes_in_milliseconds(autojump_clock: trio.testing.MockClock) -> None:
    async with cluster() as made:
        # when the process of the first container is killed
        made.network.kill("c1")
        # then one step takes both its brokers out and puts the slave in its master's place
        seconds, route = await made.change(BOTH)
        assert route == ONLY_SECOND
        assert seconds < 0.5


async def test_a_host_without_power_is_out_of_the_routes_after_its_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with cluster() as made:
        # when the first container's host loses power, so that no connection ends
        made.network.power_off("c1")
        # then its brokers go when their timeout is over, not at some later scan
        seconds, route = await made.change(BOTH)
        if route != ONLY_SECOND:
            more, route = await made.change(route)
            seconds += more
        assert route == ONLY_SECOND
        assert TIMEOUT_MS / 1000 - 2 * HEARTBEAT_SECONDS <= seconds <= TIMEOUT_MS / 1000 + 0.1


async def test_a_container_behind_a_partition_comes_back_with_its_next_registration(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with cluster() as made:
        # given a first container that is cut off until its brokers are gone
        made.network.partition(["c1"], ["ns", "c2", "watcher"])
        while await made.route() != ONLY_SECOND:  # noqa: ASYNC110  # asked over the wire
            await trio.sleep(0.1)
        # when the partition heals
        made.network.heal()
        async with open_client(made.world("c1")) as client:
            # then a version request shows each broker that it is unknown: an answer without a body
            ext = {"brokerName": "a", "brokerAddr": "c1:a", "clusterName": "C"}
            answer = await client.invoke(ADDRESS, request(322, ext), 30_000)
            assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
            assert await made.route() == ONLY_SECOND
            # and a registration brings it back at once, with its permissions
            await made.register(client, "c1", "a", 0)
            assert (await made.route())["a"] == BOTH["a"]


async def test_a_seed_replays_a_run(autojump_clock: trio.testing.MockClock) -> None:
    times = []
    for _ in range(2):
        async with cluster(seed=11) as made:
            start = trio.current_time()
            made.network.kill("c1")
            await made.change(BOTH)
            times.append(round(trio.current_time() - start, 9))
    assert times[0] == times[1]
