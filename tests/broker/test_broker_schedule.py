"""Delayed messages: what is delayed, and its delivery when it is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker import delay
from understudy.broker.deferred_service import GRACE_SECONDS, LONGEST_SLEEP_SECONDS, DeferredService
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.inner import InnerMessage
from understudy.broker.schedule import DelayLevels
from understudy.format import names
from understudy.format.properties import format_properties
from understudy.format.record import encode_record
from understudy.store.status import GetResult, GetStatus, PutStatus
from understudy.testkit.sim.clock import StoppableClock, VirtualClock

LEVELS_MS = [1_000, 5_000, 10_000]


class FakeScheduleQueue:
    """The schedule topic: per level a list of (deliver time, record)."""

    def __init__(self) -> None:
        self.queues: dict[int, list[tuple[int, bytes]]] = {}
        self.first = 0
        self.reads = 0
        self.rotten: list[tuple[int, int]] = []
        self.left_out: set[int] = set()
        """Queue offsets of messages that are known to be damaged: reads give the others."""

    def put(self, level: int, deliver_ms: int, body: bytes, topic: str = "T") -> None:
        queue = self.queues.setdefault(level - 1, [])
        pairs = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "2", "KEYS": "k"}
        record = encode_record(
            names.SCHEDULE_TOPIC, level - 1, len(queue), 0, body, format_properties(pairs).encode(), born_ms=5
        )
        queue.append((deliver_ms, record))

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.first

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get(queue_id, ()))

    written_queue_offset = max_queue_offset
    max_physical_offset = 0

    def note_rotten(self, topic: str, queue_id: int, offset: int) -> None:
        self.rotten.append((queue_id, offset))

    def get(
        self, topic: str, queue_id: int, offset: int, count: int, size: int, accept: Callable[[int], bool]
    ) -> GetResult:
        self.reads += 1
        assert self.reads < 1000, "it reads again and again and does not wait"
        queue = self.queues.get(queue_id, [])
        if offset >= len(queue):
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, 0, len(queue), [])
        parts, at = [], offset
        while at < len(queue) and len(parts) < count:
            if at not in self.left_out and accept(queue[at][0]):
                parts.append(memoryview(queue[at][1]))
            at += 1
        status = GetStatus.FOUND if parts else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, at, 0, len(queue), parts, 0, len(parts))


class HastyClock(VirtualClock):
    """Its timers end a hair before their time, by less than wall time can show."""

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return super().move_on_after(seconds - 1e-11)


@attrs.define
class Rig:
    """Delay levels, the queues they are read from, and what was delivered when."""

    clock: VirtualClock
    queue: FakeScheduleQueue
    delivered: list[tuple[float, InnerMessage]]
    progress: ScheduleProgress
    levels: DelayLevels
    service: DeferredService


class Target:
    """Takes messages, unless told to refuse the next ones."""

    def __init__(self, clock: VirtualClock, delivered: list[tuple[float, InnerMessage]]) -> None:
        self._clock = clock
        self._delivered = delivered
        self.refusals: list[bytes] = []

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        statuses = []
        for message in messages:
            if message.body in self.refusals:
                self.refusals.remove(message.body)
                statuses.append(PutStatus.SERVICE_NOT_AVAILABLE)
            else:
                self._delivered.append((self._clock.wall_ms(), message))
                statuses.append(PutStatus.PUT_OK)
        return statuses


class Never:
    """Takes nothing, for ever."""

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        await trio.sleep_forever()


class TestSchedule:
    def make(self, clock: VirtualClock, levels_ms: Sequence[int] = LEVELS_MS) -> Rig:
        queue, delivered = FakeScheduleQueue(), list[tuple[float, InnerMessage]]()
        progress = ScheduleProgress(clock.wall_ms)
        levels = DelayLevels(clock, cast(Any, queue), progress, levels_ms)
        service = DeferredService(clock, levels, Target(clock, delivered))
        levels.announce = service.arrived
        return Rig(clock, queue, delivered, progress, levels, service)

    @pytest.mark.covers("SC-03")
    def test_levels_and_queues(self) -> None:
        assert delay.queue_of_level(1) == 0
        assert delay.delay_of_level(LEVELS_MS, 1) == 1_000
        assert delay.delay_of_level(LEVELS_MS, 99) == 1_000

    async def test_delivered_when_due_with_everything_it_had(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        start = clock.wall_ms()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await wait_all_tasks_blocked()
            for level, wait_ms in enumerate(LEVELS_MS, 1):
                rig.queue.put(level, start + wait_ms, b"level %d" % level)
                rig.levels.arrived(names.SCHEDULE_TOPIC, level - 1, 1, start + wait_ms, start, None)
            await trio.sleep(11)
            nursery.cancel_scope.cancel()
        assert [(at - start, message.body) for at, message in rig.delivered] == [
            (1_000, b"level 1"),
            (5_000, b"level 2"),
            (10_000, b"level 3"),
        ]
        message = rig.delivered[0][1]
        assert (message.topic, message.queue_id, message.born_ms) == ("T", 2, 5)
        assert message.properties == b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x012\x02KEYS\x01k\x02"
        assert rig.progress.offsets == {1: 1, 2: 1, 3: 1}

    async def test_a_put_under_way_has_its_grace_by_the_clock_of_its_machine(self, autojump_clock: MockClock) -> None:
        clock = StoppableClock()
        rig = self.make(clock)
        rig.service.target = Never()
        rig.queue.put(1, clock.wall_ms() - 10, b"x")
        ended, cancelled = list[float](), trio.CancelScope()

        async def work() -> None:
            with cancelled:
                await rig.service.run()
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.sleep(1)
            # given a service that was stopped, and a machine that then stands still for a minute
            cancelled.cancel()
            await trio.sleep(GRACE_SECONDS / 2)
            clock.stop()
            await trio.sleep(60)
            # then no grace has passed meanwhile
            assert ended == []
            clock.go_on(counted=False)
            began = trio.current_time()
        assert ended == [pytest.approx(began + GRACE_SECONDS / 2)]

    async def test_backlog_is_delivered_at_the_start_in_order(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        for number in range(100):
            rig.queue.put(1, clock.wall_ms() - 10, b"%d" % number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert [message.body for _, message in rig.delivered] == [b"%d" % number for number in range(100)]

    async def test_failed_delivery_is_tried_again_and_nothing_else_twice(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        # given a target that refuses the second message three times
        cast(Target, rig.service.target).refusals = [b"1"] * 3
        for number in range(3):
            rig.queue.put(2, clock.wall_ms() - 10, b"%d" % number)
        start = clock.wall_ms()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(0.05)
            # then progress waits before it, whatever is stored behind it
            assert rig.progress.offsets == {2: 1}
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert [(at - start, message.body) for at, message in rig.delivered] == [(0, b"0"), (0, b"2"), (300, b"1")]
        assert rig.progress.offsets[2] == 3

    async def test_a_level_whose_target_is_slow_holds_up_no_other(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        good = rig.service.target

        class SlowForOne:
            async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
                if messages[0].body == b"slow":
                    await trio.sleep(3)
                return await good.put(messages)

        rig.service.target = SlowForOne()
        start = clock.wall_ms()
        rig.queue.put(1, start - 10, b"slow")
        rig.queue.put(2, start + 500, b"quick")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(1)
            # when the service is told to stop, it ends with the put that is under way, not in its middle
            nursery.cancel_scope.cancel()
        assert [(at - start, message.body) for at, message in rig.delivered] == [(500, b"quick"), (3_000, b"slow")]
        assert rig.progress.offsets == {1: 1, 2: 1}

    @pytest.mark.parametrize("clock_of", [VirtualClock, HastyClock])
    async def test_what_was_stored_before_the_clock_was_set_back_waits_once_more_at_most(
        self, autojump_clock: MockClock, clock_of: type[VirtualClock]
    ) -> None:
        clock = clock_of()
        rig = self.make(clock)
        delay_seconds = LEVELS_MS[0] / 1000
        rig.queue.put(1, clock.wall_ms() + 3_600_000, b"stored before the clock went back")
        rig.queue.put(1, clock.wall_ms() + 3_600_500, b"and another")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(0.001)
            # stored afterwards, due a little later than the first two must be
            rig.queue.put(1, clock.wall_ms() + LEVELS_MS[0], b"new")
            await trio.sleep(delay_seconds - 0.01)
            assert rig.delivered == []
            await trio.sleep(0.02)
            assert [message.body[:3] for _, message in rig.delivered] == [b"sto", b"and", b"new"]
            nursery.cancel_scope.cancel()

    async def test_a_clock_that_was_set_forward_keeps_nothing_waiting_that_is_due(
        self, autojump_clock: MockClock
    ) -> None:
        clock = VirtualClock()
        rig = self.make(clock, [3_600_000])
        rig.queue.put(1, clock.wall_ms() + 3_600_000, b"due in an hour")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(1)
            clock.jump(7_200_000)
            await trio.sleep(LONGEST_SLEEP_SECONDS)
            assert [message.body for _, message in rig.delivered] == [b"due in an hour"]
            nursery.cancel_scope.cancel()

    @pytest.mark.covers("SC-01")
    async def test_progress_is_brought_into_what_the_queue_holds(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        for level in (1, 2, 3):
            for _ in range(5):
                rig.queue.put(level, clock.wall_ms(), b"x")
        rig.queue.first = 2
        rig.progress.merge_json({"offsetTable": {"1": 0, "2": 99, "3": 4}})
        assert rig.levels.queues() == [1, 2, 3]
        assert rig.progress.offsets == {1: 2, 2: 5, 3: 4}

    async def test_a_damaged_message_is_passed_and_the_next_one_delivered(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        rig.queue.put(1, clock.wall_ms() - 10, b"damaged")
        rig.queue.put(1, clock.wall_ms() - 10, b"good")
        due_ms, record = rig.queue.queues[0][0]
        rig.queue.queues[0][0] = (due_ms, record[:-1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert [message.body for _, message in rig.delivered] == [b"good"]

    async def passed(self, rig: Rig) -> list[tuple[int, int, int]]:
        """Let *rig* deliver what is due; return what it is told to have passed."""
        skipped = list[tuple[int, int, int]]()
        rig.levels.skipped = lambda *row: skipped.append(row)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.service.run)
            await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        return skipped

    async def test_those_before_a_damaged_message_are_delivered(self, autojump_clock: MockClock) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        for body in (b"first", b"second", b"damaged", b"last"):
            rig.queue.put(1, clock.wall_ms() - 10, body)
        due_ms, record = rig.queue.queues[0][2]
        rig.queue.queues[0][2] = (due_ms, record[:-1])
        skipped = await self.passed(rig)
        assert [message.body for _, message in rig.delivered] == [b"first", b"second", b"last"]
        assert (skipped, rig.queue.rotten) == ([(1, 2, 3)], [(0, 2)])

    async def test_each_message_that_is_left_out_of_a_batch_is_known_to_be_passed(
        self, autojump_clock: MockClock
    ) -> None:
        clock = VirtualClock()
        rig = self.make(clock)
        for number in range(8):
            rig.queue.put(1, clock.wall_ms() - 10, b"%d" % number)
        rig.queue.left_out = {0, 2, 5, 6, 7}
        skipped = await self.passed(rig)
        assert [message.body for _, message in rig.delivered] == [b"1", b"3", b"4"]
        assert skipped == [(1, 0, 1), (1, 2, 3), (1, 5, 8)]
        assert rig.progress.offsets == {1: 8}

    def test_progress_file(self) -> None:
        progress = ScheduleProgress(lambda: 7, version_step=2)
        for offset in range(1, 5):
            progress.update(3, offset)
        assert progress.version.counter == 2
        again = ScheduleProgress(lambda: 7)
        again.merge_json(progress.to_json())
        assert (again.offsets, again.version) == ({3: 4}, progress.version)


class TestDelayRules:
    def test_level_is_clamped_and_the_real_place_noted(self) -> None:
        pairs = {"DELAY": "99", "TIMER_DELAY_SEC": "5"}
        assert delay.redirect("T", 3, pairs, 0, 18) == (names.SCHEDULE_TOPIC, 17)
        assert pairs == {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "3"}

    @pytest.mark.parametrize(
        ("pairs", "sys_flag"), [({}, 0), ({"DELAY": "0"}, 0), ({"DELAY": "x"}, 0), ({"DELAY": "3"}, 4)]
    )
    def test_what_is_not_delayed(self, pairs: dict[str, str], sys_flag: int) -> None:
        assert delay.redirect("T", 3, pairs, sys_flag, 18) == ("T", 3)
