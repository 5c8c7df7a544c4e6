"""Pops of a group that lost its master, where no master is beside the slave that acts: they come back elsewhere."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from container_ring import TOPIC, Ring, records, run

from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.client import open_client
from understudy.testkit.drills.ring import Ring as RingShape
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

GROUP = "poppers"
COUNT = 10
INVISIBLE_MS = 6_000


async def pop_from(ring: Ring, group: str, invisible_ms: int) -> list[PoppedMessage]:
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), group, invisible_ms=invisible_ms, hold_ms=0)
    return await pop(ring.producer.session, wanted)


def came_back(ring: Ring) -> dict[str, Counter[str]]:
    """Return how often each message stands in the retry topic, at each master that runs."""
    masters = {group: ring.shape.broker_of(ring.cluster, group, 0) for group in ring.shape.groups}
    topic = names.pop_retry_topic(GROUP, TOPIC)
    return {
        group: Counter(each.body.decode() for each in records(broker, topic))
        for group, broker in masters.items()
        if broker is not None
    }


@pytest.mark.covers("CT-34", "R19", "R52", "R54")
def test_what_was_popped_comes_again_at_a_master_of_another_machine_that_makes_the_retry_topic() -> None:
    async def scenario(source: random.Random) -> None:
        shape = RingShape(3, apart=True)
        async with SimCluster(source) as cluster:
            await shape.start(cluster)
            async with (
                open_client(cluster.client_world()) as client,
                open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
            ):
                ring = Ring(cluster, client, producer, shape)
                await ring.online()
                await ring.topic_everywhere()
                await trio.sleep(4)  # slaves look at topics every three seconds
                # given messages that were popped, half of them acknowledged, and a master that dies
                for number in range(COUNT):
                    await producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
                popped = await pop_from(ring, "g0", INVISIBLE_MS)
                assert len(popped) == COUNT
                for each in popped[::2]:
                    await ack(producer.session, each)
                left = Counter(each.message.body.decode() for each in popped[1::2])
                await trio.sleep(1)
                await cluster.kill("c1")
                # when their time is over
                await until(lambda: sum((each.total() for each in came_back(ring).values()), 0) >= left.total(), 15)
                # then the others stand at masters that live, where their consumers get them, each once
                got = [each for group in ("g1", "g2") for each in await pop_from(ring, group, 60_000)]
                assert Counter(each.message.body.decode() for each in got) == left
                for each in got:
                    await ack(producer.session, each)
                # and the master that comes back does not bring them again
                await cluster.restart("c1")
                await ring.online()
                await trio.sleep(30)
                assert sum(came_back(ring).values(), Counter[str]()) == left

    run(scenario)
