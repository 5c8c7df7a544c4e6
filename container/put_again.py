"""Lost messages that came back to a master, and that nobody would find where they are.

A master that lost the last messages of a queue, and whose slaves were away, takes messages, which get the queue offsets
of the lost ones. When those come back into their places of the log, no consumer would find them. They are put at the
ends of their queues once more, as a message is that is sent again, and a group that has read them gets them twice.

Delayed and half messages have their places, but may have been passed while they were missing. A delayed one is
delivered unless the log shows that it was; about a half one, of which it shows nothing, its producer is asked again.

Left out are messages of topics that were deleted since, or keep only the newest of each key, of batch queues and light
topics, what transactions note of halves: it names them by queue offsets, which others have; and what the timer passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import trio

from understudy.broker.broker import Broker
from understudy.broker.inner import InnerMessage, append, copy_of
from understudy.broker.schedule import due_message
from understudy.broker.transactions.evidence import was_decided
from understudy.broker.transactions.half import Half
from understudy.container.escape.parts import escape_parts
from understudy.container.escape.recognition import delivered_before
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
from understudy.store.holes import Spans
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected

log = get_logger("container.holes")

_RECORDS_AT_ONCE = 100
_EVER_MS = 1 << 62
"""Whenever it was due, the log is asked whether it was delivered."""
_NOTES_OF_HALVES = (names.HALF_OPERATION_TOPIC, names.ROCKSDB_HALF_OPERATION_TOPIC)


async def put_again(broker: Broker) -> None:
    """Put what came back and has no place at the end of its queue; what is refused is left for the next call.

    It goes on to its end when it is cancelled, so that nothing is put twice.

    Args:
        broker: a master.
    """
    store, spans, count, refused = broker.store, broker.store.came_back(), 0, None
    if not spans:
        return
    with trio.CancelScope(shield=True):
        for looked, (position, data) in enumerate(_records(store, spans)):
            message = _to_put(broker, data)
            if message is not None:
                try:
                    append(store, message)
                except PutRejected as error:
                    log.error("messages that came back have no place in their queues", next=position, why=error)
                    refused = position
                    break
                count += 1
            if looked % _RECORDS_AT_ONCE == _RECORDS_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        if count:
            log.warning("messages that came back were put again, for they were passed or had no place", count=count)
        if not count or await store.flush():
            try:
                await store.note_placed(spans, math.inf if refused is None else refused)
            except OSError as error:
                log.error("it is not noted that messages that came back were put again", why=error)


def _records(store: MessageStore, spans: Spans) -> Iterator[tuple[int, bytes]]:
    """Go through the records of parts of the log: where each is, and its bytes."""
    position = store.min_physical_offset
    for first, after in sorted(spans):
        position = max(first, position)
        while position < after:
            head = store.slice(position, BLANK.size)
            size, magic = BLANK.unpack(head) if len(head) == BLANK.size else (0, 0)
            if size < BLANK.size:
                break
            if magic != BLANK_MAGIC:
                yield position, bytes(store.slice(position, size))
            position += size


def _to_put(broker: Broker, data: bytes) -> InnerMessage | None:
    """Return what is to be put for a record that came back; ``None``: who should have it gets it where it is."""
    try:
        record = decode_record(data)
    except RecordError:
        return None
    place = record.topic, record.queue_id, record.queue_offset
    if not _would_be_read(broker, record):
        return None
    if broker.store.is_in_place(*place, record.physical_offset):
        return _passed(broker, record)
    return _copy(record)


def _copy(record: Record) -> InnerMessage:
    pairs = record.properties
    pairs.pop("__CRC32#", None)
    properties = format_properties(pairs).encode()
    return copy_of(record, record.topic, record.queue_id, properties, record.reconsume_times)


def _passed(broker: Broker, record: Record) -> InnerMessage | None:
    """Return what is to be put for a message that was passed while it was missing; ``None``: it was not."""
    if record.topic == names.SCHEDULE_TOPIC:
        return _passed_by_level(broker, record)
    if record.topic == names.HALF_TOPIC:
        return _passed_by_checks(broker, record)
    return None


def _passed_by_level(broker: Broker, record: Record) -> InnerMessage | None:
    level = record.queue_id + 1
    if record.queue_offset >= broker.schedule_progress.offsets.get(level, 0):
        return None
    message = due_message(level, record)
    if message is None or message.topic not in broker.topics.rows:
        return None
    return None if delivered_before(escape_parts(broker), message, _EVER_MS) else message


def _passed_by_checks(broker: Broker, record: Record) -> InnerMessage | None:
    if record.queue_offset >= broker.offsets.query(names.TRANSACTION_GROUP, record.topic, record.queue_id):
        return None
    half = Half.of(record)
    return None if half is None or was_decided(broker.store, half) else _copy(record)


def _would_be_read(broker: Broker, record: Record) -> bool:
    """Whether somebody would read it in its queue."""
    store = broker.store
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
