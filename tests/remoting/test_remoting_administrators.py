"""``adminAddresses`` counts in every kind of server: who it does not name gets no administration."""

from __future__ import annotations

import random
from collections.abc import Mapping

import attrs
import trio

from understudy.controller.configuration import ControllerConfig
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.runtime.network import Network
from understudy.runtime.world import World
from understudy.testkit.quorum.controllers import API_PORT, ControllersResult, SimControllers
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.cluster import CONTAINER_PORT, FIRST_BROKER_PORT, NAME_SERVER_PORT, SimCluster
from understudy.testkit.sim.disk import SimDisk

OPERATOR, STRANGER = "10.0.9.1", "10.0.9.2"


async def answers(network: Network, asked: Mapping[str, RequestCode]) -> dict[str, tuple[int, bool]]:
    """Ask servers by address for an administration; return codes, and whether the remark names the setting."""
    source, found = random.Random(1), {}
    async with open_client(World(VirtualClock(), network, SimDisk(source), source)) as client:
        for address, code in asked.items():
            answer = await client.invoke(address, request(code), 5000)
            found[address] = answer.code, "adminAddresses" in (answer.remark or "")
    return found


def shut_to_strangers(found: Mapping[str, tuple[int, bool]]) -> bool:
    return set(found.values()) == {(ResponseCode.NO_PERMISSION, True)}


async def test_brokers_name_servers_and_containers_answer_those_that_are_named(autojump_clock: object) -> None:
    async with SimCluster(random.Random(1)) as cluster:
        await cluster.start_name_server("names", admin_addresses=OPERATOR)
        keys = {"adminAddresses": OPERATOR}
        await cluster.start_container("host", [{"brokerName": "b", **keys}], keys)
        host = cluster.address("host")
        asked = {
            f"{cluster.address('names')}:{NAME_SERVER_PORT}": RequestCode.GET_NAMESRV_CONFIG,
            f"{host}:{CONTAINER_PORT}": RequestCode.GET_BROKER_CONFIG,
            f"{host}:{FIRST_BROKER_PORT}": RequestCode.GET_BROKER_CONFIG,
            f"{host}:{FIRST_BROKER_PORT - 2}": RequestCode.GET_BROKER_CONFIG,  # the fast one
        }
        assert shut_to_strangers(await answers(cluster.network.host(STRANGER), asked))
        assert {address: (0, False) for address in asked} == await answers(cluster.network.host(OPERATOR), asked)


async def test_a_controller_answers_those_that_are_named(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = SimControllers(random.Random(1), nursery, ControllersResult(0), {}, size=1)
        usual = cluster.config

        def config(name: str) -> ControllerConfig:
            return attrs.evolve(usual(name), admin_addresses=OPERATOR)

        cluster.config = config  # type: ignore[method-assign]
        cluster.start()
        active = await cluster.wait_active()
        asked = {f"{active.name}:{API_PORT}": RequestCode.GET_CONTROLLER_CONFIG}
        assert shut_to_strangers(await answers(cluster.network.host(STRANGER), asked))
        assert [(0, False)] == list((await answers(cluster.network.host(OPERATOR), asked)).values())
        nursery.cancel_scope.cancel()
