"""A master dies, its slave acts, the master gets everything back: whole clusters in virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.inner import InnerMessage
from understudy.container.escape.bridge import Bridge, Found
from understudy.container.role_services import RoleServices
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.json_dialect import dumps, loads
from understudy.store.record import Record, decode_records
from understudy.store.status import PutStatus
from understudy.testkit.determinism import run_seed
from understudy.testkit.ring import GROUPS, broker_of, container_of, start_ring
from understudy.testkit.sim_cluster import SimCluster
from understudy.testkit.waiting import until

T = TypeVar("T")
TOPIC = "orders"


class Ring:
    def __init__(self, cluster: SimCluster, client: RemotingClient, producer: Producer) -> None:
        self.cluster = cluster
        self.client = client
        self.producer = producer

    def broker(self, group: str, broker_id: int) -> Broker:
        broker = broker_of(self.cluster, group, broker_id)
        assert broker is not None, f"{group} {broker_id} does not run"
        return broker

    async def ask(self, broker: Broker, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.invoke(broker.identity.address, request(code, ext, body), 5_000)

    async def info(self, broker: Broker) -> dict[str, str]:
        table = loads((await self.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        return dict(table)

    async def topic_everywhere(self, topic: str = TOPIC) -> None:
        for group in GROUPS:
            ext = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "2",
                "writeQueueNums": "2",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
            }
            assert (await self.ask(self.broker(group, 0), RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0

    async def commit(self, broker: Broker, offset: int, group: str = "readers", queue_id: int = 0) -> None:
        broker.groups.get(group)
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
        answer = await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == 0, answer.remark

    async def online(self) -> None:
        """Wait until every broker of the ring is registered and every slave has copied its master."""

        def ready() -> bool:
            for group in GROUPS:
                for broker_id in (0, 1, 2):
                    broker = broker_of(self.cluster, group, broker_id)
                    if broker is None or broker.registration.isolated or len(broker.member_group.members or {}) < 3:
                        return False
                    if broker.slave_sync is not None and not broker.slave_sync.synced:
                        return False
            return True

        await until(ready, 60)


@asynccontextmanager
async def open_ring(
    source: random.Random, extra: dict[str, str] | None = None, name_servers: Sequence[str] = ("n1",)
) -> AsyncIterator[Ring]:
    async with SimCluster(source) as cluster:
        await start_ring(cluster, extra, name_servers=name_servers)
        async with (
            open_client(cluster.client_world()) as client,
            open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
        ):
            ring = Ring(cluster, client, producer)
            await ring.online()
            await ring.topic_everywhere()
            await trio.sleep(4)  # slaves look at topics every three seconds
            yield ring


def run(scenario: Callable[[random.Random], Awaitable[T]], seed: int = 1) -> T:
    return run_seed(scenario, seed)


def records(broker: Broker, topic: str = TOPIC) -> list[Record]:
    found = []
    for name, queue_id in sorted(broker.store.queues()):
        if name == topic:
            offset = 0
            while (read := broker.store.get(name, queue_id, offset, 32, 1 << 20)).count:
                found += [record for part in read.parts for record in decode_records(part)]
                offset = read.next_begin_offset
    return found


def test_exactly_one_slave_acts_while_its_master_is_dead() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a ring in which nobody acts
            assert (await ring.info(ring.broker("g0", 1)))["brokerActive"] == "false"
            assert (await ring.info(ring.broker("g0", 0)))["brokerActive"] == "true"
            # when the container of a master is killed
            await ring.cluster.kill("c1")
            first, second = ring.broker("g0", 1), ring.broker("g0", 2)
            took = await until(lambda: "schedule" in first.services.running(), 5)
            # then its first slave acts within a second, the other one does not, and both say why
            assert took < 1
            info = await ring.info(first)
            assert (info["brokerActive"], "smallest id" in info["brokerActiveReason"]) == ("true", True)
            assert (await ring.info(second))["brokerActiveReason"] == "slave 1 has a smaller id"
            # when the container comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 20)
            # then the slave stops
            await until(lambda: "schedule" not in first.services.running(), 5)
            assert "schedule" in master.services.running()
            assert "pre-online" not in master.services.running()
            assert (await ring.info(master))["preOnline"]

    run(scenario)


# --- what escapes --------------------------------------------------------------------------------------------------


@pytest.mark.covers("CT-27", "CT-29", "R41", "R42", "R43")
@pytest.mark.parametrize("also", [None, "c2"], ids=["to the master beside it", "to a master elsewhere"])
def test_due_delayed_messages_of_an_acting_slave_arrive_once_with_their_identity(also: str | None) -> None:
    async def scenario(source: random.Random) -> None:
        received: list[ReceivedMessage] = []

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            received.extend(batch)

        async with open_ring(source) as ring:
            world, servers = ring.cluster.client_world("reader"), ring.cluster.name_servers
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            async with open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options):
                # given delayed messages of thirty seconds on the master of g0
                keys = []
                for number in range(32):
                    queue = MessageQueue(TOPIC, "g0", number % 2)
                    wanted = Message(TOPIC, b"%d" % number, {"DELAY": "4", "colour": "red"})
                    keys.append((await ring.producer.send(wanted, queue=queue)).message_id)
                await trio.sleep(1)
                # when its container dies, and with it perhaps the one with the first slave
                await ring.cluster.kill("c1")
                if also is not None:
                    await ring.cluster.kill(also)
                acting = ring.broker("g0", 1 if also is None else 2)
                await until(lambda: "schedule" in acting.services.running(), 20)
                await trio.sleep(40)
                # then each is received once, on time, from a master of another group, as it was sent
                assert sorted(keys) == sorted(each.properties["UNIQ_KEY"] for each in received)
                there = [record for group in GROUPS for record in escaped(ring, group)]
                assert sorted(keys) == sorted(record.properties["UNIQ_KEY"] for record in there)
                assert all(record.properties["colour"] == "red" for record in there)
                assert all(30_000 <= record.store_ms - record.born_ms <= 34_000 for record in there)
                assert {each.broker_name for each in received} == ({"g1"} if also is None else {"g2"})
                assert records(acting) == []
                # and the master that comes back does not deliver them again
                for name in filter(None, ("c1", also)):
                    await ring.cluster.restart(name)
                await ring.online()
                await trio.sleep(35)
                assert records(ring.broker("g0", 0)) == []
                assert len(received) == 32

    run(scenario)


def test_what_the_master_delivered_just_before_it_died_is_recognized() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a delayed message that the master has delivered, its copy on the slave
            sent = Message(TOPIC, b"once", {"DELAY": "1"})
            await ring.producer.send(sent, queue=MessageQueue(TOPIC, "g0", 0))
            slave = ring.broker("g0", 1)
            await until(lambda: len(records(slave)) == 1, 10)
            # when it dies before the slave knows of the progress
            slave.schedule_progress.offsets[1] = 0
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in slave.services.running(), 5)
            await until(lambda: slave.schedule_progress.offsets[1] == 1, 10)
            # then the slave goes on behind it and puts nothing anywhere
            assert [record for group in ("g1", "g2") for record in escaped(ring, group)] == []

    run(scenario)


def inner_message(topic: str, body: bytes) -> InnerMessage:
    return InnerMessage(topic, 1, body, b"UNIQ_KEY\x01key\x02", 1_600_000_000_000, b"\x0a\0\0\x09\0\0\x1f\x90")


@pytest.mark.covers("EB-01", "EB-03", "EB-07", "EB-09", "EB-11", "EB-13", "EB-14")
def test_the_bridge_puts_and_reads_here_and_elsewhere() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            slave, beside = ring.broker("g0", 1), ring.broker("g1", 0)
            alone = Bridge(list, lambda name: None)
            stored = {group: len(records(ring.broker(group, 0))) for group in GROUPS}

            def more() -> dict[str, int]:
                return {group: len(records(ring.broker(group, 0))) - stored[group] for group in GROUPS}

            # without a master beside it, and nobody who has the topic: refused, again and again
            assert await alone.put(slave, inner_message("nowhere", b"x")) is PutStatus.PUT_TO_REMOTE_BROKER_FAIL
            assert await alone.put(slave, inner_message("nowhere", b"x")) is PutStatus.PUT_TO_REMOTE_BROKER_FAIL
            # with one: in that one's log, with key and birth time
            local = Bridge(lambda: [beside], {"g1": beside}.get)
            assert await local.put(slave, inner_message(TOPIC, b"here")) is PutStatus.PUT_OK
            assert more() == {"g0": 0, "g1": 1, "g2": 0}
            kept = records(beside)[-1]
            assert (kept.properties["UNIQ_KEY"], kept.born_ms) == ("key", 1_600_000_000_000)
            # elsewhere: exactly one send, never to the own group
            assert await alone.put(slave, inner_message(TOPIC, b"there")) is PutStatus.PUT_OK
            assert (more()["g0"], sum(more().values())) == (0, 2)
            # to a named group: not the own, not an unknown one, else exactly one
            assert await alone.put_to(slave, inner_message(TOPIC, b"x"), "g0") is PutStatus.PUT_TO_REMOTE_BROKER_FAIL
            assert await alone.put_to(slave, inner_message(TOPIC, b"x"), "g9") is PutStatus.PUT_TO_REMOTE_BROKER_FAIL
            assert sum(more().values()) == 2
            before = more()["g2"]
            assert await alone.put_to(slave, inner_message(TOPIC, b"named"), "g2") is PutStatus.PUT_OK
            assert more()["g2"] == before + 1
            # reads: from a log of this container, from elsewhere, from nobody
            for bridge in (local, alone):
                found = await bridge.read(slave, "g1", TOPIC, 1, 0)
                assert found.record is not None
                assert (found.record.body, found.retry) == (b"here", False)
            assert await alone.read(slave, "g2", TOPIC, 1, 9_999) == Found(None, "no msg", False)
            assert await local.read(slave, "g1", TOPIC, 1, 9_999) == Found(None, "getMessageResult is null", False)
            assert await alone.read(slave, "g9", TOPIC, 1, 0) == Found(None, "brokerAddress not found", True)
            refused = await alone.read(slave, "g2", TOPIC, 77, 0)
            assert (refused.record, refused.why, refused.retry) == (None, "other resp code", True)

    run(scenario)


def escaped(ring: Ring, group: str) -> list[Record]:
    broker = broker_of(ring.cluster, group, 0)
    return [] if broker is None else records(broker)


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.covers("CT-24")
@pytest.mark.parametrize(("at_master", "at_slave"), [(200, 0), (0, 300), (600, 500), (600, 450), (0, 1), (0, 499)])
def test_a_returning_master_has_every_commit_of_both_sides(at_master: int, at_slave: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master = ring.broker("g0", 0)
            await ring.commit(master, 5, queue_id=0)
            await ring.commit(master, 5, queue_id=1)
            await trio.sleep(5)
            # given commits on the master alone until it dies (its durability window passes, the slave is cut off)
            ring.cluster.partition(["c1"], ["c2", "c3"])
            for number in range(at_master):
                await ring.commit(master, 6 + number, queue_id=0)
            await trio.sleep(1)
            await ring.cluster.kill("c1", power=True)
            ring.cluster.heal()
            # and on the slave that acts, in another queue
            slave = ring.broker("g0", 1)
            await until(lambda: "schedule" in slave.services.running(), 60)
            for number in range(at_slave):
                await ring.commit(slave, 6 + number, queue_id=1)
            # when it comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 30)
            # then nothing is read again and nothing is skipped
            assert master.offsets.query("readers", TOPIC, 0) == 5 + at_master
            assert master.offsets.query("readers", TOPIC, 1) == 5 + at_slave
            # and the report beside the store says what was taken over
            path = "/data/g0-0/config/preOnline.json"
            report = loads(ring.cluster.host("c1").disk.read(path))
            rows = {row["queueId"]: row for each in report["slaves"][:1] for row in each["consumerOffsets"]}
            if at_slave:
                assert (rows[1]["before"], rows[1]["slave"], rows[1]["merged"]) == (5, 5 + at_slave, 5 + at_slave)
                assert rows[1]["why"] == "the group went on at the acting slave"

    run(scenario)


# --- locks ---------------------------------------------------------------------------------------------------------


async def lock(ring: Ring, broker: Broker, client_id: str, queues: list[int], code: int = 41) -> list[int]:
    listed = [{"topic": TOPIC, "brokerName": broker.identity.name, "queueId": number} for number in queues]
    body = {"clientId": client_id, "consumerGroup": "readers", "mqSet": listed, "onlyThisBroker": False}
    answer = await ring.ask(broker, code, {}, dumps(body))
    assert answer.code == 0, answer.remark
    return sorted(each["queueId"] for each in loads(answer.body)["lockOKMQSet"]) if code == 41 else []


@pytest.mark.covers("CT-19")
def test_strict_locks_hold_over_a_failover_and_are_refused_without_a_majority() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a client that holds two queues by majority
            master = ring.broker("g2", 0)
            assert await lock(ring, master, "client-1", [0, 1]) == [0, 1]
            # when the master is killed
            await ring.cluster.kill(container_of("g2", 0))
            acting = ring.broker("g2", 1)
            await until(lambda: "schedule" in acting.services.running(), 5)
            await until(lambda: len(acting.member_group.members or {}) == 2, 5)
            # then the acting slave keeps the locks from others, and two of three replicas are enough
            assert await lock(ring, acting, "client-2", [0, 1]) == []
            assert await lock(ring, acting, "client-1", [0, 1]) == [0, 1]
            # when only one replica is left
            await ring.cluster.kill(container_of("g2", 1))
            last = ring.broker("g2", 2)
            await until(lambda: "schedule" in last.services.running(), 5)
            # then locks are refused, and nothing stays locked there by the failed attempts
            assert await lock(ring, last, "client-1", [0, 1]) == []
            assert last.locks.owner("readers", (TOPIC, "g2", 0), ring.cluster.host("c2").clock.wall_ms()) is None
            # and granted again once a second replica is back
            await ring.cluster.restart(container_of("g2", 1))
            await until(lambda: len(last.member_group.members or {}) >= 2, 30)
            assert await lock(ring, last, "client-1", [0, 1]) == [0, 1]
            await lock(ring, last, "client-1", [0, 1], code=42)
            assert await lock(ring, last, "client-2", [0, 1]) == [0, 1]

    run(scenario)


# --- absence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["suspended", "cut off"])
def test_a_master_that_was_away_comes_back_through_pre_online(how: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 5)
            await trio.sleep(5)
            # given a master that nobody hears for longer than its timeout
            ring.cluster.partition(["c1"], ["c2", "c3", "n1"])
            await until(lambda: "schedule" in slave.services.running(), 30)
            # and commits that its slave takes meanwhile
            await ring.commit(slave, 40)
            # when it goes on where it was
            if how == "suspended":
                ring.cluster.host("c1").clock.jump(20_000)
            ring.cluster.heal()
            await until(lambda: master.registration.isolated, 10)
            await until(lambda: not master.registration.isolated, 30)
            # then it has the commits before anybody could find it, and the slave has stopped
            assert master.offsets.query("readers", TOPIC, 0) == 40
            await until(lambda: "schedule" not in slave.services.running(), 5)
            assert "ms" in (await ring.info(master))["preOnline"]

    run(scenario)


def test_a_silent_slave_delays_the_return_only_until_it_is_dropped() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.commit(ring.broker("g0", 0), 5)
            await trio.sleep(5)
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in ring.broker("g0", 1).services.running(), 5)
            # given a second slave that knows more than the master, and a first one that has just lost its power
            await ring.cluster.kill("c2", power=True)
            await ring.commit(ring.broker("g0", 2), 30)
            # when the master comes back while the name server still lists the dead slave
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            assert 1 in ring.cluster.host("n1").name_server.table.groups["g0"].members  # type: ignore[union-attr]
            took = await until(lambda: not master.registration.isolated, 40)
            # then it is online soon after that slave was dropped, with what the living one knew
            assert took < 15
            assert master.offsets.query("readers", TOPIC, 0) == 30
            assert isinstance(master.role, RoleServices)
            assert master.role.report is not None
            assert [each.broker_id for each in master.role.report.slaves] == [2]

    run(scenario)


def test_without_any_name_server_masters_go_on_and_come_back_by_themselves() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            # when the only name server is away for longer than every timeout
            await ring.cluster.kill("n1")
            for _ in range(60):
                await trio.sleep(0.5)
                # then the master's delayed messages go on and no slave acts
                assert "schedule" in master.services.running()
                assert "schedule" not in slave.services.running()
            # and everybody is back a few seconds after the name server
            await ring.cluster.restart("n1")
            server = ring.cluster.host("n1").name_server
            assert server is not None

            def complete() -> bool:
                return all(sorted(server.table.groups[name].members) == [0, 1, 2] for name in GROUPS)

            await until(lambda: set(GROUPS) <= set(server.table.groups) and complete(), 15)
            await trio.sleep(10)
            assert complete()
            assert not master.registration.isolated
            assert "schedule" in master.services.running()

    run(scenario)


@pytest.mark.parametrize(
    "periods",
    [
        {"syncBrokerMemberGroupPeriod": "15000"},
        {
            "brokerHeartbeatInterval": "300",
            "brokerNotActiveTimeoutMillis": "1000",
            "syncBrokerMemberGroupPeriod": "300",
        },
    ],
)
def test_no_setting_makes_an_undisturbed_broker_isolate_itself(periods: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, periods) as ring:
            brokers = [ring.broker(group, broker_id) for group in GROUPS for broker_id in range(3)]
            reports = [broker.role.report for broker in brokers if isinstance(broker.role, RoleServices)]
            await trio.sleep(32)
            assert len(reports) == 9
            assert reports == [broker.role.report for broker in brokers if isinstance(broker.role, RoleServices)]
            assert not any(broker.registration.isolated for broker in brokers)

    run(scenario)


@pytest.mark.parametrize("where", ["at the acting slave", "at the master"])
def test_a_deliberate_reset_wins_wherever_it_was_made(where: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 50)
            await trio.sleep(5)
            # given an administrator who sets a group back on one side while the other one goes on
            if where == "at the master":
                ring.cluster.partition(["c1"], ["c2", "c3"])
                master.offsets.assign_reset("readers", TOPIC, 0, 7)
                await trio.sleep(1)
            await ring.cluster.kill("c1", power=True)
            ring.cluster.heal()
            await until(lambda: "schedule" in slave.services.running(), 40)
            await ring.commit(slave, 60)
            if where == "at the acting slave":
                slave.offsets.assign_reset("readers", TOPIC, 0, 7)
            # when the master comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 30)
            # then the group is where the administrator put it, on both sides
            assert master.offsets.query("readers", TOPIC, 0) == 7
            await until(lambda: slave.offsets.committed[f"{TOPIC}@readers"][0] == 7, 10)

    run(scenario)
