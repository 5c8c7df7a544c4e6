"""Clocks that are set while messages are popped: what was agreed with a consumer lasts as long as it was agreed."""

from __future__ import annotations

from typing import cast

import attrs
import pytest
from broker_rig import code_and_remark
from hypothesis import given
from hypothesis import strategies as st
from pop_rig import ACK, CHANGE, POP, ack_header, bodies, open_virtual, pop_header, prepare, receipts, virtual_world
from trio.testing import MockClock

from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.order import OrderTable, next_record
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint
from understudy.broker.pop.stepped_clock import LEAST_STEP_MS, ClockSteps, Step
from understudy.broker.pop.window import PATIENCE_MS, ReviveWindow
from understudy.testkit.sim.clock import VirtualClock

NOTIFICATION = 200054
HOUR_MS = 3_600_000
POINT = CheckPoint("T", "g", 0, 5, 10_000, 6_000, "b", (5, 6))


def steps_of(*looks: tuple[float, int]) -> ClockSteps:
    """Return what looks at the clocks (monotonic, wall milliseconds) found."""
    steps = ClockSteps()
    for look in looks:
        steps.look(*look)
    return steps


class TestSteps:
    def test_what_was_agreed_before_ends_later_by_the_step(self) -> None:
        steps = ClockSteps()
        found = [steps.look(0, 9_000), steps.look(1_000, 10_000), steps.look(2_000, 71_000)]
        assert found == [None, None, Step(10_000, 60_000)]
        assert steps.due_ms(10_000, 16_000) == 76_000
        assert steps.due_ms(71_000, 77_000) == 77_000  # agreed after it
        assert steps.due_ms(1_000, 10_000) == 10_000  # over before it

    def test_one_that_is_taken_back_changes_nothing(self) -> None:
        steps = steps_of((0, 10_000), (1_000, 71_000), (2_000, 12_000))
        assert steps.due_ms(10_000, 16_000) == 16_000

    def test_what_is_left_of_several_steps(self) -> None:
        steps = steps_of((0, 10_000), (0, 20_000), (0, 50_000), (0, 15_000))
        assert steps.due_ms(10_000, 16_000) == 21_000

    def test_a_clock_that_was_set_back_and_forward_again(self) -> None:
        steps = steps_of((0, 100_000), (1_000, 41_000), (2_000, 102_000))
        assert steps.due_ms(41_000, 47_000) == 107_000  # what was agreed in between
        assert steps.due_ms(100_000, 106_000) == 106_000

    @given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1 - LEAST_STEP_MS, LEAST_STEP_MS - 1)), max_size=9))
    def test_a_clock_that_is_slewed_makes_no_step(self, looks: list[tuple[int, int]]) -> None:
        steps, monotonic_ms, wall_ms = steps_of((0, 1_000_000)), 0, 1_000_000
        for passed_ms, slewed_ms in looks:
            monotonic_ms, wall_ms = monotonic_ms + passed_ms, wall_ms + passed_ms + slewed_ms
            assert steps.look(monotonic_ms, wall_ms) is None

    @given(st.integers(0, 100_000), st.integers(0, 100_000), st.integers(LEAST_STEP_MS, 10**7), st.integers(0, 99))
    def test_nobody_waits_for_longer_than_was_agreed(self, ago: int, length: int, by_ms: int, slept: int) -> None:
        before = 10**9
        steps = steps_of((0, before), (slept, before + slept + by_ms))
        due_ms = steps.due_ms(before - ago, before - ago + length)
        left = length - ago
        assert due_ms == (before + by_ms + left if left > 0 else before + left)

    def test_as_many_as_it_remembers(self) -> None:
        steps = ClockSteps()
        for number in range(1_000):
            steps.look(0, number * 2_000)
        assert steps.due_ms(998 * 2_000, 998 * 2_000 + 1) == 998 * 2_000 + 2_001


