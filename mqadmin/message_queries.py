"""Commands that find messages."""

from __future__ import annotations

from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.message_text import message_json, message_lines, track_line
from understudy.mqadmin.options import UsageError, flag, needed, value
from understudy.mqclient.admin import messages, topics
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pull import PullRequest, PullStatus, pull
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription

_KEY_ROW = "%-50s %4s %40s %-200s"
_HOUR_MS = 3_600_000
TOOLS_GROUP = "TOOLS_CONSUMER"


@command(
    "queryMsgById",
    "Find a message by its id.",
    needed("t", "topic", "the topic"),
    needed("i", "msgId", "offset id or unique id; several separated by commas"),
    value("f", "bodyFormat", "character set of the body (default UTF-8)"),
    value("g", "consumerGroup", "let a member of this group consume it"),
    value("d", "clientId", "that member"),
    value("s", "sendMessage", "true: send it again"),
    value("u", "unitName", "accepted for old scripts"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def query_msg_by_id(context: Context) -> Any:
    values = context.values
    found = []
    message_ids = [part.strip() for part in values["i"].split(",") if part.strip()]
    if not message_ids:
        raise UsageError("option -i names no message")
    for message_id in message_ids:
        matches = await messages.find_by_id(context.session, values["t"], message_id)
        if not matches:
            raise CommandFailedError(f"topic {values['t']} has no message {message_id}")
        if "g" in values:
            found.append(await _consume_directly(context, matches[0]))
        elif values.truth("s", False):
            found.append(await _send_again(context, matches[0]))
        else:
            found.append(await show(context, matches[0]))
    return found


async def show(context: Context, message: ReceivedMessage, *, offset_id: bool = True) -> dict[str, Any]:
    """Print *message* and what groups made of it."""
    charset = context.values.text("f", "UTF-8") if "f" in context.values else "UTF-8"
    try:
        body = message.body.decode(charset, "replace")
    except LookupError:
        raise UsageError(f"option -f: there is no character set {charset!r}") from None
    context.output.lines(message_lines(message, body, offset_id=offset_id))
    try:
        tracks = await messages.tracks(context.session, message)
    except ClientError as error:
        context.output.line(f"\n\nWARN: what consumers made of it is not known: {error}")
        return message_json(message)
    context.output.line("\n" if tracks else "\n\nWARN: No Consumer")
    context.output.lines([track_line(track) for track in tracks])
    return message_json(message, tracks)


async def _consume_directly(context: Context, message: ReceivedMessage) -> dict[str, Any]:
    values = context.values
    if "d" not in values:
        raise UsageError("option -g needs -d,--clientId, the member that shall consume it")
    result = await messages.consume_directly(
        context.session, message.store_host, values["g"], values["d"], message.topic, message.offset_message_id
    )
    context.output.line(
        f"ConsumeMessageDirectlyResult [order={str(result.get('order')).lower()}, "
        f"autoCommit={str(result.get('autoCommit')).lower()}, consumeResult={result.get('consumeResult')}, "
        f"remark={result.get('remark') or 'null'}, spentTimeMills={result.get('spentTimeMills')}]"
    )
    return result


async def _send_again(context: Context, message: ReceivedMessage) -> dict[str, Any]:
    again = Message(message.topic, message.body, dict(message.properties), message.flag)
    result = await context.producer().send(again)
    context.output.line(f"prepare resend msg. originalMsgId={message.offset_message_id}, sent to {result.queue}")
    return {"originalMsgId": message.offset_message_id, "msgId": result.message_id, "status": result.status.value}


@command(
    "queryMsgByKey",
    "Find messages by a key or a tag.",
    needed("t", "topic", "the topic"),
    needed("k", "msgKey", "the key"),
    value("b", "beginTimestamp", "from this wall time on, milliseconds"),
    value("e", "endTimestamp", "up to this wall time, milliseconds"),
    value("m", "maxNum", "most messages of one broker (default 64)"),
    value("p", "keyType", "K keys (default) or T tags"),
    value("l", "lastKey", "go on after this index key"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def query_msg_by_key(context: Context) -> Any:
    values = context.values
    kind = values.text("p", "K")
    if kind not in ("K", "T"):
        raise UsageError(f"option -p is K or T, not {kind!r}")
    found = await messages.find(
        context.session,
        values["t"],
        values["k"],
        kind=kind,
        max_messages=values.number("m", 64),
        begin_ms=values.number("b", 0),
        end_ms=values.number("e", messages.LATEST_MS),
        last_key=values.get("l"),
    )
    if not found:
        raise CommandFailedError(
            f"topic {values['t']} has no message with {'key' if kind == 'K' else 'tag'} {values['k']}"
        )
    context.output.line(_KEY_ROW % ("#Message ID", "#QID", "#Offset", "#IndexKey"))
    for message in found:
        index_key = _index_key(message, kind, values["k"])
        context.output.line(_KEY_ROW % (message.message_id, message.queue_id, message.queue_offset, index_key))
    return [{**message_json(message), "indexKey": _index_key(message, kind, values["k"])} for message in found]


def _index_key(message: ReceivedMessage, kind: str, key: str) -> str:
    """Return the place of *message* in a broker's index by hours, as option -l takes it."""
    hour_ms = message.store_timestamp_ms // _HOUR_MS * _HOUR_MS
    return f"{hour_ms}@{message.topic}@{kind}@{key}@{message.message_id}@{message.commit_log_offset}"


@command(
    "queryMsgByUniqueKey",
    "Find a message by its unique id.",
    needed("t", "topic", "the topic"),
    needed("i", "msgId", "the unique id"),
    value("g", "consumerGroup", "let a member of this group consume it"),
    value("d", "clientId", "that member"),
    flag("a", "showAll", "all messages with this id, at most 32"),
    value("s", "startTime", "from this wall time on, milliseconds"),
    value("e", "endTime", "up to this wall time, milliseconds"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def query_msg_by_unique_key(context: Context) -> Any:
    values = context.values
    if "s" in values or "e" in values:
        found = await messages.find(
            context.session, values["t"], values["i"], kind="U", max_messages=32,
            begin_ms=values.number("s", 0), end_ms=values.number("e", messages.LATEST_MS),
        )  # fmt: skip
    else:
        found = await messages.find_by_id(context.session, values["t"], values["i"])
    if not found:
        raise CommandFailedError(f"topic {values['t']} has no message {values['i']}")
    if "g" in values:
        return await _consume_directly(context, found[0])
    return [await show(context, message, offset_id=False) for message in (found if "a" in values else found[:1])]


@command(
    "queryMsgByOffset",
    "Find a message by its queue offset.",
    needed("b", "brokerName", "the broker group"),
    needed("t", "topic", "the topic"),
    needed("i", "queueId", "the queue"),
    needed("o", "offset", "the offset"),
    value("f", "bodyFormat", "character set of the body (default UTF-8)"),
)
async def query_msg_by_offset(context: Context) -> Any:
    values = context.values
    queue = MessageQueue(values["t"], values["b"], values.number("i", 0))
    offset = values.number("o", 0)
    route = await context.session.fresh_route(queue.topic)
    broker = route.brokers.get(queue.broker_name)
    address = broker.any_address() if broker else None
    if address is None:
        raise CommandFailedError(f"topic {queue.topic} has no broker {queue.broker_name}")
    wanted = PullRequest(
        TOOLS_GROUP, queue, offset, subscription(queue.topic, "*", 0), 1, hold_ms=0, send_subscription=True
    )
    result = await pull(context.session, address, wanted)
    if result.status is not PullStatus.FOUND or not result.messages:
        held = f"holds {result.min_offset} to {result.max_offset - 1}"
        if result.max_offset <= result.min_offset:
            held = "is empty"
        raise CommandFailedError(f"{queue} has no message at offset {offset}; it {held}")
    return await show(context, result.messages[0])


@command(
    "queryCq",
    "Show entries of a consume queue.",
    needed("t", "topic", "the topic"),
    needed("q", "queue", "the queue"),
    needed("i", "index", "first entry"),
    value("c", "count", "how many (default 10)"),
    value("b", "broker", "host:port of the broker"),
    value("g", "consumer", "with the subscription of this group"),
)
async def query_cq(context: Context) -> Any:
    values = context.values
    address = values.get("b") or (await topics.master_addresses(context.session, values["t"]))[0]
    index = values.number("i", 0)
    body = await messages.consume_queue(
        context.session, address, values["t"], values.number("q", 0), index, values.number("c", 10), values.get("g")
    )
    rule = "======================================"
    if body.get("subscriptionData") is not None:
        wanted = body["subscriptionData"]
        context.output.lines([f"Subscription data: \n{wanted.get('topic')}: {wanted.get('subString')}", rule])
    if body.get("filterData") is not None:
        context.output.lines([f"Filter data: \n{body['filterData']}", rule])
    context.output.lines([f"Queue data: \nmax: {body.get('maxQueueIndex')}, min: {body.get('minQueueIndex')}", rule])
    for number, entry in enumerate(body.get("queueData") or (), index):
        context.output.line(f"idx: {number}")
        context.output.line(
            f"ConsumeQueueData{{physicOffset={entry.get('physicOffset')}, physicSize={entry.get('physicSize')}, "
            f"tagsCode={entry.get('tagsCode')}, extendDataJson='{entry.get('extendDataJson') or 'null'}', "
            f"bitMap='{entry.get('bitMap') or 'null'}', eval={str(bool(entry.get('eval'))).lower()}, "
            f"msg='{entry.get('msg') or 'null'}'}}"
        )
        context.output.line(rule)
    return body
