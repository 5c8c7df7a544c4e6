"""Deferred messages that rot before they are due are got from a slave, wherever in a batch they stand."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import FILE_BYTES, TOPIC, open_filled_pair
from test_container_put_again_once import copied, delayed

from understudy.mqclient.message import Message
from understudy.testkit.waiting import until

COUNT = 8


@pytest.mark.parametrize("acting", ["true", "false"])
@pytest.mark.parametrize("rotten", [(0,), (3,), (0, 1), (3, 4), (1, 3, 5), (0, 2, 4)], ids=str)
def test_delayed_messages_that_rot_in_a_batch_come_from_a_slave(rotten: tuple[int, ...], acting: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster=acting) as pair:
            places = []
            for number in range(COUNT):
                places.append(pair.master.store.max_physical_offset)
                assert await send_raw(pair, pair.master, b"%d" % number * 900, delayed(f"k{number}", 6)) == 0
            for _ in range(8):
                await pair.producer.send(Message(TOPIC, source.randbytes(12_000)))
            await copied(pair)
            await pair.cluster.stop("c1")
            for place in (places[each] for each in rotten):
                start = place - place % FILE_BYTES
                at, path = place - start + 300, f"/data/g-0/commitlog/{start:020d}"
                pair.cluster.host("c1").disk.damage(
                    path,
                    lambda data, at=at: data[:at] + b"rot" + data[at + 3 :],  # type: ignore[misc]
                )
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.hole is None

            def counts() -> list[int]:
                bodies = [each.body for each in records(pair.master)]
                return [bodies.count(b"%d" % number * 900) for number in range(COUNT)]

            await trio.sleep(240)
            await until(lambda: pair.master.store.hole is None, 60)
            assert counts() == [1] * COUNT

    run(scenario)