class TestWhatWaits:
    def test_a_check_point_is_ripe_when_its_consumer_had_its_time(self) -> None:
        steps = steps_of((0, 10_000))
        window = ReviveWindow(0, steps)
        window.add(0, POINT, POINT.revive_ms - AHEAD_MS)
        steps.look(1_000, 71_000)
        window.not_beyond(71_000)
        window.add(1, None, 71_000)
        assert (window.ripe(9), window.due_ms()) == ([], 76_000 + PATIENCE_MS + 1)
        window.add_ack(Ack(POINT.key, (6,)))
        window.not_beyond(78_001)
        window.add(2, None, 78_001)
        assert [each.point.open_offsets for each in window.ripe(9)] == [[5]]

    def test_so_is_one_of_a_slave_that_acts(self) -> None:
        steps = steps_of((0, 10_000))
        pops = ActingPops("b", lambda: 1, lambda: 0, steps)
        pops.add(POINT, 0, POINT.revive_ms, logged=False)
        steps.look(1_000, 71_000)
        assert (pops.due_ms(), pops.ripe(76_000, 9)) == (76_000, [])
        assert [row.point for row in pops.ripe(76_001, 9)] == [POINT]

    @pytest.mark.parametrize("by_ms", [60_000, -60_000])
    def test_a_queue_in_order_opens_when_its_consumer_had_its_time(self, by_ms: int) -> None:
        now = [100_000]
        table = OrderTable(lambda: now[0])
        record = next_record(None, "one", 100_000, 6_000, [3, 4, 7], 100_000)
        table.put("T", "g", 0, attrs.evolve(record, acked=0b010, visible_ms={7: 109_000}))
        table.put("T", "g", 1, next_record(None, "one", 10_000, 6_000, [3], 10_000))
        now[0] += 1_000
        table.stepped(Step(now[0], by_ms))
        now[0] += by_ms
        found = table.get("T", "g", 0)
        assert found is not None
        assert found.visible_ms == {3: 106_000 + by_ms, 7: 109_000 + by_ms}
        now[0] += 7_999
        assert table.blocks("T", "g", 0, "two")
        now[0] += 1
        assert not table.blocks("T", "g", 0, "two")
        assert table.rows["T@g"][1].visible_ms == {}  # it was open


@pytest.mark.parametrize("by_ms", [60_000, -60_000, 3_000])
async def test_a_clock_that_is_set_gives_nothing_to_another_consumer(by_ms: int, autojump_clock: MockClock) -> None:
    world = virtual_world()
    async with open_virtual(world=world) as rig:
        prepare(rig)
        for number in range(3):
            rig.send("T", b"%d" % number)
        asked = pop_header(invisibleTime="20000")
        # given consumers that work on messages: one acknowledges late, one asks for more time, one dies
        late, prolonged, left = (handle for _, handle in receipts(rig.ask(POP, asked)))
        await world.clock.sleep(1)
        # when the clock is set
        cast(VirtualClock, world.clock).jump(by_ms)
        await world.clock.sleep(15)
        # then nobody else gets them within their time, and what is said of them counts
        assert rig.ask(POP, pop_header()).code == 210
        assert rig.ask(ACK, ack_header(late)).code == 0
        assert rig.ask(CHANGE, {**ack_header(prolonged), "invisibleTime": "5000"}).code == 0
        came = list[bytes]()
        for _ in range(110):
            answer = rig.ask(POP, pop_header())
            came += bodies(answer)
            for _, receipt in receipts(answer) if answer.code == 0 else ():
                assert rig.ask(ACK, ack_header(receipt)).code == 0
            await world.clock.sleep(1)
        assert sorted(came) == [b"%d" % prolonged.offset, b"%d" % left.offset]


async def test_neither_in_order(autojump_clock: MockClock) -> None:
    world = virtual_world()
    async with open_virtual(world=world) as rig:
        prepare(rig, queues=1)
        for number in range(2):
            rig.send("T", b"%d" % number)
        first = rig.ask(POP, pop_header(order="true", maxMsgNums="1"))
        assert bodies(first) == [b"0"]
        await world.clock.sleep(1)
        for by_ms in (60_000, -50_000):
            cast(VirtualClock, world.clock).jump(by_ms)
            await world.clock.sleep(1)
            assert rig.ask(POP, pop_header(order="true")).code == 210
        await world.clock.sleep(2.5)
        assert bodies(rig.ask(POP, pop_header(order="true"))) == [b"0", b"1"]


