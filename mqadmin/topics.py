"""Commands about topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from understudy.format.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from understudy.mqadmin import static_topics
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, flag, needed, value
from understudy.mqadmin.text import front, map_text, millis_text, permission_text
from understudy.mqclient.admin import cluster, topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.allocation import AVERAGELY
from understudy.mqclient.errors import ClientError
from understudy.mqclient.offsets import queue_body
from understudy.mqclient.queue import check_topic

_STATUS_ROW = "%-32s  %-4s  %-20s  %-20s    %s"
_CLUSTER_ROW = "%-20s  %-64s  %-64s"
_CLUSTER_HEAD = "%-20s  %-48s  %-48s"
_ROUTE_ROW = "%-45s %-32s %-50s %-10s %-11s %-5s"


def settings_text(topic: TopicSettings) -> str:
    """Return a topic's settings as the reference prints them."""
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queues}, "
        f"writeQueueNums={topic.write_queues}, perm={permission_text(topic.permission)}, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag={topic.sys_flag}, order={str(topic.ordered).lower()}, "
        f"attributes={map_text(topic.attributes)}]"
    )


@command(
    "updateTopic",
    "Create a topic or change it.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("t", "topic", "the topic"),
    value("r", "readQueueNums", "queues that consumers see (default 8)"),
    value("w", "writeQueueNums", "queues that producers see (default 8)"),
    value("p", "perm", "permission: 2 write, 4 read, 6 both (default 6)"),
    value("o", "order", "true: ordered although brokers come and go"),
    value("u", "unit", "true: unit topic"),
    value("s", "hasUnitSub", "true: subscribed by units"),
    value(
        *("a", "attributes"),
        "+name=value,-name of cleanup.policy, message.type, queue.type (and reserve.time, without effect here)",
    ),
    one_of=("b", "c"),
)
async def update_topic(context: Context) -> Any:
    values = context.values
    check_topic(values["t"])
    permission = values.number("p", 6)
    if permission not in range(1, 8):
        raise UsageError(f"option -p is 2, 4 or 6, not {permission}")
    topic = TopicSettings(
        values["t"],
        _queues(context, "r"),
        _queues(context, "w"),
        permission,
        values.truth("o", False),
        (1 if values.truth("u", False) else 0) | (2 if values.truth("s", False) else 0),
        topics.parse_attributes(values.text("a")),
    )
    addresses = await context.masters()
    for address in addresses:
        await topics.save_topic(context.session, address, topic)
        context.output.line(f"create topic to {address} success.")
    if topic.ordered:
        order = await _order_config(context, topic, addresses)
        where = "broker" if "b" in values else "cluster"
        context.output.line(f"set {where} orderConf. isOrder=true, orderConf=[{order}]")
    context.output.line(settings_text(topic))
    return {"brokers": addresses, "topic": topic.body()}


def _queues(context: Context, key: str) -> int:
    count = context.values.number(key, 8)
    if count < 1:
        raise UsageError(f"option -{key} needs at least one queue")
    return count


async def _order_config(context: Context, topic: TopicSettings, addresses: list[str]) -> str:
    """Add the brokers at *addresses* to the topic's order configuration and return it whole."""
    info = await cluster.cluster_info(context.session)
    names = [name for name, group in info.brokers.items() if group.master in addresses]
    if not names:
        raise CommandFailedError("the name server does not know the broker; the topic was made without order")
    known = await cluster.get_value(context.session, cluster.ORDER_CONFIG_NAMESPACE, topic.name)
    entries = dict(part.split(":", 1) for part in (known or "").split(";") if ":" in part)
    entries.update({name: str(topic.write_queues) for name in names})
    order = ";".join(f"{name}:{count}" for name, count in sorted(entries.items()))
    await cluster.put_value(context.session, cluster.ORDER_CONFIG_NAMESPACE, topic.name, order)
    return order


@command(
    "updateTopicList",
    "Create or change the topics in a file.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("f", "filename", "file with a JSON list of topics"),
    one_of=("b", "c"),
)
async def update_topic_list(context: Context) -> Any:
    wanted = read_list(context.values["f"])
    addresses = await context.masters()
    for address in addresses:
        await topics.save_topics(context.session, address, wanted)
        context.output.line(f"submit batch of topic config to {address} success, please check the result later.")
    return {"brokers": addresses, "topics": wanted}


