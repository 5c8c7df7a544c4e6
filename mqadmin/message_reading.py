"""Commands that read queues from end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.message_queries import TOOLS_GROUP
from understudy.mqadmin.message_text import message_json, message_line
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.text import parse_time
from understudy.mqclient.leaders import address_of
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.pull import PullRequest, PullStatus, max_offset, min_offset, offset_at, pull
from understudy.mqclient.queue import MessageQueue, check_group
from understudy.mqclient.subscription import subscription

_RULE = "--------------------------------------------------------"


async def read_queue(
    context: Context, queue: MessageQueue, begin: int, end: int, *, expression: str = "*", group: str = TOOLS_GROUP
) -> AsyncIterator[list[ReceivedMessage]]:
    """Yield the messages of *queue* from offset *begin* up to before *end*, pull by pull.

    Args:
        context: of the command; takes lines about empty pulls.
        queue: to be read.
        begin: first queue offset.
        end: queue offset before which it stops.
        expression: tags, as in a subscription.
        group: consumer group in whose name it is read.
    """
    wanted = subscription(queue.topic, expression, 0)
    offset = begin
    while offset < end:
        request = PullRequest(group, queue, offset, wanted, min(32, end - offset), hold_ms=0, send_subscription=True)
        result = await pull(context.session, address_of(context.session, queue), request)
        if result.status is PullStatus.FOUND:
            yield [message for message in result.messages if message.queue_offset < end]
        elif result.status is PullStatus.NOTHING_MATCHED:
            context.output.line(f"{queue} no matched msg. status={result.status.value}, offset={offset}")
        else:
            context.output.line(f"{queue} print msg finished. status={result.status.value}, offset={offset}")
            return
        if result.next_offset <= offset:
            return
        offset = result.next_offset


async def bounds(context: Context, queue: MessageQueue, begin_key: str, end_key: str) -> tuple[int, int]:
    """Return the offsets between which the operator wants to see *queue*.

    Args:
        context: of the command; its values are those the operator gave.
        queue: to be read.
        begin_key: option with the time of the first message; the queue's beginning without it.
        end_key: option with the time of the last one; the queue's end without it.
    """
    now_ms = context.session.world.clock.wall_ms()
    begin = await min_offset(context.session, queue)
    end = await max_offset(context.session, queue)
    if begin_key in context.values:
        begin = await offset_at(context.session, queue, parse_time(context.values[begin_key], now_ms, begin_key))
    if end_key in context.values:
        end = await offset_at(context.session, queue, parse_time(context.values[end_key], now_ms, end_key))
    return begin, end


@command(
    "printMsg",
    "Print the messages of a topic.",
    needed("t", "topic", "the topic"),
    value("s", "subExpression", "only these tags: TagA || TagB"),
    value("b", "beginTimestamp", "from here on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
    value("e", "endTimestamp", "up to here"),
    value("d", "printBody", "false: without bodies"),
    value("c", "charsetName", "character set of the bodies (default UTF-8)"),
    value("l", "lmqParentTopic", "parent topic of a light topic"),
)
async def print_msg(context: Context) -> Any:
    values = context.values
    with_body, charset = values.truth("d", True), _charset(context)
    route = await context.session.fresh_route(values["t"])
    found = []
    for queue in route.read_queues:
        begin, end = await bounds(context, queue, "b", "e")
        context.output.line(f"minOffset={begin}, maxOffset={end}, {queue}")
        async for batch in read_queue(context, queue, begin, end, expression=values.text("s", "*")):
            context.output.lines([message_line(message, charset, with_body=with_body) for message in batch])
            if context.output.as_json:
                found += [message_json(message) for message in batch]
        context.output.line(_RULE)
    return found


@command(
    "printMsgByQueue",
    "Print or count the messages of one queue.",
    needed("t", "topic", "the topic"),
    needed("a", "brokerName", "the broker group"),
    needed("i", "queueId", "the queue"),
    value("s", "subExpression", "only these tags: TagA || TagB"),
    value("b", "beginTimestamp", "from here on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
    value("e", "endTimestamp", "up to here"),
    value("p", "print msg", "true: print the messages"),
    value("d", "printBody", "true: with bodies"),
    value("c", "charsetName", "character set of the bodies (default UTF-8)"),
    value("f", "calculate", "true: count them by tag"),
)
async def print_msg_by_queue(context: Context) -> Any:
    values = context.values
    queue = MessageQueue(values["t"], values["a"], values.number("i", 0))
    route = await context.session.fresh_route(queue.topic)
    if queue not in route.read_queues:
        raise CommandFailedError(f"topic {queue.topic} has no queue {queue.queue_id} on broker {queue.broker_name}")
    printing, with_body, charset = values.truth("p", False), values.truth("d", False), _charset(context)
    begin, end = await bounds(context, queue, "b", "e")
    tags: Counter[str] = Counter()
    found = []
    async for batch in read_queue(context, queue, begin, end, expression=values.text("s", "*")):
        tags.update(message.tags for message in batch if message.tags)
        if printing:
            context.output.lines([message_line(message, charset, with_body=with_body) for message in batch])
            if context.output.as_json:
                found += [message_json(message) for message in batch]
    if values.truth("f", False):
        context.output.lines([f"Tag: {tag:<30} Count: {count}" for tag, count in tags.most_common()])
    return {"messages": found, "tags": dict(tags.most_common())}


@command(
    "consumeMessage",
    "Print messages of a topic, of one broker or of one queue.",
    needed("t", "topic", "the topic"),
    value("b", "brokerName", "only this broker group"),
    value("i", "queueId", "only this queue of it"),
    value("o", "offset", "from this offset of it on"),
    value("g", "consumerGroup", "group to read as; its progress is not changed"),
    value("c", "MessageNumber", "how many messages (default 128)"),
    value("s", "beginTimestamp", "from here on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
    value("e", "endTimestamp", "up to here"),
)
async def consume_message(context: Context) -> Any:
    values = context.values
    left = values.number("c", 128)
    if left <= 0:
        raise UsageError("option -c needs a positive number")
    if "i" in values and "b" not in values:
        raise UsageError("option -i needs -b,--brokerName: a queue is one of a broker's")
    if "o" in values and "i" not in values:
        raise UsageError("option -o needs -i,--queueId: an offset is one of a queue's")
    group = values.text("g", TOOLS_GROUP)
    check_group(group)
    route = await context.session.fresh_route(values["t"])
    chosen = [
        queue
        for queue in route.read_queues
        if values.text("b", queue.broker_name) == queue.broker_name
        and values.number("i", queue.queue_id) == queue.queue_id
    ]
    if not chosen:
        raise CommandFailedError(f"topic {values['t']} has no such queue")
    found = []
    for queue in chosen:
        if left <= 0:
            break
        begin, end = await bounds(context, queue, "s", "e")
        if "o" in values:
            begin = max(begin, values.number("o", begin))
        if end - begin > left:
            context.output.line(f"The older {left} message of the {queue.queue_id} queue will be provided")
            end = begin + left
        left -= max(0, end - begin)
        if begin >= end and "i" in values:  # the one queue that was asked for: to print nothing tells nothing
            context.output.line(f"{queue} print msg finished. status={PullStatus.NOTHING_NEW.value}, offset={begin}")
        async for batch in read_queue(context, queue, begin, end, group=group):
            context.output.line("Consume ok")
            context.output.lines([message_line(message, "UTF-8", with_body=True) for message in batch])
            if context.output.as_json:
                found += [message_json(message) for message in batch]
    return found


def _charset(context: Context) -> str:
    name = context.values.text("c", "UTF-8")
    try:
        "".encode(name)
    except LookupError:
        raise UsageError(f"option -c: there is no character set {name!r}") from None
    return name
