"""A slave that only believes that it acts: frozen in the middle of an escape, it must not go on with it afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio
from container_ring import TOPIC, Ring, delivered, open_ring, records, run, send_delayed

from understudy.container.escape.remote import RemoteNeighbour
from understudy.format import names
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop import pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionProducer, TransactionState
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.testkit.waiting import until

KEYS = {
    "mappedFileSizeTimerLog": "4096",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "6000",
    "transactionCheckMax": "1000",
}
COUNT = 8
POPPERS = "poppers"
AT_G0 = MessageQueue(TOPIC, "g0", 0)


async def delayed(ring: Ring) -> None:
    await send_delayed(ring, COUNT, 2)


async def timed(ring: Ring) -> None:
    for number in range(COUNT):
        await ring.producer.send(Message(TOPIC, b"%d" % number, {"TIMER_DELAY_MS": "6000"}), queue=AT_G0)


async def half(ring: Ring) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    producer = TransactionProducer(ring.producer, check)
    prepared = [await producer.prepare(Message(TOPIC, b"%d" % number)) for number in range(3 * COUNT)]
    assert sum(sent.queue.broker_name == "g0" for sent in prepared) >= COUNT


async def popped(ring: Ring) -> None:
    for number in range(COUNT):
        await ring.producer.send(Message(TOPIC, b"%d" % number), queue=AT_G0)
    wanted = PopRequest(POPPERS, subscription(TOPIC, "*", 1), "g0", invisible_ms=6_000, hold_ms=0)
    assert len(await pop(ring.producer.session, wanted)) == COUNT


def in_the_topic(ring: Ring) -> Counter[str]:
    return delivered(ring)


def in_the_retry_topic(ring: Ring) -> Counter[str]:
    topic = names.pop_retry_topic(POPPERS, TOPIC)
    return Counter(each.properties["UNIQ_KEY"] for each in records(ring.broker("g2", 0), topic))


@pytest.mark.covers("R46", "R63")
@pytest.mark.parametrize(
    ("prepare", "found"),
    [(delayed, in_the_topic), (timed, in_the_topic), (half, in_the_topic), (popped, in_the_retry_topic)],
)
def test_a_slave_that_was_frozen_in_the_middle_of_an_escape_does_not_go_on_with_it(
    prepare: Callable[[Ring], Awaitable[None]],
    found: Callable[[Ring], Counter[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect, ask = RemoteNeighbour._connect, RemoteNeighbour._ask

    async def scenario(source: random.Random) -> None:
        async with open_ring(source, KEYS) as ring:
            # given due messages, a dead master, and a slave that takes them out to another machine
            await prepare(ring)
            await trio.sleep(1)
            beside = ring.cluster.host("c2").container
            assert beside is not None
            assert await beside.remove_broker(next(each.identity for each in beside.brokers() if each.is_master))
            slave, frozen, asked = ring.broker("g0", 1), trio.Event(), list[float]()

            async def connect_and_freeze(self: RemoteNeighbour) -> Connection | None:
                connection = await connect(self)
                if self._parts.node is slave.node and not frozen.is_set():
                    frozen.set()
                    ring.cluster.freeze("c2")
                    await slave.world.clock.sleep(0.001)  # which is over when it goes on
                return connection

            async def ask_and_note(self: RemoteNeighbour, connection: Connection, command: Command) -> Command | None:
                if self._parts.node is slave.node:
                    asked.append(trio.current_time())
                return await ask(self, connection, command)

            monkeypatch.setattr(RemoteNeighbour, "_connect", connect_and_freeze)
            monkeypatch.setattr(RemoteNeighbour, "_ask", ask_and_note)
            await ring.cluster.kill("c1")
            with trio.fail_after(60):
                await frozen.wait()
            # when it stands still right before the first leaves, and another slave acts and delivers all of them
            await until(lambda: len(found(ring)) >= COUNT, 60)
            await trio.sleep(10)
            before = found(ring)
            ring.cluster.unfreeze("c2")
            await trio.sleep(30)
            # then nothing leaves it any more
            assert asked == []
            assert found(ring) == before
            assert set(before.values()) == {1}

    run(scenario)
