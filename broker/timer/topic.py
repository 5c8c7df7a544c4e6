"""The timer topic as the wheel needs it: messages in order, where each waits, and whether a unit is true."""

from __future__ import annotations

from understudy.broker.timer.request import TIMER_QUEUE
from understudy.broker.timer.rules import Waits, waits
from understudy.broker.whole_records import whole_records
from understudy.format.names import TIMER_TOPIC
from understudy.format.record import Record, RecordError, decode_record
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus
from understudy.store.timer_log import Unit

log = get_logger("broker.timer")

READ_MESSAGES = 128
"""Most messages of one read."""
READ_BYTES = 4 << 20


class TimerTopic:
    """The timer topic of one store.

    Args:
        store: holds it.
        precision_ms, window: of the wheel, see :func:`~understudy.broker.timer.rules.waits`.
    """

    def __init__(self, store: MessageStore, precision_ms: int, window: int) -> None:
        self._store = store
        self._precision_ms = precision_ms
        self._window = window

    @property
    def end(self) -> int:
        """The queue offset that the next message will have."""
        return self._store.max_queue_offset(TIMER_TOPIC, TIMER_QUEUE)

    @property
    def written_end(self) -> int:
        """That offset, also where readers do not see everything before it yet."""
        return self._store.written_queue_offset(TIMER_TOPIC, TIMER_QUEUE)

    def read(self, offset: int, count: int) -> tuple[list[Record], int]:
        """Read messages from queue offset *offset* on, of *count* offsets at most, damaged ones left out.

        Returns:
            The messages, and the offset to go on at: *offset* when there is nothing to read.
        """
        found = self._store.get(TIMER_TOPIC, TIMER_QUEUE, offset, min(count, READ_MESSAGES), READ_BYTES)
        if found.status is GetStatus.FOUND:
            end = offset + count
            # Where messages are missing, so many of them reach further than so many offsets.
            records = whole_records(self._store, TIMER_TOPIC, TIMER_QUEUE, offset, found)
            return [each for each in records if each.queue_offset < end], min(found.next_begin_offset, end)
        if found.next_begin_offset > offset:
            log.error("timer messages are gone", first=offset, next=found.next_begin_offset)
        return [], max(found.next_begin_offset, offset)

    def waits(self, record: Record) -> Waits | None:
        """Return where *record* waits; ``None`` for one that does not say for when it is."""
        return waits(record, self._precision_ms, self._window)

    def record(self, unit: Unit) -> Record | None:
        """Return the message of *unit*; ``None`` when it cannot be read any more."""
        data = self._store.read(unit.physical)
        if data is None:
            return None
        try:
            record = decode_record(data)
        except RecordError:
            return None
        return record if record.topic == TIMER_TOPIC and record.size_bytes == unit.size else None

    def note_rotten(self, unit: Unit) -> None:
        """Know that the message of *unit* is damaged, if the topic has it there."""
        self._store.note_rotten_record(TIMER_TOPIC, TIMER_QUEUE, unit.physical, unit.size)

    def is_true(self, unit: Unit) -> bool:
        """Whether *unit* speaks of a message that is in the commit log, or was before the log's oldest files went."""
        if unit.physical < self._store.min_physical_offset:
            return True
        record = self.record(unit)
        place = None if record is None else self.waits(record)
        return (
            place is not None
            and place.deletes == unit.deletes
            and (unit.rolls or unit.due_ms >= place.second_ms // self._precision_ms * self._precision_ms)
        )

    def behind(self, unit: Unit) -> int:
        """Return the queue offset behind the message of *unit*."""
        return self._store.queue_offset_at(TIMER_TOPIC, TIMER_QUEUE, unit.physical + 1)

    def stored_ms(self, offset: int) -> int:
        """Return when the message at queue offset *offset* was stored; -1 when there is none."""
        return self._store.store_time_of(TIMER_TOPIC, TIMER_QUEUE, offset)

    def first_stored_ms(self) -> int:
        """Return when its oldest message was stored; -1 when there is none."""
        return self._store.earliest_store_time(TIMER_TOPIC, TIMER_QUEUE) if self.end else -1
