"""From a receive of a client to a broker's pop, and from what that brought to the messages of the answer.

Source: ReceiveMessageActivity.java, ConsumerProcessor.java, GrpcConverter.java.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib

import attrs

from understudy.format.record import FLAG_COMPRESSED
from understudy.mqclient.errors import InvalidMessageError, RecordDamagedError
from understudy.mqclient.message import KEYS, TAGS, ReceivedMessage
from understudy.mqclient.popped import ANY_QUEUE, PoppedMessage, PopRequest
from understudy.mqclient.records import decompress
from understudy.mqclient.subscription import TAG, Subscription, subscription
from understudy.proxy.core import validation
from understudy.proxy.core.durations import set_ms, to_ms
from understudy.proxy.core.handles import Handle
from understudy.proxy.core.message_types import PRIORITY, SHARDING_KEY, accepted_types, type_of_message
from understudy.proxy.core.sending import BORN_HOST, TRACE_CONTEXT
from understudy.proxy.core.settings import GroupConfig
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.budget import text_bytes

_MOST_MESSAGES = 32
#: Memory of one tag of a subscription beside its characters, which the expression has, too.
_TAG_BYTES = 128
_GZIP = b"\x1f\x8b"
DEAD_TOPIC, DEAD_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
SQL92 = "SQL92"


@attrs.frozen
class ReceiveRules:
    """How long a proxy lets its clients wait and keep messages, in milliseconds.

    Attributes:
        shortest_poll_ms, longest_poll_ms: a receive waits at least, and at most.
        renews: messages of clients that want it are renewed.
        renewed_ms: for how long such a message is hidden at first.
        shortest_invisible_ms, longest_invisible_ms: for how long others are.
    """

    shortest_poll_ms: int
    longest_poll_ms: int
    renews: bool
    renewed_ms: int
    shortest_invisible_ms: int
    longest_invisible_ms: int


@attrs.frozen
class Receive:
    """A receive that was checked.

    Attributes:
        group: consumer group.
        subscription: topic, and what of it.
        broker_name: which broker the client wants; empty for any.
        most: messages; 0 asks for none.
        poll_ms: how long it may wait.
        invisible_ms: how long nobody else gets the messages.
        renewed: the proxy sees to it that they stay hidden.
        attempt_id: the same for a receive that is sent again.
    """

    group: str
    subscription: Subscription
    broker_name: str
    most: int
    poll_ms: int
    invisible_ms: int
    renewed: bool
    attempt_id: str | None

    @property
    def text_bytes(self) -> int:
        """Memory of what the client wrote and a receive that waits keeps."""
        wanted = self.subscription
        size = text_bytes(wanted.expression, wanted.topic, self.group, self.broker_name, self.attempt_id or "")
        return size + _TAG_BYTES * len(wanted.tags)

    def pop(self, broker_name: str, group: GroupConfig) -> PopRequest:
        """Return what *broker_name* is asked, for a group of that configuration."""
        return PopRequest(
            self.group,
            self.subscription,
            broker_name,
            ANY_QUEUE,
            self.most,
            self.invisible_ms,
            self.poll_ms,
            from_first=False,
            in_order=group.in_order,
            attempt_id=self.attempt_id,
        )


def read_receive(
    request: v2.ReceiveMessageRequest, remaining_ms: float | None, request_timeout_ms: int, rules: ReceiveRules
) -> Receive:
    """Check a receive.

    Args:
        request: as it came.
        remaining_ms: how long the client waits for the answer; ``None`` for ever.
        request_timeout_ms: what the client's settings give a request.
        rules: of the proxy.

    Raises:
        ProxyError: with the code of what is wrong.
    """
    group = validation.group_of(request.group)
    topic = validation.topic_of(request.message_queue.topic)
    return Receive(
        group,
        _subscription(topic, request.filter_expression),
        request.message_queue.broker.name,
        min(max(request.batch_size, 0), _MOST_MESSAGES),
        _poll_ms(request, remaining_ms, request_timeout_ms, rules),
        _invisible_ms(request, rules),
        request.auto_renew and rules.renews,
        request.attempt_id if request.HasField("attempt_id") and request.attempt_id else None,
    )


def _subscription(topic: str, expression: v2.FilterExpression) -> Subscription:
    kind = SQL92 if expression.type == v2.SQL else TAG
    try:
        return subscription(topic, expression.expression, 0, kind)
    except InvalidMessageError as error:
        raise ProxyError(v2.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def _poll_ms(
    request: v2.ReceiveMessageRequest, remaining_ms: float | None, request_timeout_ms: int, rules: ReceiveRules
) -> int:
    if request.HasField("long_polling_timeout"):
        wanted = to_ms(request.long_polling_timeout)
    elif remaining_ms is not None:
        wanted = int(remaining_ms - request_timeout_ms / 2)
    else:
        wanted = rules.longest_poll_ms
    poll_ms = min(max(wanted, rules.shortest_poll_ms), rules.longest_poll_ms)
    if remaining_ms is None or poll_ms <= remaining_ms:
        return poll_ms
    if remaining_ms < rules.shortest_poll_ms:
        raise ProxyError(
            v2.ILLEGAL_POLLING_TIME,
            f"The deadline time remaining is not enough for polling, please check network condition: "
            f"{int(remaining_ms)} ms are left, polling takes at least {rules.shortest_poll_ms}",
        )
    return int(remaining_ms)


def _invisible_ms(request: v2.ReceiveMessageRequest, rules: ReceiveRules) -> int:
    if request.auto_renew and rules.renews:
        return rules.renewed_ms
    return check_invisible(to_ms(request.invisible_duration), rules.shortest_invisible_ms, rules.longest_invisible_ms)


def check_invisible(invisible_ms: int, shortest_ms: int, longest_ms: int) -> int:
    """Return *invisible_ms* if it is within bounds. Raises :class:`ProxyError` (40011)."""
    if not shortest_ms <= invisible_ms <= longest_ms:
        raise ProxyError(
            v2.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time {invisible_ms} ms is not within {shortest_ms} to {longest_ms} ms",
        )
    return invisible_ms


def handle_of(popped: PoppedMessage) -> Handle:
    """Return the handle of a message that a pop brought."""
    return Handle(popped.receipt, popped.message.commit_log_offset)


def received_message(resource: v2.Resource, popped: PoppedMessage, handle: Handle, now_ms: int) -> v2.Message:
    """Return a message as clients get it.

    Args:
        resource: topic as the client named it, also of a message that was tried again.
        popped: what the broker handed out.
        handle: by which the client acknowledges it.
        now_ms: wall time of the answer.
    """
    message = message_of(resource, popped.message, now_ms)
    message.system_properties.receipt_handle = handle.text
    set_ms(message.system_properties.invisible_duration, handle.receipt.invisible_ms)
    return message


def message_of(resource: v2.Resource, message: ReceivedMessage, now_ms: int) -> v2.Message:
    """Return a stored message as clients see it; arguments as of :func:`received_message`."""
    system, properties = v2.SystemProperties(), message.properties
    body, encoding = _body(message)
    system.message_id = message.message_id
    system.body_encoding = encoding
    system.body_digest.type = v2.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.message_type = _type(properties)
    system.born_host = properties.get(BORN_HOST) or message.born_host.rpartition(":")[0]
    system.store_host = message.store_host
    set_ms(system.born_timestamp, message.born_timestamp_ms)
    set_ms(system.store_timestamp, message.store_timestamp_ms)
    set_ms(system.delivery_timestamp, now_ms)
    system.queue_id = message.queue_id
    system.queue_offset = message.queue_offset
    system.delivery_attempt = message.reconsume_times + 1
    if TAGS in properties:
        system.tag = properties[TAGS]
    if KEYS in properties:
        system.keys.extend(properties[KEYS].split())
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    if DEAD_TOPIC in properties or DEAD_ID in properties:
        system.dead_letter_queue.topic = properties.get(DEAD_TOPIC, "")
        system.dead_letter_queue.message_id = properties.get(DEAD_ID, "")
    with contextlib.suppress(KeyError, ValueError):
        system.priority = int(properties[PRIORITY])
    users = {name: value for name, value in properties.items() if name not in validation.SYSTEM_PROPERTIES}
    return v2.Message(topic=resource, system_properties=system, user_properties=users, body=body)


def _type(properties: dict[str, str]) -> v2.MessageType:
    (kind,) = accepted_types(type_of_message(properties))
    return kind


def _body(message: ReceivedMessage) -> tuple[bytes, v2.Encoding]:
    """Return the body and how it is compressed, for clients that know gzip only.

    Differs: the reference hands out bodies that older producers compressed by zlib, LZ4 or zstd under the name of gzip.
    """
    if message.damage or not message.sys_flag & FLAG_COMPRESSED:
        return message.body, v2.IDENTITY
    if message.body.startswith(_GZIP):
        return message.body, v2.GZIP
    with contextlib.suppress(RecordDamagedError, InvalidMessageError, zlib.error):
        return decompress(message.body, message.sys_flag), v2.IDENTITY
    return message.body, v2.GZIP
