"""Commands that send messages."""

from __future__ import annotations

from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.text import seconds_text
from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import message
from understudy.mqclient.producer import ProducerOptions, SendResult
from understudy.mqclient.queue import MessageQueue

_ROW = "%-32s  %-4s  %-20s    %s"
_CLUSTER_HEAD = "%-24s  %-24s  %-4s  %-8s  %-8s"
_CLUSTER_ROW = "%-24s  %-24s  %-8s  %-16s  %-16s"
_SEND_TIMEOUT_MS = 10_000


@command(
    "sendMessage",
    "Send one message.",
    needed("t", "topic", "the topic"),
    needed("p", "body", "the body, UTF-8 text"),
    value("k", "key", "keys, separated by blanks"),
    value("c", "tags", "the tag"),
    value("b", "broker", "only to this broker group"),
    value("i", "qid", "only to this queue of it"),
    value("m", "msgTraceEnable", "accepted for old scripts; no trace is written"),
)
async def send_message(context: Context) -> Any:
    values = context.values
    if "i" in values and "b" not in values:
        raise UsageError("option -i needs -b,--broker: a queue is one of a broker's")
    producer = context.producer()
    wanted = message(values["t"], values["p"].encode(), tag=values.get("c"), keys=values.text("k"))
    queue = None
    if "b" in values:
        queues = [queue for queue in await producer.queues(values["t"]) if queue.broker_name == values["b"]]
        queues = [queue for queue in queues if values.number("i", queue.queue_id) == queue.queue_id]
        if not queues:
            raise CommandFailedError(f"topic {values['t']} has no such writable queue on broker {values['b']}")
        queue = queues[0]
    result = await producer.send(wanted, queue=queue, timeout_ms=_SEND_TIMEOUT_MS)
    context.output.line(_ROW % ("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    context.output.line(
        _ROW % (result.queue.broker_name, result.queue.queue_id, result.status.value, result.message_id)
    )
    return _json(result)


def _json(result: SendResult) -> dict[str, Any]:
    return {
        "sendStatus": result.status.value,
        "msgId": result.message_id,
        "offsetMsgId": result.offset_message_id,
        "topic": result.queue.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


@command(
    "sendMsgStatus",
    "Send messages to a broker's own topic and show how long each took.",
    needed("b", "brokerName", "the broker group"),
    value("s", "messageSize", "bytes of each (default 128)"),
    value("c", "count", "how many (default 50)"),
)
async def send_msg_status(context: Context) -> Any:
    producer = context.producer(ProducerOptions(attempts=1, compress_above_bytes=0))
    body = b"x" * context.values.number("s", 128)
    count = context.values.number("c", 50)
    if count < 1:
        raise UsageError(f"option -c needs at least one message, not {count}")
    clock = context.session.world.clock
    # The first send opens the connection; it is not measured.
    await producer.send(message(context.values["b"], b"first"))
    rows = []
    for _ in range(count):
        began = clock.monotonic()
        result = await producer.send(message(context.values["b"], body))
        took_ms = round((clock.monotonic() - began) * 1000)
        context.output.line(
            f"rt={took_ms}ms, SendResult=SendResult [sendStatus={result.status.value}, msgId={result.message_id}, "
            f"offsetMsgId={result.offset_message_id}, messageQueue={result.queue}, queueOffset={result.queue_offset}, "
            f"recallHandle={result.recall_handle or 'null'}]"
        )
        rows.append({"rt_ms": took_ms, **_json(result)})
    return rows


@command(
    "clusterRT",
    "Send messages to every broker's own topic and show how long they took.",
    value("a", "amount", "how many to each broker (default 100)"),
    value("s", "size", "bytes of each (default 128)"),
    value("c", "cluster", "only this cluster"),
    value("i", "interval", "send again every so many seconds"),
    value("m", "machine room", "a name for the lines of -p (default noname)"),
    value("p", "print log", "true: lines separated by bars instead of a table"),
)
async def cluster_rt(context: Context) -> Any:
    values = context.values
    producer = context.producer(ProducerOptions(attempts=1, compress_above_bytes=0))
    amount, body = values.number("a", 100), b"x" * values.number("s", 128)
    clock = context.session.world.clock
    as_log = values.truth("p", False)
    info = await cluster_info(context.session)
    if not as_log:
        head = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        context.output.line(_CLUSTER_HEAD % head)
    rows = []
    for cluster in [values["c"]] if "c" in values else sorted(info.clusters):
        for group in info.groups_of(cluster):
            taken_ms, failed = [], 0
            for _ in range(amount):
                began = clock.monotonic()
                try:
                    await producer.send(message(group.name, body))
                    taken_ms.append((clock.monotonic() - began) * 1000)
                except ClientError:  # counted: that is what the command is for
                    failed += 1
            # The first one opens the connection, so the average leaves it out.
            measured = taken_ms[1:]
            mean = sum(measured) / len(measured) if measured else 0.0
            if as_log:
                now = seconds_text(clock.wall_ms())
                context.output.line(f"{now}|{values.text('m', 'noname')}|{cluster}|{group.name}|{round(mean)}")
            else:
                context.output.line(_CLUSTER_ROW % (cluster, group.name, f"{mean:.2f}", len(taken_ms), failed))
            rows.append(
                {
                    "clusterName": cluster, "brokerName": group.name, "rt_ms": mean, "successCount": len(taken_ms),
                    "failCount": failed,
                }
            )  # fmt: skip
    return rows


@command(
    "checkMsgSendRT",
    "Send messages to the queues of a topic in turn and show how long each took.",
    needed("t", "topic", "the topic"),
    value("a", "amount", "how many (default 100)"),
    value("s", "size", "bytes of each (default 128)"),
)
async def check_msg_send_rt(context: Context) -> Any:
    values = context.values
    producer = context.producer(ProducerOptions(attempts=1, compress_above_bytes=0))
    queues = await producer.queues(values["t"])
    amount, body = values.number("a", 100), b"x" * values.number("s", 128)
    clock = context.session.world.clock
    context.output.line(_ROW % ("#Broker Name", "#QID", "#Send Result", "#RT"))
    rows: list[dict[str, Any]] = []
    for number in range(amount):
        queue: MessageQueue = queues[number % len(queues)]
        began = clock.monotonic()
        try:
            await producer.send(message(values["t"], body), queue=queue)
            sent = True
        except ClientError as error:
            sent = False
            context.output.line(f"send to {queue} failed: {error}")
        took_ms = round((clock.monotonic() - began) * 1000)
        context.output.line(_ROW % (queue.broker_name, queue.queue_id, str(sent).lower(), took_ms))
        rows.append({"brokerName": queue.broker_name, "queueId": queue.queue_id, "sent": sent, "rt_ms": took_ms})
    # The first one opens the connection, so the average leaves it out.
    measured = [row["rt_ms"] for row in rows[1:]]
    average = sum(measured) / len(measured) if measured else 0.0
    context.output.line(f"Avg RT: {average:.2f}")
    return {"sends": rows, "average_ms": average}
