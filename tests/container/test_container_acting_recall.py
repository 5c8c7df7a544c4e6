"""Timer messages that were taken back come from nobody, whoever keeps them: a master, its slave, or another group."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, reading, records, run
from test_container_acting_timer import SMALL, bodies, dead_master, delivered, keep, master_back

from understudy.format.names import TIMER_TOPIC
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.remoting.codes import RequestCode, ResponseCode

RESTS = {**SMALL, "timerRollWindowSlot": "10"}
"""What waits for longer than ten seconds rests on its way, and goes to another group if its slave must hand it on."""


async def asked(ring: Ring, group: str, broker_id: int, handle: str) -> int:
    """Ask one broker to take a message back; return the code of its answer."""
    ext = {"producerGroup": "writers", "topic": TOPIC, "recallHandle": handle}
    return (await ring.ask(ring.broker(group, broker_id), RequestCode.RECALL_MESSAGE, ext)).code


def handed_on(ring: Ring, name: str) -> bool:
    """Return whether a master of another group keeps what was handed on by the slave of g0."""
    kept = [record for group in ("g1", "g2") for record in records(ring.broker(group, 0), TIMER_TOPIC)]
    return name.encode() in [record.body for record in kept]


@pytest.mark.covers("SC-05")
def test_what_is_due_and_taken_back_comes_from_neither_before_nor_after_the_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, SMALL) as ring, reading(ring) as received:
            # given messages for the time of the outage and the time after it, some of them taken back at once
            handles = {
                name: await keep(ring, name, seconds * 1000)
                for name, seconds in (("gone 1", 8), ("meanwhile", 8), ("gone 2", 30), ("late", 31), ("gone 3", 32))
            }
            for name in ("gone 1", "gone 2"):
                await ring.producer.recall(TOPIC, handles[name])
            await trio.sleep(2)
            # when the master is dead, nobody takes one back, and nobody says so: neither its slave nor another master
            await dead_master(ring)
            assert await asked(ring, "g0", 1, handles["gone 3"]) == ResponseCode.SLAVE_NOT_AVAILABLE
            assert await asked(ring, "g1", 0, handles["gone 3"]) == ResponseCode.ILLEGAL_OPERATION
            with pytest.raises(ClientError):
                await ring.producer.recall(TOPIC, handles["gone 3"])
            await trio.sleep(8)
            assert [each.body for each in received] == [b"meanwhile"]
            # then the master takes it back when it is there again
            await master_back(ring)
            assert await ring.producer.recall(TOPIC, handles["gone 3"])
            await trio.sleep(30)
            assert bodies(delivered(ring)) == {"meanwhile": 1, "late": 1}

    run(scenario)


@pytest.mark.covers("SC-05")
@pytest.mark.parametrize("recalled_after", [1, 6])
def test_what_was_taken_back_while_it_rested_is_handed_on_to_nobody(recalled_after: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, RESTS) as ring, reading(ring):
            # given messages that rest for ten seconds first, one of which is taken back: that request rests, too
            handles = [await keep(ring, name, 24_000) for name in ("gone", "stays")]
            await trio.sleep(recalled_after)
            await ring.producer.recall(TOPIC, handles[0])
            await trio.sleep(8.5 - recalled_after)
            # when their rest ends while the slave acts, and the master is back before that of the request
            await dead_master(ring)
            await trio.sleep(4)
            await master_back(ring)
            assert handed_on(ring, "stays")
            assert not handed_on(ring, "gone")
            # then only the other one comes
            await trio.sleep(30)
            assert bodies(delivered(ring)) == {"stays": 1}

    run(scenario)


@pytest.mark.covers("SC-05")
def test_what_was_handed_on_is_not_said_to_be_taken_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, RESTS) as ring, reading(ring):
            # given a message that the slave handed on, one that came to the master's next life, and one that rests anew
            handle = await keep(ring, "handed on", 30_000)
            await trio.sleep(5)
            others = [await keep(ring, name, 30_000) for name in ("gone", "stays")]
            await trio.sleep(3.5)
            await dead_master(ring)
            await trio.sleep(3)
            await master_back(ring)
            assert handed_on(ring, "handed on")
            # when the master is asked, then it refuses what it cannot do, and does the rest
            with pytest.raises(BrokerError, match="was handed on") as refused:
                await ring.producer.recall(TOPIC, handle)
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            await ring.producer.recall(TOPIC, others[0])
            await trio.sleep(40)
            assert bodies(delivered(ring)) == {"handed on": 1, "stays": 1}

    run(scenario)
