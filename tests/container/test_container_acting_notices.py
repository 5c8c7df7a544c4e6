"""Name servers that tell nobody, heartbeats that are lost on the way, masters that only the name server has lost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from container_ring import TOPIC, Ring, acting, cut_between, drop, members_at, open_ring, run

from understudy.broker.broker import Broker
from understudy.container.role_services import RoleServices
from understudy.format.json_dialect import loads
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import open_session
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.sim.connection import SimStream
from understudy.testkit.waiting import until

SYNC_SECONDS = 1.0
PUSHED = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE


def count_pushes(broker: Broker) -> list[Command]:
    """Note every notice that *broker* gets from now on."""
    pushed: list[Command] = []
    handler = broker.server.handler(PUSHED)
    assert handler is not None

    def note(connection: Connection, command: Command) -> object:
        pushed.append(command)
        return handler(connection, command)

    broker.server.register(PUSHED, note)  # type: ignore[arg-type]
    return pushed


async def change_name_server(ring: Ring, line: str) -> None:
    answer = await ring.client.invoke(
        ring.cluster.name_servers, request(RequestCode.UPDATE_NAMESRV_CONFIG, {}, line.encode()), 3_000
    )
    assert answer.code == 0, answer.remark


@pytest.mark.covers("R24", "R25")
@pytest.mark.parametrize("notify", ["true", "false"])
@pytest.mark.parametrize("compatible", ["true", "false"])
def test_without_the_push_a_slave_begins_and_ends_within_one_look_at_its_group(notify: str, compatible: str) -> None:
    async def scenario(source: random.Random) -> None:
        # given a master that does not announce its return, so that nothing but the group tells of it
        keys = {"skipPreOnline": "true", "compatibleWithOldNameSrv": compatible}
        async with open_ring(source, keys) as ring:
            await change_name_server(ring, f"notifyMinBrokerIdChanged={notify}")
            server = ring.cluster.host("n1").name_server
            assert server is not None
            slave = ring.broker("g0", 1)
            pushed = count_pushes(slave)
            for round_number in range(5):
                await trio.sleep(0.17 * round_number)
                # when the master dies and the name server drops it
                await ring.cluster.kill("c1")
                await until(lambda: 0 not in server.table.groups["g0"].members, 5)
                began = await until(lambda: slave in acting(ring), 10)
                await trio.sleep(3)
                # and when it is registered again
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ring.cluster.restart, "c1")
                    await until(lambda: 0 in server.table.groups["g0"].members, 20, 0.001)
                    ended = await until(lambda: slave not in acting(ring), 10, 0.001)
                # then the slave finds out by itself within about one period
                assert max(began, ended) < SYNC_SECONDS + 0.2
                if notify == "true":
                    assert ended < 0.1
                await ring.online()
                await trio.sleep(1)
            assert bool(pushed) == (notify == "true")

    run(scenario)


@pytest.mark.covers("CT-04")
def test_heartbeats_that_arrive_as_something_else_cost_replicas_until_they_are_whole_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"compatibleWithOldNameSrv": "false"}) as ring:
            watched = {"g0": ring.broker("g0", 1), "g1": ring.broker("g1", 0), "g2": ring.broker("g2", 0)}
            corrupted = 0
            faulty = True
            deliver = SimStream._put

            def proxy(stream: SimStream, data: bytes) -> None:
                nonlocal corrupted
                if faulty and (stream.local[0], stream.peer[1]) == (ring.cluster.address("c1"), 9876):
                    corrupted += data.count(b'"code":904')
                    data = data.replace(b'"code":904', b'"code": -1')
                deliver(stream, data)

            async def members(group: str) -> int:
                ext = {"clusterName": "DefaultCluster", "brokerName": group}
                question = request(RequestCode.GET_BROKER_MEMBER_GROUP, ext)
                answer = await ring.client.invoke(ring.cluster.name_servers, question, 3_000)
                return len(loads(answer.body)["brokerMemberGroup"]["brokerAddrs"])

            def alive() -> dict[str, int]:
                return {group: broker.replication.alive for group, broker in watched.items()}

            assert alive() == {"g0": 3, "g1": 3, "g2": 3}
            assert [await members(group) for group in GROUPS] == [3, 3, 3]
            server = ring.cluster.host("n1").network
            connections = {key for key, each in server.streams.items() if each.peer[0] == ring.cluster.address("c1")}
            assert connections
            # when each heartbeat of one container arrives with another code, and everything else as it is
            monkeypatch.setattr(SimStream, "_put", proxy)
            least, listed = alive(), dict.fromkeys(GROUPS, 3)
            for _ in range(600):
                await trio.sleep(0.1)
                least = {group: min(count, least[group]) for group, count in alive().items()}
                for group in GROUPS:
                    listed[group] = min(listed[group], await members(group))
            # then each of its brokers is missed in its group within a minute, by the name server and by who is left
            assert corrupted > 100
            assert listed == {"g0": 2, "g1": 2, "g2": 2}
            assert least == {"g0": 2, "g1": 2, "g2": 2}
            # and each says once per time away why it stays away
            told = sum("lost again" in each.getMessage() for each in caplog.records)
            assert 2 <= told <= 3 * 3
            # when heartbeats are whole again
            faulty = False
            took = await until(lambda: set(alive().values()) == {3}, 60)
            # then everybody is there again within a minute, and stays
            assert took < 60
            await trio.sleep(2)
            for _ in range(60):
                assert alive() == {"g0": 3, "g1": 3, "g2": 3}
                assert [await members(group) for group in GROUPS] == [3, 3, 3]
                await trio.sleep(1)

    run(scenario)


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_a_healthy_master_that_was_dropped_is_back_at_once_with_what_its_slave_took_meanwhile(compatible: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"compatibleWithOldNameSrv": compatible}) as ring:
            server = ring.cluster.host("n1").name_server
            assert server is not None
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            for round_number in range(4):
                await ring.commit(master, 10 * round_number)
                await trio.sleep(2.1 + 0.13 * round_number)
                # given a name server that drops a master which neither stopped nor lost a connection
                dropped = trio.current_time()
                await drop(ring, master)
                # when a client of the slave that acts for it commits before the master knows
                await until(lambda: slave in acting(ring), 1, 0.001)
                await ring.commit(slave, 10 * round_number + 7)
                assert 0 not in server.table.groups["g0"].members
                # then the master is back within moments, and has the commit before anybody can find it
                await until(lambda: 0 in server.table.groups["g0"].members, 20, 0.001)
                assert trio.current_time() - dropped < 2
                assert master.offsets.query("readers", TOPIC, 0) == 10 * round_number + 7
                await until(lambda: slave not in acting(ring), 5)
                await ring.online()

    run(scenario)


async def forget(ring: Ring, broker: Broker) -> Callable[[], None]:
    """Let the name server drop *broker* now and not hear it any more; return what ends this."""
    server = ring.cluster.host("n1").name_server
    assert server is not None
    dispatcher, codes = server._server, (RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT)
    own = broker.identity
    before = {}
    for code in (*codes, RequestCode.QUERY_DATA_VERSION):
        handler = before[code] = dispatcher.handler(code)
        assert handler is not None

        def deaf(connection: Connection, command: Command, handler=handler) -> object:  # type: ignore[no-untyped-def]
            return None if (command.ext or {}).get("brokerAddr") == own.address else handler(connection, command)

        dispatcher.register(code, deaf)  # type: ignore[arg-type]
    await drop(ring, broker)

    def hear() -> None:
        for code, handler in before.items():
            assert handler is not None
            dispatcher.register(code, handler)

    return hear


@pytest.mark.covers("CT-06")
@pytest.mark.parametrize("compatible", ["true", "false"])
def test_the_greatest_offset_of_a_lost_masters_queues_is_answered_where_the_route_leads(compatible: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"compatibleWithOldNameSrv": compatible}) as ring:
            world, servers = ring.cluster.client_world("asker"), ring.cluster.name_servers

            async def greatest(address: str) -> list[int]:
                found = []
                for queue_id in (0, 1):
                    ext = {"topic": TOPIC, "queueId": str(queue_id)}
                    answer = await ring.client.invoke(address, request(RequestCode.GET_MAX_OFFSET, ext), 3_000)
                    assert answer.code == 0, answer.remark
                    found.append(int((answer.ext or {})["offset"]))
                return found

            # given a hundred acknowledged messages over all groups
            sent = [await ring.producer.send(Message(TOPIC, b"%d" % number)) for number in range(100)]
            assert {each.queue.broker_name for each in sent} == set(GROUPS)
            master, slave = ring.broker("g2", 0), ring.broker("g2", 1)
            before = await greatest(master.identity.address)
            assert sum(before) == sum(each.queue.broker_name == "g2" for each in sent)
            async with open_session(world, servers) as session:
                await session.route(TOPIC)
                assert session.master_address("g2") == master.identity.address
                # when the master of one group lives but the name server has lost it
                hear = await forget(ring, master)
                await until(lambda: slave in acting(ring), 5)
                # then the route has an address for the group all the time, and who asks there is told the same
                for _ in range(40):
                    await session.fresh_route(TOPIC)
                    address = session.master_address("g2")
                    assert address == slave.identity.address
                    assert await greatest(address) == before
                    await trio.sleep(0.5)
                # and when it is heard again, so does the master
                hear()
                await until(lambda: acting(ring) == [], 60)
                await trio.sleep(31)  # producers look at routes every thirty seconds
                await session.fresh_route(TOPIC)
                assert session.master_address("g2") == master.identity.address
                assert await greatest(master.identity.address) == before
                more = await ring.producer.send(Message(TOPIC, b"after"), queue=MessageQueue(TOPIC, "g2", 0))
                assert more.queue_offset == before[0]

    run(scenario)


# --- a master that one of several name servers has lost ------------------------------------------------------------


@pytest.mark.parametrize(("dropped_at", "compatible"), [("n1", "true"), ("n1", "false"), ("n2", "true")])
def test_a_master_that_another_name_server_still_shows_only_registers_again(dropped_at: str, compatible: str) -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"compatibleWithOldNameSrv": compatible}
        async with open_ring(source, keys, name_servers=("n1", "n2")) as ring:
            master = ring.broker("g0", 0)
            other = "n2" if dropped_at == "n1" else "n1"
            # given a master and a slave that reach both name servers, but not each other
            cut_between(ring, "c1", "c2")
            await trio.sleep(3)
            # when one name server drops the master
            await drop(ring, master, dropped_at)
            assert members_at(ring, dropped_at) == [1, 2]
            isolated = acted = absent = 0
            for _ in range(600):
                await trio.sleep(0.1)
                isolated += master.registration.isolated
                acted += len(acting(ring))
                absent += 0 not in members_at(ring, dropped_at)
                assert members_at(ring, other) == [0, 1, 2]
            # then it is never hidden and nobody acts for it, for as long as the link is cut
            assert (isolated, acted) == (0, 0)
            # and it is registered again at once
            assert absent <= 20

    run(scenario)


@pytest.mark.parametrize("registers", [False, True], ids=["looks first", "registers first"])
def test_a_master_that_every_name_server_has_dropped_takes_over_what_its_slave_was_told(registers: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, name_servers=("n1", "n2")) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 10)
            await trio.sleep(2.1)
            # given a master that both name servers drop at once
            await drop(ring, master, "n1")
            await drop(ring, master, "n2")
            # when a client of the acting slave commits
            await until(lambda: slave in acting(ring), 1, 0.001)
            await ring.commit(slave, 17)
            if registers:  # for another cause, over the connections that it has had all the time
                master.registration.trigger()
            # then the master has the commit before anybody can find it
            await until(lambda: 0 in members_at(ring, "n1") or 0 in members_at(ring, "n2"), 20, 0.001)
            assert master.offsets.query("readers", TOPIC, 0) == 17
            await ring.online()
            assert acting(ring) == []

    run(scenario)


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_a_name_server_that_does_not_say_who_is_there_is_registered_with_over_the_connection_it_has(
    compatible: str,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"compatibleWithOldNameSrv": compatible}) as ring:
            master, server = ring.broker("g0", 0), ring.cluster.host("n1").name_server
            assert server is not None
            for code in (RequestCode.GET_BROKER_MEMBER_GROUP, RequestCode.GET_ROUTEINFO_BY_TOPIC):
                server._server.register(code, lambda connection, command: None)
            registers, before = server._server.handler(RequestCode.REGISTER_BROKER), trio.current_time()
            assert registers is not None
            taken: list[float] = []

            def register(connection: Connection, command: Command) -> object:
                if (command.ext or {}).get("brokerAddr") == master.identity.address:
                    taken.append(trio.current_time())
                return registers(connection, command)

            server._server.register(RequestCode.REGISTER_BROKER, register)  # type: ignore[arg-type]
            master.registration.trigger()
            await until(lambda: bool(taken), 10)
            assert taken[0] - before < 4

    run(scenario)


@pytest.mark.parametrize("cut_seconds", [5, 40])
def test_a_dropped_master_waits_one_timeout_for_a_slave_that_it_cannot_reach(cut_seconds: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 10)
            await trio.sleep(2.1)
            # given the only name server, that drops the master while the link to its first slave is cut
            mend = cut_between(ring, "c1", "c2")
            began = trio.current_time()
            await drop(ring, master, "n1")
            await until(lambda: slave in acting(ring), 1, 0.001)
            await ring.commit(slave, 17)
            # when the link comes back soon, or late
            if cut_seconds < 10:
                await trio.sleep(cut_seconds)
                assert master.registration.isolated
                mend()
            await until(lambda: 0 in members_at(ring, "n1"), 60)
            away = trio.current_time() - began
            # then what the slave was told meanwhile is taken over, or the master goes on without it and says so
            rules = master.session.rules
            assert isinstance(rules, RoleServices) and rules.report is not None
            report = rules.report
            if cut_seconds < 10:
                assert master.offsets.query("readers", TOPIC, 0) == 17
                assert away < cut_seconds + 5
                assert sorted(each.broker_id for each in report.slaves) == [1, 2]
            else:
                assert 10 < away < 16
                assert "was left out" in report.trouble
                assert [each.broker_id for each in report.slaves] == [2]
                await until(lambda: acting(ring) == [], 2)
                hidden = 0
                while trio.current_time() < began + cut_seconds:
                    await trio.sleep(0.1)
                    hidden += master.registration.isolated or bool(acting(ring))
                assert hidden == 0
                mend()
            await ring.online()
            await trio.sleep(20)
            assert members_at(ring, "n1") == [0, 1, 2]
            assert acting(ring) == []
            assert len(ring.broker("g0", 0).member_group.members or {}) == 3

    run(scenario)
