"""From a message of a client to what a broker is sent, and from its answer to the client's.

Source: SendMessageActivity.java, GrpcConverter.java.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from understudy.format.batch import encode_batch
from understudy.format.names import DEFAULT_TOPIC
from understudy.format.record import FLAG_COMPRESSED, FLAG_TRANSACTION_PREPARED
from understudy.mqclient.message import (
    KEYS,
    PREPARED,
    PRODUCER_GROUP,
    RECONSUME_TIME,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQUE_KEY,
    encode_properties,
)
from understudy.proxy.core import validation
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.durations import to_ms
from understudy.proxy.core.message_types import PRIORITY, SHARDING_KEY, TopicType, check_type
from understudy.proxy.core.statuses import ProxyError, code_of_response, status, summary
from understudy.proxy.core.transaction_ids import TransactionPlace
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command

_NEW_TOPIC_QUEUES = 4
_MOST_MESSAGES = 4096
BORN_HOST, BORN_TIMESTAMP = "__BORNHOST", "BORN_TIMESTAMP"
TRACE_CONTEXT = "TRACE_CONTEXT"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_STORED_UNSAFELY = {
    ResponseCode.FLUSH_DISK_TIMEOUT: (v2.MASTER_PERSISTENCE_TIMEOUT, "the message is stored but not on the disk yet"),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: (v2.SLAVE_PERSISTENCE_TIMEOUT, "the message is stored but not at a slave yet"),
    ResponseCode.SLAVE_NOT_AVAILABLE: (v2.HA_NOT_AVAILABLE, "the message is stored but there is no slave for a copy"),
}


@attrs.frozen
class SendRules:
    """What a proxy lets its clients send.

    Attributes:
        max_body_bytes: largest body.
        refuses_empty: a body has at least a byte.
        max_properties: most properties of a user.
        max_properties_bytes: their names and values, with tag and keys.
        max_group_bytes: a message group has less.
        max_delay_ms: longest delay.
        max_recovery_seconds: longest time before a sender is asked about its half message.
    """

    max_body_bytes: int
    refuses_empty: bool
    max_properties: int
    max_properties_bytes: int
    max_group_bytes: int
    max_delay_ms: int
    max_recovery_seconds: int


@attrs.frozen
class Outgoing:
    """What a broker is to be sent.

    Attributes:
        topic: where it goes.
        code: of the request.
        ext: header fields but queue and broker.
        body: payload.
        message_group: messages of one group go to one queue; ``None`` for none.
        message_id: of the message, those of a batch joined by commas.
        is_half: it is a transaction's.
    """

    topic: str
    code: RequestCode
    ext: dict[str, str]
    body: bytes
    message_group: str | None
    message_id: str
    is_half: bool

    def fields(self, broker_name: str, queue_id: int) -> dict[str, str]:
        """Return the header fields of a send to one queue."""
        return {**self.ext, "e": str(queue_id), "n": broker_name}


def topic_of_messages(messages: Sequence[v2.Message]) -> str:
    """Return the one topic of *messages*. Raises :class:`ProxyError` (40002, 40016)."""
    if not messages:
        raise ProxyError(v2.MESSAGE_CORRUPTED, "no message to send")
    if len(messages) > _MOST_MESSAGES:
        raise ProxyError(v2.MESSAGE_CORRUPTED, f"{len(messages)} messages at once, {_MOST_MESSAGES} are allowed")
    topic = validation.topic_of(messages[0].topic)
    if any(message.topic.name != topic for message in messages):
        raise ProxyError(v2.MESSAGE_CORRUPTED, "topic in message is not same: a request has messages of one topic")
    return topic


def outgoing(
    topic: str,
    messages: Sequence[v2.Message],
    expected: TopicType | None,
    rules: SendRules,
    caller: Caller,
    now_ms: int,
) -> Outgoing:
    """Check messages and return what a broker is to be sent.

    Args:
        topic: of all of them, as :func:`topic_of_messages` says.
        messages: of one request, at least one.
        expected: what their topic takes; ``None`` does not check.
        rules: what may be sent.
        caller: whose they are.
        now_ms: wall time.

    Raises:
        ProxyError: with the code of what is wrong.
    """
    encoded: list[tuple[bytes, dict[str, str]]] = []
    for message in messages:
        properties = _properties(message, topic, rules, caller, now_ms)
        if expected is not None:
            check_type(expected, properties)
        encoded.append((message.body, properties))
    first, (body, properties) = messages[0], encoded[0]
    ext = _header(topic, first, properties, now_ms)
    if len(messages) == 1:
        group = properties.get(SHARDING_KEY)
        message_id = first.system_properties.message_id
        return Outgoing(topic, RequestCode.SEND_MESSAGE_V2, ext, body, group, message_id, PREPARED in properties)
    if any(_is_single(each) for _, each in encoded):
        raise ProxyError(v2.MESSAGE_CORRUPTED, "messages of a batch can be neither delayed nor transactional")
    ids = ",".join(message.system_properties.message_id for message in messages)
    ext |= {"f": "0", "m": "true", "i": encode_properties({UNIQUE_KEY: ids, PRODUCER_GROUP: topic})}
    batch = encode_batch((0, each, encode_properties(named).encode()) for each, named in encoded)
    return Outgoing(topic, RequestCode.SEND_BATCH_MESSAGE, ext, batch, None, ids, False)


def _is_single(properties: dict[str, str]) -> bool:
    return PREPARED in properties or TIMER_DELIVER_MS in properties


def _header(topic: str, message: v2.Message, properties: dict[str, str], now_ms: int) -> dict[str, str]:
    system = message.system_properties
    sys_flag = FLAG_COMPRESSED if system.body_encoding == v2.GZIP else 0
    if PREPARED in properties:
        sys_flag |= FLAG_TRANSACTION_PREPARED
    return {
        "a": topic,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": str(_NEW_TOPIC_QUEUES),
        "f": str(sys_flag),
        "g": str(to_ms(system.born_timestamp) if system.HasField("born_timestamp") else now_ms),
        "h": "0",
        "i": encode_properties(properties),
        "j": "0",
        "k": "false",
        "m": "false",
    }


def _properties(message: v2.Message, topic: str, rules: SendRules, caller: Caller, now_ms: int) -> dict[str, str]:
    """Check one message and return its properties as they are stored. Raises :class:`ProxyError`."""
    _check_body(message.body, rules)
    system, users = message.system_properties, message.user_properties
    _check_users_properties(message, rules)
    if system.HasField("lite_topic"):  # without it the message would be another one
        raise ProxyError(v2.UNSUPPORTED, "lite topics are not served: send without lite_topic")
    properties = dict(users)
    if system.HasField("tag"):
        validation.check_tag(system.tag)
        properties[TAGS] = system.tag
    for key in system.keys:
        validation.check_key(key)
    if system.keys:
        properties[KEYS] = " ".join(system.keys)
    if not system.message_id.strip() or validation.has_control_characters(system.message_id):
        raise ProxyError(v2.ILLEGAL_MESSAGE_ID, "message id cannot be blank or hold control characters")
    properties[UNIQUE_KEY] = system.message_id
    if system.message_type == v2.TRANSACTION:
        properties[PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = to_ms(system.orphaned_transaction_recovery_duration) // 1000
            if not 0 <= seconds <= rules.max_recovery_seconds:
                limit = rules.max_recovery_seconds
                raise ProxyError(v2.BAD_REQUEST, f"max transaction recovery time is {limit} seconds, not {seconds}")
            properties[IMMUNITY] = str(seconds)
    if system.HasField("delivery_timestamp"):
        deliver_ms = to_ms(system.delivery_timestamp)
        if deliver_ms > now_ms + rules.max_delay_ms:
            raise ProxyError(
                v2.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {rules.max_delay_ms} ms"
            )
        properties[TIMER_DELIVER_MS] = str(max(deliver_ms, 0))
    properties[RECONSUME_TIME] = str(system.delivery_attempt)
    if system.HasField("message_group") and system.message_group:
        validation.check_message_group(system.message_group, rules.max_group_bytes)
        properties[SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        properties[PRIORITY] = str(system.priority)
    if system.HasField("trace_context") and not validation.has_control_characters(system.trace_context):
        properties[TRACE_CONTEXT] = system.trace_context
    born_host = system.born_host if not validation.has_control_characters(system.born_host) else ""
    properties[BORN_HOST] = born_host[:255] or caller.host
    if system.HasField("born_timestamp"):
        properties[BORN_TIMESTAMP] = str(to_ms(system.born_timestamp))
    properties[PRODUCER_GROUP] = topic
    return properties


def _check_body(body: bytes, rules: SendRules) -> None:
    if rules.refuses_empty and not body:
        raise ProxyError(v2.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > rules.max_body_bytes:
        raise ProxyError(
            v2.MESSAGE_BODY_TOO_LARGE,
            f"message body cannot exceed the max {rules.max_body_bytes} bytes, it has {len(body)}",
        )


def _check_users_properties(message: v2.Message, rules: SendRules) -> None:
    users, system = message.user_properties, message.system_properties
    if len(users) > rules.max_properties:
        raise ProxyError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {rules.max_properties}, the message has {len(users)}",
        )
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in users.items():
        if name in validation.RESERVED_PROPERTIES:
            raise ProxyError(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name} is used by system; choose another name")
        if validation.has_control_characters(name) or validation.has_control_characters(value):
            raise ProxyError(v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {name[:64]!r} holds a control character")
        size += len(name.encode()) + len(value.encode())
    if size > rules.max_properties_bytes:
        limit = rules.max_properties_bytes
        raise ProxyError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE, f"the properties of the message have {size} bytes, {limit} are allowed"
        )


def send_answer(sent: Outgoing, answer: Command, broker_name: str) -> v2.SendMessageResponse:
    """Return what a client is told about its send.

    The id of a transaction names where its half message is, so that any proxy can find it at any time. Differs: the
    reference gives the message's id and forgets after 30 s where it is.

    Args:
        sent: what was sent.
        answer: of the broker.
        broker_name: where it was sent.
    """
    unsafe = _STORED_UNSAFELY.get(answer.code)  # type: ignore[call-overload]  # any number may come
    if unsafe is not None:
        entry = v2.SendResultEntry(status=status(*unsafe))
    elif answer.code != ResponseCode.SUCCESS:
        entry = v2.SendResultEntry(status=status(code_of_response(answer.code), answer.remark or ""))
    else:
        ext = answer.ext or {}
        offset = int(ext.get("queueOffset") or 0)
        entry = v2.SendResultEntry(
            status=status(v2.OK, "OK"),
            message_id=sent.message_id,
            transaction_id=sent.message_id,
            offset=offset,
            recall_handle=ext.get("recallHandle") or "",
        )
        if sent.is_half:
            entry.transaction_id = TransactionPlace.of_send(sent.message_id, broker_name, offset, ext["msgId"]).text
    return v2.SendMessageResponse(status=summary([entry.status]), entries=[entry])
