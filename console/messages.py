"""Stored messages as a page shows them: found by id, by key or by time, with what each group made of them."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from understudy.format import names
from understudy.mqclient.admin import messages
from understudy.mqclient.errors import ClientError, RouteNotFoundError
from understudy.mqclient.leaders import address_of
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.pull import PullRequest, PullStatus, offset_at, pull
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session
from understudy.mqclient.subscription import subscription

GROUP = "TOOLS_CONSUMER"
MOST_FOUND = 200
MOST_QUEUES = 256
MOST_BODY_BYTES = 64 << 10
MOST_TRACKS = 50
MOST_STEPS = 200
RETRIES_SECONDS = 8.0
"""How long all groups of what was found are asked about, less than an answer may take."""
_TRACED_BEFORE_MS = 3_600_000  # clocks of clients differ


async def by_id(session: Session, topic: str, message_id: str, trace_topic: str) -> dict[str, Any]:
    """Return the message with *message_id*: what each group made of it, its retries, and what clients traced of it.

    Args:
        session: asks the brokers.
        topic: whose message.
        message_id: unique id, or one that says where it is stored.
        trace_topic: where clients trace.
    """
    found = await messages.find_by_id(session, topic, message_id)
    rows = []
    for message in found[:MOST_TRACKS]:
        row = shown(message)
        try:
            tracks = await messages.tracks(session, message)
        except ClientError as error:
            row["tracksMissing"] = str(error)
        else:
            row["tracks"] = [
                {"group": each.group, "state": each.state, "why": each.explanation or ""}
                for each in tracks[:MOST_TRACKS]
            ]
            asked = [each.group for each in tracks[:MOST_TRACKS]]
            row |= await _retries(session, message, asked, RETRIES_SECONDS / len(found))
        row |= await _trace(session, message, trace_topic)
        rows.append(row)
    return {"rows": rows}


async def by_key(session: Session, topic: str, key: str) -> dict[str, Any]:
    """Return the messages of *topic* that brokers have indexed under *key*, the newest last."""
    found = await messages.find(session, topic, key, max_messages=MOST_FOUND)
    return {"rows": [shown(message) for message in found[:MOST_FOUND]]}


async def by_time(session: Session, topic: str, begin_ms: int, count: int) -> dict[str, Any]:
    """Look for messages by the time at which they were stored.

    Args:
        session: asks the brokers.
        topic: whose messages.
        begin_ms: wall time (ms since 1970); messages stored then or later are found.
        count: at most so many, the oldest first, of all queues together.

    Returns:
        Rows, and the queues that could not be read.
    """
    route = await session.fresh_route(topic)
    queues = route.read_queues
    found: list[ReceivedMessage] = []
    missing: list[str] = []
    for queue in queues[:MOST_QUEUES]:
        try:
            found += await _of_queue(session, queue, begin_ms, count)
        except ClientError as error:
            missing.append(f"{queue.broker_name} {queue.queue_id}: {error}")
    oldest = heapq.nsmallest(count, found, key=lambda message: message.store_timestamp_ms)
    return {
        "rows": [shown(message) for message in oldest],
        "missing": missing,
        "queuesLeftOut": max(len(queues) - MOST_QUEUES, 0),
    }


async def _of_queue(session: Session, queue: MessageQueue, begin_ms: int, count: int) -> list[ReceivedMessage]:
    address = address_of(session, queue)
    offset = await offset_at(session, queue, begin_ms)
    wanted = PullRequest(
        GROUP, queue, offset, subscription(queue.topic, "*", 0), min(count, 32), hold_ms=0, send_subscription=True
    )
    result = await pull(session, address, wanted)
    if result.status is not PullStatus.FOUND:
        return []
    return [message for message in result.messages if message.store_timestamp_ms >= begin_ms]


async def _retries(
    session: Session, message: ReceivedMessage, groups: list[str], seconds: float
) -> dict[str, list[dict[str, Any]] | str]:
    """Return the copies of *message* that stand where *groups* get it again, or among the dead letters.

    What was not told, or not within *seconds*, is said.
    """
    found: list[dict[str, Any]] = []
    missing = ""
    with session.world.clock.move_on_after(seconds) as scope:
        for group in groups:
            missing = await _retries_of(session, message, group, found) or missing
    if scope.cancelled_caught:
        missing = "the brokers did not tell of every group in time"
    told = {"retries": sorted(found, key=lambda each: (each["group"], each["storedAt"]))}
    return {**told, "retriesMissing": missing} if missing else {**told}


async def _retries_of(session: Session, message: ReceivedMessage, group: str, found: list[dict[str, Any]]) -> str:
    """Add the copies of *group* to *found*; return why some are not known, ``""`` when all are."""
    missing = ""
    topics = (
        names.retry_topic(group),
        *(names.pop_retry_topic(group, message.topic, second_form=second) for second in (False, True)),
        names.dead_letter_topic(group),
    )
    for topic in topics:
        try:
            copies = await messages.find(session, topic, message.message_id, kind="U", max_messages=32)
        except RouteNotFoundError:
            continue  # the group never gave anything back in that way
        except ClientError as error:
            missing = f"{topic}: {error}"
            continue
        found += [
            {
                "group": group,
                "topic": topic,
                "dead": topic == topics[-1],
                "times": copy.reconsume_times,
                "storedAt": copy.store_timestamp_ms,
                "queueOffset": copy.queue_offset,
            }
            for copy in copies
        ]
    return missing


async def _trace(session: Session, message: ReceivedMessage, topic: str) -> dict[str, Any]:
    """Return the steps that clients have traced of *message*, the earliest first, or why they are not known."""
    begin_ms = max(message.born_timestamp_ms - _TRACED_BEFORE_MS, 0)
    try:
        found = await messages.trace(session, message.message_id, topic, begin_ms=begin_ms)
    except RouteNotFoundError:
        return {"traceMissing": f"no broker has the topic {topic}; traceTopicEnable=true makes the usual one"}
    except ClientError as error:
        return {"traceMissing": str(error)}
    steps: list[dict[str, Any]] = [
        {
            "kind": each.step.kind,
            "group": each.step.group,
            "host": each.host,
            "at": each.step.time_ms,
            "tookMs": each.step.cost_ms,
            "success": each.step.success,
        }
        for each in found
    ]
    return {"trace": sorted(steps, key=lambda each: each["at"])[:MOST_STEPS], "stepsCut": len(steps) > MOST_STEPS}


def shown(message: ReceivedMessage) -> dict[str, Any]:
    """Return *message* for a page; a body that is no text as hexadecimal digits, a long one only in front."""
    front = message.body[:MOST_BODY_BYTES]
    cut = len(message.body) > MOST_BODY_BYTES
    try:
        body, is_text = front.decode(errors="ignore" if cut else "strict"), True
    except UnicodeDecodeError:
        body, is_text = front[:1024].hex(" "), False
    return {
        "id": message.message_id,
        "offsetId": message.offset_message_id,
        "topic": message.topic,
        "storedTopic": message.stored_topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.commit_log_offset,
        "bornAt": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storedAt": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "tag": message.tags or "",
        "keys": message.keys or "",
        "times": message.reconsume_times,
        "bytes": len(message.body),
        "body": body,
        "isText": is_text,
        "cut": cut,
        "properties": _properties(message.properties),
    }


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(properties.items()))
