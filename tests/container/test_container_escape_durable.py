"""Progress of delayed messages never passes a copy that a loss of power could take away."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, delivered, open_ring, records, run, send_delayed

from understudy.broker.broker import Broker
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.waiting import until

SAFE = {"flushDiskType": "SYNC_FLUSH"}
LEVEL, COUNT = 2, 6


async def with_a_master_elsewhere_only(ring: Ring) -> tuple[dict[str, float], Broker]:
    """Send delayed messages to g0 and let its slave act in a container without a master; return keys and slave."""
    keys = await send_delayed(ring, COUNT, LEVEL)
    await ring.cluster.host("c3").clock.sleep(1)
    beside = ring.cluster.host("c2").container
    assert beside is not None
    assert await beside.remove_broker(next(each.identity for each in beside.brokers() if each.is_master))
    await ring.cluster.kill("c1")
    return keys, ring.broker("g0", 1)


async def lose_power(ring: Ring) -> None:
    """Let the host of the master elsewhere lose its power and start again, with a quick disk."""
    await ring.cluster.kill("c3", power=True)
    ring.cluster.host("c3").disk.sync_seconds = 0.001
    await ring.cluster.restart("c3")


@pytest.mark.parametrize("sync_seconds", [0.5, 20.0], ids=["in time", "slower than syncFlushTimeout"])
def test_a_remote_master_that_loses_power_after_an_escape_loses_nothing(sync_seconds: float) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SAFE) as ring:
            # given a slave that acts, and a master elsewhere with a slow disk
            keys, slave = await with_a_master_elsewhere_only(ring)
            ring.cluster.host("c3").disk.sync_seconds = sync_seconds
            # when that loses its power as soon as the slave counts all of them as delivered
            await until(lambda: slave.schedule_progress.offsets.get(LEVEL, 0) == COUNT, 120)
            await lose_power(ring)
            # then each is there, once
            assert delivered(ring) == dict.fromkeys(keys, 1)

    run(scenario)


def test_a_remote_master_that_loses_what_it_stored_late_gets_it_again_and_it_comes_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SAFE) as ring:
            keys, slave = await with_a_master_elsewhere_only(ring)
            target = ring.broker("g2", 0).store
            end = target.max_physical_offset
            ring.cluster.host("c3").disk.sync_seconds = 600.0
            # when it loses its power after it answered that its disk is late, and before that has anything
            await until(lambda: target.max_physical_offset > end, 30)
            await trio.sleep(ring.broker("g2", 0).options.store.sync_flush_timeout / 1000 + 1)
            assert slave.schedule_progress.offsets.get(LEVEL, 0) == 0
            await lose_power(ring)
            # then each is there, once
            await until(lambda: slave.schedule_progress.offsets.get(LEVEL, 0) == COUNT, 60)
            assert delivered(ring) == dict.fromkeys(keys, 1)

    run(scenario)


def test_a_master_counts_a_message_as_delivered_when_it_is_durable() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SAFE) as ring:
            master = ring.broker("g0", 0)
            ring.cluster.host("c1").disk.sync_seconds = 0.5
            for _ in range(3):
                message = Message(TOPIC, b"x", {"DELAY": "1"})
                await ring.producer.send(message, queue=MessageQueue(TOPIC, "g0", 0))

            def told() -> int:
                return master.schedule_progress.offsets.get(1, 0)

            # with synchronous flush a message can be read when it is durable
            await until(lambda: told() == 3 or told() > len(records(master)), 20)
            assert told() == len(records(master)) == 3

    run(scenario)


def test_a_master_that_returns_while_messages_escape_hears_of_them_and_delivers_none_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SAFE) as ring:
            # given a slave that acts, and a master elsewhere with a slow disk
            keys, _ = await with_a_master_elsewhere_only(ring)
            target, disk = ring.broker("g2", 0).store, ring.cluster.host("c3").disk
            end = target.max_physical_offset
            disk.sync_seconds = 2.5
            # when the own master comes back while they are on their way
            await until(lambda: target.max_physical_offset > end, 30)
            await ring.cluster.restart("c1")
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
            disk.sync_seconds = 0.001
            await trio.sleep(10)
            # then each is delivered once
            assert delivered(ring) == dict.fromkeys(keys, 1)

    run(scenario)
