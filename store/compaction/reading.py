"""Reads of compaction topics: what is copied from the compaction log, the rest from the ordinary queue.

So a message is read as soon as any other would be, and once. Where a record is missing since it did not survive, a read
goes on at the next one. Nothing here is on the way of other topics: the store takes these methods for its own when it
has the first compaction topic.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.format.record import properties_of
from understudy.store.batch_queue import BatchUnit
from understudy.store.compaction.files import CompactedFile, CompactedQueue
from understudy.store.compaction.layout import whole
from understudy.store.compaction.queues import CompactedQueues
from understudy.store.core import StoreCore
from understudy.store.extensions import WantedBits
from understudy.store.lookup import Lookup
from understudy.store.reader import Reader
from understudy.store.status import GetResult, GetStatus

UNITS_AT_ONCE = 800
"""Looked at by one read that finds nothing wanted."""
_MAX_BYTES = 128 << 20


class CompactedReading:
    """The answers of one store that has compaction topics; those about other topics are the ordinary ones.

    Args:
        core: the store.
        reader, lookup: give the ordinary answers.
    """

    def __init__(self, core: StoreCore, reader: Reader, lookup: Lookup) -> None:
        self._core = core
        self._queues: CompactedQueues = core.compacted
        self._plain = reader.get
        self._lookup = lookup

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
        """Read as :meth:`understudy.store.reader.Reader.get` does.

        Args:
            topic, queue_id, offset, max_messages, max_bytes, accept, accept_properties, most_asked: as of that.
            wanted_bits: as of that; what is copied has its tags codes only.
        """
        queue = self._queues.served(topic, queue_id)
        if queue is None:
            return self._plain(
                topic, queue_id, offset, max_messages, max_bytes, accept, accept_properties, most_asked, wanted_bits
            )
        if 0 <= offset < queue.copied_to:
            found = self._copied(queue, offset, max_messages, max_bytes, accept, accept_properties)
            if found is not None:
                return found
            offset = queue.copied_to
        found = self._plain(
            topic, queue_id, offset, max_messages, max_bytes, accept, accept_properties, most_asked, wanted_bits
        )
        if found.max_offset:
            found.min_offset = self.min_queue_offset(topic, queue_id)
        return found

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message that can be read."""
        queue = self._queues.served(topic, queue_id)
        if queue is None or not queue.copied_to:
            return self._lookup.min_queue_offset(topic, queue_id)
        if queue.first >= 0:
            return queue.first
        return max(queue.copied_to, self._lookup.min_queue_offset(topic, queue_id))

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in milliseconds of a message, or of the next one left; -1 when there is none."""
        queue = self._queues.served(topic, queue_id)
        if queue is not None and 0 <= offset < queue.copied_to:
            for _, unit in queue.units_from(offset):
                return unit.store_ms
            offset = queue.copied_to
        return self._lookup.store_time_of(topic, queue_id, offset)

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time in milliseconds of the oldest message of a queue (None: of the log); -1 if empty."""
        if topic is None:
            return self._lookup.earliest_store_time()
        return self.store_time_of(topic, queue_id, self.min_queue_offset(topic, queue_id))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """Return the queue offset for a store time as :meth:`understudy.store.lookup.Lookup.offset_by_time` does.

        Args:
            topic, queue_id, timestamp_ms, boundary: as of that.
        """
        ordinary = self._lookup.offset_by_time(topic, queue_id, timestamp_ms, boundary)
        queue = self._queues.served(topic, queue_id)
        if queue is None or queue.first < 0:
            return ordinary
        upper = boundary.lower() == "upper"
        behind = queue.offset_by_time(timestamp_ms, after=upper)
        if not upper:
            return behind if behind >= 0 else max(ordinary, queue.copied_to)
        if behind < 0 and ordinary >= queue.copied_to and self._is_stored_by(topic, queue_id, ordinary, timestamp_ms):
            return ordinary
        return queue.last_before(behind if behind >= 0 else queue.copied_to)

    def _is_stored_by(self, topic: str, queue_id: int, offset: int, timestamp_ms: int) -> bool:
        return 0 <= self._lookup.store_time_of(topic, queue_id, offset) <= timestamp_ms

    def _copied(
        self,
        queue: CompactedQueue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        accept: Callable[[int], bool] | None,
        accept_properties: Callable[[bytes], bool] | None,
    ) -> GetResult | None:
        """Read what is copied from *offset* on; ``None`` when nothing is left there."""
        config = self._core.config
        most_bytes = min(max(max_bytes, 1), config.max_transfer_bytes_in_memory)
        most_count = max(1, min(max_messages, config.max_transfer_count_in_memory))
        parts: list[memoryview] = []
        total = looked = 0
        status, following = GetStatus.NO_MATCHED_MESSAGE, queue.copied_to
        for file, unit in queue.units_from(offset):
            full = len(parts) >= most_count or (parts and total + unit.size > most_bytes)
            if full or looked >= UNITS_AT_ONCE:
                following = unit.first
                break
            looked += 1
            if accept is not None and not accept(unit.code):
                continue
            record = self._record(file, unit)
            if record is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
            elif accept_properties is None or accept_properties(properties_of(record)):
                parts.append(record)
                total += unit.size
        if not looked:
            return None
        low, high = self.min_queue_offset(queue.topic, queue.queue_id), self._max(queue)
        found = GetStatus.FOUND if parts else status
        return GetResult(found, following, low, high, parts, total, len(parts))

    def _record(self, file: CompactedFile, unit: BatchUnit) -> memoryview | None:
        """Return the record of a unit; ``None`` when it is damaged."""
        view, at = file.log_view(), unit.physical - file.start
        head = whole(view, at, file.start) if at >= 0 else None
        if head is None or head.queue_offset != unit.first or head.size_bytes != unit.size:
            self._queues.note_damage(file, unit)
            return None
        return view[at : at + unit.size]

    def _max(self, queue: CompactedQueue) -> int:
        return self._lookup.max_queue_offset(queue.topic, queue.queue_id)
