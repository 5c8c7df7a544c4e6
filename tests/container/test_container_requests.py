"""Requests to a container's own port that no tool would send, and changes that cannot be kept."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.container.config import DEFAULT_LISTEN_PORT, ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.background import open_background
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import World, real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.network import SimNetwork

OWN = (
    RequestCode.ADD_BROKER,
    RequestCode.REMOVE_BROKER,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
)
NAMES = ["configPath", "brokerClusterName", "brokerName", "brokerId", "topic"]
TEXTS = st.sampled_from(
    ["", "0", "-1", "x", "DefaultCluster", "broker-a", "/dev/null", "/", "/no/such", "9" * 30]
) | st.text(st.characters(codec="utf-8"), max_size=8)
BODIES = st.binary(max_size=30) | st.sampled_from([b"", b"listenPort=x", b"=", b"a=b", b"\\u12", b"namesrvAddr=;;"])
REQUESTS = st.tuples(st.sampled_from(OWN), st.none() | st.dictionaries(st.sampled_from(NAMES), TEXTS), BODIES)


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS, min_size=10, max_size=30))
async def test_whatever_a_container_is_asked_it_answers_and_its_broker_serves_on(
    asked: list[tuple[int, dict[str, str] | None, bytes]],
) -> None:
    async with LocalCluster() as cluster, open_client(real_world()) as client:
        address = f"127.0.0.1:{cluster.container.server.address[1]}"
        for code, ext, body in asked:
            if code == RequestCode.REMOVE_BROKER and ext is not None and ext.get("brokerName") == "broker-a":
                continue  # that one would be right
            with trio.fail_after(30):
                answer = await client.invoke(address, request(code, ext, body), 9_000)
            context = json.dumps([code, ext, body.hex(), answer.code, answer.remark])
            assert answer.code in (0, 1, 16, 29, 211), context
            assert answer.code == 0 or (answer.remark and "Error: " not in answer.remark), context
        assert set(cluster.brokers) == {"broker-a"}
        shown = await client.invoke(cluster.brokers["broker-a"].identity.address, request(26), 3_000)
        assert shown.code == 0


async def test_a_change_that_cannot_be_written_is_refused_and_undone(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "container.conf"
    (tmp_path / "gone").write_text("a file where the folder was")
    options, _ = ContainerOptions.from_properties({"listenPort": "0", "bindAddress": "127.0.0.1"}, str(file))
    options.path = str(file)
    before = options.properties()
    container = BrokerContainer(real_world(), options)
    async with open_background() as nursery, open_client(real_world()) as client:
        await nursery.start(container.run)
        address = f"127.0.0.1:{container.server.address[1]}"
        answer = await client.invoke(address, request(25, None, b"updateNamesrvAddrInterval=60000\n"), 3_000)
        assert answer.code == 1
        assert (answer.remark or "").startswith(f"cannot write {file}: ")
        assert options.properties() == before


@pytest.mark.parametrize(("seconds", "lives"), [(30, False), (0, True)])
async def test_a_silent_connection_ends_when_the_settings_say_so(
    autojump_clock: MockClock, seconds: int, lives: bool
) -> None:
    network = SimNetwork(random.Random(1))

    def world_of(host: str) -> World:
        return World(VirtualClock(), network.host(host), RealDisk(), random.Random(2))

    options, _ = ContainerOptions.from_properties({"serverChannelMaxIdleTimeSeconds": str(seconds)})
    async with open_background() as nursery, open_client(world_of("c")) as client:
        await nursery.start(BrokerContainer(world_of("s"), options).run)
        connection = await client.connection(f"s:{DEFAULT_LISTEN_PORT}", 3_000)
        await trio.sleep(20)
        assert connection.alive
        await trio.sleep(40)
        assert connection.alive is lives
        await trio.sleep(1_000)
        assert connection.alive is lives


@pytest.mark.parametrize("code", OWN)
async def test_one_way_requests_are_not_answered(code: int) -> None:
    async with LocalCluster(0) as cluster, open_client(real_world()) as client:
        connection = await client.connection(f"127.0.0.1:{cluster.container.server.address[1]}", 3_000)
        connection.notify(request(code))
        answer = await connection.invoke(request(9999), 3_000)
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
