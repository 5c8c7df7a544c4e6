"""Versions of progress, defaults as brokers answer them, silent deaths, and masters that die without an actor."""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from slave_rig import GROUP, SLAVE, bodies, change_topics_answer, open_listening_name_server, open_pair, run

from understudy.broker.broker import Broker
from understudy.format.json_dialect import dumps, loads
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.properties import parse_properties
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TIMER = struct.Struct(">7q")  # the reference's checkpoint: three offsets and times, then the version


@pytest.mark.covers("R65", "R66", "R67")
def test_progress_carries_a_version_that_moves_with_every_500th_commit() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(1)

            async def version(code: int) -> dict[str, int]:
                return dict(loads((await pair.ask(pair.master, code)).body)["dataVersion"])

            before = await version(RequestCode.GET_ALL_CONSUMER_OFFSET)
            for number in range(499):
                await pair.commit(number)
            assert before["counter"] == (await version(RequestCode.GET_ALL_CONSUMER_OFFSET))["counter"]
            await pair.commit(499)
            assert before["counter"] + 1 == (await version(RequestCode.GET_ALL_CONSUMER_OFFSET))["counter"]
            assert {"counter", "stateVersion", "timestamp"} == (await version(RequestCode.GET_ALL_DELAY_OFFSET)).keys()

    run(scenario)


@pytest.mark.covers("SL-02")
def test_a_slave_has_the_timer_checkpoint_of_its_master_with_its_version() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await until(lambda: pair.slave.slave_sync.synced, 10)
            theirs = (await pair.ask(pair.master, RequestCode.GET_TIMER_CHECK_POINT)).body
            ours = (await pair.ask(pair.slave, RequestCode.GET_TIMER_CHECK_POINT)).body
            assert TIMER.unpack(theirs)[4:] == TIMER.unpack(ours)[4:]
            assert pair.slave.replication.master_address == pair.master.identity.address

    run(scenario)


