"""Name servers behind a host name: a broker registers at every machine it stands for, and follows when they change."""

from __future__ import annotations

import logging
import math
import random

import attrs
import pytest
import trio
from slave_rig import GROUP, run
from trio.testing import MockClock

from understudy.broker.name_servers import LOOK_UP_SECONDS, NameServers, listed, look_up
from understudy.container.config import ContainerOptions
from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.session import open_session
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import real_world
from understudy.testkit.sim.cluster import SimCluster
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
            container.options.container.namesrv_addr = cluster.name_servers
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


def test_names_can_be_looked_up_from_some_moment_on() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a container whose brokers take its name servers as they are listed
            await cluster.start_name_server("n1")
            container = await cluster.start_container("c1", [GROUP])
            broker = cluster.brokers("c1")["broker-a"]
            await until(lambda: knows(cluster, "n1"), 20)
            await cluster.start_name_server("n2")
            await cluster.start_name_server("n3")
            # when it is told to look names up while it runs
            cluster.network.alias(NAME, cluster.address("n2"))
            keys = container.options.container
            keys.namesrv_addr, keys.fetch_name_srv_addr_by_dns_lookup = f"{NAME}:{PORT}", True
            keys.update_namesrv_addr_interval = 7_000
            container.name_servers_changed()
            # then its brokers do at once, and in turn
            await until(lambda: knows(cluster, "n2"), 5)
            assert broker.registration.name_servers == [f"{cluster.address('n2')}:{PORT}"]
            cluster.network.alias(NAME, cluster.address("n3"))
            await until(lambda: knows(cluster, "n3"), 10)
            # and when the broker itself is told not to any more, it goes to those that are listed
            async with open_session(cluster.client_world(), cluster.name_servers) as session:
                body = f"fetchNameSrvAddrByDnsLookup=false\nnamesrvAddr={cluster.address('n1')}:{PORT}\n".encode()
                update = request(RequestCode.UPDATE_BROKER_CONFIG, body=body)
                answer = await session.remoting.invoke(broker.identity.address, update, 3_000)
            assert answer.code == 0
            assert broker.registration.name_servers == [f"{cluster.address('n1')}:{PORT}"]
            await cluster.kill("c1")

    run(scenario)


def test_nothing_wakes_a_broker_that_looks_no_names_up() -> None:
    async def scenario(source: random.Random) -> None:
        by_name, periods = [False], []

        def period_ms() -> int:
            periods.append(trio.current_time())
            return 1_000

        cluster = SimCluster(source)
        servers = NameServers(cluster.client_world(), lambda: "10.0.0.1:1", lambda: by_name[0], period_ms)
        told: list[list[str]] = []
        servers.on_change.append(lambda: told.append(servers.addresses))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.run)
            await trio.sleep(3_600)
            assert periods == [] and told == []
            nursery.cancel_scope.cancel()

    run(scenario)


class Names(TcpNetwork):
    """A network in which names have their answers, each after some seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, tuple[float, list[str]]] = {}

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        seconds, machines = self.answers.get(host, (math.inf, []))
        with trio.move_on_after(timeout_seconds):
            await trio.sleep(seconds)
            if not machines:
                raise OSError("unknown name")
            return machines
        raise TimeoutError("no answer")


async def test_one_name_without_an_answer_does_not_make_the_others_useless(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("understudy"), "propagate", True)
    # given three names: two are looked up slowly, one not at all
    names = Names()
    names.answers = {"one": (4, ["10.0.0.1"]), "three": (1, ["10.0.0.3", "10.0.0.1"])}
    world = attrs.evolve(real_world(), network=names)
    text = "one:1;two:1;three:1"
    servers = NameServers(world, lambda: text, lambda: True, lambda: 30_000)
    # when they are looked up, then in the time of one, in the order of the list, without repeats
    await servers.refresh()
    assert trio.current_time() == LOOK_UP_SECONDS
    assert servers.addresses == ["10.0.0.1:1", "10.0.0.3:1"]
    # and who was missing is said
    assert "name=two" in caplog.text and "name=one" not in caplog.text and "used=none" in caplog.text
    # when the missing one has an answer, and another one has none any more, then that one stays what it was
    told: list[list[str]] = []
    servers.on_change.append(lambda: told.append(servers.addresses))
    names.answers = {"two": (0, ["10.0.0.2"]), "three": (0, [])}
    await servers.refresh()
    assert told == [["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]] == [servers.addresses]
    # when nobody has an answer, then all stay; and a list of which nothing was ever known is used as it stands
    names.answers = {}
    await servers.refresh()
    assert [servers.addresses] == told
    text = "four:1;five:1"
    await servers.refresh()
    assert servers.addresses == ["four:1", "five:1"]


async def test_addresses_stand_for_themselves_and_names_are_asked_for() -> None:
    network = TcpNetwork()
    assert await look_up(network, listed("127.0.0.1:1; 127.0.0.1:1;[::1]:2")) == {
        "127.0.0.1:1": ["127.0.0.1:1"],
        "[::1]:2": ["[::1]:2"],
    }
    answers = await look_up(network, ["localhost:3", "nobody.invalid:1"])
    found = answers["localhost:3"]
    assert not isinstance(found, OSError) and "127.0.0.1:3" in found
    assert isinstance(answers["nobody.invalid:1"], OSError)
