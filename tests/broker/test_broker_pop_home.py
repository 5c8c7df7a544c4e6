"""A master takes home what a slave handed out: all of it, once, and beside the acknowledgements that it has itself."""

from __future__ import annotations

import pytest
from broker_rig import Rig
from pop_rig import ACK, POP, ack_header, bodies, open_virtual, pop_header, prepare, receipts, virtual_world
from trio.testing import MockClock

from understudy.broker.pop.revive_log import CheckPoint
from understudy.broker.services import ServiceRow
from understudy.broker.timer.done import Done, Read
from understudy.format.receipts import Receipt
from understudy.format.record import Record

INVISIBLE_MS = 12_000


def point_of(popped: tuple[Record, Receipt]) -> CheckPoint:
    record, receipt = popped
    offsets = (record.queue_offset,)
    return CheckPoint(
        "T", "g", record.queue_id, receipt.start_offset, receipt.pop_ms, INVISIBLE_MS, "broker-a", offsets
    )


async def one_acknowledged_and_one_left(rig: Rig, asked: dict[str, str]) -> tuple[ServiceRow, ServiceRow]:
    """Let a slave take both check points out of its copy of the timer, and their master take them home.

    Returns:
        The services of that master that bring back and that deliver: they stand still since before it was time.
    """
    clock, popped = rig.broker.world.clock, list[tuple[Record, Receipt]]()
    for body in (b"acknowledged", b"left"):
        rig.send("T", body)
        popped += receipts(rig.ask(POP, asked))
        await clock.sleep(4)
    assert rig.ask(ACK, ack_header(popped[0][1])).code == 0
    await clock.sleep(1)
    rows = {row.name: row for keeper in rig.broker.services._keepers for row in keeper._rows}
    for name in ("pop revive", "timer"):
        await rig.broker.services.stop(name)
    await clock.sleep(20)
    for each in popped:
        rig.broker.pops.acting.add(point_of(each), each[1].revive_queue, 0, logged=True)
    rig.broker.pops.bring_home()
    return rows["pop revive"], rows["timer"]


@pytest.mark.covers("R63")
async def test_what_comes_home_late_waits_for_acknowledgements_that_a_timer_behind_holds(
    autojump_clock: MockClock,
) -> None:
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "1"}, world) as rig:
        prepare(rig, queues=1)
        asked = pop_header(invisibleTime=str(INVISIBLE_MS), maxMsgNums="1")
        revive, timer = await one_acknowledged_and_one_left(rig, asked)
        rig.nursery.start_soon(revive.run)
        await world.clock.sleep(10)
        # nothing comes back before the timer has gone on
        assert rig.ask(POP, asked).code == 210
        rig.nursery.start_soon(timer.run)
        await world.clock.sleep(10)
        assert bodies(rig.ask(POP, asked)) == [b"left"]
        assert rig.ask(POP, asked).code == 210
        rig.nursery.cancel_scope.cancel()


async def test_what_comes_home_waits_for_acknowledgements_in_a_later_second_than_their_own(
    autojump_clock: MockClock,
) -> None:
    """The slave's timer was ahead, and its log lacked the acknowledgement, which its master puts there once more."""
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "1"}, world) as rig:
        prepare(rig, queues=1)
        asked = pop_header(invisibleTime=str(INVISIBLE_MS), maxMsgNums="1")
        revive, timer = await one_acknowledged_and_one_left(rig, asked)
        own = rig.broker.timer
        own.take_over(Done(Read(own.floor(world.clock.wall_ms())), own.topic.end - 1))
        for row in (timer, revive):
            rig.nursery.start_soon(row.run)
        await world.clock.sleep(10)
        assert bodies(rig.ask(POP, asked)) == [b"left"]
        assert rig.ask(POP, asked).code == 210
        rig.nursery.cancel_scope.cancel()
