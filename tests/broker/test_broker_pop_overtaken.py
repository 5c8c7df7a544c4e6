"""A check point in the log, and earlier pops of its queue that wait in memory (enablePopBufferMerge) and are lost."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from test_broker_pop_cores import point_at
from test_broker_pop_crash import BROKER, Story, ask, send

from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.buffer import BufferLimits, PopBuffer
from understudy.broker.pop.recovery import GroupQueue, note_handed_out
from understudy.broker.pop.revive_log import CHECK_POINT, read_entry
from understudy.format.receipts import Receipt
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import Command
from understudy.testkit.sim.cluster import FIRST_BROKER_PORT, SimCluster
from understudy.testkit.sim.determinism import run_seed

LIMITS = BufferLimits(10_000, 3_000, 100, 100)


async def pop(
    client: RemotingClient, address: str, invisible_ms: int, most: int, queue: str = "0"
) -> tuple[list[int], Command | None]:
    """Pop once; return what came, and the answer."""
    header = {"consumerGroup": "g", "topic": "T", "queueId": queue, "maxMsgNums": str(most), "initMode": "0"}
    more = {"invisibleTime": str(invisible_ms), "pollTime": "0", "bornTime": "0"}
    answer = await ask(client, address, 200050, {**header, **more})
    found = answer is not None and answer.code == 0
    return [int(record.body) for record in decode_records(answer.body)] if answer and found else [], answer


async def change(client: RemotingClient, address: str, popped: Command, offset: int) -> None:
    """Change the invisible time of one of the messages that *popped* gave."""
    assert popped.ext is not None
    start = int(popped.ext["startOffsetInfo"].split()[2])
    times = int(popped.ext["popTime"]), 60_000, int(popped.ext["reviveQid"])
    receipt = Receipt(start, *times, "0", "broker-a", 0, offset)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "offset": str(offset), "extraInfo": receipt.text}
    changed = await ask(client, address, 200053, {**fields, "invisibleTime": "30000"})
    assert changed is not None
    assert changed.code == 0, changed.remark


@pytest.mark.parametrize(("later", "seed"), [("a pop too short for the memory", 2), ("a change", 1)])
def test_what_waits_in_memory_comes_again_after_a_crash_whatever_of_its_queue_the_log_has(
    later: str, seed: int
) -> None:
    async def scenario(source: random.Random) -> set[int]:
        async with SimCluster(source) as cluster:
            await cluster.start_container("c1", [{**BROKER, "enablePopBufferMerge": "true"}])
            address, story = f"{cluster.address('c1')}:{FIRST_BROKER_PORT}", Story()
            async with open_client(cluster.client_world()) as client:
                for number in range(0, 20, 2):  # all in queue 0
                    await send(client, address, story, number)
                first, answer = await pop(client, address, 60_000, 5)
                assert first == [0, 2, 4, 6, 8]
                assert answer is not None
                if later == "a change":
                    await change(client, address, answer, 4)
                else:
                    assert (await pop(client, address, 4_000, 1))[0] == [10]
                await trio.sleep(2)
                await cluster.kill("c1", power=True)
                await cluster.restart("c1")
                seen = set[int]()
                with trio.move_on_after(150):
                    while not seen >= set(first):
                        for queue in ("0", "-1"):
                            seen |= {*(await pop(client, address, 600_000, 8, queue))[0]}
                        await trio.sleep(1)
                return seen

    assert run_seed(scenario, seed) >= {0, 2, 4, 6, 8}


def test_the_first_one_that_waits_is_known() -> None:
    buffer, points = PopBuffer(), [point_at(10_000 + number, (number,), 60_000) for number in range(3)]
    queue = ("g", "T", 0)
    assert buffer.first_waiting(*queue) is None
    for number, point in enumerate(points):
        buffer.keep(point, 0, number + 1, 10_000, 1.0, LIMITS)
    for point in points:
        first = buffer.first_waiting(*queue)
        assert first is not None
        assert first.point == point
        buffer.finish(first)
    assert buffer.first_waiting(*queue) is None
    buffer.keep(point_at(20_000, (9,), 60_000), 0, 10, 20_000, 2.0, LIMITS)
    buffer.forget(*queue)
    assert buffer.first_waiting(*queue) is None


def test_one_that_overtakes_says_so_in_the_log_and_moves_no_group() -> None:
    point, found = attrs.evolve(point_at(10_000), overtakes=True), dict[GroupQueue, int]()
    read = read_entry(CHECK_POINT, point.body, "b")
    assert read == point
    table = OffsetTable(lambda: 1)
    note_handed_out(point, table, "b", found)
    assert found == {}
    note_handed_out(point_at(10_000), table, "b", found)
    assert found == {("g", "T", 0): 4}
