"""Pops when the slave that acts for their master dies, too."""

from __future__ import annotations

import random
from collections import Counter

import trio
from acting_pop_rig import came_back, dead_master, found_anew, pop_at_slave, popped_and_half_acknowledged
from container_ring import TOPIC, open_ring, records, run

from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.drills.ring import container_of
from understudy.testkit.waiting import until


def test_a_dead_acting_slave_is_followed_by_one_that_knows_what_it_handed_out() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            for number in range(4):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            await trio.sleep(1)
            await dead_master(ring)
            popped = await pop_at_slave(ring, 4)
            await ack(ring.producer.session, popped[0])
            await trio.sleep(2)  # the other slave copies it
            # when the acting slave dies, too, and the last one acts
            await ring.cluster.kill(container_of("g0", 1))
            await until(lambda: "pop revive" in ring.broker("g0", 2).services.running(), 20)
            acked = False
            while not acked:
                try:
                    await ack(ring.producer.session, popped[1])
                    acked = True
                except ClientError:
                    await found_anew(ring)
            await ring.cluster.restart(container_of("g0", 1))
            await ring.cluster.restart("c1")
            await ring.online()
            await found_anew(ring)
            # then only what nobody acknowledged comes again
            await trio.sleep(40)
            assert came_back(ring) == Counter(each.message.body.decode() for each in popped[2:])

    run(scenario)


def test_acknowledgements_that_a_slave_took_count_at_the_next_one_that_acts() -> None:
    """Their check points stand in the log, from where the next one reads them anew."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given check points that came out of the timer at the master, acknowledgements at the slave that acts
            left = await popped_and_half_acknowledged(ring)
            slave = ring.broker("g0", 1)
            await until(lambda: bool(records(slave, slave.pops.log.topic)), 15)
            await dead_master(ring)
            await until(lambda: len(slave.acting_pops.acks) > 0, 5)
            await trio.sleep(1)  # the other slave copies how far the timer is
            # when that one dies as well, before the check points are worked off
            await ring.cluster.kill(container_of("g0", 1))
            await until(lambda: "pop revive" in ring.broker("g0", 2).services.running(), 20)
            await trio.sleep(20)
            await ring.cluster.restart(container_of("g0", 1))
            await ring.cluster.restart("c1")
            await ring.online()
            # then what was acknowledged does not come again
            await trio.sleep(40)
            assert came_back(ring) == Counter(left)

    run(scenario)
