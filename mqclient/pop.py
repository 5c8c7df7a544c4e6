"""Single pop requests, and what comes of them: messages with receipt handles, acknowledgements, longer times."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from understudy.format.json_dialect import dumps
from understudy.format.receipts import RECEIPT, Receipt, ReceiptError, read_receipt, retry_mark, starts_of, topic_of
from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.records import decode_records
from understudy.mqclient.session import Session
from understudy.mqclient.subscription import Subscription
from understudy.remoting.codes import RequestCode, ResponseCode

ANY_QUEUE = -1
_HEADROOM_MS = 15_000  # a held request is answered late by a busy broker; only then the connection is doubted
_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND})


@attrs.frozen
class PoppedMessage:
    """A message that belongs to its consumer for a time.

    Attributes:
        message: the message; its ``reconsume_times`` say how often it came back.
        receipt: proves that it was handed out; a longer time makes a new one.
        group: who popped it.
    """

    message: ReceivedMessage
    receipt: Receipt
    group: str

    @property
    def stored_topic(self) -> str:
        """The topic it was popped from: its own, or the group's retry topic for it."""
        return topic_of(self.receipt.retry, self.group, self.message.topic)

    @property
    def fields(self) -> dict[str, object]:
        """The header fields that name it."""
        return {
            "consumerGroup": self.group,
            "topic": self.stored_topic,
            "queueId": self.receipt.queue_id,
            "offset": self.receipt.offset,
            "extraInfo": self.receipt.text,
            "bname": self.receipt.broker_name,
        }


@attrs.frozen
class PopRequest:
    """What to pop.

    Attributes:
        group: consumer group.
        subscription: topic, and what of it.
        broker_name: from which brokers.
        queue_id: one queue, or :data:`ANY_QUEUE`.
        max_messages: most messages of one answer, 32 at most.
        invisible_ms: how long nobody else gets them.
        hold_ms: how long the broker may keep the request when there is nothing; 0 answers at once.
        from_first: a new group begins with the oldest message.
        in_order: the broker hands out a queue's next messages only when these are acknowledged.
        attempt_id: the same for a request that is sent again because its answer was lost.
    """

    group: str
    subscription: Subscription
    broker_name: str
    queue_id: int = ANY_QUEUE
    max_messages: int = 32
    invisible_ms: int = 60_000
    hold_ms: int = 15_000
    from_first: bool = True
    in_order: bool = False
    attempt_id: str | None = None


async def pop(session: Session, wanted: PopRequest) -> list[PoppedMessage]:
    """Ask a broker for messages.

    Raises:
        BrokerError: the broker refused (no permission, unknown group, no timer, ...).
        NotConnectedError: no answer.
        RecordDamagedError: the answer cannot be cut into records, or names none of its handles.
    """
    born_ms = session.world.clock.wall_ms()
    ext = {
        "consumerGroup": wanted.group,
        "topic": wanted.subscription.topic,
        "queueId": wanted.queue_id,
        "maxMsgNums": wanted.max_messages,
        "invisibleTime": wanted.invisible_ms,
        "pollTime": wanted.hold_ms,
        "bornTime": born_ms,
        "initMode": 0 if wanted.from_first else 1,
        "expType": wanted.subscription.expression_type,
        "exp": wanted.subscription.expression,
        "order": wanted.in_order,
        "attemptId": wanted.attempt_id,
        "bname": wanted.broker_name,
    }
    answer = await session.call(
        session.master_address(wanted.broker_name),
        RequestCode.POP_MESSAGE,
        ext,
        timeout_ms=wanted.hold_ms + _HEADROOM_MS,
        accept=(ResponseCode.SUCCESS, *_NOTHING),
    )
    if answer.code in _NOTHING:
        return []
    header = answer.ext or {}
    try:
        starts = starts_of(header.get("startOffsetInfo") or "")
        times = int(header["popTime"]), int(header["invisibleTime"]), int(header["reviveQid"])
        found = []
        for message in decode_records(answer.body, wanted.broker_name, keep_damaged=True):
            receipt = _receipt(message, starts, times, wanted.broker_name)
            if wanted.subscription.tags and not message.damage and not wanted.subscription.accepts(message.tags):
                continue
            found.append(PoppedMessage(message, receipt, wanted.group))
        return found
    except (KeyError, ValueError) as error:
        raise RecordDamagedError(f"the answer to a pop at {wanted.broker_name} has no handles: {error!r}") from None


def _receipt(
    message: ReceivedMessage, starts: dict[tuple[str, int], int], times: tuple[int, int, int], broker_name: str
) -> Receipt:
    known = message.properties.get(RECEIPT)
    if known is not None:
        return read_receipt(known)
    mark = retry_mark(message.stored_topic)
    start = starts.get((mark, message.queue_id))
    if start is None:
        raise ReceiptError(f"no start offset of queue {message.queue_id}")
    return Receipt(start, *times, mark, broker_name, message.queue_id, message.queue_offset)


async def ack(session: Session, popped: PoppedMessage) -> None:
    """Say that a message is consumed; it does not come again. Raises :class:`ClientError`: it may come again."""
    await session.call(session.master_address(popped.receipt.broker_name), RequestCode.ACK_MESSAGE, popped.fields)


async def ack_all(session: Session, popped: Sequence[PoppedMessage]) -> None:
    """Say that several messages are consumed, in one request to each broker. Raises :class:`ClientError`."""
    by_broker: dict[str, list[PoppedMessage]] = {}
    for each in popped:
        by_broker.setdefault(each.receipt.broker_name, []).append(each)
    for broker_name, some in by_broker.items():
        body = dumps({"brokerName": broker_name, "acks": _batches(some)})
        await session.call(session.master_address(broker_name), RequestCode.BATCH_ACK_MESSAGE, None, body)


def _batches(popped: Iterable[PoppedMessage]) -> list[dict[str, Any]]:
    """Return the entries of a batch: one for what one pop got out of one queue."""
    entries: dict[tuple[str, str, str, int, int, int], dict[str, Any]] = {}
    bits: dict[tuple[str, str, str, int, int, int], int] = {}
    for each in popped:
        receipt, topic = each.receipt, each.message.topic
        key = (each.group, topic, receipt.retry, receipt.queue_id, receipt.start_offset, receipt.pop_ms)
        entries[key] = {
            "c": each.group, "t": topic, "r": receipt.retry, "so": receipt.start_offset, "q": receipt.queue_id,
            "rq": receipt.revive_queue, "pt": receipt.pop_ms, "it": receipt.invisible_ms,
        }  # fmt: skip
        bits[key] = bits.get(key, 0) | 1 << (receipt.offset - receipt.start_offset)
    for place, entry in entries.items():
        number = bits[place]
        entry["b"] = b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()
    return list(entries.values())


async def change_invisible(session: Session, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
    """Let a message belong to its consumer for *invisible_ms* from now on.

    Returns:
        The message with its new receipt, the only one that counts from now on.

    Raises:
        ClientError: the time is as it was.
    """
    receipt = popped.receipt
    answer = await session.call(
        session.master_address(receipt.broker_name),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        {**popped.fields, "invisibleTime": invisible_ms},
    )
    header = answer.ext or {}
    changed = attrs.evolve(
        receipt,
        start_offset=receipt.offset,
        pop_ms=int(header["popTime"]),
        invisible_ms=int(header["invisibleTime"]),
        revive_queue=int(header["reviveQid"]),
    )
    return attrs.evolve(popped, receipt=changed)
