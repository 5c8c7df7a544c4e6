"""Delivers delayed messages when their level's time has passed.

One service for all levels. It sleeps until the next message is due; a message that arrives earlier in the schedule
topic wakes it. What is due goes to the *redelivery target*: the broker's own log on a master.

Progress per level is saved every ``flushDelayOffsetInterval``. After a crash the messages since then are delivered
again: at least once, never lost.

A clock that jumps forward by some time makes messages early by no more than that. After it was set back, what was
stored before waits for its level's delay once more at most, by a clock that never jumps (differs because the reference
delivers all of it at once, however early that is).

Source: ScheduleMessageService.java.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from understudy.broker import delay
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.inner import Redelivery, copy_of
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_records
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

log = get_logger("broker.schedule")

BATCH = 32
BATCH_BYTES = 1 << 20
RETRY_SECONDS = 0.1
SET_BACK_MS = 1_000
"""A clock that was set back by more than this is noticed; by less, messages are late by as much."""
NEVER = float("inf")


class ScheduleService:
    """Delivers delayed messages of one broker.

    Args:
        clock: wall time decides what is due.
        store: holds the schedule topic.
        progress: how far each level has come.
        levels_ms: delay of level 1, 2, ...
        target: where due messages go.
        delivered: called with topic, queue id and length of each delivered message, for statistics.
    """

    def __init__(
        self,
        clock: Clock,
        store: MessageStore,
        progress: ScheduleProgress,
        levels_ms: Sequence[int],
        target: Redelivery,
        delivered: Callable[[str, int, int], None] = lambda topic, queue_id, size: None,
    ) -> None:
        self._clock = clock
        self._store = store
        self.progress = progress
        self.levels_ms = list(levels_ms)
        self.target = target
        self._delivered = delivered
        self._due_ms: dict[int, float] = {}
        # Level to a queue offset before which everything was stored before the clock was set back, and the monotonic
        # time at which all of that is due.
        self._set_back: dict[int, tuple[int, float]] = {}
        self._wake = trio.Event()
        self._wakes_at_ms = NEVER

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message in the schedule topic; registered at the store."""
        if topic != names.SCHEDULE_TOPIC:
            return
        level = queue_id + 1
        if tags_code < self._due_ms.get(level, NEVER):
            self._due_ms[level] = tags_code
            if tags_code < self._wakes_at_ms:
                self._wake.set()

    def correct(self) -> None:
        """Bring every level's progress into what its queue holds."""
        for level in range(1, len(self.levels_ms) + 1):
            queue = delay.queue_of_level(level)
            low = self._store.min_queue_offset(names.SCHEDULE_TOPIC, queue)
            high = self._store.max_queue_offset(names.SCHEDULE_TOPIC, queue)
            known = self.progress.offsets.get(level)
            if known is None:
                if high > 0:
                    self.progress.update(level, low)
            elif not low <= known <= high:
                fixed = low if known < low else high
                log.warning("progress of a delay level corrected", level=level, was=known, now=fixed)
                self.progress.update(level, fixed)

    async def run(self) -> None:
        """Deliver what is due until cancelled."""
        self.correct()
        for level in range(1, len(self.levels_ms) + 1):
            self._due_ms[level] = 0  # look at each queue once; then its head is known
        ahead_ms = self._wall_ahead_ms()
        while True:
            before_ms, ahead_ms = ahead_ms, self._wall_ahead_ms()
            if ahead_ms < before_ms - SET_BACK_MS:
                self._due_ms = dict.fromkeys(self._due_ms, 0)  # what is due by a clock that never jumps may be
            now_ms = self._clock.wall_ms()
            for level in [level for level, due_ms in self._due_ms.items() if due_ms <= now_ms]:
                await self._deliver_level(level)
            self._wake = trio.Event()
            self._wakes_at_ms = min(self._due_ms.values(), default=NEVER)
            left_ms = self._wakes_at_ms - self._clock.wall_ms()
            if left_ms > 0:
                with self._clock.move_on_after(left_ms / 1000):
                    await self._wake.wait()
            else:
                await trio.lowlevel.checkpoint()

    def _wall_ahead_ms(self) -> float:
        return self._clock.wall_ms() - self._clock.monotonic() * 1000

    async def _deliver_level(self, level: int) -> None:
        """Deliver everything of *level* that is due and note when the next message will be."""
        while True:
            offset = self.progress.offsets.get(level, 0)
            self._due_ms.pop(level, None)
            records, next_offset, due_ms = self._read(level, offset)
            for record in records:
                if not await self._deliver(level, record):
                    retry_ms = self._clock.wall_ms() + RETRY_SECONDS * 1000
                    self._due_ms[level] = min(self._due_ms.get(level, NEVER), retry_ms)
                    return
                self.progress.update(level, record.queue_offset + 1)
            if not records and next_offset > offset:
                self.progress.update(level, next_offset)
                continue
            if due_ms is not None:
                self._due_ms[level] = min(self._due_ms.get(level, NEVER), due_ms)
                return
            if not records:
                return
            await trio.lowlevel.checkpoint()

    def _read(self, level: int, offset: int) -> tuple[list[Record], int, float | None]:
        """Read messages of *level* from *offset*.

        Returns:
            Due messages in order; the offset to go on with when there are none; when the first one that is not due
            will be (None: the queue holds no such message as far as was read).
        """
        now_ms = self._clock.wall_ms()
        queue, delay_ms = delay.queue_of_level(level), delay.delay_of_level(self.levels_ms, level)
        now = self._clock.monotonic()
        waits_until: list[int] = []
        seen = 0

        def is_due(deliver_ms: int) -> bool:
            nonlocal seen
            seen += 1
            if waits_until:
                return False  # messages behind one that waits wait as well: the order of a level is kept
            left_ms = deliver_ms - now_ms
            end, until = self._set_back.get(level, (-1, 0.0))
            if offset + seen > end and left_ms > delay_ms:  # the clock was set back after it was stored
                end, until = self._store.max_queue_offset(names.SCHEDULE_TOPIC, queue), now + delay_ms / 1000
                self._set_back[level] = end, until
            if offset + seen <= end:
                # whole milliseconds: less than one vanishes beside a wall time, and nobody would wait for it
                left_ms = min(left_ms, math.ceil((until - now) * 1000))
            if left_ms > 0:
                waits_until.append(now_ms + left_ms)
            return left_ms <= 0

        found = self._store.get(names.SCHEDULE_TOPIC, queue, offset, BATCH, BATCH_BYTES, is_due)
        due_ms = waits_until[0] if waits_until else None
        if found.status is GetStatus.FOUND:
            try:
                return [record for part in found.parts for record in decode_records(part)], offset, due_ms
            except RecordError as error:
                log.error("damaged delayed message skipped", level=level, offset=offset, error=error)
                return [], offset + 1, due_ms
        if due_ms is not None:
            return [], offset, due_ms
        return [], found.next_begin_offset, None

    async def _deliver(self, level: int, record: Record) -> bool:
        """Put one due message where it belongs; return False when it must be tried again."""
        pairs = record.properties
        topic = pairs.get(delay.REAL_TOPIC)
        queue_text = pairs.get(delay.REAL_QUEUE, "")
        if topic is None or not queue_text.isdecimal():
            log.error("delayed message without its real place skipped", level=level, offset=record.queue_offset)
            return True
        if topic == names.HALF_TOPIC:
            log.error("delayed half message skipped", level=level, offset=record.queue_offset)
            return True
        properties = record.properties_text.encode()
        message = copy_of(record, topic, int(queue_text), properties, record.reconsume_times)
        try:
            safe = await self.target(message)
        except Exception as error:
            log.error("delayed message not delivered yet", level=level, offset=record.queue_offset, error=error)
            return False
        if safe:
            self._delivered(topic, message.queue_id, len(message.body))
        return safe
