"""What a pop asks for and what comes of it: messages with receipt handles. Nothing here does I/O."""

from __future__ import annotations

import attrs

from understudy.format.receipts import (
    NORMAL,
    RECEIPT,
    Receipt,
    ReceiptError,
    read_receipt,
    retry_mark,
    starts_of,
    topic_of,
)
from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.records import decode_records
from understudy.mqclient.subscription import Subscription
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command

ANY_QUEUE = -1
NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND})
"""Answers that bring no message and are no failure."""


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


def pop_fields(wanted: PopRequest, born_ms: int) -> dict[str, object]:
    """Return the header fields of a pop.

    Args:
        wanted: what to pop.
        born_ms: wall time at which it begins to wait; 0 lets the broker's own clock say so.
    """
    return {
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


def popped_messages(wanted: PopRequest, answer: Command, *, inflate: bool = True) -> list[PoppedMessage]:
    """Return the messages of a successful answer, those included that only the hash of a tag has let through.

    Args:
        wanted: what was asked for.
        answer: of the broker.
        inflate: without it bodies stay as they were sent.

    Raises:
        RecordDamagedError: it cannot be cut into records, or names none of their handles.
    """
    header = answer.ext or {}
    try:
        starts = starts_of(header.get("startOffsetInfo") or "")
        times = int(header["popTime"]), int(header["invisibleTime"]), int(header["reviveQid"])
        messages = decode_records(answer.body, wanted.broker_name, keep_damaged=True, inflate=inflate)
        for message in messages:
            if not message.stored_topic:
                _name(message, starts, wanted)
        return [
            PoppedMessage(message, _receipt(message, starts, times, wanted.broker_name), wanted.group)
            for message in messages
        ]
    except (KeyError, ValueError) as error:
        raise RecordDamagedError(f"the answer to a pop at {wanted.broker_name} has no handles: {error!r}") from None


def _name(message: ReceivedMessage, starts: dict[tuple[str, int], int], wanted: PopRequest) -> None:
    """Give a message whose own topic cannot be read the one it was popped from: else nobody can acknowledge it."""
    queue_id, offset = message.queue_id, message.queue_offset
    begun = {mark: start for (mark, queue), start in starts.items() if queue == queue_id and start <= offset}
    mark = max(begun, key=begun.__getitem__, default=NORMAL)  # several only if a retry topic came in the same answer
    message.topic = wanted.subscription.topic
    message.stored_topic = topic_of(mark, wanted.group, message.topic)


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
