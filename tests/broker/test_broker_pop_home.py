"""A master takes home what a slave handed out: all of it, once, and beside the acknowledgements that it has itself."""

from __future__ import annotations

import json

import attrs
import pytest
from broker_rig import Rig, send_header
from pop_rig import ACK, POP, ack_header, bodies, open_virtual, pop_header, prepare, receipts, virtual_world
from trio.testing import MockClock

from understudy.broker.pop.revive import SCAN
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint
from understudy.broker.services import ServiceRow
from understudy.broker.storage import config_path
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


def point_at(offset: int, pop_ms: int, invisible_ms: int = 5_000) -> CheckPoint:
    return CheckPoint("T", "g", 0, offset, pop_ms, invisible_ms, "broker-a", (offset,))


async def all_popped(rig: Rig, seconds: int) -> list[bytes]:
    """Pop and acknowledge for a while; return what came."""
    found = list[bytes]()
    for _ in range(seconds):
        answer = rig.ask(POP, pop_header(invisibleTime="600000"))
        if answer.code == 0:
            found += bodies(answer)
            for _, receipt in receipts(answer):
                assert rig.ask(ACK, ack_header(receipt)).code == 0
        await rig.broker.world.clock.sleep(1)
    return found


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
    await rig.broker.pops.bring_home()
    return rows["pop revive"], rows["timer"]


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


@pytest.mark.parametrize("entries_between", [10, SCAN + 100])
async def test_an_acknowledgement_far_behind_its_check_point_counts(
    entries_between: int, autojump_clock: MockClock
) -> None:
    """A slave sends a master that does not ask for its table all check points before the acknowledgements."""
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "1"}, world) as rig:
        prepare(rig, queues=1)
        bodies_left = [b"%d" % number for number in range(entries_between)]
        for body in (b"acknowledged", *bodies_left):
            rig.send("T", body)
        written, pop_ms = rig.broker.pops.log, world.clock.wall_ms()
        first, second, *others = [point_at(offset, pop_ms, 8_300) for offset in range(entries_between + 1)]
        rig.broker.offsets.commit("g", "T", 0, entries_between + 1)
        # given one whose time has come, and another one, so that its queue was not quiet since
        first, second = attrs.evolve(first, invisible_ms=5_000), attrs.evolve(second, invisible_ms=7_000)
        for point in (first, second):
            written.write(point, 0, point.revive_ms - AHEAD_MS)
        await world.clock.sleep(7.5)
        # when its acknowledgement is written behind more than one read takes
        for point in others:
            written.write(point, 0, point.revive_ms - AHEAD_MS)
        written.write(Ack(first.key, (0,)), 0, first.revive_ms)
        assert sorted(await all_popped(rig, 60), key=int) == sorted(bodies_left, key=int)
        rig.nursery.cancel_scope.cancel()


async def test_one_that_cannot_be_written_yet_holds_up_no_other_and_each_comes_once(autojump_clock: MockClock) -> None:
    world, count, full_seconds = virtual_world(), 12, 100
    async with open_virtual({"reviveQueueNum": "1", "timerCongestNumEachSlot": "2"}, world) as rig:
        prepare(rig, queues=1)
        for number in range(count):
            rig.send("T", b"%d" % number)
        rig.broker.offsets.commit("g", "T", 0, count)
        # given a second for which the timer takes no more, and a check point for it in front of others
        full_ms = world.clock.wall_ms() + full_seconds * 1000
        for _ in range(9):
            rig.tell(310, send_header("Others", f"TIMER_DELIVER_MS\x01{full_ms}\x02"), b"x")
            await world.clock.sleep(1)
        pop_ms = world.clock.wall_ms()
        for number in range(count):
            invisible_ms = full_ms + AHEAD_MS - pop_ms if number == 0 else 30_000
            rig.broker.pops.acting.add(point_at(number, pop_ms, invisible_ms), 0, 0, logged=False)
        await rig.broker.pops.bring_home()
        assert [row.point.start_offset for row in rig.broker.pops.acting.rows()] == [0]
        # then the others come in their time, and that one when there is room for it
        assert sorted(await all_popped(rig, 60), key=int) == [b"%d" % number for number in range(1, count)]
        assert await all_popped(rig, full_seconds) == [b"0"]
        assert rig.broker.pops.acting.empty
        rig.nursery.cancel_scope.cancel()


@pytest.mark.parametrize("after_seconds", [0, 0.15, 0.6, 2])
async def test_what_came_home_is_always_in_the_durable_log_or_in_the_durable_table(
    after_seconds: float, autojump_clock: MockClock
) -> None:
    world = virtual_world()
    async with open_virtual({"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "5000"}, world) as rig:
        prepare(rig, queues=1)
        broker = rig.broker
        await world.clock.sleep(1)
        await broker.services.stop("pop revive")  # it would take home what is not there yet
        rig.tell(310, send_header("T"), b"left")
        broker.offsets.commit("g", "T", 0, 1)
        broker.pops.acting.add(point_at(0, world.clock.wall_ms(), 60_000), 0, 0, logged=False)
        await broker.persistence.save_all()
        await broker.store.flush()
        before = broker.store.max_physical_offset
        await broker.pops.bring_home()
        assert broker.store.max_physical_offset > before
        # when the power goes now or a little later
        await world.clock.sleep(after_seconds)
        table = json.loads(world.disk.read(config_path(broker.options.store, "actingPops.json")))
        assert (broker.store.flushed_offset > before) or table["points"]
        rig.nursery.cancel_scope.cancel()


@pytest.mark.parametrize("queue", [1, 5])
async def test_what_comes_home_for_a_queue_that_only_the_slave_had_comes_back(
    queue: int, autojump_clock: MockClock
) -> None:
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "2"}, world) as rig:
        prepare(rig, queues=1)
        for body in (b"acknowledged", b"left"):
            rig.send("T", body)
        rig.broker.offsets.commit("g", "T", 0, 2)
        # given a slave with more revive queues; when its master takes home what it handed out
        points = [point_at(offset, world.clock.wall_ms(), 20_000) for offset in range(2)]
        for point in points:
            rig.broker.pops.acting.add(point, queue, 0, logged=False)
        await world.clock.sleep(2)
        assert rig.broker.pops.acting.empty
        # then the receipts are good, and it comes back
        receipt = Receipt(0, points[0].pop_ms, 20_000, queue, "0", "broker-a", 0, 0)
        assert rig.ask(ACK, ack_header(receipt)).code == 0
        assert await all_popped(rig, 60) == [b"left"]
        rig.nursery.cancel_scope.cancel()


async def test_what_waits_for_a_queue_comes_back_when_there_are_fewer_after_a_start(autojump_clock: MockClock) -> None:
    world = virtual_world()
    async with open_virtual({"reviveQueueNum": "3"}, world) as rig:
        prepare(rig, queues=1)
        rig.send("T", b"left")
        rig.broker.pops.log._turn = 1  # as after other pops
        ((_, receipt),) = receipts(rig.ask(POP, pop_header(invisibleTime="20000")))
        assert receipt.revive_queue == 2
        await world.clock.sleep(1)
        rig.nursery.cancel_scope.cancel()
    async with open_virtual({"reviveQueueNum": "1"}, world) as rig:
        assert await all_popped(rig, 60) == [b"left"]
        rig.nursery.cancel_scope.cancel()
