"""What clients write into the trace topic about a message: fields divided by character 1, steps by character 2.

Source: TraceDataEncoder.java, TraceConstants.java.
"""

from __future__ import annotations

from enum import IntEnum

import attrs

_FIELDS, _STEPS = "\x01", "\x02"
PUBLISHED, CONSUMING, CONSUMED, DECIDED = "Pub", "SubBefore", "SubAfter", "EndTransaction"
RECALLED = "Recall"


class MessageKind(IntEnum):
    """What was published."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class ConsumeCode(IntEnum):
    """How consuming ended."""

    SUCCESS = 0
    TIME_OUT = 1
    FAILED = 4


@attrs.frozen
class TraceStep:
    """One thing that a client did with a message.

    Attributes:
        kind: :data:`PUBLISHED`, :data:`CONSUMED`, :data:`DECIDED` or :data:`RECALLED`.
        message_id: unique id of the message.
        group: of the client; ``""`` where an old one does not say.
        time_ms: wall time, 0 where an old client does not say.
        cost_ms: how long it took.
        success: how it ended.
        topic, keys: of the message, where they are said.
    """

    kind: str
    message_id: str
    group: str
    time_ms: int
    cost_ms: int
    success: bool
    topic: str = ""
    keys: str = ""


def steps_of(text: str) -> list[TraceStep]:
    """Return the steps that the body of a trace message tells; what cannot be read is left out."""
    return [step for step in map(_step, text.split(_STEPS)) if step is not None]


def _step(text: str) -> TraceStep | None:
    fields = text.split(_FIELDS)
    try:
        if fields[0] == PUBLISHED:
            # The last fields came one after the other: success alone, an offset id before it, a host behind it.
            success = fields[12] if len(fields) == 13 else fields[13]
            return TraceStep(
                PUBLISHED, fields[5], fields[3], int(fields[1]), int(fields[10]), _true(success), fields[4], fields[7]
            )
        if fields[0] == CONSUMED:
            told = len(fields) >= 9
            group, time_ms = (fields[8], int(fields[7])) if told else ("", 0)
            return TraceStep(CONSUMED, fields[2], group, time_ms, int(fields[3]), _true(fields[4]), keys=fields[5])
        if fields[0] == DECIDED:
            committed = fields[11] == "COMMIT_MESSAGE"
            return TraceStep(DECIDED, fields[5], fields[3], int(fields[1]), 0, committed, fields[4], fields[7])
        if fields[0] == RECALLED:
            return TraceStep(RECALLED, fields[5], fields[3], int(fields[1]), 0, _true(fields[6]), fields[4])
    except (IndexError, ValueError):
        return None
    return None


def published(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: MessageKind,
    offset_message_id: str,
    success: bool,
) -> str:
    """Return the step of a producer that has sent a message.

    Args:
        time_ms: wall time.
        region: of the broker.
        group: of the client.
        topic: of the message.
        message_id: its unique id.
        tags: of the message.
        keys: of the message.
        store_host: address of its broker.
        body_bytes: length of its body.
        cost_ms: how long it took.
        kind: what was sent.
        offset_message_id: where it is stored.
        success: how it ended.
    """
    return _encoded(
        PUBLISHED, time_ms, region, group, topic, message_id, tags, keys, store_host, body_bytes, cost_ms, int(kind),
        offset_message_id, success,
    )  # fmt: skip


def consuming(
    *, time_ms: int, region: str, group: str, request_id: str, message_id: str, retries: int, keys: str
) -> str:
    """Return the step of a consumer that has got a message.

    Args:
        time_ms: wall time.
        region: of the broker.
        group: of the client.
        request_id: the same in the steps of one delivery.
        message_id: its unique id.
        retries: how often it failed before.
        keys: of the message.
    """
    return _encoded(CONSUMING, time_ms, region, group, request_id, message_id, retries, keys)


def consumed(
    *, request_id: str, message_id: str, cost_ms: int, success: bool, keys: str, code: ConsumeCode, time_ms: int,
    group: str,
) -> str:  # fmt: skip
    """Return the step of a consumer that is done with a message, see :func:`consuming`.

    Args:
        request_id: the same in the steps of one delivery.
        message_id: its unique id.
        cost_ms: how long it took.
        success: how it ended.
        keys: of the message.
        code: how it ended.
        time_ms: wall time.
        group: of the client.
    """
    return _encoded(CONSUMED, request_id, message_id, cost_ms, success, keys, int(code), time_ms, group)


def decided(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: str,
    store_host: str,
    transaction_id: str,
    state: str,
    checked: bool,
) -> str:
    """Return the step of a producer that has decided about a half message.

    Args:
        time_ms: wall time.
        region: of the broker.
        group: of the client.
        topic: of the message.
        message_id: its unique id.
        tags: of the message.
        keys: of the message.
        store_host: address of its broker.
        transaction_id: its name at the broker.
        state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
        checked: because the broker has asked.
    """
    return _encoded(
        DECIDED, time_ms, region, group, topic, message_id, tags, keys, store_host,
        int(MessageKind.COMMIT), transaction_id, state, checked,
    )  # fmt: skip


def recalled(*, time_ms: int, region: str, group: str, topic: str, message_id: str, success: bool) -> str:
    """Return the step of a producer that has called a message back.

    Args:
        time_ms: wall time.
        region: of the broker.
        group: of the client.
        topic: of the message.
        message_id: its unique id.
        success: whether the broker has taken it.
    """
    return _encoded(RECALLED, time_ms, region, group, topic, message_id, success)


def _encoded(*fields: object) -> str:
    texts = (str(field).lower() if isinstance(field, bool) else str(field) for field in fields)
    return _FIELDS.join(texts) + _STEPS


def _true(text: str) -> bool:
    return text.lower() == "true"
