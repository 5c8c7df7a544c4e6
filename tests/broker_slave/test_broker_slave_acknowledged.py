"""A slave's acknowledgement moves its end offset and what the master counts as copied, and nothing else does."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from slave_rig import Pair, open_pair, run

from understudy.format.json_dialect import loads
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
