"""One pull request and what came of it, and the offset queries around it."""

from __future__ import annotations

from enum import Enum

import attrs

from understudy.format.pull_flags import COMMIT_OFFSET, LITE, SUBSCRIPTION, SUSPEND
from understudy.format.record import FLAG_INNER_BATCH
from understudy.mqclient.errors import BrokerError, NotConnectedError
from understudy.mqclient.leaders import address_of
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.offsets import queue_fields
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import decode_records
from understudy.mqclient.session import Session
from understudy.mqclient.subscription import Subscription
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError

_HEADROOM_MS = 15_000  # a held request is answered late by a busy broker; only then the connection is doubted


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NOTHING_NEW = "NO_NEW_MSG"
    NOTHING_MATCHED = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NOTHING_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NOTHING_MATCHED,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@attrs.frozen
class PullResult:
    """The answer to a pull.

    Attributes:
        status: see :class:`PullStatus`.
        next_offset: where to pull next.
        min_offset: lowest offset the broker has.
        max_offset: offset of the next message that will arrive.
        messages: those the subscription accepts, in order.
        suggested_broker_id: replica to pull from next time.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]
    suggested_broker_id: int


@attrs.frozen
class PullRequest:
    """What to pull.

    Attributes:
        group: consumer group.
        queue: from where.
        offset: first offset.
        subscription: what to accept.
        max_messages: most messages of one answer.
        max_bytes: most bytes of one answer.
        commit_offset: offset to store for the group with this request, ``None`` stores nothing.
        hold_ms: how long the broker may keep the request when there is nothing; 0 answers at once.
        send_subscription: put the subscription into the request instead of relying on heartbeats.
        lite: use the code and thread pool of pull consumers.
    """

    group: str
    queue: MessageQueue
    offset: int
    subscription: Subscription
    max_messages: int = 32
    max_bytes: int = 256 * 1024
    commit_offset: int | None = None
    hold_ms: int = 15_000
    send_subscription: bool = False
    lite: bool = False


async def pull(session: Session, address: str, wanted: PullRequest) -> PullResult:
    """Ask the broker at *address* for messages.

    Raises:
        BrokerError: the broker refused (no permission, unknown group, ...).
        NotConnectedError: no answer.
        RecordDamagedError: the answer cannot be cut into records. One that can, but not be read, is a message with
            ``damage``.
    """
    try:
        answer = await session.remoting.invoke(address, pull_command(wanted), longest_wait_ms(wanted))
    except RemotingError as error:
        raise NotConnectedError(str(error)) from error
    return pull_result(wanted, answer, address)


def longest_wait_ms(wanted: PullRequest) -> int:
    """Return how long an answer to *wanted* may take, in milliseconds."""
    return wanted.hold_ms + _HEADROOM_MS


def pull_command(wanted: PullRequest) -> Command:
    """Return the request that asks for what is *wanted*."""
    commit, hold_ms, queue = wanted.commit_offset, wanted.hold_ms, wanted.queue
    subscription = wanted.subscription
    flags = (
        (COMMIT_OFFSET if commit is not None else 0)
        | (SUSPEND if hold_ms else 0)
        | (SUBSCRIPTION if wanted.send_subscription else 0)
        | (LITE if wanted.lite else 0)
    )
    ext = {
        "consumerGroup": wanted.group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
        "queueOffset": str(wanted.offset),
        "maxMsgNums": str(wanted.max_messages),
        "maxMsgBytes": str(wanted.max_bytes),
        "sysFlag": str(flags),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": str(hold_ms),
        "subVersion": str(subscription.version),
        "expressionType": subscription.expression_type,
    }
    if wanted.send_subscription:
        ext["subscription"] = subscription.expression
    return request(RequestCode.LITE_PULL_MESSAGE if wanted.lite else RequestCode.PULL_MESSAGE, ext)


def pull_result(wanted: PullRequest, answer: Command, address: str) -> PullResult:
    """Return what the broker at *address* answered to *wanted*; raises as :func:`pull` does.

    Args:
        wanted: what was asked.
        answer: of any code.
        address: for errors.
    """
    status = _STATUS.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark or "", address)
    header = answer.ext or {}
    messages: list[ReceivedMessage] = []
    if status is PullStatus.FOUND:
        messages = decode_records(answer.body, wanted.queue.broker_name, keep_damaged=True, unpack=True)
        for message in messages:
            if message.damage and not message.stored_topic:  # not even that can be read
                message.topic = message.stored_topic = wanted.queue.topic
        if "offsetDelta" in header:  # a queue of a static topic: records say where they lie
            shift = int(header["offsetDelta"])
            for message in messages:
                message.queue_offset += shift
                message.queue_id = wanted.queue.queue_id
        if messages and messages[0].queue_offset < wanted.offset and messages[0].sys_flag & FLAG_INNER_BATCH:
            # A batch comes as a whole, and what is before the offset was consumed.
            messages = [message for message in messages if message.queue_offset >= wanted.offset]
        if wanted.subscription.tags:
            accepts = wanted.subscription.accepts
            messages = [message for message in messages if message.damage or accepts(message.tags)]
    return PullResult(
        status,
        int(header.get("nextBeginOffset") or wanted.offset),
        int(header.get("minOffset") or 0),
        int(header.get("maxOffset") or 0),
        messages,
        int(header.get("suggestWhichBrokerId") or 0),
    )


async def max_offset(session: Session, queue: MessageQueue) -> int:
    """Return the offset that the next message of *queue* will get. Raises :class:`ClientError`."""
    answer = await session.call(address_of(session, queue), RequestCode.GET_MAX_OFFSET, queue_fields(queue))
    return int((answer.ext or {})["offset"])


async def min_offset(session: Session, queue: MessageQueue) -> int:
    """Return the lowest offset that *queue* has. Raises :class:`ClientError`."""
    answer = await session.call(address_of(session, queue), RequestCode.GET_MIN_OFFSET, queue_fields(queue))
    return int((answer.ext or {})["offset"])


async def offset_at(session: Session, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
    """Return the offset of the first message of *queue* stored at *timestamp_ms* or later. Raises :class:`ClientError`.

    Args:
        session: the client.
        queue: where to search.
        timestamp_ms: wall time in milliseconds.
        boundary: ``LOWER`` for the first, ``UPPER`` for the last message of that time.
    """
    ext = {**queue_fields(queue), "timestamp": timestamp_ms, "boundaryType": boundary}
    answer = await session.call(address_of(session, queue), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
    return int((answer.ext or {})["offset"])
