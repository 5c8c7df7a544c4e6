"""Lost messages that came back to a master, and whose places in their queues others have by now.

A master that lost the last messages of a queue, and whose slaves were away, takes messages, which get the queue offsets
of the lost ones. When those come back into their places of the log, no consumer would find them. They are put at the
ends of their queues once more, as a message is that is sent again, and a group that has read them gets them twice.

Left out are messages of topics that were deleted since, or keep only the newest of each key, of batch queues and light
topics, and what transactions note of halves: it names them by queue offsets, which others have.
"""

from __future__ import annotations

import trio

from understudy.broker.broker import Broker
from understudy.broker.inner import append, copy_of
from understudy.format import light_queues, names
from understudy.format.properties import format_properties
from understudy.format.record import (
    BLANK,
    BLANK_MAGIC,
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    Record,
    RecordError,
    decode_record,
)
from understudy.runtime.log import get_logger
from understudy.store.status import PutRejected

log = get_logger("container.holes")

_BLOCK_BYTES = 4096
_RECORDS_AT_ONCE = 100
_NOTES_OF_HALVES = (names.HALF_OPERATION_TOPIC, names.ROCKSDB_HALF_OPERATION_TOPIC)


class CameBack:
    """What came back into holes of the log of a master, until it is in its queues.

    Args:
        broker: the master.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._from: int | None = None
        self._written: list[tuple[int, int]] = []
        self._entered: list[tuple[int, int]] = []
        self._waiting: list[Record] = []

    def comes(self, hole: int, position: int, part: memoryview) -> None:
        """Take note of what is about to be written.

        Args:
            hole: where the first hole is, at which a record begins (physical offset).
            position: where *part* belongs.
            part: bytes of another log, as many as ours has or fewer.
        """
        self._from = hole if self._from is None else min(self._from, hole)
        ours = self._broker.store.slice(position, len(part))
        if ours == part:
            return
        for at in range(0, len(part), _BLOCK_BYTES):
            if ours[at : at + _BLOCK_BYTES] != part[at : at + _BLOCK_BYTES]:
                self._written.append((position + at, position + min(at + _BLOCK_BYTES, len(part))))

    def entered(self) -> None:
        """Learn that what was written stands in its queues, as far as its places were free."""
        self._entered += self._written
        self._written = []

    async def put(self) -> None:
        """Put what has lost its place at the end of its queue; what is refused is left for the next call.

        It goes on to its end when it is cancelled: nobody would come back to it.
        """
        if not (self._entered or self._waiting):
            return
        with trio.CancelScope(shield=True):
            await self._find()
            count = 0
            while self._waiting:
                try:
                    self._put(self._waiting[0])
                except PutRejected as error:
                    log.error(
                        "messages that came back have no place in their queues", count=len(self._waiting), why=error
                    )
                    break
                del self._waiting[0]
                count += 1
                if not count % _RECORDS_AT_ONCE:
                    await trio.lowlevel.checkpoint()
            if count:
                log.warning("messages that came back were put again: others had their queue offsets", count=count)
                await self._broker.store.flush()

    def _put(self, record: Record) -> None:
        pairs = record.properties
        pairs.pop("__CRC32#", None)
        properties = format_properties(pairs).encode()
        append(self._broker.store, copy_of(record, record.topic, record.queue_id, properties, record.reconsume_times))

    async def _find(self) -> None:
        """Go through the log, and find the records that came back and are not in their places."""
        store, entered = self._broker.store, self._entered
        self._entered, position, looked = [], self._from or 0, 0
        for first, after in sorted(entered):
            position = max(position, store.min_physical_offset)
            while position < after:
                head = store.slice(position, BLANK.size)
                if len(head) < BLANK.size:
                    return
                size, magic = BLANK.unpack(head)
                if size < BLANK.size:
                    return
                if position + size > first and magic != BLANK_MAGIC:
                    self._look_at(bytes(store.slice(position, size)))
                position += size
                looked += 1
                if not looked % _RECORDS_AT_ONCE:
                    await trio.lowlevel.checkpoint()
        self._from = None

    def _look_at(self, data: bytes) -> None:
        try:
            record = decode_record(data)
        except RecordError:
            return
        place = record.topic, record.queue_id, record.queue_offset
        if self._has_place(record) and not self._broker.store.is_in_place(*place, record.physical_offset):
            self._waiting.append(record)

    def _has_place(self, record: Record) -> bool:
        """Whether somebody would read it in its queue."""
        broker, store = self._broker, self._broker.store
        deletion = store.deletions.get(record.topic)
        deleted = (
            deletion is not None and record.physical_offset < deletion.position and record.store_ms <= deletion.store_ms
        )
        return not (
            deleted
            or record.topic not in broker.topics.rows
            or record.topic in _NOTES_OF_HALVES
            or record.topic in store.compacted_topics
            or record.topic in store.batch_topics
            or record.sys_flag & FLAG_INNER_BATCH
            or record.sys_flag & FLAG_TRANSACTION_MASK in (FLAG_TRANSACTION_PREPARED, FLAG_TRANSACTION_ROLLBACK)
            or light_queues.NAMES in record.properties_text.encode()
            or record.queue_offset < store.min_queue_offset(record.topic, record.queue_id)
        )
