"""Delay levels as deferred queues: level 1, 2, ... of the schedule topic, each in order.

What was stored first is delivered first: a message that waits holds up those behind it. Progress per level is saved
every ``flushDelayOffsetInterval``. After a crash the messages since then are delivered again: at least once, never
lost.

Source: ScheduleMessageService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from understudy.broker import delay
from understudy.broker.deferred import NEVER, Found, Item
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.inner import InnerMessage, copy_of
from understudy.broker.left_out import LeftOut
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_records
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

log = get_logger("broker.schedule")

BATCH = 128
"""Most messages of a level that are under way at once, and that a crash can repeat."""
BATCH_BYTES = 4 << 20


class DelayLevels:
    """Reads the delay levels of one broker.

    Args:
        clock: wall time decides what is due.
        store: holds the schedule topic.
        progress: how far each level has come.
        levels_ms: delay of level 1, 2, ...
        delivered: called with topic, queue id and length of each delivered message, for statistics.

    Attributes:
        levels_ms: as given.
        announce: called with a level and the time in milliseconds when its newest message is due.
        left_out: what an operator decided, by level and queue offset.
        before_cut: returns how far a level had come before its progress was cut, as the log had lost messages.
        skipped: called with a level and queue offsets, the first and the one after the last, that cannot be read and
            are passed.
        lacks: returns whether this is a slave: its log may begin later than its master's. A level waits then for the
            master where messages before the beginning are not delivered: the master would take it over as delivered
            that they were passed.
    """

    def __init__(
        self,
        clock: Clock,
        store: MessageStore,
        progress: ScheduleProgress,
        levels_ms: Sequence[int],
        delivered: Callable[[str, int, int], None] = lambda topic, queue_id, size: None,
    ) -> None:
        self._clock = clock
        self._store = store
        self._progress = progress
        self.levels_ms = list(levels_ms)
        self._delivered = delivered
        self._clocks = {level: delay.LevelClock() for level in range(1, len(self.levels_ms) + 1)}
        self.announce: Callable[[int, float], None] = lambda level, due_ms: None
        self.left_out = LeftOut()
        self.before_cut: Callable[[int], int] = lambda level: 0
        self.skipped: Callable[[int, int, int], None] = lambda level, first, after: None
        self.lacks: Callable[[], bool] = lambda: False
        self._lost: dict[int, _Lost] = {}

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message in the schedule topic.

        Args:
            topic: of the message.
            queue_id: of the message: the delay level less one.
            next_offset: queue offset behind it.
            tags_code: when it is due (wall time, ms), as entries of this topic have it.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where the store was not asked for them.
        """
        self.announce(queue_id + 1, tags_code)

    def queues(self) -> list[int]:
        """Return the levels, the progress of each brought into what its queue holds."""
        self.left_out.forget()
        self._lost.clear()
        for level in self._clocks:
            self._correct(level)
        return list(self._clocks)

    def _correct(self, level: int) -> None:
        queue = delay.queue_of_level(level)
        low = self._store.min_queue_offset(names.SCHEDULE_TOPIC, queue)
        high = self._store.written_queue_offset(names.SCHEDULE_TOPIC, queue)
        known = self._progress.offsets.get(level)
        if (was := max(known or 0, self.before_cut(level))) > high:
            self._lost[level] = _Lost(high, was, self._store.max_physical_offset)
        if self._waits(level, known or 0):
            log.warning(
                "delayed messages are held back: this slave's log begins behind some that are not delivered, and its "
                "master may have them",
                level=level,
                delivered_before=known or 0,
                begins=low,
            )
        elif known is None:
            if high > 0:
                self._progress.update(level, low)
        elif not low <= known <= high:
            fixed = low if known < low else high
            log.warning("progress of a delay level corrected", level=level, was=known, now=fixed)
            self._progress.update(level, fixed)

    def _waits(self, level: int, position: int) -> bool:
        """Whether the master may have messages of *level*, from *position* on, that this slave lacks."""
        queue_id = delay.queue_of_level(level)
        return self.lacks() and position < self._store.min_queue_offset(names.SCHEDULE_TOPIC, queue_id)

    def position(self, level: int) -> int:
        """Return the queue offset that is next in *level*."""
        return self._progress.offsets.get(level, 0)

    def move(self, level: int, position: int) -> None:
        """Note that everything of *level* before *position* is delivered."""
        self._progress.update(level, position)
        self.left_out.moved(level, position)

    def undo(self, level: int) -> None:
        """Have what was read of *level* read once more: nothing is kept of it."""

    def stored(self, message: InnerMessage) -> None:
        """Count a delivered message."""
        if message.topic == names.SCHEDULE_TOPIC:
            return  # it waits once more
        self._delivered(message.topic, message.queue_id, len(message.body))

    def read(self, level: int, position: int) -> Found:
        """Read the messages of *level* that are due, from queue offset *position* on, :data:`BATCH` at most."""
        if self._waits(level, position):
            return Found((), position, NEVER)
        items: list[Item] = []
        reading = _Reading(self._clock, self._clocks[level], delay.delay_of_level(self.levels_ms, level))
        queue, at, left_bytes, most = delay.queue_of_level(level), position, BATCH_BYTES, BATCH

        def end() -> int:
            return self._store.max_queue_offset(names.SCHEDULE_TOPIC, queue)

        while len(items) < BATCH and left_bytes > 0:
            accept = reading.from_offset(at, end)
            found = self._store.get(names.SCHEDULE_TOPIC, queue, at, min(most, BATCH - len(items)), left_bytes, accept)
            if found.status is GetStatus.FOUND:
                try:
                    records = [record for part in found.parts for record in decode_records(part)]
                except RecordError as error:
                    if most > 1:
                        most = 1  # to see which of them it is
                        continue
                    log.error("damaged delayed message skipped", level=level, offset=at, error=error)
                    self._store.note_rotten(names.SCHEDULE_TOPIC, queue, at)
                    self.skipped(level, at, at + 1)
                    return Found(tuple(items), at + 1, None)
                for record in records:
                    if record.queue_offset > at:
                        self.skipped(level, at, record.queue_offset)
                    items.append(Item(record.queue_offset, self._message(level, record)))
                    at = record.queue_offset + 1
                left_bytes -= found.size_bytes
            if reading.due_ms is not None:
                return Found(tuple(items), at, reading.due_ms)
            if found.status is not GetStatus.FOUND:
                if found.next_begin_offset <= at:
                    return Found(tuple(items), at, NEVER)
                self.skipped(level, at, found.next_begin_offset)
                at = found.next_begin_offset
        return Found(tuple(items), at, None)

    def _message(self, level: int, record: Record) -> InnerMessage | None:
        lost, decided = self._lost.get(level), self.left_out.meets(level, record.queue_offset)
        if decided is None and lost is not None and lost.was_done(record):
            return None
        if decided is None:
            return due_message(level, record)
        if not decided.again:
            return None
        target = names.SCHEDULE_TOPIC, delay.queue_of_level(level)
        return copy_of(record, *target, record.properties_text.encode(), record.reconsume_times)


