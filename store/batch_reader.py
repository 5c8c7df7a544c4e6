"""Reads of a batch queue: whole records, each of one message or of a client's batch."""

from __future__ import annotations

from collections.abc import Callable

from understudy.format.record import properties_of
from understudy.store.batch_queue import BatchQueue
from understudy.store.batch_repair import BatchRepair
from understudy.store.core import StoreCore
from understudy.store.heads import is_inner_batch, is_rolled_back, own_offset
from understudy.store.integrity import Integrity
from understudy.store.queue_repair import Doubt
from understudy.store.status import GetResult, GetStatus

UNITS_AT_ONCE = 800
"""Looked at by one read that finds nothing wanted."""


class BatchReader:
    """Reads the batch queues of one store.

    Args:
        core: the store.
        integrity: tells which records are whole.
        repair: mends units.
        outside: answers a read that begins outside of a queue: offset, lowest, visible and written one.
        corrected: where a group goes on: what it asked for, what is right.
    """

    def __init__(
        self,
        core: StoreCore,
        integrity: Integrity,
        repair: BatchRepair,
        outside: Callable[[int, int, int, int], GetResult],
        corrected: Callable[[int, int], int],
    ) -> None:
        self._core = core
        self._integrity = integrity
        self._repair = repair
        self._outside = outside
        self._corrected = corrected

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        accept: Callable[[int], bool] | None,
        accept_properties: Callable[[bytes], bool] | None,
    ) -> GetResult:
        """Read as :meth:`understudy.store.reader.Reader.get` does.

        The first record holds *offset* and may begin before it. Which tags the messages of an inner batch have is for
        the consumer to see; a condition is asked of what the batch itself says.

        Args:
            topic, queue_id, offset, max_messages, max_bytes: what is read.
            accept, accept_properties: filters by tags code and by properties; ``None`` takes all.
        """
        core = self._core
        queue = core.batch_queues.by_key.get((topic, queue_id))
        if queue is None or queue.shown_end == 0:
            hidden = queue is not None and 0 <= offset <= queue.written_end
            next_offset = offset if hidden else self._corrected(offset, 0)
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, next_offset, 0, 0, [])
        max_offset, shown_end = queue.max_offset, queue.shown_end
        min_offset = min(queue.min_offset(max(core.segments.min_offset, 0)), max_offset)
        if not min_offset <= offset < max_offset:
            return self._outside(offset, min_offset, shown_end, queue.written_end)
        limit = min(max_bytes, core.config.max_transfer_bytes_in_memory)
        parts: list[memoryview] = []
        total = count = 0
        status = GetStatus.OFFSET_FOUND_NULL
        for _ in range(max(UNITS_AT_ONCE, max_messages)):
            if offset >= max_offset:
                break
            number = queue.number_from(offset)
            unit = queue.unit(number) if number < queue.end else None
            doubt = self._doubt(queue, offset, number)
            if doubt is Doubt.ENTERED:
                continue
            if doubt is Doubt.LATER:
                status = status if count else GetStatus.OFFSET_OVERFLOW_ONE  # as if it was not stored yet
                break
            if unit is None or unit.next_offset > max_offset:
                break
            if count and (total + unit.size > limit or count + unit.messages > max_messages):
                break
            offset = unit.next_offset
            record = self._whole_record(unit.physical, unit.size)
            if record is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            wanted = accept is None or accept(unit.code) or is_inner_batch(record)
            if not wanted or not (accept_properties is None or accept_properties(properties_of(record))):
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            parts.append(record)
            total += unit.size
            count += unit.messages
        return GetResult(GetStatus.FOUND if count else status, offset, min_offset, shown_end, parts, total, count)

    def _doubt(self, queue: BatchQueue, offset: int, number: int) -> Doubt | None:
        """Compare the unit with queue offset *offset*, and mend it; ``None`` when it is right.

        One that does not begin there, or later, may have been found because the one before it has rotted.
        """
        repair, unit = self._repair, queue.unit(number) if number < queue.end else None
        numbers = [number] if unit is not None else []
        if number > queue.first and (unit is None or unit.first > offset):
            numbers.append(number - 1)
        for each in numbers:
            if not repair.is_right(queue, each):
                doubt = repair.doubt(queue, each, self._integrity.start_scrub, self._integrity.note)
                if doubt is not Doubt.DAMAGED or each == number:
                    return doubt
        return None

    def _whole_record(self, physical: int, size: int) -> memoryview | None:
        """Return the record that a unit points to; ``None`` when it is gone, damaged or rolled back."""
        record = self._core.log.bytes_at(physical, size)
        if record is None:
            return None
        if physical < self._core.trusted_from and not self._integrity.is_whole(physical, size):
            self._integrity.note(physical)
            return None
        return None if own_offset(record, 0, size) < 0 or is_rolled_back(record) else record
