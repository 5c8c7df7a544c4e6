"""Messages that come back when others have their places in the queues are put at the ends of those once more."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import TOPIC, Pair, content, open_filled_pair

from understudy.mqclient.message import Message
from understudy.remoting.client import open_client
from understudy.testkit.waiting import until

LOST, NEW = [b"lost %d" % number * 200 for number in range(4)], b"new"


async def lose_the_end_of_a_queue_and_go_on(pair: Pair, count: int = 1) -> int:
    """Lose the last *count* messages of a queue while the slave is away, and let another one take the first place."""
    queue, other = (await pair.producer.queues(TOPIC))[:2]
    hole = pair.master.store.max_physical_offset
    for body in LOST[:count]:
        await pair.producer.send(Message(TOPIC, body, {"KEYS": "k"}), queue=queue)
    after = pair.master.store.max_physical_offset
    await pair.producer.send(Message(TOPIC, b"kept"), queue=other)
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
    await trio.sleep(15)
    await pair.cluster.kill("c2")
    await pair.lose([hole], length=after - hole - 100)
    await pair.cluster.restart("c1")
    await pair.online()
    await until(lambda: pair.master.store.writable, 10)
    async with open_client(pair.cluster.client_world("later")) as pair.client:
        assert await send_raw(pair, pair.master, NEW, "", queue_id=queue.queue_id) == 0
    assert pair.master.store.hole == hole
    return queue.queue_id


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("acts", ["false", "true"])
def test_a_message_that_comes_back_late_is_read_behind_those_that_came_meanwhile(acts: str, count: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster=acts) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair, count)
            # when the slave that has the lost message is back
            await pair.cluster.restart("c2")
            await until(lambda: pair.master.store.hole is None, 60)
            await until(lambda: content(pair.slave) == content(pair.master), 30)
            # then they are the last ones of their queue, once, and all others are where they were
            for broker in (pair.master, pair.slave):
                found = [each for each in records(broker) if each.queue_id == queue_id]
                assert [each.body for each in found[-1 - count :]] == [NEW, *LOST[:count]]
                assert len(records(broker)) == 12 + 2 + count
                assert found[-1].properties["KEYS"] == "k"

    run(scenario)


def test_it_is_put_again_once_when_the_master_gets_it_back_in_a_later_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            queue_id = await lose_the_end_of_a_queue_and_go_on(pair)
            await trio.sleep(15)
            await pair.cluster.stop("c1")
            await pair.cluster.restart("c2")
            await pair.cluster.restart("c1")
            await pair.online()
            for _ in range(2):
                assert pair.master.store.hole is None
                found = [each.body for each in records(pair.master) if each.queue_id == queue_id]
                assert found[-2:] == [NEW, LOST[0]]
                assert found.count(LOST[0]) == 1
                await until(lambda: content(pair.slave) == content(pair.master), 30)
                await pair.cluster.stop("c1")
                await pair.cluster.restart("c1")
                await pair.online()

    run(scenario)
