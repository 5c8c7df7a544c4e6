"""Start, stop, restart, what is on the disk, and registration at name servers over a real network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
import trio
import trio.lowlevel
import trio.testing
from broker_rig import PORT, NoNetwork, open_rig, options

from understudy.broker.broker import Broker
from understudy.broker.persistence import Persistence, SavedTable
from understudy.broker.services import Service, role_rows
from understudy.broker.storage import BrokerStartError
from understudy.container.hosted import host_broker
from understudy.format.json_dialect import loads
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import DiskLockedError, RealDisk
from understudy.runtime.network import ListenError
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

T = TypeVar("T")


def real_world() -> World:
    return World(SystemClock(), TcpNetwork(), RealDisk(), Random(1))


class InPlaceDisk(RealDisk):
    """A real disk without threads, which a clock that jumps does not wait for."""

    async def in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        await trio.lowlevel.checkpoint()
        return function()


def table(folder: Path, name: str) -> Any:
    return loads((folder / "config" / name).read_bytes())


@pytest.mark.covers("SL-05", "SL-08")
async def test_clean_stop_keeps_everything(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T", b"kept")
        rig.broker.groups.get("cg")
        rig.broker.offsets.commit("cg", "T", 0, 1)
        version = rig.broker.topics.version
    assert not (tmp_path / "abort").exists()
    assert table(tmp_path, "consumerOffset.json")["offsetTable"] == {"T@cg": {"0": 1}}

    async with open_rig(str(tmp_path)) as rig:
        assert [record.body for record in rig.stored("T")] == [b"kept"]
        assert rig.broker.offsets.query("cg", "T", 0) == 1
        assert "cg" in rig.broker.groups.rows
        row = rig.broker.topics.get("T")
        assert row is not None and row.write_queue_nums == 4
        assert rig.broker.topics.version == version


async def test_tables_are_saved_while_running(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"flushConsumerOffsetInterval": "50"}) as rig:
        rig.send("T")
        rig.broker.groups.get("cg")
        rig.broker.offsets.commit("cg", "T", 0, 1)

        def saved() -> bool:
            return (
                "T" in table(tmp_path, "topics.json")["topicConfigTable"]
                and "cg" in table(tmp_path, "subscriptionGroup.json")["subscriptionGroupTable"]
                and "T@cg" in table(tmp_path, "consumerOffset.json")["offsetTable"]
            )

        await until(saved)
        assert table(tmp_path, "consumerOffset.json")["offsetTable"]["T@cg"] == {"0": 1}


async def test_a_change_is_saved_although_the_request_behind_it_is_gone(tmp_path: Path) -> None:
    """A request is a child of its connection: it is cancelled wherever it is when the peer closes."""
    persistence, request_scope = Persistence(real_world()), trio.CancelScope()
    file = tmp_path / "table.json"

    async def peer_closes() -> None:
        request_scope.cancel()
        await trio.lowlevel.checkpoint()

    persistence.add(SavedTable("table", str(file), lambda: {"changed": 1}, lambda: 0, peer_closes))
    persistence.changed("table")
    with request_scope:
        await persistence.save("table")
    assert request_scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persistence.run)
        await until(file.exists)
        nursery.cancel_scope.cancel()
    assert {"changed": 1} == loads(file.read_bytes())


async def test_a_change_that_could_not_be_saved_for_a_request_is_saved_later(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    persistence = Persistence(World(SystemClock(), TcpNetwork(), InPlaceDisk(), Random(1)))
    file = tmp_path / "not there yet" / "table.json"
    persistence.add(SavedTable("table", str(file), lambda: {"changed": 1}, lambda: 0))
    persistence.changed("table")
    with pytest.raises(FileNotFoundError):
        await persistence.save("table")
    file.parent.mkdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persistence.run)
        await until(file.exists)
        nursery.cancel_scope.cancel()
    assert {"changed": 1} == loads(file.read_bytes())


async def test_empty_or_torn_table_falls_back_to_its_previous_copy(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
    async with open_rig(str(tmp_path)):
        pass
    (tmp_path / "config" / "topics.json").write_bytes(b"")
    async with open_rig(str(tmp_path)) as rig:
        assert rig.broker.topics.get("T") is not None


@pytest.mark.parametrize("damage", ["torn", "absent", "wrong"])
async def test_no_start_with_an_empty_topic_table_beside_a_full_log(tmp_path: Path, damage: str) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
    for path in (tmp_path / "config").glob("topics.json*"):
        if damage == "absent":
            path.unlink()
        else:
            path.write_bytes(b'{"topicConfigTable"' if damage == "torn" else b'{"topicConfigTable":{"T":5}}')
    world = World(SystemClock(), NoNetwork(), RealDisk(), Random(1))  # type: ignore[arg-type]
    with pytest.raises(BrokerStartError, match=r"topics\.json") as refused:
        await host_broker(world, options(str(tmp_path)))
    assert "\n" not in str(refused.value)

    (tmp_path / "config" / "topics.json").write_bytes(b"{}")
    async with open_rig(str(tmp_path)) as rig:
        assert [record.body for record in rig.stored("T")] == [b"x"]


@pytest.mark.covers("SL-08")
async def test_port_in_use_and_folder_in_use_are_told_and_leave_nothing_behind(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    world = real_world()
    first = options(str(tmp_path / "a"))
    first.server.listen_port = 0
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(host_broker, world, first)
        taken = options(str(tmp_path / "b"))
        taken.server.listen_port = broker.identity.port
        with pytest.raises(ListenError, match=str(broker.identity.port)):
            await host_broker(world, taken)

        held = options(str(tmp_path / "a"))
        (held.server.listen_port,) = port_blocks.middles(1)
        with pytest.raises(DiskLockedError, match="held by another"):
            await host_broker(world, held)
        again = await world.network.listen("0.0.0.0", held.server.listen_port)
        await again.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.covers("SL-08")
async def test_stop_under_load_loses_no_acknowledged_message(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    async with open_rig(str(tmp_path), {"flushDiskType": "SYNC_FLUSH"}) as rig:
        for number in range(200):
            rig.tell(310, {**_send(), "i": f"UNIQ_KEY\x01u{number}\x02"}, b"x")
        await trio.lowlevel.checkpoint()
        peer = rig.peer
        assert len(rig.broker.acknowledgements) + len(peer.replies) == 200
    acknowledged = [(answer.ext or {})["transactionId"] for answer in peer.replies.values() if answer.code == 0]
    assert len(acknowledged) == 200  # a clean stop flushes and answers what waits
    async with open_rig(str(tmp_path)) as rig:
        kept = {record.properties["UNIQ_KEY"] for record in rig.stored("T")}
        assert kept == set(acknowledged)


@pytest.mark.covers("SL-08")
async def test_progress_of_delayed_messages_is_saved_at_a_stop_that_cuts_the_flushing_short(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "60000"}) as rig:
        await rig.broker.services.stop("store")
        rig.broker.store.append("T", 0, b"x", b"", 1, rig.broker.store_host)
        rig.broker.schedule_progress.update(3, 7)
    assert table(tmp_path, "delayOffset.json")["offsetTable"] == {"3": 7}
    assert not (tmp_path / "abort").exists()


def _send() -> dict[str, str]:
    return {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


async def test_fast_port_serves_everything_but_pulls(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        fast = rig.broker.fast_server
        assert fast is not None and fast.address[1] == PORT - 2
        assert rig.broker.server.codes - fast.codes == {11, 361, 200050, 200052, 200054, 200055}
        assert fast.codes <= rig.broker.server.codes


async def test_each_service_has_one_row_that_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rules = rig.broker.session.rules
        await until(lambda: "schedule" in rig.broker.services.running(), 5)
        hosted = dict(rules.services())
        names = sorted(row.name for row in role_rows(rig.broker, rules))
        assert names == sorted(each.value for each in Service)
        # when its host runs one that is the broker's, or forgets one of its own
        for wrong in (hosted | {Service.TIMER: rig.broker.timing.deliver}, dict(list(hosted.items())[1:])):
            (name,) = (each.value for each in hosted.keys() ^ wrong.keys())
            monkeypatch.setattr(rules, "services", lambda wrong=wrong: wrong)
            # then no role begins without it
            with pytest.raises(ValueError, match=f"runs a service: {name}$"):
                role_rows(rig.broker, rules)


async def test_failing_service_ends_this_broker_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(str(tmp_path / "neighbour")) as neighbour:
        with trio.fail_after(30), pytest.raises(BaseExceptionGroup) as ended:
            async with open_rig(str(tmp_path / "broken"), {"brokerName": "broker-b"}) as rig:

                def fails() -> None:
                    raise RuntimeError("service broke")

                monkeypatch.setattr(rig.broker.session.rules, "decide", fails)
                rig.broker.session.look()
                await trio.sleep_forever()
        assert ended.group_contains(RuntimeError, match="service broke")
        assert neighbour.send("T").code == 0
    assert not (tmp_path / "broken" / "abort").exists()


class TestRegistration:
    async def name_server(self, nursery: trio.Nursery, folder: Path, world: World) -> str:
        server = NameServer(
            world, NamesrvConfig(kv_config_path=str(folder / "kv.json")), listen_host="127.0.0.1", listen_port=0
        )
        address = await nursery.start(server.run)
        return f"{address[0]}:{address[1]}"

    async def route(self, client: Any, address: str, topic: str) -> Command:
        answer: Command = await client.invoke(address, request(105, {"topic": topic}), 3000)
        return answer

    @pytest.mark.covers("SL-08", "R92", "R314")
    async def test_every_name_server_knows_the_broker_until_it_stops(self, tmp_path: Path) -> None:
        world = real_world()
        async with trio.open_nursery() as nursery, open_client(world) as client:
            first = await self.name_server(nursery, tmp_path / "n1", world)
            second = await self.name_server(nursery, tmp_path / "n2", world)
            keys = {"namesrvAddr": f"{first};{second}", "registerNameServerPeriod": "10000"}
            settings = options(str(tmp_path / "b"), keys)
            settings.server.listen_port = 0
            scope = trio.CancelScope()
            stopped = trio.Event()

            async def life(*, task_status: Any) -> None:
                with scope:
                    await host_broker(world, settings, task_status=task_status)
                stopped.set()

            broker: Broker = await nursery.start(life)
            for address in (first, second):
                known = await self.route(client, address, "TBW102")
                assert known.code == 0
                data = json.loads(known.body)
                assert (await self.route(client, address, "rmq_sys_SYNC_BROKER_MEMBER_broker-a")).code == 0
                assert data["brokerDatas"][0]["brokerAddrs"] == {"0": broker.identity.address}

            # a topic made by a send is announced at once
            ext = {**_send(), "b": "Fresh"}
            sent = await client.invoke(broker.identity.address, request(310, ext, b"x"), 3000)
            assert sent.code == 0
            assert await broker.registration.settled()
            for address in (first, second):
                assert (await self.route(client, address, "Fresh")).code == 0

            # permissions of the broker mask those of its topics
            settings.broker.broker_permission = 4
            broker.topics.touch()
            assert await broker.registration.settled()
            queues = json.loads((await self.route(client, first, "Fresh")).body)["queueDatas"]
            assert [queue["perm"] for queue in queues] == [4]

            scope.cancel()
            with trio.fail_after(30):
                await stopped.wait()
            for address in (first, second):
                assert (await self.route(client, address, "Fresh")).code == 17
            nursery.cancel_scope.cancel()

    @pytest.mark.parametrize(
        "keys",
        [{"compressedRegister": "true"}, {"forceRegister": "false"}, {"enableSingleTopicRegister": "true"}],
        ids=["compressed", "only when changed", "single topic"],
    )
    async def test_other_ways_to_register(self, tmp_path: Path, keys: dict[str, str]) -> None:
        world = real_world()
        async with trio.open_nursery() as nursery, open_client(world) as client:
            address = await self.name_server(nursery, tmp_path / "n", world)
            settings = options(str(tmp_path / "b"), {"namesrvAddr": address, **keys})
            settings.server.listen_port = 0
            broker: Broker = await nursery.start(host_broker, world, settings)
            assert (await self.route(client, address, "BenchmarkTest")).code == 0
            ext = {**_send(), "b": "Fresh"}
            await client.invoke(broker.identity.address, request(310, ext, b"x"), 3000)
            assert await broker.registration.settled()
            found = json.loads((await self.route(client, address, "Fresh")).body)
            assert [queue["writeQueueNums"] for queue in found["queueDatas"]] == [4]
            nursery.cancel_scope.cancel()

    async def test_dead_name_server_does_not_delay_the_start_for_long(self, tmp_path: Path) -> None:
        world = real_world()
        probe = await world.network.listen("127.0.0.1", 0)
        dead = f"127.0.0.1:{probe.address[1]}"
        await probe.aclose()
        settings = options(str(tmp_path / "b"), {"namesrvAddr": dead})
        settings.server.listen_port = 0
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                broker: Broker = await nursery.start(host_broker, world, settings)
            assert broker.registration.name_servers == [dead]
            assert await broker.registration.settled()  # as far as name servers answer: none does
            nursery.cancel_scope.cancel()