@pytest.mark.covers("SL-01")
def test_a_slave_has_the_queue_mappings_of_its_master_and_never_older_ones() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            counter = 7

            def with_mappings(body: dict[str, Any]) -> dict[str, Any]:
                mapping = {"topicQueueMappingDetailMap": {"static": {"bname": "broker-a", "epoch": counter}}}
                version = {"mappingDataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1}}
                return {**body, **mapping, **version}

            async def at_slave() -> tuple[int, int]:
                body = loads((await pair.ask(pair.slave, RequestCode.GET_ALL_TOPIC_CONFIG)).body)
                detail = body["topicQueueMappingDetailMap"]
                return detail.get("static", {}).get("epoch", 0), body["mappingDataVersion"]["counter"]

            # given a master (here: of the reference) with a static topic
            assert await at_slave() == (0, 0)
            change_topics_answer(pair.master, with_mappings)
            await pair.send(1)
            await trio.sleep(8)
            # then the slave answers it with the master's version
            assert await at_slave() == (7, 7)
            # and keeps it when the master shows an older table
            counter = 6
            await pair.send(1, "another")
            await trio.sleep(8)
            assert await at_slave() == (7, 7)

    run(scenario)


def test_what_a_slave_knows_of_its_masters_log_survives_a_power_loss() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:

            async def shown() -> int:
                body = loads((await pair.ask(pair.slave, RequestCode.GET_BROKER_HA_STATUS)).body)
                return int(body["haClientRuntimeInfo"]["masterFlushOffset"])

            async def reset(broker: Broker, offset: int) -> int:
                ext = {"masterFlushOffset": str(offset)}
                return (await pair.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, ext)).code

            # when an operator sets it and the power goes the moment he is answered
            assert await reset(pair.slave, 777) == 0
            await pair.cluster.kill("c2", power=True)
            await pair.cluster.restart("c2")
            with contextlib.suppress(RemotingError):
                await shown()  # nobody has told the client that its connection is gone
            # then it is known still, where the reference keeps it too
            assert await shown() == 777
            checkpoint = pair.cluster.host("c2").disk.read("/data/broker-a-1/checkpoint")
            assert struct.unpack_from(">q", checkpoint, 24) == (777,)
            # and a master has no use for it, nor anybody for a negative one
            assert await reset(pair.master, 5) == 0
            assert pair.master.store.master_flushed_offset == 0
            assert await reset(pair.slave, -1) != 0
            assert await shown() == 777

    run(scenario)


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_slave_gets_the_last_file_or_all_of_them(whole: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # given a master with more than one file
            await cluster.start_container("c1", [{**GROUP, "haTransferWholeLog": str(whole).lower()}])
            master = cluster.brokers("c1")["broker-a"]
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                for _ in range(40):
                    await producer.send(Message("orders", source.randbytes(10_000)))
            # when an empty slave joins
            await cluster.start_container("c2", [SLAVE])
            slave = cluster.brokers("c2")["broker-a"]
            end = master.store.max_physical_offset
            await until(lambda: slave.store.max_physical_offset == end, 30)
            # then
            assert (slave.store.min_physical_offset == 0) == whole
            assert (len(bodies(slave)) == 40) == whole

    run(scenario)


# --- defaults ---


@pytest.mark.covers("R75", "R82", "R83", "R84", "R85", "R86", "R87", "R88")
def test_the_defaults_as_a_broker_answers_them() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            answer = await pair.ask(pair.master, RequestCode.GET_BROKER_CONFIG)
            values = parse_properties(answer.body.decode(), "answer")
            expected = {
                "lockInStrictMode": "false",
                "enableSlaveActingMaster": "false",
                "enableRemoteEscape": "false",
                "brokerHeartbeatInterval": "1000",
                "brokerNotActiveTimeoutMillis": "10000",
                "sendHeartbeatTimeoutMillis": "1000",
                "skipPreOnline": "false",
                "compatibleWithOldNameSrv": "true",
            }
            assert expected == {name: values[name] for name in expected}

    run(scenario)


@pytest.mark.covers("R84", "R88")
def test_by_default_a_heartbeat_of_the_old_kind_goes_out_every_second() -> None:
    async def scenario(source: random.Random) -> None:
        heard: list[Command] = []
        async with (
            SimCluster(source) as cluster,
            open_listening_name_server(cluster, "n1", heard.append) as name_server,
        ):
            keys = {"enableSlaveActingMaster": "true", "namesrvAddr": name_server}
            await cluster.start_container("c1", [{**GROUP, **keys}])
            heard.clear()
            await trio.sleep(10)
            assert 9 <= sum(command.code == 322 for command in heard) <= 12
            assert 9 <= sum(command.code == 105 for command in heard) <= 12
            assert not {901, 904} & {command.code for command in heard}
            await cluster.kill("c1")

    run(scenario)


@pytest.mark.covers("R85")
def test_a_silent_broker_is_dropped_after_its_timeout_by_default() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{**GROUP, "enableSlaveActingMaster": "true"}])
            server = cluster.host("n1").name_server
            assert server is not None
            await trio.sleep(15)
            assert 0 in server.table.groups["broker-a"].members
            cluster.partition(["c1"], ["n1"])
            group = server.table.groups
            took = await until(lambda: "broker-a" not in group or 0 not in group["broker-a"].members, 30)
            assert 9 < took < 11

    run(scenario)


@pytest.mark.covers("R86")
def test_a_name_server_that_swallows_everything_does_not_hold_up_the_heartbeats_of_the_other() -> None:
    async def scenario(source: random.Random) -> None:
        moments: list[float] = []

        def hear(command: Command) -> None:
            if command.code == 904:
                moments.append(trio.current_time())

        async with SimCluster(source) as cluster, open_listening_name_server(cluster, "n2", hear) as listening:
            servers = f"{cluster.address('n1')}:9876;{listening}"
            keys = {
                "enableSlaveActingMaster": "true",
                "compatibleWithOldNameSrv": "false",
                "skipPreOnline": "true",
                "namesrvAddr": servers,
            }
            cluster.host("c1")  # it is there, and starts later
            cluster.partition(["c1"], ["n1"])
            await cluster.start_container("c1", [{**GROUP, **keys}])
            await until(lambda: len(moments) > 0, 30)
            await trio.sleep(20)
            gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
            assert max(gaps) <= 2.1  # an interval, and at most the timeout on top
            await cluster.kill("c1")

    run(scenario)


# --- a master dies, nobody acts ---


