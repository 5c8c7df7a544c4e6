"""What a send puts on the wire, and what its answer says: checks, header, body. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.format.batch import ITEM_OVERHEAD_BYTES
from understudy.format.names import DEFAULT_TOPIC, RETRY_PREFIX
from understudy.format.record import FLAG_COMPRESSED
from understudy.format.unique_id import UniqueIds
from understudy.mqclient.errors import InvalidMessageError
from understudy.mqclient.message import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    TRACE_ON,
    UNIQUE_KEY,
    WAIT,
    Message,
    encode_properties,
)
from understudy.mqclient.queue import MessageQueue, check_topic
from understudy.mqclient.records import check_properties_size, compress, encode_batch
from understudy.mqclient.sending import STATUS, ProducerOptions, SendResult
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command

Prepared = tuple[dict[str, str], bytes]
"""Header fields and body of a send that has no queue yet."""


class Outgoing:
    """The messages of one producer group on their way out.

    Args:
        group: producer group.
        options: see :class:`ProducerOptions`.
        ids: unique ids for messages without one.
    """

    def __init__(self, group: str, options: ProducerOptions, ids: UniqueIds) -> None:
        self._group = group
        self._options = options
        self._ids = ids

    def prepare(self, message: Message, now_ms: int) -> Prepared:
        """Return header and body of *message*, which gets its unique id unless it has one.

        Args:
            message: to be sent.
            now_ms: wall time in milliseconds.

        Raises:
            InvalidMessageError: it breaks a rule.
        """
        check_topic(message.topic)
        body = message.body
        check_body(body)
        if len(body) > self._options.max_message_bytes:
            raise InvalidMessageError(f"the body has {len(body)} bytes, {self._options.max_message_bytes} are allowed")
        message.properties.setdefault(UNIQUE_KEY, self._ids.next(now_ms))
        message.properties.setdefault(WAIT, "true")
        sys_flag = 0
        if 0 < self._options.compress_above_bytes <= len(body):
            smaller = compress(body, self._options.compression, self._options.compression_level)
            if len(smaller) < len(body):
                body = smaller
                sys_flag = FLAG_COMPRESSED | self._options.compression
        ext = self._header(message.topic, message.flag, sys_flag, message.properties, now_ms)
        if message.topic.startswith(RETRY_PREFIX):
            ext["j"] = message.properties.get(RECONSUME_TIME, "0")
            ext["l"] = message.properties.get(MAX_RECONSUME_TIMES, "16")
        return ext, body

    def prepare_batch(self, messages: Sequence[Message], now_ms: int) -> Prepared:
        """Return header and body of a batch, see :meth:`prepare`. Bodies of a batch are never compressed."""
        first = self.check_batch(messages, now_ms)
        body = encode_batch(messages)
        if len(body) > self._options.max_message_bytes:
            raise InvalidMessageError(
                f"the batch has {len(body)} bytes, {self._options.max_message_bytes} are allowed: send_batches cuts it"
            )
        properties = {UNIQUE_KEY: self._ids.next(now_ms), WAIT: first.properties.get(WAIT, "true")}
        ext = self._header(first.topic, first.flag, 0, properties, now_ms)
        ext["m"] = "true"
        return ext, body

    def check_batch(self, messages: Sequence[Message], now_ms: int) -> Message:
        """Return the first of *messages*, which may be a batch and get their unique ids. Raises as :meth:`prepare`."""
        if not messages:
            raise InvalidMessageError("the batch is empty")
        first = messages[0]
        check_topic(first.topic)
        for message in messages:
            if message.topic != first.topic:
                raise InvalidMessageError(f"a batch has one topic, this one has {first.topic} and {message.topic}")
            if message.topic.startswith(RETRY_PREFIX) or "DELAY" in message.properties:
                raise InvalidMessageError("messages of a batch can neither be delayed nor go to a retry topic")
            if message.properties.get(WAIT, "true") != first.properties.get(WAIT, "true"):
                raise InvalidMessageError("messages of a batch must agree on waiting for disk and replicas")
            check_body(message.body)
        for number, message in enumerate(messages):
            # An id has a counter of two bytes beside its time.
            message.properties.setdefault(UNIQUE_KEY, self._ids.next(now_ms + number // 0x8000))
        return first

    def split(self, messages: Sequence[Message], now_ms: int) -> list[Sequence[Message]]:
        """Cut *messages* into batches of at most ``max_message_bytes``, in order. Raises as :meth:`prepare`."""
        self.check_batch(messages, now_ms)
        most = self._options.max_message_bytes
        pieces: list[Sequence[Message]] = []
        start, filled = 0, 0
        for number, message in enumerate(messages):
            properties = encode_properties(message.properties).encode()
            check_properties_size(properties)
            size = ITEM_OVERHEAD_BYTES + len(message.body) + len(properties)
            if size > most:
                raise InvalidMessageError(f"message {number} of the batch takes {size} bytes, {most} are allowed")
            if filled + size > most:
                pieces.append(messages[start:number])
                start, filled = number, 0
            filled += size
        pieces.append(messages[start:])
        return pieces

    def _header(self, topic: str, flag: int, sys_flag: int, properties: dict[str, str], now_ms: int) -> dict[str, str]:
        encoded = encode_properties(properties)
        if len(encoded) > 8000:  # at most four bytes a character
            check_properties_size(encoded.encode())
        return {
            "a": self._group,
            "b": topic,
            "c": DEFAULT_TOPIC,
            "d": str(self._options.new_topic_queues),
            "e": "0",
            "f": str(sys_flag),
            "g": str(now_ms),
            "h": str(flag),
            "i": encoded,
            "j": "0",
            "k": "false",
            "m": "false",
        }


def check_body(body: object) -> None:
    """Raise :class:`InvalidMessageError` unless *body* is bytes, at least one."""
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidMessageError(f"the body is a {type(body).__name__}, bytes are expected: encode it")
    if not body:
        raise InvalidMessageError("a message needs a body of at least one byte")


def send_result(answer: Command, target: MessageQueue, message_id: str) -> SendResult:
    """Return what a broker's *answer* to a send says.

    Args:
        answer: one that says that the message is stored.
        target: where it was sent.
        message_id: its unique id, or those of a batch.
    """
    ext = answer.ext or {}
    queue_id = int(ext.get("queueId") or target.queue_id)
    return SendResult(
        STATUS[ResponseCode(answer.code)],
        message_id,
        ext.get("msgId") or "",
        target if queue_id == target.queue_id else target._replace(queue_id=queue_id),
        int(ext.get("queueOffset") or 0),
        ext.get("transactionId"),
        ext.get("recallHandle"),
        ext.get("MSG_REGION"),
        ext.get(TRACE_ON) != "false",
    )