@attrs.frozen
class _Lost:
    """What was delivered of a level before its log lost it at the end; it may get that back.

    Attributes:
        first: queue offset where the level ended then; others have those before it.
        after: what lay before this queue offset was delivered.
        end: the log ended there (bytes); what lies behind it is new.
    """

    first: int
    after: int
    end: int

    def was_done(self, record: Record) -> bool:
        """Return whether *record* is back, and was delivered."""
        return self.first <= record.queue_offset < self.after and record.physical_offset < self.end


class _Reading:
    """Which messages of one read are due.

    Attributes:
        due_ms: wall time when the first one that waits is due; ``None`` while none waits.
    """

    def __init__(self, clock: Clock, level_clock: delay.LevelClock, delay_ms: int) -> None:
        self._now_ms, self._now_seconds = clock.wall_ms(), clock.monotonic()
        self._level_clock = level_clock
        self._delay_ms = delay_ms
        self.due_ms: int | None = None

    def from_offset(self, offset: int, end: Callable[[], int]) -> Callable[[int], bool]:
        """Return what is asked for each message from *offset* on, with its time, whether it is due."""

        def is_due(deliver_ms: int) -> bool:
            nonlocal offset
            if self.due_ms is not None:
                return False  # messages behind one that waits wait as well: the order of a level is kept
            left_ms = self._level_clock.left_ms(
                offset, deliver_ms, self._delay_ms, self._now_ms, self._now_seconds, end
            )
            offset += 1
            if left_ms > 0:
                self.due_ms = self._now_ms + left_ms
            return left_ms <= 0

        return is_due


def due_message(level: int, record: Record) -> InnerMessage | None:
    """Return *record* of a delay level as a message for its real place; ``None`` when it has none."""
    pairs = record.properties
    topic = pairs.get(delay.REAL_TOPIC)
    queue_text = pairs.get(delay.REAL_QUEUE, "")
    if topic is None or not queue_text.isdecimal():
        log.error("delayed message without its real place skipped", level=level, offset=record.queue_offset)
        return None
    if topic == names.HALF_TOPIC:
        log.error("delayed half message skipped", level=level, offset=record.queue_offset)
        return None
    return copy_of(record, topic, int(queue_text), record.properties_text.encode(), record.reconsume_times)
