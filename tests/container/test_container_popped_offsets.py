"""A slave counts offsets of pops once its log has the check points behind them; whole clusters in virtual time."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, records, run

from understudy.broker.offsets import OffsetTable
from understudy.broker.replicated.held_offsets import HeldOffsets
from understudy.format import names
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.runtime.pace import run_steps
from understudy.testkit.drills.ring import container_of
from understudy.testkit.waiting import until

GROUP, KEY = "poppers", f"{TOPIC}@poppers"
INVISIBLE_MS = 10_000


def test_what_is_ahead_of_the_log_waits_for_it() -> None:
    held = HeldOffsets()
    assert not held
    # given one queue that nobody pops, one whose log is here, and one whose log is not
    news, ends = {"t@plain": {0: 7}, "t@g": {0: 1, 1: 2}}, {"t@g": {0: 100, 1: 101}}
    assert held.sift(news, ends, 100) == ({"t@plain": {0: 7}, "t@g": {0: 1}}, {"t@g": {0: 100}})
    assert held
    # when it is popped on and on, then the oldest and the newest wait
    for offset in (3, 4, 5):
        assert held.sift({"t@g": {1: offset}}, {"t@g": {1: 100 + offset}}, 100) == ({}, {})
    # then each counts when its log is here
    assert held.sift({}, {}, 101) == ({"t@g": {1: 2}}, {"t@g": {1: 101}})
    assert held.sift({}, {}, 104) == ({}, {})
    assert held.sift({}, {}, 105) == ({"t@g": {1: 5}}, {"t@g": {1: 105}})
    assert not held


def test_a_newer_offset_that_counts_ends_the_wait_of_older_ones_and_so_does_a_deletion() -> None:
    held = HeldOffsets()
    held.sift({"t@g": {0: 9}, "u@g": {0: 9}}, {"t@g": {0: 500}, "u@g": {0: 500}}, 100)
    assert held.sift({"t@g": {0: 2}}, {}, 100) == ({"t@g": {0: 2}}, {})  # an operator's reset
    held.forget({"u"}, ())
    assert held.sift({}, {}, 1_000) == ({}, {})


def test_a_table_tells_of_pops_what_belongs_to_them_and_keeps_it() -> None:
    table, read = OffsetTable(lambda: 1), OffsetTable(lambda: 1)
    table.commit("plain", TOPIC, 0, 3)
    table.commit_popped(GROUP, TOPIC, 0, 5, 900)
    table.commit_popped(GROUP, TOPIC, 1, 6, 950)
    assert table.log_ends.rows == {KEY: {0: 900, 1: 950}}
    read.merge_json(table.to_json())
    assert read.log_ends.rows == table.log_ends.rows
    # what an operator sets, what is cut, and what no log has belongs to nothing
    table.assign_reset(GROUP, TOPIC, 0, 2)
    table.cut({KEY: {1: 2}})
    assert table.log_ends.rows == {KEY: {}}
    read.commit_popped(GROUP, TOPIC, 0, 5, 0)
    run_steps(read.remove_topics({TOPIC}))
    assert read.log_ends.rows == {}


async def pop_all(ring: Ring) -> list[PoppedMessage]:
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g0", invisible_ms=INVISIBLE_MS, hold_ms=0)
    return await pop(ring.producer.session, wanted)


def copy_port(ring: Ring) -> tuple[str, int]:
    """Return where g0's master has its log copied."""
    host, _, port = ring.broker("g0", 0).identity.ha_address.rpartition(":")
    return host, int(port)


async def without_replication(ring: Ring) -> None:
    """Let nobody copy the log of g0's master any more; its tables can be asked for."""
    network, address = ring.cluster.network, ring.cluster.address
    network.block(*copy_port(ring))
    for broker_id in (1, 2):
        network.reset(address("c1"), address(container_of("g0", broker_id)))
    await trio.sleep(1)


