"""A master takes home what a slave handed out, while its own timer is behind: acknowledgements wait in that one."""

from __future__ import annotations

import pytest
from pop_rig import ACK, POP, ack_header, bodies, open_virtual, pop_header, prepare, receipts, virtual_world
from trio.testing import MockClock

from understudy.broker.pop.revive_log import CheckPoint
from understudy.format.receipts import Receipt
from understudy.format.record import Record

INVISIBLE_MS = 12_000


def point_of(popped: tuple[Record, Receipt]) -> CheckPoint:
    record, receipt = popped
    offsets = (record.queue_offset,)
    return CheckPoint(
        "T", "g", record.queue_id, receipt.start_offset, receipt.pop_ms, INVISIBLE_MS, "broker-a", offsets
    )


@pytest.mark.covers("R63")
async def test_what_comes_home_late_waits_for_acknowledgements_that_a_timer_behind_holds(
    autojump_clock: MockClock,
) -> None:
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "1"}, world) as rig:
        prepare(rig, queues=1)
        asked = pop_header(invisibleTime=str(INVISIBLE_MS), maxMsgNums="1")
        popped = list[tuple[Record, Receipt]]()
        # given one that is acknowledged and one that is not, and a timer that stands still before it holds back either
        for body in (b"acknowledged", b"left"):
            rig.send("T", body)
            popped += receipts(rig.ask(POP, asked))
            await world.clock.sleep(4)
        assert rig.ask(ACK, ack_header(popped[0][1])).code == 0
        await world.clock.sleep(1)
        timer = next(row for keeper in rig.broker.services._keepers for row in keeper._rows if row.name == "timer")
        await rig.broker.services.stop(timer.name)
        await world.clock.sleep(20)
        # when a slave has taken both check points out of its copy of that timer, and the master takes them home
        for each in popped:
            rig.broker.pops.acting.add(point_of(each), each[1].revive_queue, 0, logged=True)
        rig.broker.pops.bring_home()
        await world.clock.sleep(10)
        # then nothing comes back before the timer has gone on
        assert rig.ask(POP, asked).code == 210
        rig.nursery.start_soon(timer.run)
        await world.clock.sleep(10)
        assert bodies(rig.ask(POP, asked)) == [b"left"]
        assert rig.ask(POP, asked).code == 210
        rig.nursery.cancel_scope.cancel()
