"""Pops across the death and the return of their master: what nobody acknowledged comes again, nothing else does."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, records, run

from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.pop import PoppedMessage, PopRequest, ack, pop
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.testkit.drills.ring import GROUPS
from understudy.testkit.waiting import until

GROUP = "poppers"
RETRY = names.pop_retry_topic(GROUP, TOPIC)
MESSAGES = 16
INVISIBLE_MS = 12_000


async def pop_from(ring: Ring, group: str, invisible_ms: int = INVISIBLE_MS) -> list[PoppedMessage]:
    """Pop what the master of *group* has now."""
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), group, invisible_ms=invisible_ms, hold_ms=0)
    return await pop(ring.producer.session, wanted)


async def popped_and_half_acknowledged(ring: Ring) -> set[str]:
    """Send to g0, pop all of it, acknowledge half; return the bodies of the other half."""
    for number in range(MESSAGES):
        await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", number % 2))
    popped = await pop_from(ring, "g0")
    assert len(popped) == MESSAGES
    for each in popped[::2]:
        await ack(ring.producer.session, each)
    return {each.message.body.decode() for each in popped[1::2]}


def came_back(ring: Ring) -> Counter[str]:
    """Return how often each message stands in the group's retry topic, over all masters."""
    return Counter(record.body.decode() for group in GROUPS for record in records(ring.broker(group, 0), RETRY))


async def dead_master(ring: Ring) -> None:
    await ring.cluster.kill("c1")
    await until(lambda: "pop revive" in ring.broker("g0", 1).services.running(), 10)


async def master_back(ring: Ring) -> None:
    await ring.cluster.restart("c1")
    await ring.online()
    await until(lambda: "pop revive" not in ring.broker("g0", 1).services.running(), 10)


@pytest.mark.parametrize("pause_seconds", [2, 11.5, 12.5])
@pytest.mark.covers("CT-32", "CT-34", "R63")
def test_what_was_popped_comes_again_at_a_master_that_lives(pause_seconds: float) -> None:
    """Whether the check points are in the timer or in the revive topic when the master dies."""

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given messages that were popped, half of them acknowledged; when their master dies
            left = await popped_and_half_acknowledged(ring)
            await trio.sleep(pause_seconds)
            await dead_master(ring)
            # then the others, and they alone, come again at masters that live
            await trio.sleep(25)
            living = [group for group in GROUPS if group != "g0"]
            found = Counter(
                record.body.decode() for group in living for record in records(ring.broker(group, 0), RETRY)
            )
            before = Counter(record.body.decode() for record in records(ring.broker("g0", 1), RETRY))
            assert found + before == Counter(left)
            # where consumers get them, each once
            got = [each for group in living for each in await pop_from(ring, group, 60_000)]
            assert Counter(each.message.body.decode() for each in got) == found
            for each in got:
                await ack(ring.producer.session, each)
            # and the master that comes back does not bring them again
            await master_back(ring)
            await trio.sleep(30)
            assert came_back(ring) == Counter(left)

    run(scenario)


@pytest.mark.covers("R63")
def test_what_is_due_after_the_return_comes_from_the_master_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            left = await popped_and_half_acknowledged(ring)
            await trio.sleep(2)
            await dead_master(ring)
            await trio.sleep(1)
            await master_back(ring)
            await trio.sleep(40)
            assert came_back(ring) == Counter(left)

    run(scenario)
