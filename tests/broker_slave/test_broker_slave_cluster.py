"""A master and its slaves in virtual time: logs, tables, acknowledged copies, reads, and what a restart keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from slave_rig import SLAVE, bodies, open_pair, run

from understudy.format.json_dialect import loads
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.remoting.codes import RequestCode
from understudy.testkit.first_pull import first_pull
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until

# --- logs and tables -----------------------------------------------------------------------------------------------


@pytest.mark.covers("CT-07", "SL-01")
def test_a_slave_gets_log_topics_groups_offsets_and_modes_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            # given a master with a topic, messages and a committed offset
            await pair.send(20)
            await pair.commit(3)
            # then within a few seconds of the slave's start, not after a minute, everything is there
            await until(lambda: bodies(pair.slave) == bodies(pair.master), 5)
            await until(lambda: pair.slave.topics.get("orders") == pair.master.topics.get("orders"), 5)
            await until(lambda: "readers" in pair.slave.groups.rows, 5)
            await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 3, 5)
            assert pair.slave.topics.version == pair.master.topics.version
            assert pair.slave.groups.version == pair.master.groups.version
            assert pair.slave.offsets.version == pair.master.offsets.version
            assert pair.slave.slave_sync.synced
            # and the slave answers pulls with the same bytes
            answers = [await pair.ask(broker, 11, first_pull("orders")) for broker in (pair.master, pair.slave)]
            assert answers[0].code == 0 and answers[0].body == answers[1].body

    run(scenario)


@pytest.mark.covers("CT-12")
def test_offsets_and_delay_progress_follow_within_a_second() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.in_step(4, 1)
            # when the master learns something new, the slave knows it in less than a second, every time
            for offset in (2, 3, 4):
                await pair.commit(offset)
                assert await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == offset, 2) < 1  # noqa: B023
            # a deliberate step back is followed, too
            pair.master.offsets.assign_reset("readers", "orders", 0, 1)
            assert await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 1, 2) < 1
            assert pair.slave.offsets.stamps == pair.master.offsets.stamps
            # and so is the progress of delayed messages
            await pair.producer.send(Message("orders", b"later", {"DELAY": "1"}))
            await until(lambda: pair.master.schedule_progress.offsets.get(1) == 1, 10)
            assert await until(lambda: pair.slave.schedule_progress.offsets.get(1) == 1, 2) < 1

    run(scenario)


@pytest.mark.parametrize("step", [1, 500])
def test_a_master_that_lost_its_disk_takes_nothing_from_its_slave(step: int) -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"consumerOffsetUpdateVersionStep": str(step)}
        async with open_pair(source, keys, keys) as pair:
            await pair.send(4)
            await pair.commit(3)
            await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 3, 5)
            await until(lambda: "readers" in pair.slave.groups.rows and pair.slave.topics.get("orders") is not None, 5)
            # when the master comes back with an empty disk and gets other topics
            await pair.cluster.kill("c1", power=True)
            host = pair.cluster.host("c1")
            host.disk = SimDisk(host.source, now_ms=host.clock.wall_ms, sync_seconds=0.001)
            await pair.cluster.restart("c1")
            await pair.send(1, "news")
            await until(lambda: pair.slave.topics.get("news") is not None, 40)
            # then the slave still has what was never deleted
            assert pair.slave.topics.get("orders") is not None
            assert "readers" in pair.slave.groups.rows
            assert pair.slave.offsets.query("readers", "orders", 0) == 3

    run(scenario)


def test_topics_deleted_at_the_master_go_at_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(1)
            await until(lambda: pair.slave.topics.get("orders") is not None, 5)
            assert (await pair.ask(pair.master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
            await until(lambda: pair.slave.topics.get("orders") is None, 5)
            assert pair.slave.topics.version == pair.master.topics.version
            assert pair.slave.topics.get("rmq_sys_SYNC_BROKER_MEMBER_broker-a") is not None

    run(scenario)


def test_a_slave_that_was_in_step_once_knows_its_tables_after_a_restart() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(2)
            await pair.commit(2)
            await until(lambda: pair.slave.offsets.query("readers", "orders", 0) == 2, 5)
            await trio.sleep(1)
            await pair.cluster.kill("c1")
            await pair.cluster.kill("c2")
            await pair.cluster.restart("c2")
            # then, without a master, it has what it needs to act
            assert pair.slave.slave_sync.synced
            assert pair.slave.topics.get("orders") is not None
            assert 2 == pair.slave.offsets.query("readers", "orders", 0)
            assert len(bodies(pair.slave)) == 2

    run(scenario)


# --- copies --------------------------------------------------------------------------------------------------------


def test_sends_wait_for_copies_and_do_not_hold_up_others() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
        async with open_pair(source, keys) as pair:
            await pair.send(1)
            # given a connected slave, when messages are acknowledged, the slave has their bytes
            await until(lambda: pair.master.replication.copied(2) == pair.master.store.max_physical_offset, 10)
            for number in range(20):
                result = await pair.producer.send(Message("orders", b"n%d" % number))
                assert "SEND_OK" == result.status.value
                assert pair.slave.store.max_physical_offset >= pair.master.store.max_physical_offset
            # when the slave is gone, each send is stored and answered 12 after slaveTimeout, all of them together
            await pair.cluster.kill("c2")
            began = trio.current_time()
            statuses: list[str] = []

            async def one(number: int) -> None:
                statuses.append(
                    (await pair.producer.send(Message("orders", b"late %d" % number), timeout_ms=10_000)).status.value
                )

            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(one, number)
            assert ["FLUSH_SLAVE_TIMEOUT"] * 10 == statuses
            assert 3.0 <= trio.current_time() - began < 3.5
            assert 10 == sum(body.startswith(b"late") for body in bodies(pair.master))

    run(scenario)


@pytest.mark.covers("CT-13", "CT-14")
def test_fewer_copies_are_enough_when_replicas_are_gone_and_the_master_may_adapt() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {
            "brokerRole": "SYNC_MASTER",
            "totalReplicas": "3",
            "inSyncReplicas": "2",
            "enableAutoInSyncReplicas": "true",
            "enableSlaveActingMaster": "true",
            "skipPreOnline": "true",
        }
        acting = {"enableSlaveActingMaster": "true", "skipPreOnline": "true"}
        async with open_pair(source, keys, acting) as pair:
            await pair.cluster.start_container("c3", [{**SLAVE, **acting, "brokerId": "2"}])
            master = pair.master.replication.master
            assert master is not None
            await until(lambda: master.connection_count == 2 and pair.master.replication.alive == 3, 20)
            assert "SEND_OK" == (await pair.producer.send(Message("orders", b"three"))).status.value
            assert master.in_sync_count() == 3
            for name in ("c2", "c3"):
                await pair.cluster.kill(name)
            await until(lambda: master.connection_count == 0 and pair.master.replication.alive == 1, 30)
            began = trio.current_time()
            assert "SEND_OK" == (await pair.producer.send(Message("orders", b"one"))).status.value
            assert trio.current_time() - began < 0.5
            # without the permission to adapt, it is refused before it is written
            pair.master.options.store.enable_auto_in_sync_replicas = False
            end = pair.master.store.max_physical_offset
            with pytest.raises(ClientError, match="in-sync replicas not enough"):
                await pair.producer.send(Message("orders", b"none"))
            assert end == pair.master.store.max_physical_offset

    run(scenario)


# --- what others see -----------------------------------------------------------------------------------------------


@pytest.mark.covers("HA-12")
def test_ha_status_of_both_sides() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(5)
            end = pair.master.store.max_physical_offset
            await until(lambda: pair.master.replication.copied(2) == end, 10)
            status: Any = loads((await pair.ask(pair.master, RequestCode.GET_BROKER_HA_STATUS)).body)
            (slave,) = status.pop("haConnectionInfo")
            assert slave.pop("addr").startswith(pair.cluster.address("c2") + ":")
            assert slave.pop("transferredByteInSecond") >= 0
            assert {"diff": 0, "inSync": True, "slaveAckOffset": end, "transferFromWhere": end} == slave
            assert {
                "haClientRuntimeInfo": {
                    "lastReadTimestamp": 0,
                    "lastWriteTimestamp": 0,
                    "masterFlushOffset": 0,
                    "maxOffset": 0,
                    "transferredByteInSecond": 0,
                },
                "inSyncSlaveNums": 1,
                "master": True,
                "masterCommitLogMaxOffset": end,
            } == status
            status = loads((await pair.ask(pair.slave, RequestCode.GET_BROKER_HA_STATUS)).body)
            client = status.pop("haClientRuntimeInfo")
            assert client["masterAddr"] == pair.master.identity.ha_address and client["maxOffset"] == end
            assert client["lastReadTimestamp"] > 0 and client["lastWriteTimestamp"] > 0
            assert {
                "haConnectionInfo": [],
                "inSyncSlaveNums": 0,
                "master": False,
                "masterCommitLogMaxOffset": 0,
            } == status
            # and when the slave leaves, the list is empty
            await pair.cluster.kill("c2")
            master = pair.master.replication.master
            assert master is not None
            await until(lambda: master.connection_count == 0, 10)
            assert [] == loads((await pair.ask(pair.master, RequestCode.GET_BROKER_HA_STATUS)).body)["haConnectionInfo"]

    run(scenario)


def test_a_plain_slave_refuses_what_only_a_master_may_do() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, slave={"slaveReadEnable": "false"}) as pair:
            await pair.send(1)
            await until(lambda: pair.slave.topics.get("orders") is not None, 5)
            send = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
            pull = {"consumerGroup": "r", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
            answers = {
                "send": await pair.ask(pair.slave, RequestCode.SEND_MESSAGE_V2, send, b"x"),
                "pull": await pair.ask(pair.slave, RequestCode.PULL_MESSAGE, {**pull, "sysFlag": "4"}),
                "end": await pair.ask(pair.slave, RequestCode.END_TRANSACTION, {}),
                "offset": await pair.ask(pair.slave, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}),
            }
            assert {"send": 2, "pull": 2, "end": 11, "offset": 0} == {name: each.code for name, each in answers.items()}
            decides_nothing = (
                "not set any response code: this is a slave, which decides nothing now; send the decision "
            )
            assert answers["end"].remark == f"{decides_nothing}to its master"
            # the slave's own log never takes a message of its own
            assert pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset

    run(scenario)


# --- what survives -------------------------------------------------------------------------------------------------


@pytest.mark.covers("R106", "R107")
@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_messages_survive_the_loss_of_the_masters_disk(seed: int) -> None:
    async def scenario(source: random.Random) -> tuple[set[bytes], set[bytes]]:
        keys = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
        async with open_pair(source, keys) as pair:
            acknowledged: set[bytes] = set()
            await pair.send(1)

            async def write(name: str) -> None:
                for number in range(200):
                    body = f"{name} {number}".encode()
                    try:
                        result = await pair.producer.send(Message("orders", body))
                    except ClientError:
                        return
                    if result.status.value == "SEND_OK":
                        acknowledged.add(body)

            async with trio.open_nursery() as nursery:
                for name in ("a", "b", "c"):
                    nursery.start_soon(write, name)
                await trio.sleep(source.uniform(0.5, 4))
                await pair.cluster.kill("c1", power=True)  # for ever
            assert acknowledged
            return acknowledged, set(bodies(pair.slave))

    acknowledged, kept = run(scenario, seed)
    assert acknowledged <= kept


@pytest.mark.covers("R102", "R103")
def test_asynchronous_sends_do_not_wait_for_a_slave_that_is_milliseconds_behind() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(1)
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            for number in range(5):
                await pair.producer.send(Message("orders", b"n%d" % number))
                end = pair.master.store.max_physical_offset
                assert await until(lambda: pair.slave.store.max_physical_offset >= end, 1) < 0.05  # noqa: B023
            pair.cluster.partition(["c1"], ["c2"])
            began = trio.current_time()
            for number in range(5):
                assert "SEND_OK" == (await pair.producer.send(Message("orders", b"m%d" % number))).status.value
            assert trio.current_time() - began < 0.1

    run(scenario)


@pytest.mark.parametrize("who", ["master", "slave"])
def test_a_commit_is_durable_a_second_later_on_master_and_slave(who: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(120)
            await trio.sleep(12)  # the messages are durable: offsets beyond the end of the log count no more
            for queue_id in range(4):
                for offset in range(1, 31):
                    await pair.commit(offset, queue_id=queue_id)
            await trio.sleep(2 if who == "slave" else 1)
            for name in ("c1", "c2"):
                await pair.cluster.kill(name, power=True)
            await pair.cluster.restart("c1" if who == "master" else "c2")
            broker = pair.master if who == "master" else pair.slave
            assert [30] * 4 == [broker.offsets.query("readers", "orders", queue_id) for queue_id in range(4)]

    run(scenario)
