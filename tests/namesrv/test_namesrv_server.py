"""The name server over real sockets: what brokers, clients and operators see."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import attrs
import pytest
import trio
from namesrv_registrations import TOPICS
from namesrv_wire import config_in, connected, registration_body, running, world

from understudy.namesrv.server import NameServer


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
        bad = await peer.ask(318, body=b"supportActingMaster=false\nwaitSecondsForService=many\n")
        assert (bad.code, bad.remark) == (
            29,
            "request: waitSecondsForService=many: expected a whole number from 0 to 2147483647",
        )
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
            with trio.fail_after(30):
                assert await late.route("T1") is not None
        for stream in idle:
            await stream.aclose()


@attrs.define
class Controller:
    """Notes what an embedding name server does with it."""

    seen: list[str] = attrs.field(factory=list)

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
        assert controller.seen == ["running"]
    assert controller.seen == ["running", "stopped"]


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


async def test_connections_may_be_idle_for_ever_if_the_settings_say_so(tmp_path: Path) -> None:
    config = config_in(tmp_path, server_channel_max_idle_time_seconds=0)
    async with running(config) as server, connected(server) as peer:
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert (await peer.ask(106)).code == 0
