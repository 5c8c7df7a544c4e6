"""Commands about what clients traced."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.message_traces import CONSUMED, PUBLISHED
from understudy.format.names import TRACE_TOPIC
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import needed, value
from understudy.mqadmin.text import seconds_text
from understudy.mqclient.admin import messages
from understudy.mqclient.admin.messages import Traced

_ROW = "%-10s %-20s %-20s %-20s %-10s %-10s"
_HEADS = {
    PUBLISHED: ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"),
    CONSUMED: ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"),
}


@command(
    "queryMsgTraceById",
    "Show who sent a message and who consumed it, as their clients traced it.",
    needed("i", "msgId", "unique id of the message"),
    value("t", "traceTopic", f"where clients trace (default {TRACE_TOPIC}; traceTopicEnable=true makes it)"),
    value("b", "beginTimestamp", "from this wall time on, milliseconds"),
    value("e", "endTimestamp", "up to this wall time, milliseconds"),
    value("c", "maxNum", "most trace messages of one broker (default 64)"),
)
async def query_msg_trace_by_id(context: Context) -> Any:
    values = context.values
    topic, message_id = values.text("t", TRACE_TOPIC), values["i"]
    steps = await messages.trace(
        context.session,
        message_id,
        topic,
        max_messages=values.number("c", 64),
        begin_ms=values.number("b", 0),
        end_ms=values.number("e", messages.LATEST_MS),
    )
    if not steps:
        raise CommandFailedError(f"topic {topic} tells nothing of message {message_id}: do its clients trace?")
    for each in steps:
        if each.step.kind == PUBLISHED:
            _print(context, PUBLISHED, [each])
    consumed = [each for each in steps if each.step.kind == CONSUMED]
    for group in dict.fromkeys(each.step.group for each in consumed):
        _print(context, CONSUMED, [each for each in consumed if each.step.group == group])
    return [{**attrs.asdict(each.step), "clientHost": each.host} for each in steps]


def _print(context: Context, kind: str, rows: list[Traced]) -> None:
    context.output.line(_ROW % _HEADS[kind])
    for each in rows:
        step = each.step
        status = "success" if step.success else "failed"
        word = "Pub" if kind == PUBLISHED else "Sub"
        time = seconds_text(step.time_ms)
        context.output.line(_ROW % (word, step.group, each.host, time, f"{step.cost_ms}ms", status))
    context.output.line()
