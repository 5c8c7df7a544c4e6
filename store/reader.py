"""Reads of a queue. Answers are slices of the mapped log."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import repeat
from operator import add, sub

from understudy.store.batch_reader import BatchReader
from understudy.store.batch_repair import BatchRepair
from understudy.store.careful_scan import CarefulScan
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, UNITS_AT_ONCE_MAX, ConsumeQueue, units_at_once
from understudy.store.core import StoreCore
from understudy.store.extensions import WantedBits
from understudy.store.heads import own_offset, size_of
from understudy.store.integrity import Integrity
from understudy.store.property_scan import PropertyScan
from understudy.store.queue_repair import QueueRepair
from understudy.store.status import GetResult, GetStatus

_MAX_BYTES = 128 << 20


class Reader:
    """Reads one store."""

    def __init__(self, core: StoreCore, integrity: Integrity, repair: QueueRepair, batches: BatchRepair) -> None:
        self._core = core
        self._integrity = integrity
        self._careful = CarefulScan(core, integrity, repair)
        self._by_properties = PropertyScan(core, self._are_whole)
        #: A plain slave does not correct a consumer's offset; its master knows better.
        self.correct_offsets = True
        self._batches = BatchReader(core, integrity, batches, self._outside, self._corrected)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Take what may change while the store is open from its settings."""
        config = self._core.config
        memory = config.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._near_bytes = memory * config.access_message_in_memory_max_ratio // 100
        self._careful.near_bytes = self._by_properties.near_bytes = self._near_bytes
        self._scan_units = config.max_filter_message_size // UNIT_BYTES

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        accept: Callable[[int], bool] | None = None,
        accept_properties: Callable[[bytes], bool] | None = None,
        most_asked: int = _MAX_BYTES,
        wanted_bits: WantedBits | None = None,
    ) -> GetResult:
        """Read messages of a queue from queue offset *offset*.

        Args:
            accept: filter by tags code; None takes all.
            accept_properties: filter by the properties string, asked after *accept*; None takes all.
            most_asked: messages that *accept_properties* is asked about at most; the next read goes on behind them.
            wanted_bits: filter by what extends units, asked before anything is read of the log; None takes all.
        """
        core = self._core
        queue = core.consume_queues.by_key.get((topic, queue_id))
        if core.batch_queues.topics and topic in core.batch_queues.topics:
            return self._batches.get(topic, queue_id, offset, max_messages, max_bytes, accept, accept_properties)
        if queue is None or queue.max_offset == 0:
            hidden = queue is not None and 0 <= offset <= queue.next_offset
            next_offset = offset if hidden else self._corrected(offset, 0)
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, next_offset, 0, 0, [])
        max_offset = queue.max_offset
        log_min = core.segments.min_offset
        if queue.min_checked_for == log_min:
            min_offset = queue.min_offset
        else:
            min_offset = core.consume_queues.correct_min(queue, log_min)
        if not min_offset <= offset < max_offset:
            return self._outside(offset, min_offset, max_offset, queue.next_offset)

        config = core.config
        log = core.log
        count = min(max_messages, max_offset - offset, UNITS_AT_ONCE_MAX) if accept is None else 0
        if count > 0 and accept_properties is None:
            # Nearly always all wanted messages are near the end of the log: then one unpack and one sum show whether
            # they are neighbours, and one slice, or one for each message, is the whole read.
            units = core.consume_queues.units(queue, offset, min(count, config.max_transfer_count_in_memory))
            count = len(units) // UNIT_BYTES
            if count:
                values = units_at_once(count).unpack(units)
                first, last, last_size = values[0], values[-3], values[-2]
                sizes = values[1::3]
                total = sum(sizes)
                if (
                    log.end - first <= self._near_bytes
                    and total <= config.max_transfer_bytes_in_memory
                    and total <= max_bytes
                ):
                    parts = self._slices(values[0::3], sizes, last + last_size, total)
                    # The ends say their own queue offsets: then none repeats a message after a gap.
                    if (
                        parts
                        and (
                            (
                                own_offset(parts[-1], len(parts[-1]) - last_size, last_size) == offset + count - 1
                                and own_offset(parts[0], 0, values[1]) == offset
                            )
                            or (queue.is_light and self._light_ends(queue, offset, values, parts))
                        )
                        and (
                            first >= core.trusted_from
                            or queue.whole_from <= offset <= offset + count <= queue.whole_to
                            or self._are_whole(queue, offset, units)
                        )
                    ):
                        return GetResult(
                            GetStatus.FOUND, offset + count, min_offset, max_offset, parts, total, count, False
                        )
        if core.extensions.present and (accept is not None or wanted_bits is not None):
            accept = core.extensions.accepting(queue, accept, wanted_bits)
        scanned = max(self._scan_units, max_messages, 1)
        if accept_properties is not None:
            scanned = min(scanned, max(most_asked, 1))
        wanted = min(max_offset - offset, scanned)
        return self._scan(
            queue, offset, wanted, max(max_messages, 1), max_bytes, min_offset, max_offset, accept, accept_properties
        )

    def _light_ends(self, queue: ConsumeQueue, offset: int, units: tuple[int, ...], parts: list[memoryview]) -> bool:
        """Whether *parts* of a light queue, whose records stand elsewhere, too, end with one that is not repeated."""
        last, size = units[-3:-1]
        are_records = own_offset(parts[0], 0, units[1]) >= 0 <= own_offset(parts[-1], len(parts[-1]) - size, size)
        return are_records and not self._careful.is_repeated(queue, offset + len(units) // 3 - 1, last)

    def _slices(self, addresses: tuple[int, ...], sizes: tuple[int, ...], end: int, total: int) -> list[memoryview]:
        """Return the records of units that lie in one file, each of them once; nothing when they do not.

        Args:
            addresses, sizes: of the units.
            end: physical offset after the last of them.
            total: sum of the sizes.
        """
        log, first = self._core.log, addresses[0]
        if first >= log.base:
            view, base = log.view, log.base
            if end > base + log.at:
                return []
        else:
            segment = self._core.segments.find(first)
            if segment is None or end > segment.end:
                return []
            view, base = self._core.segments.view(segment), segment.start
        if len(set(addresses)) != len(addresses):
            return []  # units that were bent around damage: what lies between may be void, and as long as they say
        if end - first == total:
            return [view[first - base : end - base]]
        if min(addresses) != first or max(addresses) != addresses[-1]:
            return []
        take: Callable[[slice], memoryview] = view.__getitem__
        starts = list(map(sub, addresses, repeat(base)))
        return list(map(take, map(slice, starts, map(add, starts, sizes))))

    def _scan(
        self,
        queue: ConsumeQueue,
        offset: int,
        wanted: int,
        max_messages: int,
        max_bytes: int,
        min_offset: int,
        max_offset: int,
        accept: Callable[[int], bool] | None,
        accept_properties: Callable[[bytes], bool] | None,
    ) -> GetResult:
        """Read messages that are not all neighbours, or not all wanted, out of *wanted* units."""
        core = self._core
        log = core.log
        units = core.consume_queues.units(queue, offset, wanted)
        if not units:
            later = [start // UNIT_BYTES for start in queue.starts if start // UNIT_BYTES > offset]
            next_offset = self._corrected(offset, min([max_offset, *later]))
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset, [])
        most_bytes, most_count = self._limits(units, max_messages, max_bytes)
        if accept_properties is None:
            parts: list[memoryview] = []
            base, end, view = log.base, log.base + log.at, log.view
            start = stop = last = last_size = -1
            oldest = core.trusted_from
            total = count = scanned = 0
            for physical, size, code in UNIT.iter_unpack(units):
                if accept is not None and not accept(code):
                    if not size:  # lost, with its code
                        count = 0
                        break
                    scanned += 1
                    continue
                if count and (count >= most_count or total + size > most_bytes):
                    break
                scanned += 1
                if physical == stop:
                    stop += size
                elif physical == last or size == FILLER_SIZE:
                    continue
                else:
                    if not size:
                        count = 0
                        break
                    if count:
                        parts.append(view[start - base : stop - base])
                    if not base <= physical < end:
                        segment = core.segments.find(physical)
                        if segment is None:
                            count = 0
                            break
                        view, base, end = core.segments.view(segment), segment.start, segment.end
                    start, stop = physical, physical + size
                    if physical < oldest:
                        oldest = physical
                last, last_size = physical, size
                count += 1
                total += size
                last_place = offset + scanned - 1
            if count:
                parts.append(view[start - base : stop - base])
                # The ends say their own queue offsets; then none of them repeats a message after a gap, or is missing.
                first = parts[0]
                if (
                    len(parts[-1]) == stop - start
                    and own_offset(parts[-1], last - start, last_size) == last_place
                    and own_offset(first, 0, size_of(first)) >= offset
                    and (
                        oldest >= core.trusted_from
                        or queue.whole_from <= offset <= offset + scanned <= queue.whole_to
                        or self._are_whole(queue, offset, units[: scanned * UNIT_BYTES], accept)
                    )
                ):
                    behind = log.end - stop > self._near_bytes
                    next_offset = offset + scanned
                    return GetResult(GetStatus.FOUND, next_offset, min_offset, max_offset, parts, total, count, behind)
        elif accept is None and not queue.is_light:
            quickly = self._by_properties.scan(
                queue, offset, units, most_bytes, most_count, min_offset, max_offset, accept_properties
            )
            if quickly is not None:
                return quickly
        return self._careful.scan(
            queue, offset, units, most_bytes, most_count, min_offset, max_offset, accept, accept_properties
        )

    def _are_whole(
        self, queue: ConsumeQueue, offset: int, units: memoryview, accept: Callable[[int], bool] | None = None
    ) -> bool:
        """Whether every wanted record of *units* is whole, as far as that is not known yet."""
        wanted = (
            (at, physical, size, code)
            for at, (physical, size, code) in enumerate(UNIT.iter_unpack(units), offset)
            if size != FILLER_SIZE and (accept is None or accept(code))
        )
        if not self._integrity.all_whole(queue, wanted):
            return False
        if accept is None:
            # Readers go forward, so what is known of a queue is mostly one range.
            end = offset + len(units) // UNIT_BYTES
            if queue.whole_from <= offset <= queue.whole_to:
                queue.whole_to = max(queue.whole_to, end)
            else:
                queue.whole_from, queue.whole_to = offset, end
        return True

    def _limits(self, units: memoryview, max_messages: int, max_bytes: int) -> tuple[int, int]:
        """Return the most bytes and messages of one read, by how far from the end of the log it begins."""
        config, log = self._core.config, self._core.log
        max_bytes = min(max(max_bytes, 1), _MAX_BYTES)
        if log.end - UNIT.unpack_from(units, 0)[0] <= self._near_bytes:
            most_bytes, most_count = config.max_transfer_bytes_in_memory, config.max_transfer_count_in_memory
        else:
            most_bytes, most_count = config.max_transfer_bytes_on_disk, config.max_transfer_count_on_disk
        return min(most_bytes, max_bytes), min(most_count, max_messages)

    def _outside(self, offset: int, min_offset: int, max_offset: int, written_offset: int) -> GetResult:
        if offset < min_offset:
            status, next_offset = GetStatus.OFFSET_TOO_SMALL, self._corrected(offset, min_offset)
        elif offset <= written_offset:  # what is hidden may have been read where it was not: it is waited for
            status, next_offset = GetStatus.OFFSET_OVERFLOW_ONE, offset
        else:
            status, next_offset = GetStatus.OFFSET_OVERFLOW_BADLY, self._corrected(offset, max_offset)
        return GetResult(status, next_offset, min_offset, max_offset, [])

    def _corrected(self, asked: int, right: int) -> int:
        return right if self.correct_offsets else asked