async def test_an_acknowledgement_that_the_timer_holds_because_a_clock_was_ahead_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    world = virtual_world()
    async with open_virtual({"timerPrecisionMs": "100"}, world) as rig:
        prepare(rig)
        for number in range(2):
            rig.send("T", b"%d" % number)
        # given check points that have come out of the timer
        acked, left = (handle for _, handle in receipts(rig.ask(POP, pop_header(invisibleTime="6000"))))
        await world.clock.sleep(5.2)
        # when the clock is ahead while another message is due, so that the timer passes the second of what comes next
        cast(VirtualClock, world.clock).jump(30_000)
        rig.send("Others", b"early", "TIMER_DELAY_MS\x0150\x02")
        await world.clock.sleep(0.4)
        assert [record.body for record in rig.stored("Others")] == [b"early"]
        cast(VirtualClock, world.clock).jump(-30_000)
        assert rig.ask(ACK, ack_header(acked)).code == 0
        # then what was acknowledged does not come again, and what was not comes when the timer is back in time
        came = list[bytes]()
        for _ in range(90):
            came += bodies(rig.ask(POP, pop_header(invisibleTime="600000")))
            await world.clock.sleep(1)
        assert came == [b"%d" % left.offset]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize(("code", "nothing"), [(POP, (210, "NO_MESSAGE_IN_QUEUE")), (NOTIFICATION, (0, None))])
async def test_who_waits_waits_for_as_long_as_was_agreed(
    code: int, nothing: tuple[int, str | None], by_ms: int, autojump_clock: MockClock
) -> None:
    world = virtual_world()
    async with open_virtual(world=world) as rig:
        prepare(rig)
        began, asked = world.clock.monotonic(), {"pollTime": "20000", "bornTime": str(world.clock.wall_ms() - 1_000)}
        waiting = rig.tell(code, pop_header(**asked))
        # when the clock is set, and it is woken in vain
        for _ in range(3):
            await world.clock.sleep(3)
            cast(VirtualClock, world.clock).jump(by_ms)
            rig.broker.pops.hold.wake_all()
        # then it is answered when it would have been
        assert code_and_remark(await rig.wait(waiting)) == nothing
        assert world.clock.monotonic() - began == pytest.approx(19, abs=0.1)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
async def test_who_waits_gets_what_comes_after_the_clock_was_set(by_ms: int, autojump_clock: MockClock) -> None:
    world = virtual_world()
    async with open_virtual(world=world) as rig:
        prepare(rig)
        waiting = rig.tell(POP, pop_header(pollTime="20000", bornTime=str(world.clock.wall_ms())))
        await world.clock.sleep(3)
        cast(VirtualClock, world.clock).jump(by_ms)
        rig.send("T", b"x")
        assert bodies(await rig.wait(waiting)) == [b"x"]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
async def test_a_check_point_waits_in_memory_for_as_long_as_it_may(by_ms: int, autojump_clock: MockClock) -> None:
    world = virtual_world()
    async with open_virtual({"enablePopBufferMerge": "true"}, world) as rig:
        prepare(rig, queues=1)
        for number in range(3):
            rig.send("T", b"%d" % number)
        header = pop_header(maxMsgNums="1", invisibleTime="60000")
        assert bodies(rig.ask(POP, header)) == [b"0"]
        await world.clock.sleep(3)
        # when the clock is set, and the next check point comes
        cast(VirtualClock, world.clock).jump(by_ms)
        assert bodies(rig.ask(POP, header)) == [b"1"]
        # then each is written when it has waited for 10 seconds
        found = list[tuple[int, int]]()
        for seconds in (3, 5, 3):
            await world.clock.sleep(seconds)
            found.append((len(rig.broker.pops.moving.buffer), rig.broker.offsets.query("g", "T", 0)))
        assert found == [(2, 0), (1, 1), (0, 2)]
