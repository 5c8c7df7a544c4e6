"""Name servers behind a host name: a broker registers at every machine it stands for, and follows when they change."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import GROUP, run

from understudy.broker.name_servers import look_up
from understudy.container.config import ContainerOptions
from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.session import open_session
from understudy.runtime.network import TcpNetwork
from understudy.testkit.sim_cluster import SimCluster
from understudy.testkit.waiting import until

NAME, PORT = "names.example", 9876
KEYS = {"namesrvAddr": f"{NAME}:{PORT}", "fetchNameSrvAddrByDnsLookup": "true", "updateNameServerAddrPeriod": "30000"}


def knows(cluster: SimCluster, host: str) -> bool:
    server = cluster.host(host).name_server
    return server is not None and "broker-a" in server.table.groups


@pytest.mark.covers("EB-18")
def test_a_broker_registers_wherever_the_name_leads_and_follows_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a name for two machines
            cluster.network.alias(NAME, cluster.address("n1"), cluster.address("n2"))
            await cluster.start_container("c1", [{**GROUP, **KEYS}])
            for host in ("n1", "n2"):
                await cluster.start_name_server(host)
            registration = cluster.brokers("c1")["broker-a"].registration
            assert registration.name_servers == [f"{cluster.address(host)}:{PORT}" for host in ("n1", "n2")]
            await until(lambda: knows(cluster, "n1") and knows(cluster, "n2"), 20)
            # when one machine is replaced, then the new one learns of the broker without anybody's doing
            cluster.network.alias(NAME, cluster.address("n1"), cluster.address("n3"))
            await cluster.start_name_server("n3")
            await until(lambda: knows(cluster, "n3"), 40)
            # and what it answers about the cluster can be read
            async with open_session(cluster.client_world(), f"{cluster.address('n3')}:{PORT}") as session:
                found = await cluster_info(session)
                assert found.brokers["broker-a"].addresses == {0: f"{cluster.address('c1')}:10911"}
            # when nobody can be asked for the name any more, what was known stays
            cluster.network.alias(NAME, "10.9.9.9")
            await trio.sleep(61)
            assert registration.name_servers == [f"{cluster.address(host)}:{PORT}" for host in ("n1", "n3")]
            await cluster.kill("c1")

    run(scenario)


def test_the_name_servers_of_a_container_are_those_of_its_brokers_also_when_they_change() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            container = await cluster.start_container("c1", [GROUP])
            await until(lambda: knows(cluster, "n1"), 20)
            # when the container is told of other name servers while it runs
            await cluster.start_name_server("n2")
            assert not knows(cluster, "n2")
            container.options.container.namesrvAddr = cluster.name_servers
            container.name_servers_changed()
            # then its brokers register there, too
            await until(lambda: knows(cluster, "n2"), 5)
            await cluster.kill("c1")

    run(scenario)


def test_a_container_hands_its_way_of_finding_name_servers_to_its_brokers() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            container = await cluster.start_container("c1", [])
            container.options.container = ContainerOptions.from_properties(
                {"namesrvAddr": f"{NAME}:{PORT}", "fetchNameSrvAddrByDnsLookup": "true"}
            )[0].container
            cluster.network.alias(NAME, cluster.address("n1"))
            await cluster.start_name_server("n1")
            broker = await container.add_broker(cluster.keys_of("c1", 0, GROUP), source="test")
            assert broker.registration.name_servers == [f"{cluster.address('n1')}:{PORT}"]
            await cluster.kill("c1")

    run(scenario)


async def test_addresses_stand_for_themselves_and_names_are_asked_for() -> None:
    network = TcpNetwork()
    assert await look_up(network, "127.0.0.1:1; 127.0.0.1:1;[::1]:2") == ["127.0.0.1:1", "[::1]:2"]
    assert "127.0.0.1:3" in await look_up(network, "localhost:3")
    with pytest.raises(OSError):
        await look_up(network, "nobody.invalid:1")
