"""A master dies, its slave acts, the master gets everything back: whole clusters in virtual time."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, assert_unclear, lock, open_ring, reading, records, run

from understudy.broker.inner import InnerMessage
from understudy.container.escape.bridge import Bridge
from understudy.container.escape.local import neighbour_of
from understudy.container.escape.neighbour import Found
from understudy.container.escape.parts import escape_parts
from understudy.format.json_dialect import loads
from understudy.format.record import Record
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.store.status import PutStatus
from understudy.testkit.drills.ring import GROUPS, broker_of, container_of
from understudy.testkit.waiting import until


@pytest.mark.covers("R20")
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
        async with open_ring(source) as ring, reading(ring) as received:
            # given delayed messages of thirty seconds on the master of g0
            keys = []
            for number in range(32):
                queue = MessageQueue(TOPIC, "g0", number % 2)
                wanted = Message(TOPIC, b"%d" % number, {"DELAY": "4", "colour": "red"})
                keys.append((await ring.producer.send(wanted, queue=queue)).message_id)
            # and some that wait for longer than the master will be away
            far = MessageQueue(TOPIC, "g0", 0)
            later = [await ring.producer.send(Message(TOPIC, b"later", {"DELAY": "6"}), queue=far) for _ in range(3)]
            sent_at = trio.current_time()
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
            # and the master that comes back does not deliver them again, but what is due only now
            for name in filter(None, ("c1", also)):
                await ring.cluster.restart(name)
            await ring.online()
            await trio.sleep(35)
            assert records(ring.broker("g0", 0)) == []
            assert len(received) == 32
            await until(lambda: len(received) == 35, 90)
            assert 119 < trio.current_time() - sent_at < 123
            assert {each.message_id for each in later} == {each.properties["UNIQ_KEY"] for each in received[32:]}

    run(scenario)


@pytest.mark.parametrize(("level", "clock_back_ms"), [(1, 0), (3, 5_000)])
def test_what_the_master_delivered_just_before_it_died_is_recognized(level: int, clock_back_ms: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a delayed message that the master has delivered, its copy on the slave
            sent, clock = Message(TOPIC, b"once", {"DELAY": str(level)}), ring.cluster.host("c1").clock
            clock.jump(-clock_back_ms)  # then it is due early
            await ring.producer.send(sent, queue=MessageQueue(TOPIC, "g0", 0))
            clock.jump(clock_back_ms)
            other = Message(TOPIC, b"other", {"DELAY": "1"})
            await ring.producer.send(other, queue=MessageQueue(TOPIC, "g0", 0))
            slave = ring.broker("g0", 1)
            await until(lambda: {each.body for each in records(slave)} == {b"once", b"other"}, 12)
            # when it dies before the slave knows of the progress
            slave.schedule_progress.offsets[level] = 0
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in slave.services.running(), 5)
            await until(lambda: slave.schedule_progress.offsets[level] >= 1, 10)
            # then the slave goes on behind it and puts nothing anywhere
            assert [record for group in ("g1", "g2") for record in escaped(ring, group)] == []

    run(scenario)


def always() -> bool:
    return True


def inner_message(topic: str, body: bytes) -> InnerMessage:
    return InnerMessage(topic, 1, body, b"UNIQ_KEY\x01key\x02", 1_600_000_000_000, b"\x0a\0\0\x09\0\0\x1f\x90")


@pytest.mark.covers("EB-01", "EB-03", "EB-07", "EB-09", "EB-11", "EB-13", "EB-14")
def test_the_bridge_puts_and_reads_here_and_elsewhere() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            slave, beside = ring.broker("g0", 1), ring.broker("g1", 0)
            own = escape_parts(slave), neighbour_of(slave)
            alone = Bridge(*own, list)
            stored = {group: len(records(ring.broker(group, 0))) for group in GROUPS}

            def more() -> dict[str, int]:
                return {group: len(records(ring.broker(group, 0))) - stored[group] for group in GROUPS}

            # without a master beside it, and nobody who has the topic: refused, again and again
            assert await alone.put([inner_message("nowhere", b"x")], always) == [PutStatus.PUT_TO_REMOTE_BROKER_FAIL]
            assert await alone.put([inner_message("nowhere", b"x")], always) == [PutStatus.PUT_TO_REMOTE_BROKER_FAIL]
            # with one: in that one's log, with key and birth time
            local = Bridge(*own, lambda: [neighbour_of(beside)])
            assert await local.put([inner_message(TOPIC, b"here")], always) == [PutStatus.PUT_OK]
            assert more() == {"g0": 0, "g1": 1, "g2": 0}
            kept = records(beside)[-1]
            assert (kept.properties["UNIQ_KEY"], kept.born_ms) == ("key", 1_600_000_000_000)
            # elsewhere: exactly one send, never to the own group
            assert await alone.put([inner_message(TOPIC, b"there")], always) == [PutStatus.PUT_OK]
            assert (more()["g0"], sum(more().values())) == (0, 2)
            # reads: from a log of this container, from elsewhere, from nobody
            for bridge in (local, alone):
                found = await bridge.read("g1", TOPIC, 1, 0)
                assert found.record is not None
                assert (found.record.body, found.retry) == (b"here", False)
            assert await alone.read("g2", TOPIC, 1, 9_999) == Found(None, "no msg", False, lacks=True)
            assert await local.read("g1", TOPIC, 1, 9_999) == Found(None, "getMessageResult is null", False, lacks=True)
            assert await alone.read("g9", TOPIC, 1, 0) == Found(None, "brokerAddress not found", True)
            refused = await alone.read("g2", TOPIC, 77, 0)
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
            for queue_id, count in ((0, 5 + at_master), (1, 5 + at_slave)):
                for _ in range(count):
                    await ring.producer.send(Message(TOPIC, b"read"), queue=MessageQueue(TOPIC, "g0", queue_id))
                await ring.commit(master, 5, queue_id=queue_id)
            await trio.sleep(12)  # the messages are durable
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
            # then locks are refused; what the client held stays locked there, and it is not told that it lost it
            assert await lock(ring, last, "client-1", [2]) == []
            await assert_unclear(ring, last, "client-1", [0, 1, 2])
            now_ms = ring.cluster.host("c2").clock.wall_ms()
            owners = [last.locks.owner("readers", (TOPIC, "g2", number), now_ms) for number in (0, 1, 2)]
            assert owners == ["client-1", "client-1", None]
            # and granted again once a second replica is back
            await ring.cluster.restart(container_of("g2", 1))
            await until(lambda: len(last.member_group.members or {}) >= 2, 30)
            assert await lock(ring, last, "client-1", [0, 1]) == [0, 1]
            await lock(ring, last, "client-1", [0, 1], code=42)
            assert await lock(ring, last, "client-2", [0, 1]) == [0, 1]

    run(scenario)
