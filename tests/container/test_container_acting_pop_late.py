"""What a slave that acted has of pops, when its master went online without it; whole clusters in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, run

from understudy.broker.inner import InnerMessage
from understudy.container.escape.bridge import Bridge
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.store.status import PutStatus
from understudy.testkit.waiting import until

GROUP = "poppers"
INVISIBLE_MS = 40_000


async def nowhere(
    self: Bridge, messages: Sequence[InnerMessage], since_ms: int | None, may: Callable[[], bool]
) -> list[PutStatus]:
    """Take nothing to another group, as where no other one lives."""
    await trio.lowlevel.checkpoint()
    return [PutStatus.SERVICE_NOT_AVAILABLE] * len(messages)


async def pop_for(ring: Ring, seconds: float, invisible_ms: int) -> list[PoppedMessage]:
    """Pop for a while at g0, and acknowledge what comes there; return it."""
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g0", invisible_ms=invisible_ms, hold_ms=0)
    found = list[PoppedMessage]()
    with trio.move_on_after(seconds):
        while True:
            try:
                await ring.producer.session.renew_route(TOPIC)
                found += await pop(ring.producer.session, wanted)
            except ClientError:
                pass
            await trio.sleep(0.5)
    return found


async def acknowledge(ring: Ring, popped: PoppedMessage) -> None:
    """Acknowledge *popped* as soon as its broker takes it."""
    while True:
        try:
            await ring.producer.session.renew_route(TOPIC)
            return await ack(ring.producer.session, popped)
        except ClientError:
            await trio.sleep(0.2)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_master_that_has_worked_off_its_check_points_itself_does_not_take_them_home_late(
    acknowledged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bridge, "redeliver", nowhere)

    async def scenario(source: random.Random) -> None:
        async with open_ring(source, replicas=2) as ring:
            # given a message that was popped, and a slave whose timer has had its check point out when it dies as well
            await ring.producer.send(Message(TOPIC, b"popped"), queue=MessageQueue(TOPIC, "g0", 0))
            (popped,) = await pop_for(ring, 0.4, INVISIBLE_MS)
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: bool(slave.acting_pops.points), 60)
            await ring.cluster.kill("c2")
            # when the master comes back without it, and brings the message back unless it is acknowledged now
            await ring.cluster.restart("c1")
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 120)
            if acknowledged:
                await acknowledge(ring, popped)
            again = await pop_for(ring, 40, 10 * INVISIBLE_MS)
            assert [each.message.body for each in again] == ([] if acknowledged else [b"popped"])
            for each in again:
                await ack(ring.producer.session, each)
            # then it does not come once more when the slave is heard
            await ring.cluster.restart("c2")
            await ring.online()
            assert await pop_for(ring, 60, 10 * INVISIBLE_MS) == []

    run(scenario)
