"""Questions about single records: the ends of queues, times, offsets, keys."""

from __future__ import annotations

from collections.abc import Generator

from understudy.format.java_hash import index_hash, unsigned_hash
from understudy.format.light_queues import is_light
from understudy.format.record import FLAG_TRANSACTION_ROLLBACK
from understudy.store.agreement import Agreement
from understudy.store.batch_queue import BatchQueue
from understudy.store.consume_queue import FILLER_SIZE
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.heads import own_offset, store_time
from understudy.store.integrity import Integrity
from understudy.store.status import QueryResult
from understudy.store.walk import VOID_TOPIC, RecordHead, is_void

_QUERY_ROUNDS = 3
#: Index type that searches for tags.
TAG_INDEX = "T"


class Lookup:
    """Answers questions about one store."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, agreement: Agreement, integrity: Integrity) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._agreement = agreement
        self._integrity = integrity

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that still has a message; 0 for an unknown queue."""
        batch = self._core.batch_queues.by_key.get((topic, queue_id))
        if batch is not None:
            return self._batch_min(batch)
        queue = self._core.consume_queues.by_key.get((topic, queue_id))
        if queue is None:
            return 0
        return min(self._core.consume_queues.correct_min(queue, self._core.segments.min_offset), queue.max_offset)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next readable message will have; 0 for an unknown queue."""
        batch = self._core.batch_queues.by_key.get((topic, queue_id))
        if batch is not None:
            return batch.shown_end
        queue = self._core.consume_queues.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def written_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the same with messages that readers may not see yet."""
        batch = self._core.batch_queues.by_key.get((topic, queue_id))
        if batch is not None:
            return batch.written_end
        queue = self._core.consume_queues.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.next_offset

    def _found_end(self, topic: str, queue_id: int) -> int:
        """Return the end of what can be looked at now: what is being entered again cannot."""
        batch = self._core.batch_queues.by_key.get((topic, queue_id))
        return self.max_queue_offset(topic, queue_id) if batch is None else batch.max_offset

    def _batch_min(self, queue: BatchQueue) -> int:
        return min(queue.min_offset(max(self._core.segments.min_offset, 0)), queue.max_offset)

    def record_extent(self, topic: str, queue_id: int, offset: int) -> tuple[int, int] | None:
        """Return (physical offset, size) of the record that holds a queue offset; None when there is none."""
        batch = self._core.batch_queues.by_key.get((topic, queue_id))
        if batch is not None:
            found = batch.find(offset) if offset < batch.max_offset else None
            return None if found is None else (found.physical, found.size)
        queue = self._core.consume_queues.by_key.get((topic, queue_id))
        if queue is None or not 0 <= offset < queue.max_offset:
            return None
        unit = self._core.consume_queues.unit(queue, offset)
        return None if unit is None or unit[1] == FILLER_SIZE else (unit[0], unit[1])

    def is_in_place(self, topic: str, queue_id: int, offset: int, physical_offset: int) -> bool:
        """Return whether a queue has a record in its place, though readers may not see it yet.

        Args:
            topic, queue_id: the queue.
            offset: the queue offset.
            physical_offset: where the record begins in the log.
        """
        queue = self._core.consume_queues.by_key.get((topic, queue_id))
        if queue is None or not 0 <= offset < queue.next_offset:
            return False
        unit = self._core.consume_queues.unit(queue, offset)
        return unit is not None and unit[0] == physical_offset and unit[1] not in (0, FILLER_SIZE)

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in milliseconds of a message of a queue; -1 when there is none."""
        extent = self.record_extent(topic, queue_id, offset)
        if extent is None:
            return -1
        return self._store_time_at(*extent)

    def _store_time_at(self, physical: int, size: int) -> int:
        record = self._core.log.bytes_at(physical, size)
        return -1 if record is None or own_offset(record, 0, size) < 0 else store_time(record)

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time in milliseconds of the oldest message of a queue (None: of the log); -1 if empty."""
        if topic is not None:
            return self.store_time_of(topic, queue_id, self.min_queue_offset(topic, queue_id))
        first = self._core.segments.min_offset
        head = self._core.log.parse_at(first, check_crc=False) if first >= 0 else None
        return -1 if head is None else head.store_ms

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """Return the queue offset for a store time, clamped to what the queue holds.

        Args:
            topic, queue_id: the queue.
            timestamp_ms: the time.
            boundary: ``lower``: first message stored at or after the time; ``upper``: last one at or before it.
        """
        low = first = self.min_queue_offset(topic, queue_id)
        high = end = self._found_end(topic, queue_id)
        upper = boundary.lower() == "upper"
        while low < high:
            middle = (low + high) // 2
            stored_ms = self.store_time_of(topic, queue_id, middle)
            if stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        # Now everything before low is older (or, for the upper boundary, not younger).
        return max(first, low - 1) if upper else min(low, end)

    def queue_offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the queue offset of the first message at or after a byte of the log, else that of the next one."""
        low, high = self.min_queue_offset(topic, queue_id), self._found_end(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            extent = self.record_extent(topic, queue_id, middle)
            if extent is None or extent[0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def record_before(self, physical_offset: int) -> int | None:
        """Return where the last queued record begins that begins before *physical_offset*; None when there is none."""
        found, light = None, self._core.config.light_queues
        for topic, queue_id in (*self._core.consume_queues.by_key, *self._core.batch_queues.by_key):
            if light and is_light(topic):
                continue  # its messages stand in other queues, too
            following = self.queue_offset_at(topic, queue_id, physical_offset)
            extent = self.record_extent(topic, queue_id, following - 1)
            if extent is not None and extent[0] < physical_offset and (found is None or extent[0] > found):
                found = extent[0]
        return found

    def note_rotten(self, topic: str, queue_id: int, offset: int) -> None:
        """Know that the message at a queue offset is damaged, as somebody found who read it: its place is a hole."""
        extent = self.record_extent(topic, queue_id, offset)
        if extent is not None:
            self._integrity.note(extent[0])

    def note_rotten_record(self, topic: str, queue_id: int, physical_offset: int, size: int) -> None:
        """Know that a message of a queue is damaged, if that queue has it there, and it is neither void nor whole.

        Args:
            topic, queue_id: the queue; a log that was cut may have a whole message of another one in that place.
            physical_offset, size: of the message in the log, as somebody noted it who did not find it.
        """
        head = self._core.log.parse_at(physical_offset, check_crc=False)
        if head is None or head.size_bytes != size or is_void(head) or self.read(physical_offset) is not None:
            return
        offset = self.queue_offset_at(topic, queue_id, physical_offset)
        if self.record_extent(topic, queue_id, offset) == (physical_offset, size):
            self._integrity.note(physical_offset)

    def read(self, physical_offset: int) -> memoryview | None:
        """Return the record that starts at *physical_offset*, its checksum compared; None if there is no whole one."""
        head = self._core.log.parse_at(physical_offset)
        if head is None or (head.topic == VOID_TOPIC and head.sys_flag & FLAG_TRANSACTION_ROLLBACK):
            return None
        if physical_offset < self._core.trusted_from and not self._is_placed(head):
            self._integrity.note(physical_offset)
            return None
        return self._core.log.bytes_at(physical_offset, head.size_bytes)

    def _is_placed(self, head: RecordHead) -> bool:
        """Whether an old record says what its units say, or no queue of its topic has one for it."""
        placed = self._agreement.settle(head)
        return not self._agreement.is_misplaced(head) if placed is None else placed

    def _read_under(self, physical_offset: int, wanted: int) -> memoryview | None:
        """Return the record at *physical_offset* if it is whole and stands under the index hash *wanted*."""
        record = self.read(physical_offset)
        if record is None:
            return None
        head = self._core.log.parse_at(physical_offset, check_crc=False)
        return record if head is not None and wanted in map(index_hash, self._dispatcher.hashes(head)) else None

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, index_type: str | None = None
    ) -> Generator[None, None, QueryResult]:
        """See :meth:`understudy.store.message_store.MessageStore.query_in_steps`."""
        index = self._core.index
        text = f"{topic}#{TAG_INDEX}#{key}" if index_type == TAG_INDEX else f"{topic}#{key}"
        wanted = unsigned_hash(text.encode("utf-8", "replace"))
        max_num = min(max_num, self._core.config.max_msgs_num_batch)
        records: list[memoryview] = []
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted((yield from index.offsets(wanted, max_num, begin_ms, end_ms)))
            found = [self._read_under(offset, index_hash(wanted)) for offset in offsets]
            records = [record for record in found if record is not None]
            if records or not offsets:
                break
            # Everything found lies in files that are gone or was cut off: look further back.
            last = index.last
            oldest_ms = last.begin_ms if last is not None else 0
            if oldest_ms <= begin_ms or oldest_ms >= end_ms:
                break
            end_ms = oldest_ms
        newest = index.last
        if newest is None:
            return QueryResult(records, 0, 0)
        return QueryResult(records, newest.end_ms, newest.end_offset)
