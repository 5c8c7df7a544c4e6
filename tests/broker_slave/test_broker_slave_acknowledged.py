"""A slave's acknowledgement moves its end offset and what the master counts as copied, and nothing else does."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import trio
from slave_rig import Pair, open_pair, run

from understudy.format.json_dialect import loads
from understudy.ha.hearing import Unconfirmed
from understudy.mqclient.message import Message
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until


async def acknowledged(pair: Pair) -> tuple[int, int]:
    """Return how far the slave is behind, and its end, as the master says to whoever asks for its HA status."""
    status: Any = loads((await pair.ask(pair.master, RequestCode.GET_BROKER_HA_STATUS)).body)
    (slave,) = status["haConnectionInfo"]
    assert status["masterCommitLogMaxOffset"] == slave["diff"] + slave["slaveAckOffset"]
    return slave["diff"], slave["slaveAckOffset"]


@pytest.mark.covers("R355")
def test_an_acknowledgement_moves_the_end_of_the_slave_and_the_confirmed_offset() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2", "slaveTimeout": "60000"}
        async with open_pair(source, keys) as pair:
            await pair.send(3)
            master = pair.master
            first = master.store.max_physical_offset
            # given everything is copied
            assert await acknowledged(pair) == (0, first)
            assert master.replication.copied(2) == first
            # when the slave's words do not arrive, neither its end nor the confirmed offset moves
            near, far = pair.cluster.address("c2"), pair.cluster.address("c1")
            pair.cluster.network.cut(near, far)
            done: list[float] = []

            async def send() -> None:
                await pair.producer.send(Message("orders", b"waits"), timeout_ms=60_000)
                done.append(trio.current_time())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await until(lambda: pair.slave.store.max_physical_offset > first, 5)
                end = master.store.max_physical_offset
                await trio.sleep(1)
                assert (await acknowledged(pair), master.replication.copied(2), done) == (
                    (end - first, first),
                    first,
                    [],
                )
                # when they do, both move, and the send that waited for it is answered at once
                pair.cluster.network.mend(near, far)
                await until(lambda: master.replication.copied(2) == end, 30)
                assert await acknowledged(pair) == (0, end)
                await until(lambda: len(done) == 1, 0.5)

    run(scenario)


def test_words_of_a_slave_that_were_under_way_do_not_say_that_it_gets_what_is_sent() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(3)
            serving = pair.master.replication.master
            assert serving is not None
            clock, network = pair.master.world.clock, pair.cluster.network
            master, slave = pair.cluster.address("c1"), pair.cluster.address("c2")

            def missed() -> bool:
                return serving.hearing(0.0).misses(clock.monotonic(), 3.0, since=0.0)

            await until(lambda: not missed(), 5)
            # given words of a slave that are held up on their way, and then a master that does not get through either
            network.cut(slave, master)
            await pair.send(3)
            await trio.sleep(1)
            network.cut(master, slave)
            await pair.send(1)
            await trio.sleep(4)
            assert missed()
            # when the words arrive
            before = serving.status()[0].acknowledged
            network.mend(slave, master)
            await until(lambda: serving.status()[0].acknowledged > before, 5)
            # then the slave still has not got what was sent since
            assert missed()
            network.mend(master, slave)
            await until(lambda: not missed(), 5)

    run(scenario)


def test_when_the_oldest_unconfirmed_bytes_were_sent_is_known_and_bounded() -> None:
    sent = Unconfirmed()
    assert sent.since == math.inf
    for number in range(10):
        sent.sent(10 * (number + 1), float(number))
    sent.confirmed(30)
    assert sent.since == 3.0
    sent.confirmed(35)
    assert sent.since == 3.0
    sent.confirmed(100)
    assert sent.since == math.inf
    # bytes that follow at once are as old as those before them
    sent.sent(110, 50.0)
    sent.sent(120, 50.05)
    sent.confirmed(110)
    assert sent.since == 50.0
    # and a slave that never confirms costs no more and more memory
    for number in range(10_000):
        sent.sent(1_000 + number, 60.0 + number)
    assert sent.since == 50.0
    assert len(sent._marks) <= 256
