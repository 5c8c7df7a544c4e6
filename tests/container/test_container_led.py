"""Brokers of containers that controllers lead: each is led on its own, whatever becomes of its neighbours."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from understudy.container.broker_files import AddBrokerError, broker_options
from understudy.container.config import ContainerOptions
from understudy.container.hosted import BrokerIdentity
from understudy.remoting.client import open_client
from understudy.runtime.background import open_background
from understudy.runtime.disk import RealDisk
from understudy.security.settings import SecuritySettings
from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}


async def start_container(group: LedGroup, name: str) -> None:
    """Start host *name*: a broker that is led, and one that is not."""
    await group.cluster.start_container(name, [group.keys_of(name), {"brokerName": f"beside-{name}"}])
    group.brokers[name] = group.cluster.brokers(name)["g"]


@asynccontextmanager
async def contained_group(source: random.Random) -> AsyncIterator[LedGroup]:
    async with (
        SimCluster(source) as cluster,
        open_client(cluster.client_world()) as client,
        open_background() as nursery,
    ):
        group = LedGroup(cluster, nursery, client, ALL, {})
        for name in (*CONTROLLERS, *BROKERS):
            cluster.host(name)
        await cluster.start_name_server("ns")
        for name in CONTROLLERS:
            await group.start_controller(name)
        for name in BROKERS:
            await start_container(group, name)
        yield group


@pytest.mark.covers("R147", "R304")
def test_when_a_container_is_killed_another_replica_leads_and_it_comes_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with contained_group(source) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(5)] == [0] * 5
            await group.kill(first)
            second = await group.ready(2)
            assert await group.send(second, b"after") == 0
            await group.cluster.restart(first)
            group.brokers[first] = group.cluster.brokers(first)["g"]
            await group.ready(3)
            assert group.master() == second
            await until(lambda: all(len(group.bodies(name)) == 6 for name in BROKERS), 10)

    run_seed(scenario, 1)


def test_when_a_led_master_is_removed_from_its_container_another_is_elected_at_once_and_its_neighbour_goes_on() -> None:
    async def scenario(source: random.Random) -> None:
        async with contained_group(source) as group:
            first = await group.ready(3)
            container = group.cluster.host(first).container
            assert container is not None
            # what names it is the id of its file, whatever its role is
            assert await container.remove_broker(BrokerIdentity("DefaultCluster", "g", 0))
            del group.brokers[first]
            # then the end of its own connection tells the controllers; heartbeats would need two seconds
            await until(lambda: group.master() not in (None, first), 1.0)
            assert {f"beside-{first}"} == set(group.cluster.brokers(first))
            await group.ready(2)

    run_seed(scenario, 2)


@pytest.mark.parametrize(
    "role", [{"brokerId": "-1", "brokerRole": "SLAVE"}, {"brokerId": "3"}, {"brokerRole": "SLAVE"}]
)
async def test_role_and_id_of_the_file_do_not_count(tmp_path: Path, role: dict[str, str]) -> None:
    keys = {
        "brokerName": "g",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "enableControllerMode": "true",
        "controllerAddr": "127.0.0.1:1",
        "storePathRootDir": str(tmp_path / "store"),
        **role,
    }
    async with LocalCluster(0) as cluster:
        broker = await cluster.container.add_broker(keys)
        assert broker.role.is_slave  # nobody is told of it yet
        assert BrokerIdentity("DefaultCluster", "g", int(role.get("brokerId", "0"))) in {
            each.identity for each in cluster.container.brokers()
        }


async def test_replicas_whose_files_have_no_id_are_told_apart_by_numbers(tmp_path: Path) -> None:
    def keys(store: str) -> dict[str, str]:
        return {
            "brokerName": "g",
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "enableControllerMode": "true",
            "controllerAddr": "127.0.0.1:1",
            "storePathRootDir": str(tmp_path / store),
        }

    async with LocalCluster(0) as cluster:
        container = cluster.container

        def stores() -> dict[int, str]:
            return {
                each.identity.broker_id: Path(each.broker.options.store.store_path_root_dir).name
                for each in container.brokers()
            }

        for store in ("one", "two", "three"):
            await container.add_broker(keys(store))
        assert stores() == {0: "one", 1: "two", 2: "three"}
        # one that was removed comes back to its number, and none comes twice
        assert await container.remove_broker(BrokerIdentity("DefaultCluster", "g", 1))
        with pytest.raises(AddBrokerError, match="DefaultCluster_g_2 has already been added"):
            await container.add_broker(keys("three"))
        await container.add_broker(keys("two"))
        assert stores() == {0: "one", 1: "two", 2: "three"}
        # and one that is not led has the id of its file, or none
        with pytest.raises(AddBrokerError, match="DefaultCluster_g_0 has already been added"):
            await container.add_broker({**keys("four"), "enableControllerMode": "false"})


@pytest.mark.parametrize("led", [True, False])
def test_a_led_broker_calls_on_connections_of_its_own_as_its_container_calls(led: bool) -> None:
    inner = {"innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innersecret"}'}
    container, _ = ContainerOptions.from_properties({"listenPort": "0", "tls.enable": "true", **inner})
    keys = {"brokerName": "g", "enableControllerMode": "true" if led else "false", "controllerAddr": "127.0.0.1:9878"}
    security = broker_options(keys, "test", container, RealDisk(), None).security
    calls = container.security
    assert security == (SecuritySettings(inner=calls.inner, tls=calls.tls) if led else SecuritySettings())