async def sent_and_copied(ring: Ring) -> None:
    await ring.producer.send(Message(TOPIC, b"popped"), queue=MessageQueue(TOPIC, "g0", 0))
    await pop_all(ring)  # so that the group is known before
    await trio.sleep(INVISIBLE_MS / 1000 + 8)
    await ring.producer.send(Message(TOPIC, b"wanted"), queue=MessageQueue(TOPIC, "g0", 0))
    await trio.sleep(4)


async def bodies_popped(ring: Ring, seconds: float) -> list[bytes]:
    """Pop for a while and acknowledge nothing; return what came."""
    found = list[bytes]()
    with trio.move_on_after(seconds):
        while True:
            try:
                await ring.producer.session.renew_route(TOPIC)
                found += [each.message.body for each in await pop_all(ring)]
            except ClientError:
                pass
            await trio.sleep(0.2)
    return found


@pytest.mark.covers("CT-32")
def test_a_slave_without_the_check_point_hands_the_message_out_when_it_acts() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await sent_and_copied(ring)
            slave = ring.broker("g0", 1)
            before = slave.offsets.query(GROUP, TOPIC, 0)
            # given a message that every replica has, and that is popped while nobody copies the log
            await without_replication(ring)
            assert b"wanted" in [each.message.body for each in await pop_all(ring)]
            assert ring.broker("g0", 0).offsets.query(GROUP, TOPIC, 0) == before + 1
            # when the slaves have asked for the tables, and the master is lost for good
            asked_ms = slave.slave_sync.synced_ms
            await until(lambda: slave.slave_sync.synced_ms > asked_ms, 10)
            assert slave.offsets.query(GROUP, TOPIC, 0) == before
            await ring.cluster.kill("c1")
            await until(lambda: "pop revive" in slave.services.running(), 15)
            # then it comes from the slave, for nothing else would ever bring it
            assert b"wanted" in await bodies_popped(ring, 15)

    run(scenario)


@pytest.mark.parametrize("pause_ms", [0, 200, 400])
def test_a_master_that_lost_the_check_point_with_the_power_brings_the_message_again(pause_ms: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"}) as ring:
            await sent_and_copied(ring)
            slave = ring.broker("g0", 1)
            await without_replication(ring)
            await ring.broker("g0", 0).persistence.save_all()
            await trio.sleep(pause_ms / 1000)
            # given a pop of which the slaves have the offset at the most, and the disk nothing
            assert b"wanted" in [each.message.body for each in await pop_all(ring)]
            popped = ring.broker("g0", 0).offsets.query(GROUP, TOPIC, 0)
            with trio.move_on_after(0.4):
                await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) >= popped, 10)
            # when the power fails, and the master comes back
            await ring.cluster.kill("c1", power=True)
            ring.cluster.network.heal()
            await ring.cluster.restart("c1")
            await ring.online()
            # then somebody gets it
            assert b"wanted" in await bodies_popped(ring, 40)

    run(scenario)


def test_an_offset_that_waited_counts_when_the_log_is_copied_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await sent_and_copied(ring)
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await without_replication(ring)
            await pop_all(ring)
            popped = master.offsets.query(GROUP, TOPIC, 0)
            await trio.sleep(4)
            assert slave.offsets.query(GROUP, TOPIC, 0) == popped - 1
            ring.cluster.network.unblock(*copy_port(ring))
            await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == popped, 30)
            # and what came again counts at the slave when it has the copies, too
            await trio.sleep(20)
            retry = names.pop_retry_topic(GROUP, TOPIC)
            assert len(records(slave, retry)) == len(records(master, retry))
            revive = {
                queue: master.offsets.query(names.REVIVE_GROUP, master.pops.log.topic, queue) for queue in range(8)
            }
            assert revive == {
                queue: slave.offsets.query(names.REVIVE_GROUP, slave.pops.log.topic, queue) for queue in range(8)
            }

    run(scenario)
