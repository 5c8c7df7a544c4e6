"""Commands about consumer and producer groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, flag, needed, value
from understudy.mqadmin.running_report import report_lines
from understudy.mqadmin.text import front, map_text, seconds_text, version_text
from understudy.mqadmin.topics import read_list
from understudy.mqclient.admin import cluster, groups, topics
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.offsets import parse_queue, queue_body
from understudy.mqclient.queue import (
    RETRY_PREFIX,
    MessageQueue,
    check_group,
    dead_letter_topic,
    retry_topic,
)

_PROGRESS_ROW = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %s"
_PROGRESS_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s"
_PROGRESS_IP_ROW = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s %s"
_PROGRESS_IP_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s"
_GROUP_ROW = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_CONNECTION_ROW = "%-36s %-22s %-10s %s"
_PRODUCER_ROW = "%04d  %-32s %-22s %-8s %s"
_BROKER_STATS_ROW = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
_MEMBER_ROW = "%-10s %-40s %-20s %s"

# SubscriptionGroupConfig.java, in the order its tool prints.
_GROUP_FIELDS = (
    "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "consumeMessageOrderly",
    "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId", "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable", "groupSysFlag", "consumeTimeoutMinute", "subscriptionDataSet", "attributes",
)  # fmt: skip


@command(
    "updateSubGroup",
    "Create a consumer group or change it.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("g", "groupName", "the group"),
    value("s", "consumeEnable", "true: may consume (default)"),
    value("m", "consumeFromMinEnable", "true: may start at the lowest offset"),
    value("d", "consumeBroadcastEnable", "true: may broadcast"),
    value("o", "consumeMessageOrderly", "true: consumes in order"),
    value("q", "retryQueueNums", "queues of the retry topic (default 1)"),
    value("r", "retryMaxTimes", "retries before a message is a dead letter (default 16)"),
    value("p", "groupRetryPolicy", "waits between retries, as JSON"),
    value("i", "brokerId", "replica to consume from (default 0)"),
    value("w", "whichBrokerWhenConsumeSlowly", "replica for slow consumers (default 1)"),
    value("a", "notifyConsumerIdsChanged", "true: tell members when others come and go (default)"),
    value("attributes", "attributes", "further settings: +name=value,-name"),
    one_of=("b", "c"),
)
async def update_sub_group(context: Context) -> Any:
    values = context.values
    check_group(values["g"])
    try:
        policy = json.loads(values.text("p", '{"type":"CUSTOMIZED"}'))
    except ValueError as error:
        raise UsageError(f"option -p is no JSON: {error}") from None
    settings: dict[str, Any] = {
        "attributes": topics.parse_attributes(values.text("attributes")),
        "brokerId": values.number("i", 0),
        "consumeBroadcastEnable": values.truth("d", False),
        "consumeEnable": values.truth("s", True),
        "consumeFromMinEnable": values.truth("m", False),
        "consumeMessageOrderly": values.truth("o", False),
        "consumeTimeoutMinute": 15,
        "groupName": values["g"],
        "groupRetryPolicy": policy,
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": values.truth("a", True),
        "retryMaxTimes": values.number("r", 16),
        "retryQueueNums": values.number("q", 1),
        "whichBrokerWhenConsumeSlowly": values.number("w", 1),
    }
    addresses = await context.masters()
    for address in addresses:
        await groups.save_group(context.session, address, settings)
        context.output.line(f"create subscription group to {address} success.")
    shown = ", ".join(f"{name}={_field_text(name, settings.get(name), 'null')}" for name in _GROUP_FIELDS)
    context.output.line(f"SubscriptionGroupConfig{{{shown}}}")
    return {"brokers": addresses, "group": settings}


def _field_text(name: str, content: Any, absent: str) -> str:
    if name == "groupRetryPolicy" and isinstance(content, dict):
        parts = [f"type={content.get('type')}"]
        for part in ("exponentialRetryPolicy", "customizedRetryPolicy"):
            inner = content.get(part)
            fields = ", ".join(f"{key}={number}" for key, number in sorted(inner.items())) if inner else ""
            parts.append(f"{part}={part[0].upper()}{part[1:]}{{{fields}}}" if inner else f"{part}=null")
        return f"GroupRetryPolicy{{{', '.join(parts)}}}"
    if content is None:
        return absent
    if isinstance(content, bool):
        return str(content).lower()
    if isinstance(content, dict):
        return map_text(content)
    return str(content)


@command(
    "updateSubGroupList",
    "Create or change the consumer groups in a file.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("f", "filename", "file with a JSON list of groups"),
    one_of=("b", "c"),
)
async def update_sub_group_list(context: Context) -> Any:
    wanted = read_list(context.values["f"])
    addresses = await context.masters()
    for address in addresses:
        await groups.save_groups(context.session, address, wanted)
        context.output.line(f"submit batch of group config to {address} success, please check the result later.")
    return {"brokers": addresses, "groups": wanted}


@command(
    "deleteSubGroup",
    "Delete a consumer group.",
    value("b", "brokerAddr", "from this broker"),
    value("c", "clusterName", "from all masters of this cluster, with its retry and dead letter topics"),
    needed("g", "groupName", "the group"),
    value("r", "removeOffset", "true: its progress too"),
    one_of=("b", "c"),
)
async def delete_sub_group(context: Context) -> Any:
    name = context.values["g"]
    clean = context.values.truth("r", False)
    addresses = await context.masters()
    by_cluster = "b" not in context.values
    for address in addresses:
        await groups.delete_group(context.session, address, name, clean_offset=clean)
        where = f" in cluster [{context.values['c']}]" if by_cluster else ""
        context.output.line(f"delete subscription group [{name}] from broker [{address}]{where} success.")
    if by_cluster:
        for topic in (retry_topic(name), dead_letter_topic(name)):
            if not await topics.exists(context.session, topic):
                continue
            for address in addresses:
                await topics.delete_topic_in_broker(context.session, address, topic)
            await topics.delete_topic_in_name_servers(context.session, topic)
            context.output.line(f"delete topic [{topic}] from cluster [{context.values['c']}] success.")
            context.output.line(f"delete topic [{topic}] from NameServer success.")
    return {"group": name, "brokers": addresses}


@command(
    "getConsumerConfig",
    "Show the settings of a consumer group on every master.",
    needed("g", "groupName", "the group"),
)
async def get_consumer_config(context: Context) -> Any:
    info = await cluster.cluster_info(context.session)
    found = []
    for cluster_name in info.clusters:
        for group in info.groups_of(cluster_name):
            if group.master is None:
                continue
            settings = await _existing_settings(context, group.master)
            if settings is None:
                continue
            title = f"{cluster_name}:{group.name}"
            context.output.line(f"{'=' * 29}{title}{'=' * 29}")
            context.output.lines(
                [f"{name:<40}=  {_field_text(name, settings.get(name), '')}" for name in _GROUP_FIELDS]
            )
            found.append({"clusterName": cluster_name, "brokerName": group.name, "config": settings})
    if not found:
        raise CommandFailedError(f"no broker has a consumer group {context.values['g']}")
    return found


async def _existing_settings(context: Context, address: str) -> dict[str, Any] | None:
    # The request for one group would create it on brokers that auto-create groups; the list does not.
    return (await groups.all_settings(context.session, address)).get(context.values["g"])


@command(
    "setConsumeMode",
    "Choose whether a group pulls or pops a topic.",
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    needed("t", "topicName", "the topic"),
    needed("g", "groupName", "the group"),
    needed("m", "mode", "PULL or POP"),
    value("q", "popShareQueueNum", "queues that members share when popping"),
    one_of=("b", "c"),
)
async def set_consume_mode(context: Context) -> Any:
    mode = context.values["m"].upper()
    if mode not in ("PULL", "POP"):
        raise UsageError(f"option -m is PULL or POP, not {context.values['m']!r}")
    topic, group, share = context.values["t"], context.values["g"], context.values.number("q", 0)
    addresses = await context.masters()
    for address in addresses:
        await groups.consume_mode(context.session, address, topic, group, mode, share)
        context.output.line(f"set consume mode to {address} success.")
    context.output.line(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    return {"brokers": addresses, "topic": topic, "group": group, "mode": mode, "popShareQueueNum": share}


@command(
    "consumerConnection",
    "Show the members of a consumer group and their subscriptions.",
    needed("g", "consumerGroup", "the group"),
    value("b", "brokerAddr", "ask this broker"),
)
async def consumer_connection(context: Context) -> Any:
    body = await groups.consumer_connection(context.session, context.values["g"], context.values.get("b"))
    context.output.line(_CONNECTION_ROW % ("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for member in body.get("connectionSet") or ():
        context.output.line(_CONNECTION_ROW % _connection(member))
    context.output.line("\nBelow is subscription:")
    context.output.line(f"{'#Topic':<20} #SubExpression")
    for entry in (body.get("subscriptionTable") or {}).values():
        context.output.line(f"{entry.get('topic'):<20} {entry.get('subString')}")
    context.output.lines(
        [
            "",
            f"ConsumeType: {body.get('consumeType')}",
            f"MessageModel: {body.get('messageModel')}",
            f"ConsumeFromWhere: {body.get('consumeFromWhere')}",
        ]
    )
    return body


def _connection(member: dict[str, Any]) -> tuple[Any, Any, Any, str]:
    version = version_text(int(member.get("version") or 0))
    return member.get("clientId"), member.get("clientAddr"), member.get("language"), version


@command(
    "producerConnection",
    "Show the members of a producer group.",
    needed("g", "producerGroup", "the group"),
    needed("t", "topic", "a topic it sends to"),
)
async def producer_connection(context: Context) -> Any:
    members = await groups.producer_connections(context.session, context.values["g"], context.values["t"])
    for number, member in enumerate(members, 1):
        context.output.line(_PRODUCER_ROW % (number, *_connection(member)))
    return members


@command("producer", "List all producers of a broker.", needed("b", "broker", "host:port of the broker"))
async def producer(context: Context) -> Any:
    found = await groups.all_producers(context.session, context.values["b"])
    for group, members in found.items():
        if not members:
            context.output.line(f"producer group ({group}) instances are empty")
        for member in members:
            context.output.line(
                f"producer group ({group}) instance : clientId={member.get('clientId')},"
                f"remoteIP={member.get('remoteIP')}, language={member.get('language')}, "
                f"version={member.get('version')}, lastUpdateTimestamp={member.get('lastUpdateTimestamp')}"
            )
    return found


@command(
    "consumerProgress",
    "Show how far consumer groups are.",
    value("g", "groupName", "only this group, by queue"),
    value("t", "topicName", "only this topic"),
    value("s", "showClientIP", "true: with the member that has each queue"),
    value("c", "cluster", "the cluster, or the parent topic of light topics"),
)
async def consumer_progress(context: Context) -> Any:
    if "g" in context.values:
        return await _group_progress(context, context.values["g"])
    context.output.line(_GROUP_ROW % ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    names = await cluster.all_topics(context.session)
    groups_known = [name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX)]
    return [await _overview(context, group) for group in groups_known]


async def _overview(context: Context, group: str) -> dict[str, Any]:
    tps, behind = 0.0, 0
    trouble: dict[str, str] = {}
    try:
        stats = await groups.consume_stats(context.session, group)
        tps, behind = stats.tps, stats.behind
    except ClientError as error:
        trouble["error"] = str(error)
    try:
        connection = await groups.consumer_connection(context.session, group)
    except ClientError:  # nobody is connected: shown as OFFLINE
        connection = {}
    members = connection.get("connectionSet") or []
    kind = model = ""
    version = "OFFLINE"
    if members:
        version = version_text(min(int(member.get("version") or 0) for member in members))
        kind = "PULL" if connection.get("consumeType") == "CONSUME_ACTIVELY" else "PUSH"
        model = str(connection.get("messageModel") or "") if kind == "PUSH" else ""
    context.output.line(_GROUP_ROW % (front(group, 64), len(members), version, kind, model, int(tps), behind))
    return {
        "group": group, "count": len(members), "version": version, "type": kind, "model": model, "tps": tps,
        "diffTotal": behind, **trouble,
    }  # fmt: skip


async def _group_progress(context: Context, group: str) -> dict[str, Any]:
    stats = await groups.consume_stats(context.session, group, context.values.get("t"))
    with_clients = context.values.truth("s", False)
    owners = await _owners(context, group) if with_clients else {}
    head = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#Inflight", "#LastTime"]
    if with_clients:
        head.insert(5, "#Client IP")
    context.output.line((_PROGRESS_IP_HEAD if with_clients else _PROGRESS_HEAD) % tuple(head))
    rows = []
    for queue in sorted(stats.queues):
        progress = stats.queues[queue]
        last = seconds_text(progress.last_ms) if progress.last_ms else "N/A"
        row: list[Any] = [
            front(queue.topic, 64), front(queue.broker_name, 32), queue.queue_id, progress.broker_offset,
            progress.consumer_offset, progress.behind, progress.in_flight, last,
        ]  # fmt: skip
        if with_clients:
            row.insert(5, owners.get(queue, "N/A"))
        context.output.line((_PROGRESS_IP_ROW if with_clients else _PROGRESS_ROW) % tuple(row))
        rows.append(
            {
                **queue_body(queue),
                "brokerOffset": progress.broker_offset,
                "consumerOffset": progress.consumer_offset,
                "diff": progress.behind,
                "inflight": progress.in_flight,
                "lastTimestamp": progress.last_ms,
                **({"client": owners.get(queue)} if with_clients else {}),
            }
        )
    context.output.lines(
        [
            "",
            f"Consume TPS: {stats.tps:.2f}",
            f"Consume Diff Total: {stats.behind}",
            f"Consume Inflight Total: {stats.in_flight}",
        ]
    )
    return {
        "group": group, "queues": rows, "consumeTps": stats.tps, "diffTotal": stats.behind,
        "inflightTotal": stats.in_flight,
    }  # fmt: skip


async def _owners(context: Context, group: str) -> dict[MessageQueue, str]:
    """Return which member has each queue; members that do not answer are left out."""
    owners = {}
    for member, report in (await _reports(context, group, stacks=False)).items():
        for key in report.get("mqTable") or {}:
            owners[parse_queue(key)] = member.split("@")[0]
    return owners


async def _reports(context: Context, group: str, *, stacks: bool) -> dict[str, dict[str, Any]]:
    connection = await groups.consumer_connection(context.session, group, context.values.get("b"))
    addresses = (
        [context.values["b"]]
        if "b" in context.values
        else await topics.master_addresses(context.session, retry_topic(group))
    )
    reports = {}
    for member in connection.get("connectionSet") or ():
        client_id = str(member.get("clientId"))
        for address in addresses:
            try:
                reports[client_id] = await groups.running_info(
                    context.session, address, group, client_id, stacks=stacks
                )
                break
            except BrokerError as error:
                context.output.line(f"{client_id} does not report through {address}: {error.remark}")
    return reports


@command(
    "consumerStatus",
    "Show what the members of a consumer group are doing.",
    needed("g", "consumerGroup", "the group"),
    value("i", "clientId", "only this member, on the screen"),
    value("b", "brokerAddr", "ask this broker"),
    flag("s", "jstack", "with the stacks of the member's threads"),
)
async def consumer_status(context: Context) -> Any:
    group = context.values["g"]
    stacks = "s" in context.values
    if "i" in context.values:
        client_id = context.values["i"]
        addresses = (
            [context.values["b"]]
            if "b" in context.values
            else await topics.master_addresses(context.session, retry_topic(group))
        )
        report = await groups.running_info(context.session, addresses[0], group, client_id, stacks=stacks)
        context.output.lines(report_lines(report))
        return report
    connection = await groups.consumer_connection(context.session, group, context.values.get("b"))
    versions = {str(m.get("clientId")): int(m.get("version") or 0) for m in connection.get("connectionSet") or ()}
    reports = await _reports(context, group, stacks=stacks)
    context.output.line(_MEMBER_ROW % ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    folder = Path(str(context.session.world.clock.wall_ms()))
    for number, client_id in enumerate(sorted(reports), 1):
        path = folder / client_id.replace("/", "_")
        if not context.output.as_json:
            _save(path, report_lines(reports[client_id]))
        context.output.line(_MEMBER_ROW % (number, client_id, version_text(versions.get(client_id, 0)), path))
    subscriptions = {
        json.dumps(sorted((s.get("topic"), s.get("subString")) for s in report.get("subscriptionSet") or ()))
        for report in reports.values()
    }
    if len(subscriptions) > 1:
        context.output.line("\n\nWARN: Different subscription in the same group of consumer!!!")
    elif reports:
        owned = [key for report in reports.values() for key in report.get("mqTable") or {}]
        fair = len(owned) == len(set(owned))
        context.output.line("\n\nSame subscription in the same group of consumer")
        context.output.line(f"\nRebalance {'OK' if fair else 'Failed'}")
    return reports


def _save(path: Path, lines: list[str]) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise CommandFailedError(f"report cannot be written to {path}: {error.strerror}") from error


@command(
    "brokerConsumeStats",
    "Show the progress of every group on one broker.",
    needed("b", "brokerAddr", "host:port of the broker"),
    value("t", "timeoutMillis", "longest wait (default 50000)"),
    value("l", "level", "only queues at least so far behind"),
    value("o", "order", "true: ordered topics only"),
)
async def broker_consume_stats(context: Context) -> Any:
    level = context.values.number("l", 0)
    body = await groups.broker_consume_stats(
        context.session,
        context.values["b"],
        ordered=context.values.truth("o", False),
        timeout_ms=context.values.number("t", 50_000),
    )
    context.output.line(
        _BROKER_STATS_ROW
        % (
            "#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime",
        )
    )  # fmt: skip
    for entry in body.get("consumeStatsList") or ():
        for group, parts in entry.items():
            for part in parts:
                found = groups.parse_progress(part)
                for queue in sorted(found):
                    progress = found[queue]
                    if progress.behind < level:
                        continue
                    last = seconds_text(progress.last_ms) if progress.last_ms else "N/A"
                    context.output.line(
                        _BROKER_STATS_ROW
                        % (
                            front(queue.topic, 64), group, front(queue.broker_name, 32), queue.queue_id,
                            progress.broker_offset, progress.consumer_offset, progress.behind, last,
                        )
                    )  # fmt: skip
    context.output.line(f"\nDiff Total: {body.get('totalDiff', 0)}")
    return body
