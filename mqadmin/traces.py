"""Commands about what clients traced."""

from __future__ import annotations

from typing import Any

import attrs

from understudy.format.message_traces import CONSUMED, PUBLISHED, TraceStep, steps_of
from understudy.format.names import TRACE_TOPIC
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import needed, value
from understudy.mqadmin.text import seconds_text
from understudy.mqclient.admin import messages

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
    found = await messages.find(
        context.session,
        topic,
        message_id,
        kind="K",
        max_messages=values.number("c", 64),
        begin_ms=values.number("b", 0),
        end_ms=values.number("e", messages.LATEST_MS),
    )
    steps = [
        (step, str(message.born_host).rpartition(":")[0])
        for message in found
        for step in steps_of(message.body.decode("utf-8", "replace"))
        if step.message_id == message_id
    ]
    if not steps:
        raise CommandFailedError(f"topic {topic} tells nothing of message {message_id}: do its clients trace?")
    for step, host in steps:
        if step.kind == PUBLISHED:
            _print(context, PUBLISHED, [(step, host)])
    consumed = [row for row in steps if row[0].kind == CONSUMED]
    for group in dict.fromkeys(step.group for step, _ in consumed):
        _print(context, CONSUMED, [row for row in consumed if row[0].group == group])
    return [{**attrs.asdict(step), "clientHost": host} for step, host in steps]


def _print(context: Context, kind: str, rows: list[tuple[TraceStep, str]]) -> None:
    context.output.line(_ROW % _HEADS[kind])
    for step, host in rows:
        status = "success" if step.success else "failed"
        word = "Pub" if kind == PUBLISHED else "Sub"
        time = seconds_text(step.time_ms)
        context.output.line(_ROW % (word, step.group, host, time, f"{step.cost_ms}ms", status))
    context.output.line()
