"""Finding stored messages and what consumers made of them."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.message_traces import TraceStep, steps_of
from understudy.format.names import TRACE_TOPIC
from understudy.format.unique_id import time_of
from understudy.mqclient.admin.groups import consume_stats, consumer_connection
from understudy.mqclient.admin.topics import consuming_groups
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.message import UNIQUE_KEY, ReceivedMessage, split_offset_message_id
from understudy.mqclient.records import decode_records
from understudy.mqclient.session import Session, json_body
from understudy.remoting.codes import RequestCode, ResponseCode

LATEST_MS = 0x7FFFFFFFFFFFFFFF


@attrs.frozen
class Traced:
    """What a client told of a message.

    Attributes:
        step: what it did.
        host: address of the client, as its broker saw it.
    """

    step: TraceStep
    host: str


@attrs.frozen
class Track:
    """What one group made of a message (MessageTrack.java).

    Attributes:
        group: consumer group.
        state: ``CONSUMED``, ``CONSUMED_BUT_FILTERED``, ``NOT_CONSUME_YET``, ``PULL``, ``NOT_ONLINE``,
            ``CONSUME_BROADCASTING`` or ``UNKNOWN``.
        explanation: why it is not known better.
    """

    group: str
    state: str
    explanation: str | None = None


async def view(session: Session, address: str, topic: str, log_offset: int) -> ReceivedMessage:
    """Return the message at *log_offset* of the log of the broker at *address*.

    Args:
        session: the client below.
        address: of the broker.
        topic: of the message.
        log_offset: where it begins in the broker's log (bytes).
    """
    ext = {"topic": topic, "offset": log_offset}
    messages = decode_records((await session.call(address, RequestCode.VIEW_MESSAGE_BY_ID, ext)).body)
    if not messages:
        raise ClientError(f"{address} has no message at log offset {log_offset}")
    return messages[0]


async def find(
    session: Session,
    topic: str,
    key: str,
    *,
    kind: str = "K",
    max_messages: int = 64,
    begin_ms: int = 0,
    end_ms: int = LATEST_MS,
    last_key: str | None = None,
) -> list[ReceivedMessage]:
    """Return the messages of *topic* that all its brokers have indexed under *key*, oldest first.

    Args:
        session: the client.
        topic: the topic.
        key: key, tag or unique id.
        kind: ``K`` keys, ``T`` tags, ``U`` unique id.
        max_messages: most messages of one broker.
        begin_ms: wall time from which to search.
        end_ms: wall time up to which to search.
        last_key: index key after which to go on.
    """
    route = await session.fresh_route(topic)
    found: dict[str, ReceivedMessage] = {}
    answered = False
    last: ClientError | None = None
    for group in route.brokers.values():
        address = group.any_address()
        if address is None:
            continue
        ext = {
            "topic": topic,
            "key": key,
            "maxNum": max_messages,
            "beginTimestamp": begin_ms,
            "endTimestamp": end_ms,
            "indexType": kind,
            "lastKey": last_key,
            "_UNIQUE_KEY_QUERY": kind == "U",
        }
        try:
            answer = await session.call(
                address,
                RequestCode.QUERY_MESSAGE,
                ext,
                timeout_ms=10_000,
                accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
            )
        except ClientError as error:
            last = error
            continue
        answered = True
        for message in decode_records(answer.body, group.name):
            if _really_has(message, key, kind):
                found.setdefault(message.offset_message_id, message)
    if not answered and last is not None:
        raise last
    return sorted(found.values(), key=lambda message: message.store_timestamp_ms)


def _really_has(message: ReceivedMessage, key: str, kind: str) -> bool:
    # The index stores hashes only, so other keys with the same hash come along.
    if kind == "U":
        return message.properties.get(UNIQUE_KEY) == key
    if kind == "T":
        return message.tags == key
    return key in (message.keys or "").split()


async def find_by_id(session: Session, topic: str, message_id: str) -> list[ReceivedMessage]:
    """Return the message with *message_id*, an offset id or a unique id; empty when there is none."""
    route = await session.fresh_route(topic)
    brokers = {address for group in route.brokers.values() for address in group.addresses.values()}
    try:
        address, log_offset = split_offset_message_id(message_id)
    except ValueError:
        address, log_offset = "", 0
    if address in brokers:  # else it is a unique id, which has the same form but means no address
        message = await view(session, address, topic, log_offset)
        if message.offset_message_id == message_id.upper():
            return [message]
    made_ms = time_of(message_id, session.world.clock.wall_ms())
    begin_ms = 0 if made_ms is None else max(0, made_ms - 1000)
    found = await find(session, topic, message_id, kind="U", max_messages=32, begin_ms=begin_ms)
    if not found and begin_ms:
        found = await find(session, topic, message_id, kind="U", max_messages=32)
    return found


async def trace(
    session: Session,
    message_id: str,
    topic: str = TRACE_TOPIC,
    *,
    max_messages: int = 64,
    begin_ms: int = 0,
    end_ms: int = LATEST_MS,
) -> list[Traced]:
    """Return what clients told of a message, in the order in which it was stored.

    Args:
        session: the client below.
        message_id: unique id of the message.
        topic: where clients trace.
        max_messages: most trace messages of one broker.
        begin_ms: wall time from which to search.
        end_ms: wall time up to which to search.
    """
    found = await find(session, topic, message_id, max_messages=max_messages, begin_ms=begin_ms, end_ms=end_ms)
    return [
        Traced(step, str(message.born_host).rpartition(":")[0])
        for message in found
        for step in steps_of(message.body.decode("utf-8", "replace"))
        if step.message_id == message_id
    ]


async def tracks(session: Session, message: ReceivedMessage) -> list[Track]:
    """Return what each group that consumes the message's topic made of it."""
    return [await _track(session, group, message) for group in await consuming_groups(session, message.topic)]


