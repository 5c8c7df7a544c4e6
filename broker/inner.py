"""Messages the broker itself puts: copies for a retry, for the dead letters, and due delayed messages."""

from __future__ import annotations

import attrs

from understudy.broker import delay
from understudy.broker.timer.request import Door, asks, redirect
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import Record
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended

PUT_AGAIN_FROM = "PUT_AGAIN_FROM"
"""Property of what was lost, came back and was put again: the physical offset of what came back. What is made of it has
it, too, in other topics."""


@attrs.frozen
class InnerMessage:
    """A message on its way to some topic.

    Attributes:
        topic, queue_id: where it shall be.
        body: its bytes.
        properties: its properties string in UTF-8.
        born_ms, born_host: when and where the producer made it.
        flag, sys_flag, reconsume_times, prepared_transaction_offset: go into the record.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def copy_of(record: Record, topic: str, queue_id: int, properties: bytes, reconsume_times: int) -> InnerMessage:
    """Return *record* as a new message for another queue.

    Args:
        record: that is copied.
        topic: of the copy.
        queue_id: of the copy.
        properties: of the copy, raw.
        reconsume_times: how often it was consumed in vain.
    """
    return InnerMessage(
        topic,
        queue_id,
        record.body,
        properties,
        record.born_ms,
        record.born_host,
        record.flag,
        record.sys_flag,
        reconsume_times,
        record.prepared_transaction_offset,
    )


def append(store: MessageStore, message: InnerMessage) -> Appended:
    """Store *message* where it says. Raises ``PutRejected``."""
    return store.append(
        message.topic,
        message.queue_id,
        message.body,
        message.properties,
        message.born_ms,
        message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def with_timer(message: InnerMessage, pairs: dict[str, str], now_ms: int, door: Door) -> InnerMessage:
    """Return *message* with *pairs* as its properties, sent to the timer topic when they ask for a time in the future.

    Args:
        message: to be stored.
        pairs: its properties; those of a timer message are added.
        now_ms: wall time.
        door: of the broker's timer.

    Raises:
        TimerRefusedError: see :func:`~understudy.broker.timer.request.redirect`.
    """
    topic, queue_id = redirect(message.topic, message.queue_id, pairs, message.sys_flag, now_ms, door)
    return attrs.evolve(message, topic=topic, queue_id=queue_id, properties=format_properties(pairs).encode())


def keep_if_asked(message: InnerMessage, now_ms: int, door: Door) -> InnerMessage:
    """Return *message* as the timer keeps it when its own properties ask for a time in the future.

    Raises:
        TimerRefusedError: see :func:`~understudy.broker.timer.request.redirect`.
    """
    if b"TIMER_D" not in message.properties:
        return message
    pairs = parse_properties(message.properties)
    return with_timer(message, pairs, now_ms, door) if asks(pairs) else message


def with_delay(message: InnerMessage, pairs: dict[str, str], max_level: int) -> InnerMessage:
    """Return *message* with *pairs* as its properties, sent to the schedule topic when they hold a delay level."""
    topic, queue_id = delay.redirect(message.topic, message.queue_id, pairs, message.sys_flag, max_level)
    return attrs.evolve(message, topic=topic, queue_id=queue_id, properties=format_properties(pairs).encode())