def read_list(path: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the file at *path*. Raises :class:`CommandFailedError`."""
    try:
        entries = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CommandFailedError(f"{path} is no JSON: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CommandFailedError(f"{path} does not hold a JSON list of objects")
    return entries


@command(
    "updateTopicPerm",
    "Change who may use a topic.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("t", "topic", "the topic"),
    needed("p", "perm", "2 write, 4 read, 6 both"),
    one_of=("b", "c"),
)
async def update_topic_perm(context: Context) -> Any:
    permission = context.values.number("p", 6)
    if permission not in range(1, 8):
        raise UsageError(f"option -p is 2, 4 or 6, not {permission}")
    name = context.values["t"]
    single = "b" in context.values
    changed = {}
    for address in await context.masters():
        before = await topics.topic_settings(context.session, address, name)
        if single and before.permission == permission:
            context.output.line("new perm equals to the old one!")
            return {}
        # Attributes are kept by the broker unless a request names them.
        after = attrs.evolve(before, permission=permission, attributes={})
        await topics.save_topic(context.session, address, after)
        context.output.line(f"update topic perm from {before.permission} to {permission} in {address} success.")
        if single:
            context.output.line(f"{settings_text(after)}.")
        changed[address] = {"from": before.permission, "to": permission}
    return changed


@command(
    "deleteTopic",
    "Delete a topic from the brokers of a cluster and from the name servers.",
    needed("c", "clusterName", "the cluster"),
    needed("t", "topic", "the topic"),
)
async def delete_topic(context: Context) -> Any:
    name, cluster_name = context.values["t"], context.values["c"]
    masters = await context.masters()
    for address in masters:
        await topics.delete_topic_in_broker(context.session, address, name)
    context.output.line(f"delete topic [{name}] from cluster [{cluster_name}] success.")
    await topics.delete_topic_in_name_servers(context.session, name, cluster_name)
    await cluster.delete_value(context.session, cluster.ORDER_CONFIG_NAMESPACE, name)
    context.output.line(f"delete topic [{name}] from NameServer success.")
    return {"topic": name, "cluster": cluster_name, "brokers": masters}


@command("topicList", "List all topics.", flag("c", "clusterModel", "with cluster and consumer groups"))
async def topic_list(context: Context) -> Any:
    names = await cluster.all_topics(context.session)
    if "c" not in context.values:
        context.output.lines(names)
        return names
    context.output.line(_CLUSTER_HEAD % ("#Cluster Name", "#Topic", "#Consumer Group"))
    rows = []
    for name in names:
        if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            continue
        try:
            clusters = await topics.clusters_of(context.session, name)
            groups = await topics.consuming_groups(context.session, name)
        except ClientError:  # deleted meanwhile, or its broker is away: the name is still worth a line
            clusters, groups = [], []
        for group in groups or [""]:
            row = (clusters[0] if clusters else "", name, group)
            context.output.line(_CLUSTER_ROW % (front(row[0], 20), front(name, 64), front(group, 64)))
        rows.append({"clusters": clusters, "topic": name, "groups": groups})
    return rows


@command("topicClusterList", "List the clusters that have a topic.", needed("t", "topic", "the topic"))
async def topic_cluster_list(context: Context) -> Any:
    clusters = await topics.clusters_of(context.session, context.values["t"])
    context.output.lines(clusters)
    return clusters


@command(
    "topicRoute",
    "Show where a topic is.",
    needed("t", "topic", "the topic"),
    flag("l", "list", "as a table"),
)
async def topic_route(context: Context) -> Any:
    route = await context.session.fresh_route(context.values["t"])
    data = await topics.route_body(context.session, route.topic)
    if "l" not in context.values:
        context.output.lines(_pretty(data).splitlines())
        return data
    context.output.line(
        _ROUTE_ROW % ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    )
    groups = {group.broker_name: group for group in route.queue_groups}
    for name in sorted(groups):
        group, broker = groups[name], route.brokers.get(name)
        addresses = {str(key): address for key, address in (broker.addresses.items() if broker else ())}
        context.output.line(
            _ROUTE_ROW
            % (
                broker.cluster if broker else "", name, map_text(addresses), group.read_queues, group.write_queues,
                group.permission,
            )
        )  # fmt: skip
    context.output.line("-" * 158)
    reads = sum(group.read_queues for group in groups.values())
    writes = sum(group.write_queues for group in groups.values())
    context.output.line(_ROUTE_ROW % ("Total:", len(groups), "", reads, writes, ""))
    return data


def _pretty(data: Any) -> str:
    return json.dumps(data, indent="\t", ensure_ascii=False, separators=(",", ":"))


@command(
    "topicStatus",
    "Show what the queues of a topic hold.",
    needed("t", "topic", "the topic"),
    value("c", "cluster", "ask the brokers of this cluster"),
)
async def topic_status(context: Context) -> Any:
    addresses = None
    if "c" in context.values:
        addresses = (await cluster.cluster_info(context.session)).masters_of(context.values["c"])
    stats = await topics.topic_stats(context.session, context.values["t"], addresses)
    if (await context.session.fresh_route(context.values["t"])).leaders:
        stats.queues.update(await static_topics.logical_queues(context, stats.queues))
    context.output.line(_STATUS_ROW % ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))
    rows = []
    for queue in sorted(stats.queues):
        held = stats.queues[queue]
        updated = millis_text(held.last_update_ms) if held.last_update_ms > 0 else ""
        context.output.line(
            _STATUS_ROW % (front(queue.broker_name, 32), queue.queue_id, held.min_offset, held.max_offset, updated)
        )
        rows.append({**queue_body(queue), **attrs.asdict(held)})
    context.output.line()
    context.output.line(f"Topic Put TPS: {stats.put_tps}")
    return {"queues": rows, "topicPutTps": stats.put_tps}


@command(
    "allocateMQ",
    "Show how the queues of a topic would be shared out.",
    needed("t", "topic", "the topic"),
    needed("i", "ipList", "members, separated by commas"),
)
async def allocate_mq(context: Context) -> Any:
    route = await context.session.fresh_route(context.values["t"])
    queues = route.read_queues
    members = sorted(filter(None, (part.strip() for part in context.values["i"].split(","))))
    shares = {
        member: [queue_body(queue) for queue in AVERAGELY.allocate(member, queues, members)] for member in members
    }
    context.output.line(json.dumps({"result": shares}, separators=(",", ":")))
    return {"result": shares}
