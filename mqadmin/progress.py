"""Commands about how far consumer groups are."""

from __future__ import annotations

from typing import Any

from understudy.format.names import RETRY_PREFIX
from understudy.format.versions import version_text
from understudy.mqadmin.command import Context, command
from understudy.mqadmin.members import queue_owners
from understudy.mqadmin.options import UsageError, needed, value
from understudy.mqadmin.text import front, seconds_text
from understudy.mqclient.admin import cluster, groups
from understudy.mqclient.errors import ClientError
from understudy.mqclient.offsets import queue_body

_PROGRESS_ROW = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %s"
_PROGRESS_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s"
_PROGRESS_IP_ROW = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s %s"
_PROGRESS_IP_HEAD = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s"
_GROUP_ROW = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_BROKER_STATS_ROW = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"


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
    if trouble:
        context.output.line(f"how far {group} is, is not known: {trouble['error']}")
    return {
        "group": group, "count": len(members), "version": version, "type": kind, "model": model, "tps": tps,
        "diffTotal": behind, **trouble,
    }  # fmt: skip


async def _group_progress(context: Context, group: str) -> dict[str, Any]:
    stats = await groups.consume_stats(context.session, group, context.values.get("t"))
    with_clients = context.values.truth("s", False)
    owners = await queue_owners(context, group) if with_clients else {}
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
    timeout_ms = context.values.number("t", 50_000)
    if timeout_ms < 1:
        raise UsageError(f"option -t needs at least one millisecond, not {timeout_ms}")
    body = await groups.broker_consume_stats(
        context.session,
        context.values["b"],
        ordered=context.values.truth("o", False),
        timeout_ms=timeout_ms,
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