async def _track(session: Session, group: str, message: ReceivedMessage) -> Track:
    try:
        connection = await consumer_connection(session, group)
    except BrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return Track(group, "NOT_ONLINE", f"CODE:{error.code} DESC:{error.remark}")
        return Track(group, "UNKNOWN", f"CODE:{error.code} DESC:{error.remark}")
    except ClientError as error:
        return Track(group, "UNKNOWN", str(error))
    if connection.get("consumeType") == "CONSUME_ACTIVELY":
        return Track(group, "PULL")
    if connection.get("messageModel") == "BROADCASTING":
        return Track(group, "CONSUME_BROADCASTING")
    try:
        stats = await consume_stats(session, group)
    except ClientError as error:
        return Track(group, "UNKNOWN", str(error))
    progress = next(
        (
            progress
            for queue, progress in stats.queues.items()
            if (queue.topic, queue.queue_id) == (message.stored_topic, message.queue_id)
            and message.broker_name in ("", queue.broker_name)
        ),
        None,
    )
    if progress is None or progress.consumer_offset <= message.queue_offset:
        return Track(group, "NOT_CONSUME_YET")
    wanted = (connection.get("subscriptionTable") or {}).get(message.topic) or {}
    tags = wanted.get("tagsSet") or []
    if tags and message.tags not in tags:
        return Track(group, "CONSUMED_BUT_FILTERED")
    return Track(group, "CONSUMED")


async def consume_directly(
    session: Session, address: str, group: str, client_id: str, topic: str, message_id: str
) -> dict[str, Any]:
    """Let one member of *group* consume a message now; return its report.

    Args:
        session: the client below.
        address: of a broker that has the message and knows the member.
        group: that the member belongs to.
        client_id: of the member.
        topic: of the message.
        message_id: its offset id.
    """
    ext = {"consumerGroup": group, "clientId": client_id, "topic": topic, "msgId": message_id}
    answer = await session.call(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, timeout_ms=60_000)
    return await json_body(session, answer)


async def consume_queue(
    session: Session, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None
) -> dict[str, Any]:
    """Return entries of a consume queue of the broker at *address*.

    Args:
        session: the client below.
        address: of the broker.
        topic: of the queue.
        queue_id: of the queue.
        index: queue offset of the first entry.
        count: most entries.
        group: whose subscription is tried on each; ``None`` for none.
    """
    ext = {"topic": topic, "queueId": queue_id, "index": index, "count": count, "consumerGroup": group}
    return await json_body(session, await session.call(address, RequestCode.QUERY_CONSUME_QUEUE, ext))
