"""More was popped than the table of a slave that acts takes from consumers; whole clusters in virtual time."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, records, run

from understudy.broker.pop import acting
from understudy.format import names
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.testkit.waiting import until

GROUP = "poppers"
MOST = 4
COUNT = 4 * MOST


async def pop_one(ring: Ring, invisible_ms: int) -> list[PoppedMessage]:
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g0", max_messages=1, invisible_ms=invisible_ms, hold_ms=0)
    return await pop(ring.producer.session, wanted)


async def fill(ring: Ring) -> None:
    """Let the slave hand out as much as it may."""
    with trio.move_on_after(5):
        while len(ring.broker("g0", 1).acting_pops.points) < MOST:
            try:
                await pop_one(ring, 30_000)
            except ClientError:
                await ring.producer.session.renew_route(TOPIC)
            await trio.sleep(0.1)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_waits_in_the_timer_of_a_slave_that_acts_comes_out_however_much_was_popped(
    acknowledged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "MOST", MOST)
    monkeypatch.setattr(acting, "MOST_LOGGED_ACKS", MOST)

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            for number in range(COUNT):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            timed_ms = ring.broker("g0", 0).world.clock.wall_ms() + 70_000
            timed = Message(TOPIC, b"timed", {"TIMER_DELIVER_MS": str(timed_ms)})
            await ring.producer.send(timed, queue=MessageQueue(TOPIC, "g0", 0))
            # given a master that dies when it has handed out more than the table of its slave holds
            popped = [each for _ in range(3 * MOST) for each in await pop_one(ring, 40_000)]
            for each in popped if acknowledged else ():
                await ack(ring.producer.session, each)
            await trio.sleep(3)
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: "pop revive" in slave.services.running(), 20)
            if not acknowledged:
                await fill(ring)
            await trio.sleep(100)
            # then what nobody acknowledged comes again elsewhere, once, and so does the message that was timed
            others = [ring.broker(group, 0) for group in ring.shape.groups[1:]]
            found = Counter(record.body for broker in others for record in records(broker))
            assert found[b"timed"] == 1
            retry = names.pop_retry_topic(GROUP, TOPIC)
            back = Counter(record.body for broker in others for record in records(broker, retry))
            assert back == ({} if acknowledged else Counter(b"%d" % number for number in range(COUNT)))
            # and of what is done, nothing is left in the table
            assert slave.acting_pops.empty

    run(scenario)
