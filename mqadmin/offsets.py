"""Commands that move the progress of consumer groups."""

from __future__ import annotations

from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.text import front, parse_time
from understudy.mqclient.admin import groups, topics
from understudy.mqclient.errors import ClientError
from understudy.mqclient.offsets import queue_body
from understudy.mqclient.pull import offset_at
from understudy.mqclient.queue import MessageQueue

_ROW = "%-40s  %-40s  %-40s"


@command(
    "resetOffsetByTime",
    "Move a group's progress on a topic to a time.",
    needed("g", "group", "the consumer group"),
    needed("t", "topic", "the topic"),
    needed("s", "timestamp", "now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"),
    value("f", "force", "accepted for old scripts; progress always moves, backwards too"),
    value("b", "broker", "host:port of one broker, with -q"),
    value("q", "queue", "one queue of that broker"),
    value("o", "offset", "exact offset for that queue"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def reset_offset_by_time(context: Context) -> Any:
    values = context.values
    group, topic, text = values["g"], values["t"], values["s"]
    timestamp_ms = parse_time(text, context.session.world.clock.wall_ms(), "s")
    if "b" in values or "q" in values:
        return await _reset_queue(context, group, topic, timestamp_ms)
    context.output.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[true], "
        f"timestamp(string)[{text}], timestamp(long)[{timestamp_ms}]"
    )
    return await _reset_topic(context, group, topic, timestamp_ms)


async def _reset_queue(context: Context, group: str, topic: str, timestamp_ms: int) -> Any:
    values = context.values
    if "b" not in values or "q" not in values:
        raise UsageError("options -b and -q go together: a queue is one of a broker's")
    address, queue_id = values["b"], values.number("q", 0)
    context.output.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
        f"broker[{address}], timestamp(string)[{values['s']}], timestamp(long)[{timestamp_ms}]"
    )
    route = await context.session.fresh_route(topic)
    name = next((name for name, broker in route.brokers.items() if address in broker.addresses.values()), None)
    if name is None:
        raise CommandFailedError(f"{address} is no broker of topic {topic}")
    if "o" in values:
        offset = values.number("o", 0)
    else:
        offset = await offset_at(context.session, MessageQueue(topic, name, queue_id), timestamp_ms)
    # Differs from the reference's tool, which says so but does nothing when the offset is 0.
    await groups.reset_offset(
        context.session, address, group, topic, timestamp_ms=timestamp_ms, queue_id=queue_id, offset=offset
    )
    context.output.line(f"reset consumer offset to {offset}")
    return {"group": group, "topic": topic, "broker": address, "queueId": queue_id, "offset": offset}


async def _reset_topic(context: Context, group: str, topic: str, timestamp_ms: int) -> Any:
    moved: dict[MessageQueue, int] = {}
    failed = []
    for address in await topics.master_addresses(context.session, topic):
        try:
            moved.update(await groups.reset_offset(context.session, address, group, topic, timestamp_ms=timestamp_ms))
        except ClientError as error:  # the queues of the other brokers move all the same, and are shown
            failed.append(str(error))
    if failed and not moved:
        raise CommandFailedError("; ".join(failed))
    context.output.line(_ROW % ("#brokerName", "#queueId", "#offset"))
    for queue in sorted(moved):
        context.output.line(_ROW % (front(queue.broker_name, 32), queue.queue_id, moved[queue]))
    if failed:
        raise CommandFailedError(f"only {len(moved)} queues were moved: {'; '.join(failed)}")
    return [{**queue_body(queue), "offset": moved[queue]} for queue in sorted(moved)]


@command(
    "skipAccumulatedMessage",
    "Move a group's progress on a topic to the end.",
    needed("g", "group", "the consumer group"),
    needed("t", "topic", "the topic"),
    value("f", "force", "accepted for old scripts"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def skip_accumulated_message(context: Context) -> Any:
    return await _reset_topic(context, context.values["g"], context.values["t"], -1)


@command(
    "cloneGroupOffset",
    "Give one group the progress of another.",
    needed("s", "srcGroup", "group to copy from"),
    needed("d", "destGroup", "group to copy to"),
    needed("t", "topic", "the topic"),
    value("o", "offline", "accepted for old scripts"),
)
async def clone_group_offset(context: Context) -> Any:
    source, target, topic = context.values["s"], context.values["d"], context.values["t"]
    stats = await groups.consume_stats(context.session, source, topic)
    route = await context.session.fresh_route(topic)
    copied: dict[MessageQueue, int] = {}
    for queue, progress in sorted(stats.queues.items()):
        broker = route.brokers.get(queue.broker_name)
        address = broker.any_address() if broker else None
        if address is None:
            raise CommandFailedError(f"broker {queue.broker_name} is away; {len(copied)} queues were copied before it")
        await groups.set_offset(context.session, address, target, queue, progress.consumer_offset)
        copied[queue] = progress.consumer_offset
    if not copied:
        raise CommandFailedError(f"group {source} has no progress on topic {topic}")
    context.output.line(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")
    return [{**queue_body(queue), "offset": offset} for queue, offset in copied.items()]
