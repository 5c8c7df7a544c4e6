"""Messages that were popped when their master dies, for tests of what becomes of them."""

from __future__ import annotations

from collections import Counter

import trio
from container_ring import TOPIC, Ring, records

from understudy.format import names
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
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
    await found_anew(ring)
    await until(lambda: "pop revive" not in ring.broker("g0", 1).services.running(), 10)


async def found_anew(ring: Ring) -> None:
    """Let the client ask where brokers are now."""
    await trio.sleep(0.5)
    await ring.producer.session.renew_route(TOPIC)


async def pop_at_slave(ring: Ring, count: int) -> list[PoppedMessage]:
    """Pop *count* messages of g0 at the slave that acts; the route must lead there first."""
    popped: list[PoppedMessage] = []
    with trio.fail_after(20):
        while len(popped) < count:
            try:
                popped += await pop_from(ring, "g0")
            except ClientError:
                await found_anew(ring)
    return popped
