"""Messages as an application sees them: what is sent, and what was received.

Nothing here does I/O. The record and batch layouts are in :mod:`understudy.mqclient.records`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from understudy.format import record
from understudy.format.properties import NAME_END, PAIR_END, format_properties, parse_properties
from understudy.mqclient.errors import InvalidMessageError
from understudy.mqclient.queue import MessageQueue

# Names of MessageConst.java that the client itself reads or writes.
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQUE_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRACE_ON = "TRACE_ON"
MSG_REGION = "MSG_REGION"

_INT = struct.Struct(">i")


class Message(msgspec.Struct):
    """A message to send.

    Attributes:
        topic: where it goes.
        body: payload; may not be empty.
        properties: names and values, the system's own ones included (``TAGS``, ``KEYS``, ``DELAY`` ...).
        flag: 32 bits for the application's use.
    """

    topic: str
    body: bytes
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    flag: int = 0

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)

    @property
    def message_id(self) -> str | None:
        """The unique id; set by the producer when the message is sent, unless the application has set it."""
        return self.properties.get(UNIQUE_KEY)


def message(
    topic: str,
    body: bytes,
    *,
    tag: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    delay_level: int = 0,
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    wait_stored: bool = True,
) -> Message:
    """Make a message.

    Args:
        topic: where it goes.
        body: payload.
        tag: one word that consumers can filter by.
        keys: words under which the message can be found later.
        properties: the application's own names and values.
        flag: 32 bits for the application's use.
        delay_level: 1-based level of the broker's ``messageDelayLevel``; 0 sends at once.
        deliver_at_ms: wall time, in milliseconds since 1970, before which it is not delivered.
        delay_ms: the same, counted by the broker from the arrival of the message.
        wait_stored: wait for the disk and the replicas where the broker is set to do so.
    """
    all_properties = dict(properties or {})
    joined = keys if isinstance(keys, str) else " ".join(keys)
    if joined:
        all_properties[KEYS] = joined
    if tag:
        all_properties[TAGS] = tag
    if delay_level:
        all_properties[DELAY] = str(delay_level)
    if deliver_at_ms is not None:
        all_properties[TIMER_DELIVER_MS] = str(deliver_at_ms)
    if delay_ms is not None:
        all_properties[TIMER_DELAY_MS] = str(delay_ms)
    all_properties[WAIT] = "true" if wait_stored else "false"
    return Message(topic, body, all_properties, flag)


_READ_LATER = {
    "queue_id": 3,
    "flag": 4,
    "commit_log_offset": 6,
    "sys_flag": 7,
    "born_timestamp_ms": 8,
    "born_host": 9,
    "store_timestamp_ms": 10,
    "store_host": 11,
    "reconsume_times": 12,
    "prepared_transaction_offset": 13,
    "body_crc": 2,
    "stored_bytes": 0,
}
"""Which part of :data:`understudy.format.record.FIXED` they are."""


@attrs.define(weakref_slot=False)
class ReceivedMessage:
    """A stored message, with its body already inflated.

    Most listeners want the body and little else, so what a record holds beside it is made of its bytes when it is asked
    for; that it can be is known before.

    Attributes:
        topic: as the application subscribed to it; a retried message carries its original topic.
        body: payload.
        properties: names and values as stored.
        flag: the sender's 32 bits.
        broker_name: which broker group it came from; empty when the source does not say.
        queue_id: queue within the broker group.
        queue_offset: position in the queue.
        commit_log_offset: position in the broker's log, bytes.
        sys_flag: stored bits (MessageSysFlag.java).
        born_timestamp_ms: sender's wall time.
        born_host: sender's ``host:port``.
        store_timestamp_ms: broker's wall time.
        store_host: broker's ``host:port``.
        reconsume_times: how often consumption failed before.
        prepared_transaction_offset: log position of the half message, of committed transactional messages.
        body_crc: CRC-32 of the stored body without the sign bit.
        stored_bytes: length of the whole record.
        stored_topic: topic under which the broker stored it.
        damage: why the record cannot be read, and :attr:`body` is what was stored as it was; empty for a good one.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    stored_bytes: int
    stored_topic: str
    damage: str = ""
    _fixed: tuple[Any, ...] = attrs.field(default=(), init=False, repr=False, eq=False)
    _properties_text: str = attrs.field(default="", init=False, repr=False, eq=False)

    if not TYPE_CHECKING:  # it would give a message any attribute

        def __getattr__(self, name: str) -> object:
            """Return what is read now; called only for what is not there."""
            if name == "properties":
                value: object = parse_properties(self._properties_text)
            elif name in _READ_LATER:
                value = self._fixed[_READ_LATER[name]]
                if isinstance(value, bytes):
                    value = _host(value)
            else:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            setattr(self, name, value)
            return value

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)

    @property
    def offset_message_id(self) -> str:
        """Id made of the broker's address and the log position (MessageDecoder.java)."""
        return offset_message_id(self.store_host, self.commit_log_offset)

    @property
    def message_id(self) -> str:
        """The sender's unique id, or the offset id when the sender gave none; empty when neither can be read."""
        return self.properties.get(UNIQUE_KEY) or (self.offset_message_id if self.store_host else "")

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.stored_topic, self.broker_name, self.queue_id)


def encode_properties(properties: Mapping[str, str]) -> str:
    """Join *properties* as the wire wants them; empty values are left out, for no reader keeps them.

    Raises:
        InvalidMessageError: a name or value holds a separator character.
    """
    kept = {name: value for name, value in properties.items() if value}
    joined = format_properties(kept)
    if joined.count(NAME_END) != len(kept) or joined.count(PAIR_END) != len(kept):
        raise InvalidMessageError("a property name or value holds the character \\x01 or \\x02; remove it")
    return joined


def offset_message_id(store_host: str, commit_log_offset: int) -> str:
    """Return the id of the record at *commit_log_offset* of the broker at *store_host* (``host:port``)."""
    host, _, port = store_host.rpartition(":")
    numeric = host.strip("[]").partition("%")[0]
    return record.offset_message_id(record.encode_host(numeric, int(port)), commit_log_offset)


def split_offset_message_id(message_id: str) -> tuple[str, int]:
    """Return ``host:port`` and log position of an offset message id.

    Raises:
        ValueError: *message_id* is no such id (32 hexadecimal digits, 56 with an IPv6 address).
    """
    address, port, log_offset = record.decode_offset_message_id(message_id)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}", log_offset


@lru_cache(maxsize=1024)  # messages come from few hosts
def _host(packed: bytes) -> str:
    (port,) = _INT.unpack_from(packed, len(packed) - 4)
    return f"{address_text(packed[:-4])}:{port}"


def address_text(packed: bytes | memoryview) -> str:
    """Return the text of a 4- or 16-byte address."""
    if len(packed) == 4:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}"
    import ipaddress

    return f"[{ipaddress.ip_address(bytes(packed))}]"
