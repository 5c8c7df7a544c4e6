"""Members of a group over real sockets: who leaves, who stays, and who is told about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from namesrv_registrations import TOPICS
from namesrv_wire import Peer, config_in, connected, registration_body, running, world

from understudy.namesrv.records import DEFAULT_TIMEOUT_MS
from understudy.namesrv.server import NameServer
from understudy.remoting.command import ONEWAY_BIT, Command, request
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.testkit.waiting import eventually


@pytest.mark.covers("R2")
async def test_a_killed_container_loses_all_its_brokers_at_once(tmp_path: Path) -> None:
    # given a container with a master of one group and slaves of two others, and their other halves elsewhere
    acting = {"enableActingMaster": "true", "heartbeatTimeoutMillis": "10000"}
    async with running(config_in(tmp_path, support_acting_master=True)) as server, connected(server) as client:
        for name, broker_id in (("a", 1), ("b", 0), ("c", 0)):
            await client.register(name, broker_id, f"10.0.0.9:{name}", TOPICS, **acting)
        async with connected(server) as container:
            for name, broker_id in (("a", 0), ("b", 1), ("c", 2)):
                await container.register(name, broker_id, f"10.0.0.1:{name}", TOPICS, **acting)
            route = await client.route("T1")
            assert route is not None
            assert all(len(broker["brokerAddrs"]) == 2 for broker in route["brokerDatas"])
            killed = trio.current_time()
        # when the container is gone

        async def rewritten() -> bool:
            return len(server.table.live) == 3

        await eventually(rewritten)
        # then all three are out of the route before they would have been found silent, and the slave stands in
        assert trio.current_time() - killed < 9
        route = await client.route("T1")
        assert route is not None
        seen = {broker["brokerName"]: broker["brokerAddrs"] for broker in route["brokerDatas"]}
        assert seen == {name: {"0": f"10.0.0.9:{name}"} for name in "abc"}
        assert {item["brokerName"]: item["perm"] for item in route["queueDatas"]} == {"a": 4, "b": 6, "c": 6}


async def test_a_broker_that_reconnected_survives_its_old_connection(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as client:
        async with connected(server) as first:
            await first.register("a", 0, "10.0.0.1:1", TOPICS)
            await first.register("b", 0, "10.0.0.2:1", TOPICS)
            await client.register("a", 0, "10.0.0.1:1", TOPICS)

        async def only_one() -> bool:
            return len(server.table.live) == 1

        await eventually(only_one)
        assert [member.name for member in server.table.live.values()] == ["a"]


@pytest.mark.covers("NS-12", "R89")
async def test_a_silent_broker_is_dropped_while_its_neighbour_stays_connected(tmp_path: Path) -> None:
    # given two brokers on one connection, one of which falls silent
    async with running(config_in(tmp_path)) as server, connected(server) as peer, connected(server) as client:
        await peer.register("old", 0, "10.0.0.1:1", TOPICS)
        assert server.table.live[("C", "10.0.0.1:1")].timeout_ms == DEFAULT_TIMEOUT_MS
        await peer.register("quick", 0, "10.0.0.2:1", {"Q1": 6, "Q2": 6}, heartbeatTimeoutMillis="50")

        async def gone() -> bool:
            return await client.route("Q1") is None

        await eventually(gone)
        # then the other one is still there, on the same open connection
        assert await peer.route("T1") is not None
        # and when the last broker of a connection falls silent, the connection is closed, so that it notices
        await peer.register("old", 0, "10.0.0.1:1", TOPICS, heartbeatTimeoutMillis="50")
        with pytest.raises(EOFError):
            await peer.receive_frame()
        assert await client.route("T1") is None


@pytest.mark.covers("NS-04")
async def test_a_burst_of_unregistrations_is_carried_out(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        for number in range(50):
            await peer.register(f"b{number}", 0, f"10.0.0.1:{number}", TOPICS)
        for number in range(50):
            ext = {"brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}", "clusterName": "C", "brokerId": "0"}
            assert (await peer.ask(104, ext)).code == 0

        async def empty() -> bool:
            return await peer.route("T1") is None

        await eventually(empty)
        assert server.table.groups == {}


async def test_an_unregistration_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    async with running(config_in(tmp_path, un_register_broker_queue_capacity=0)) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
        assert (await peer.ask(104, ext)).code == 1
        assert await peer.route("T1") is not None


@asynccontextmanager
async def stub_broker() -> AsyncIterator[tuple[str, trio.MemoryReceiveChannel[dict[str, str]]]]:
    """Run a broker that only notes the notices it gets; yield its address and them."""
    send, receive = trio.open_memory_channel[dict[str, str]](100)
    server = RemotingServer(world(), "127.0.0.1", 0, name="stub broker")

    def note(_: object, command: Command) -> None:
        assert command.flag & ONEWAY_BIT
        send.send_nowait(command.ext or {})

    server.register(905, note)
    host, port = await server.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield f"{host}:{port}", receive
        nursery.cancel_scope.cancel()


async def test_members_are_told_about_a_new_smallest_id(tmp_path: Path) -> None:
    config = config_in(tmp_path, notify_min_broker_id_changed=True)
    acting = {"enableActingMaster": "true"}
    async with (
        stub_broker() as (first, first_told),
        stub_broker() as (second, second_told),
        running(config) as server,
        connected(server) as peer,
    ):
        # given two slaves of a group without a master; the larger one came first
        await peer.register("a", 2, second, TOPICS, **acting)
        await peer.register("a", 1, first, TOPICS, **acting)
        with trio.fail_after(30):
            assert await second_told.receive() == {
                "minBrokerId": "1",
                "minBrokerAddr": first,
                "haBrokerAddr": first + "1",
            }
        # when a master that cannot be reached registers and leaves again
        await peer.register("a", 0, "127.0.0.1:1", TOPICS, **acting)
        came = {"minBrokerId": "0", "minBrokerAddr": "127.0.0.1:1", "haBrokerAddr": "127.0.0.1:11"}
        ext = {"brokerName": "a", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0"}
        await peer.ask(104, ext)
        went = {"minBrokerId": "1", "minBrokerAddr": first, "offlineBrokerAddr": "127.0.0.1:1"}
        # then both slaves hear of it in order
        with trio.fail_after(30):
            for told in (first_told, second_told):
                assert [await told.receive(), await told.receive()] == [came, went]


async def test_nobody_is_told_unless_the_setting_says_so(tmp_path: Path) -> None:
    async with (
        stub_broker() as (address, told),
        running(config_in(tmp_path)) as server,
        connected(server) as peer,
    ):
        await peer.register("a", 1, address, TOPICS, enableActingMaster="true")
        await peer.register("a", 0, "127.0.0.1:1", TOPICS, enableActingMaster="true")
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(trio.WouldBlock):
            told.receive_nowait()


@pytest.mark.covers("NS-06", "R38")
async def test_the_member_list_shrinks_and_grows(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:

        async def ids() -> bytes:
            return (await peer.ask(901, {"clusterName": "C", "brokerName": "a"})).body

        for broker_id in (0, 1, 2):
            await peer.register("a", broker_id, f"10.0.0.1:{broker_id}", TOPICS, enableActingMaster="true")
        assert b'{0:"10.0.0.1:0",1:"10.0.0.1:1",2:"10.0.0.1:2"}' in await ids()
        await peer.ask(104, {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "1"})

        async def shrunk() -> bool:
            return b'{0:"10.0.0.1:0",2:"10.0.0.1:2"}' in await ids()

        await eventually(shrunk)
        await peer.register("a", 1, "10.0.0.1:1", TOPICS, enableActingMaster="true")
        assert b'{0:"10.0.0.1:0",1:"10.0.0.1:1",2:"10.0.0.1:2"}' in await ids()


async def test_an_unregistration_overtaken_by_a_registration_has_no_effect(tmp_path: Path) -> None:
    # given a registered broker whose goodbye and next registration arrive in one packet, a restart in a hurry
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        frames = encode(request(104, ext)) + encode(request(103, ext, registration_body(TOPICS)))
        await peer.stream.send_all(frames)
        assert [(await peer.receive()).code, (await peer.receive()).code] == [0, 0]
        await trio.testing.wait_all_tasks_blocked(0.02)
        # then the route stays
        assert await peer.route("T1") is not None


async def test_brokers_are_not_called_dead_because_the_name_server_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(config_in(tmp_path)) as server:
        async with connected(server) as peer:
            await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        await until_gone(server)
        assert "broker gone" in caplog.text
        caplog.clear()
        stream = await trio.open_tcp_stream(*server.address)
        await Peer(stream).register("a", 0, "10.0.0.1:1", TOPICS)
    assert "broker gone" not in caplog.text
    await stream.aclose()


async def until_gone(server: NameServer) -> None:
    async def gone() -> bool:
        return not server.table.live

    await eventually(gone)


async def test_addresses_that_are_none_harm_nobody(tmp_path: Path) -> None:
    # given members whose addresses nobody can connect to
    hostile = ["", "nowhere", "é\u2028:1", "a..b:1", "x" * 300 + ":1", "127.0.0.1:99999999999", "127.0.0.1:-1"]
    async with running(config_in(tmp_path, notify_min_broker_id_changed=True)) as server, connected(server) as peer:
        for number, address in enumerate(hostile):
            await peer.register("a", len(hostile) - number, address, TOPICS, enableActingMaster="true")
        # when they are to be told about a new smallest id
        await peer.register("a", 0, "127.0.0.1:1", TOPICS, enableActingMaster="true")
        await trio.testing.wait_all_tasks_blocked(0.05)
        # then the name server goes on
        assert await peer.route("T1") is not None