@pytest.mark.covers("R104", "R109")
def test_consumers_read_on_at_the_slave_and_nobody_takes_sends() -> None:
    async def scenario(source: random.Random) -> None:
        received: list[bytes] = []

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            received.extend(each.body for each in batch)

        async with open_pair(source) as pair:
            await pair.send(20)
            await until(lambda: bodies(pair.slave) == bodies(pair.master), 10)
            await until(lambda: pair.slave.slave_sync.synced, 10)
            await until(lambda: pair.slave.topics.get("orders") is not None, 10)
            # when the master dies with messages that nobody has read
            await pair.cluster.kill("c1")
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            world, servers = pair.cluster.client_world("reader"), pair.cluster.name_servers
            async with open_push_consumer(world, servers, "readers", {"orders": "*"}, listen, options):
                # then consumers get them from the slave
                await until(lambda: len(received) == 20, 60)
            assert sorted(received) == bodies(pair.slave)
            # and however long it lasts, the slave is no master
            await trio.sleep(60)
            with pytest.raises(ClientError):
                await pair.producer.send(Message("orders", b"new"))
            assert pair.slave.role.is_slave
            assert len(bodies(pair.slave)) == 20

    run(scenario)


@pytest.mark.covers("R78")
def test_two_replicas_cannot_lock_strictly_while_one_is_down() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"totalReplicas": "2", "enableSlaveActingMaster": "true", "lockInStrictMode": "true"}

        async with open_pair(source, keys, keys) as pair:

            async def lock(queue_id: int) -> int:
                queue = {"topic": "orders", "brokerName": "broker-a", "queueId": queue_id}
                body = {"clientId": "one", "consumerGroup": "readers", "mqSet": [queue], "onlyThisBroker": False}
                answer = await pair.ask(pair.master, RequestCode.LOCK_BATCH_MQ, {}, dumps(body))
                return len(loads(answer.body)["lockOKMQSet"])

            await until(lambda: len(pair.master.member_group.members or {}) == 2, 30)
            assert await lock(0) == 1
            await pair.cluster.kill("c2")
            await until(lambda: len(pair.master.member_group.members or {}) == 1, 30)
            assert await lock(1) == 0

    run(scenario)


@pytest.mark.covers("R79")
def test_the_page_for_operators_tells_who_needs_strict_locks() -> None:
    (row,) = [
        line
        for line in (ROOT / "docs" / "failover.md").read_text().splitlines()
        if line.startswith("| `lockInStrictMode`")
    ]
    assert "`true`, for whom order comes before availability" in row


# --- example configurations ---


@pytest.mark.covers("R113")
@pytest.mark.parametrize(
    ("folder", "masters", "slaves", "role"),
    [("2m-noslave", 2, 0, "ASYNC_MASTER"), ("2m-2s-async", 2, 2, "ASYNC_MASTER"), ("2m-2s-sync", 2, 2, "SYNC_MASTER")],
)
def test_the_example_sets_work_apart_from_addresses(folder: str, masters: int, slaves: int, role: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # given one machine for each file
            for path in sorted((ROOT / "conf" / folder).glob("*.properties")):
                keys = parse_properties(path.read_text(), path.name)
                of_the_host = ("namesrvAddr", "listenPort", "storePathRootDir")
                spread = {key: text for key, text in keys.items() if key not in of_the_host}
                await cluster.start_container(path.stem, [spread])
                assert keys["brokerRole"] in (role, "SLAVE")
            server = cluster.host("n1").name_server
            assert server is not None

            def registered() -> list[list[int]]:
                return [sorted(server.table.groups[name].members) for name in sorted(server.table.groups)]

            await until(lambda: registered() == [[0, 1] if slaves else [0]] * masters, 30)
            # then both masters take messages, and every slave has them
            if slaves:
                masters_of = [cluster.brokers(name)[name] for name in ("broker-a", "broker-b")]
                await until(lambda: all(each.replication.copied(2) >= 0 for each in masters_of), 30)
            async with open_client(cluster.client_world()) as client:
                for name in ("broker-a", "broker-b"):
                    header = {"a": "w", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
                              "i": "", "j": "0", "k": "false", "m": "false"}  # fmt: skip
                    command = request(RequestCode.SEND_MESSAGE_V2, header, b"body")
                    answer = await client.invoke(cluster.brokers(name)[name].identity.address, command, 10_000)
                    assert answer.code == 0, answer.remark
            for name in ("broker-a-s", "broker-b-s")[:slaves]:
                copy = cluster.brokers(name)[name.removesuffix("-s")]
                await until(lambda: bodies(copy) == [b"body"], 10)  # noqa: B023

    run(scenario)
