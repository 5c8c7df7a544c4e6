"""Commands about rates and accumulation."""

from __future__ import annotations

from typing import Any

from understudy.format.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from understudy.mqadmin.command import Context, command
from understudy.mqadmin.options import flag, value
from understudy.mqadmin.text import front
from understudy.mqclient.admin import cluster, groups, topics
from understudy.mqclient.errors import ClientError

_HEAD = "%-64s  %-64s %12s %11s %11s %14s %14s"
_ROW = "%-64s  %-64s %12d %11.2f %11s %14d %14s"


@command(
    "statsAll",
    "Show rates and accumulation of every topic and group.",
    flag("a", "activeTopic", "only topics with messages of the last day"),
    value("t", "topic", "only this topic"),
)
async def stats_all(context: Context) -> Any:
    context.output.line(
        _HEAD % ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    )
    rows = []
    for topic in await cluster.all_topics(context.session):
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) or context.values.text("t", topic) != topic:
            continue
        try:
            rows += await _topic_rows(context, topic)
        except ClientError as error:
            context.output.line(f"{front(topic, 64):<64}  {error}")
            rows.append({"topic": topic, "error": str(error)})
    return rows


async def _topic_rows(context: Context, topic: str) -> list[dict[str, Any]]:
    addresses = await topics.master_addresses(context.session, topic)
    in_rate, in_day = await _sum(context, addresses, "TOPIC_PUT_NUMS", topic)
    active_only = "a" in context.values
    rows: list[dict[str, Any]] = []
    names = await topics.consuming_groups(context.session, topic)
    for group in names:
        out_rate, out_day = await _sum(context, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
        if active_only and not in_day and not out_day:
            continue
        try:
            behind = (await groups.consume_stats(context.session, group, topic)).behind
        except ClientError:  # the group has never stored an offset here
            behind = 0
        context.output.line(
            _ROW % (front(topic, 64), front(group, 64), behind, in_rate, f"{out_rate:.2f}", in_day, out_day)
        )
        rows.append(
            {
                "topic": topic, "group": group, "accumulation": behind, "inTps": in_rate, "outTps": out_rate,
                "inMsg24Hour": in_day, "outMsg24Hour": out_day,
            }
        )  # fmt: skip
    if not names and not (active_only and not in_day):
        context.output.line(_ROW % (front(topic, 64), "", 0, in_rate, "", in_day, "NO_CONSUMER"))
        rows.append({"topic": topic, "group": None, "inTps": in_rate, "inMsg24Hour": in_day})
    return rows


async def _sum(context: Context, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    rate, day = 0.0, 0
    for address in addresses:
        figures = await cluster.stats(context.session, address, name, key)
        if figures is None:
            continue
        rate += float((figures.get("statsMinute") or {}).get("tps") or 0.0)
        for period in ("statsDay", "statsHour", "statsMinute"):
            total = int((figures.get(period) or {}).get("sum") or 0)
            if total:
                day += total
                break
    return rate, day
