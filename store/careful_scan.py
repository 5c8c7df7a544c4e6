"""Reads of messages one by one, each checked: some may be gone, lost, rotten or repeated, or filtered by content."""

from __future__ import annotations

from collections.abc import Callable

from understudy.format.record import properties_of
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.heads import own_offset
from understudy.store.integrity import Integrity
from understudy.store.queue_repair import Doubt, QueueRepair
from understudy.store.status import GetResult, GetStatus


class CarefulScan:
    """Reads one store; see :class:`understudy.store.reader.Reader`, which comes here when something is unusual.

    Attributes:
        near_bytes: what lies so far before the end of the log at most is near it.
    """

    def __init__(self, core: StoreCore, integrity: Integrity, repair: QueueRepair) -> None:
        self._core = core
        self._integrity = integrity
        self._repair = repair
        self.near_bytes = 0

    def scan(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: memoryview,
        most_bytes: int,
        most_count: int,
        min_offset: int,
        max_offset: int,
        accept: Callable[[int], bool] | None,
        accept_properties: Callable[[bytes], bool] | None,
    ) -> GetResult:
        """Read the messages of *units*, which begin at queue offset *offset*.

        Args:
            queue: that they are of.
            most_bytes, most_count: bounds of the read; the first message is read whatever its size.
            min_offset, max_offset: of the queue, for the result.
            accept, accept_properties: filters by tags code and by properties; ``None`` takes all.
        """
        core, log = self._core, self._core.log
        status = GetStatus.NO_MATCHED_MESSAGE
        parts: list[memoryview] = []
        run_start = run_end = -1
        skip_until = entered = -1
        total = count = scanned = taken_to = 0
        while scanned < len(units) // UNIT_BYTES:
            wanted = offset + scanned
            unit = UNIT.unpack_from(units, scanned * UNIT_BYTES)
            if wanted == entered:  # it was entered again just now
                unit = core.consume_queues.unit(queue, wanted) or unit
            physical, size, code = unit
            if not size:
                core.on_lost_unit(queue, wanted)
                if scanned > taken_to:
                    scanned -= 1  # the block that was lost may begin in its tags code, by which it was left out
                if not count and not scanned:
                    status = GetStatus.OFFSET_OVERFLOW_ONE  # as if it was not stored yet: it is entered again
                break
            if size == FILLER_SIZE or 0 <= physical < skip_until or not (accept is None or accept(code)):
                scanned += 1
                continue
            if count and (total + size > most_bytes or count >= most_count):
                break
            if physical != run_end or accept_properties is not None or physical < core.trusted_from:
                record = log.bytes_at(physical, size)
                if record is None and self._is_gone(queue, wanted, physical):
                    scanned += 1
                    status = status if count else GetStatus.MESSAGE_WAS_REMOVING
                    following = core.segments.after(physical)
                    skip_until = following.start if following is not None else -1
                    continue
                own = -1 if record is None else own_offset(record, 0, size)
                # What a record says of its own queue may be the number that a light one has for it, too.
                if (
                    own != -1
                    and (own != wanted or queue.is_light)
                    and self._is_repetition(queue, own, wanted, physical)
                ):
                    scanned += 1
                    continue
                is_old = physical < core.trusted_from
                if own < 0 or (is_old and not self._integrity.is_whole(physical, size, queue, wanted, code)):
                    doubt = Doubt.DAMAGED if wanted == entered else self._repair.doubt(queue, wanted)
                    if doubt is Doubt.LATER:
                        if not count:
                            status = GetStatus.OFFSET_OVERFLOW_ONE if not scanned else status
                        break
                    if doubt is Doubt.ENTERED:
                        entered = wanted
                    else:
                        scanned += 1
                    continue
                scanned += 1
                if accept_properties is not None and (record is None or not accept_properties(properties_of(record))):
                    continue
                if physical != run_end:
                    if run_start >= 0:
                        self._add_run(parts, run_start, run_end)
                    run_start = run_end = physical
            else:
                scanned += 1
            run_end += size
            taken_to = scanned
            count += 1
            total += size
        if run_start >= 0:
            self._add_run(parts, run_start, run_end)
        if count:
            status = GetStatus.FOUND
        behind = run_start >= 0 and log.end - run_end > self.near_bytes
        return GetResult(status, offset + scanned, min_offset, max_offset, parts, total, count, behind)

    def is_repeated(self, queue: ConsumeQueue, offset: int, physical: int) -> bool:
        """Whether the unit behind queue offset *offset* points to the same record, which begins at *physical*."""
        following = self._core.consume_queues.unit(queue, offset + 1) if offset + 1 < queue.next_offset else None
        return following is not None and following[0] == physical

    def _is_gone(self, queue: ConsumeQueue, offset: int, physical: int) -> bool:
        """Whether the file that a unit points into was removed; else the unit has rotted."""
        core = self._core
        if not 0 <= physical < core.log.end or core.segments.find(physical) is not None:
            return False
        if physical >= core.segments.min_offset:
            return True
        before = core.consume_queues.unit(queue, offset - 1) if offset else None
        return before is None or before[1] == FILLER_SIZE or before[0] < core.segments.min_offset

    def _is_repetition(self, queue: ConsumeQueue, own: int, offset: int, physical: int) -> bool:
        """Whether the unit at *offset* repeats the message at queue offset *own* because its own record is lost."""
        if queue.is_light:
            return self.is_repeated(queue, offset, physical)
        if not 0 <= own < queue.next_offset:
            return False
        unit = self._core.consume_queues.unit(queue, own)
        return unit is not None and unit[0] == physical

    def _add_run(self, parts: list[memoryview], start: int, end: int) -> None:
        part = self._core.log.bytes_at(start, end - start)
        if part is not None:
            parts.append(part)
