"""The name server over real sockets: what brokers, clients and operators see."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from namesrv_wire import Peer, config_in, connected, registration_body, running, world

from understudy.namesrv.records import DEFAULT_TIMEOUT_MS
from understudy.namesrv.server import NameServer
from understudy.remoting.command import Command, request
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.testkit.waiting import eventually

TOPICS = {"T1": 6, "T2": 6}


@pytest.mark.covers("NS-03", "NS-10", "NS-21")
async def test_brokers_register_and_clients_find_them(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        assert await peer.route("T1") is None
        master = await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        slave = await peer.register("a", 1, "10.0.0.2:1", TOPICS)
        assert (master.code, master.ext, master.body) == (0, {}, b"")
        assert slave.ext == {"haServerAddr": "10.0.0.1:11", "masterAddr": "10.0.0.1:1"}
        route = await peer.route("T1")
        assert route is not None
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}
        # an old client gets bare numbers for keys, unless it says that it reads the standard
        old = await peer.ask(105, {"topic": "T1"}, version=317)
        assert b'{0:"10.0.0.1:1",1:"10.0.0.2:1"}' in old.body
        told = await peer.ask(105, {"topic": "T1", "acceptStandardJsonOnly": "true"}, version=317)
        assert json.loads(told.body) == route


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
        # then all three are out of the route at once, and the slave stands in for the master
        assert trio.current_time() - killed < 0.5
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
        assert command.is_oneway
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
        with trio.fail_after(5):
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
        with trio.fail_after(5):
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


@pytest.mark.covers("NS-17", "NS-25")
async def test_key_values_survive_a_restart_and_a_torn_file(tmp_path: Path) -> None:
    config = config_in(tmp_path, kv_config_path=str(tmp_path / "new" / "folder" / "kv.json"))
    async with running(config) as server, connected(server) as peer:
        for value in ("one", "two"):
            assert (await peer.ask(100, {"namespace": "n", "key": "k", "value": value})).code == 0
        assert (await peer.ask(100, {"namespace": "n", "key": "other", "value": "x"})).code == 0
        assert (await peer.ask(102, {"namespace": "n", "key": "other"})).code == 0
    path = trio.Path(config.kv_config_path)
    assert json.loads(await path.read_bytes()) == {"configTable": {"n": {"k": "two"}}}
    async with running(config) as server, connected(server) as peer:
        assert (await peer.ask(101, {"namespace": "n", "key": "k"})).ext == {"value": "two"}
    # when the file is torn, the previous copy is taken
    await path.write_bytes((await path.read_bytes())[:10])
    async with running(config) as server, connected(server) as peer:
        assert (await peer.ask(101, {"namespace": "n", "key": "k"})).ext == {"value": "two"}
        assert (await peer.ask(101, {"namespace": "n", "key": "other"})).ext == {"value": "x"}


async def test_a_change_that_cannot_be_stored_is_not_made(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        blocked = tmp_path / "kvConfig.json.tmp"
        blocked.mkdir()
        answer = await peer.ask(100, {"namespace": "n", "key": "k", "value": "v"})
        assert answer.code == 1
        assert "kvConfig.json" in str(answer.remark)
        assert (await peer.ask(219, {"namespace": "n"})).code == 22
        blocked.rmdir()
        assert (await peer.ask(100, {"namespace": "n", "key": "k", "value": "v"})).code == 0


async def test_settings_change_at_once_and_stay(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config) as server, connected(server) as peer:
        await peer.register("a", 1, "10.0.0.1:1", TOPICS, enableActingMaster="true")
        route = await peer.route("T1")
        assert route is not None
        assert list(route["brokerDatas"][0]["brokerAddrs"]) == ["1"]
        # when acting masters are switched on, the kept answer is not served any more
        assert (await peer.ask(318, body=b"supportActingMaster=true\nwhatever=1\n")).code == 0
        route = await peer.route("T1")
        assert route is not None
        assert list(route["brokerDatas"][0]["brokerAddrs"]) == ["0"]
        assert b"supportActingMaster=true\n" in (await peer.ask(319)).body
        assert (tmp_path / "namesrv.conf").read_bytes() == b"supportActingMaster=true\n"
        # and what cannot be meant is refused whole
        bad = await peer.ask(318, body=b"supportActingMaster=false\nlistenPort=many\n")
        assert (bad.code, bad.remark) == (1, "request: listenPort=many: expected a port from 0 to 65535")
        assert b"supportActingMaster=true\n" in (await peer.ask(319)).body


async def test_order_configuration_and_lists_follow_their_settings(tmp_path: Path) -> None:
    config = config_in(tmp_path, order_message_enable=True, enable_topic_list=False, enable_all_topic_list=False)
    async with running(config) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        await peer.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "a:2"})
        route = await peer.route("T1")
        assert route is not None
        assert route["orderTopicConf"] == "a:2"
        assert json.loads((await peer.register("a", 0, "10.0.0.1:1", TOPICS)).body) == {"table": {"T1": "a:2"}}
        for code in (206, 224, 311, 312, 313):
            answer = await peer.ask(code, {"cluster": "C"})
            assert (answer.code, answer.remark) == (1, "disable")


async def test_routes_wait_until_brokers_had_time_to_register(tmp_path: Path) -> None:
    config = config_in(tmp_path, need_wait_for_service=True, wait_seconds_for_service=1000)
    async with running(config) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        answer = await peer.ask(105, {"topic": "T1"})
        assert (answer.code, answer.remark) == (1, "name server not ready")
        assert (await peer.ask(106)).code == 0


async def test_zones_are_filtered_on_request(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS, __ZONE_NAME="z1")
        await peer.register("b", 0, "10.0.0.2:1", TOPICS, __ZONE_NAME="z2")
        answer = await peer.ask(105, {"topic": "T1", "__ZONE_MODE": "True", "__ZONE_NAME": "Z2"})
        assert answer.body.startswith(
            b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.2:1"},"brokerName":"b","cluster":"C",'
            b'"enableActingMaster":false,"zoneName":"z2"}],"filterServerTable":{},"queueDatas":[{"brokerName":"b"'
        )
        for ext in ({"__ZONE_MODE": "true", "__ZONE_NAME": " "}, {"__ZONE_MODE": "yes", "__ZONE_NAME": "z2"}):
            route = await peer.route("T1", **ext)
            assert route is not None
            assert len(route["brokerDatas"]) == 2


async def test_a_static_topic_is_mapped_in_the_route(tmp_path: Path) -> None:
    body = json.loads(registration_body(TOPICS))
    body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {
        "T1": {"bname": "a", "currIdMap": {"0": 0, "1": 5}, "epoch": 9, "scope": "__global__", "totalQueues": 2}
    }
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
        assert (await peer.ask(103, ext, json.dumps(body).encode())).code == 0
        old = await peer.ask(105, {"topic": "T1"}, version=317)
        assert old.body.endswith(
            b'"topicQueueMappingByBroker":{"a":{"bname":"a","currIdMap":{0:0,1:5},"dirty":false,"epoch":9,'
            b'"scope":"__global__","topic":"T1","totalQueues":2}}}'
        )
        route = await peer.route("T1")
        assert route is not None
        assert route["topicQueueMappingByBroker"]["a"]["currIdMap"] == {"0": 0, "1": 5}


async def test_filter_servers_are_part_of_the_route(tmp_path: Path) -> None:
    body = json.loads(registration_body(TOPICS))
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        for servers, expected in ((["f:1"], {"10.0.0.1:1": ["f:1"]}), (None, {"10.0.0.1:1": ["f:1"]}), ([], {})):
            body["filterServerList"] = servers
            assert (await peer.ask(103, ext, json.dumps(body).encode())).code == 0
            route = await peer.route("T1")
            assert route is not None
            assert route["filterServerTable"] == expected


@pytest.mark.covers("R319", "R322")
async def test_many_idle_connections_do_not_delay_a_new_one(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        await peer.register("a", 0, "10.0.0.1:1", TOPICS)
        idle = [await trio.open_tcp_stream(*server.address) for _ in range(300)]
        async with connected(server) as late:
            with trio.fail_after(2):
                assert await late.route("T1") is not None
        for stream in idle:
            await stream.aclose()


@attrs.define
class Controller:
    """Notes what an embedding name server does with it."""

    seen: list[str] = attrs.field(factory=list)

    def register(self, server: RemotingServer) -> None:
        self.seen.append("registered")

    async def run(self) -> None:
        self.seen.append("running")
        try:
            await trio.sleep_forever()
        finally:
            self.seen.append("stopped")


@pytest.mark.covers("NS-25")
async def test_a_controller_lives_as_long_as_its_name_server(tmp_path: Path) -> None:
    controller = Controller()
    async with running(config_in(tmp_path), controller=controller) as server, connected(server) as peer:
        assert (await peer.ask(106)).code == 0
        assert controller.seen == ["registered", "running"]
    assert controller.seen == ["registered", "running", "stopped"]


async def test_the_port_is_free_again_after_the_end(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server:
        host, port = server.address
    again = NameServer(world(), config_in(tmp_path), host, port)
    async with trio.open_nursery() as nursery:
        assert await nursery.start(again.run) == (host, port)
        nursery.cancel_scope.cancel()


async def test_a_wrong_checksum_changes_nothing(tmp_path: Path) -> None:
    body = registration_body(TOPICS)
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        bad = await peer.ask(103, {**ext, "bodyCrc32": "1"}, body)
        assert (bad.code, bad.remark, bad.ext) == (1, "crc32 not match", {})
        assert server.table.groups == {}
        good = await peer.ask(103, {**ext, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}, body)
        assert good.code == 0


async def test_very_old_brokers_register_with_a_bare_table(tmp_path: Path) -> None:
    wrapper = json.loads(registration_body(TOPICS))["topicConfigSerializeWrapper"]
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        assert (await peer.ask(103, ext, json.dumps(wrapper).encode(), version=36)).code == 0
        assert await peer.route("T1") is not None


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


async def test_connections_may_be_idle_for_ever_if_the_settings_say_so(tmp_path: Path) -> None:
    config = config_in(tmp_path, server_channel_max_idle_time_seconds=0)
    async with running(config) as server, connected(server) as peer:
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert (await peer.ask(106)).code == 0


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
