"""The command of ours that says what waits in the brokers, and why, and ends by hand what is stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from understudy.mqadmin import stuck_settling
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import UsageError, flag, value
from understudy.mqadmin.stuck_actions import ALL, CHOICES, chosen_of, decide
from understudy.mqadmin.stuck_settling import check_group
from understudy.mqadmin.undo_file import UndoFile
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.remoting.codes import ResponseCode

_ROW = "%-18s %3s  %-6s %-32s %8s %-24s %12s  %s"
_KINDS = "half, pop, timer or delay"


@command(
    "stuckWork",
    "Show what waits in the brokers, for how long, why, and what to do: half messages, pops, timers, delay levels.",
    value("b", "brokerAddr", "host:port of one broker (default: those of every group that look after what is stored)"),
    value("c", "clusterName", "only brokers of this cluster"),
    value("t", "kind", f"only {_KINDS}"),
    value("g", "group", "only half messages of this producer group, and what this consumer group popped"),
    flag("a", "all", "also what only waits for its time"),
    flag("e", "each", "with -t pop, timer or delay: a row for each message, or check point, that was due"),
    value(
        "commit",
        "commit",
        "with -b: half messages to commit, QUEUE:OFFSET as #Place shows them, commas between, or all",
    ),
    value("rollback", "rollback", "with -b: half messages to roll back, in the same way"),
    value("requeue", "requeue", "with -b and -t: what is stuck, named as -e shows it, or all; it waits once more"),
    value("drop", "drop", "with -b and -t: what is stuck, in the same way; nobody gets it"),
    flag("yes", "yes", "do it; without it is only said what would be done"),
    value("undo", "undo", "file that gets them as they were (default: stuckWork-HOST-PORT-TIME.json here)"),
)
async def stuck_work(context: Context) -> Any:
    if any(choice in context.values for choice in CHOICES):
        return await _decide(context)
    if any(choice in context.values for choice in stuck_settling.CHOICES):
        address = _named(context)
        return await stuck_settling.settle(context, address, _undo_path(context, address))
    if "yes" in context.values or "undo" in context.values:
        raise UsageError("--yes and --undo are for --commit, --rollback, --requeue and --drop")
    each = "e" in context.values
    kind = context.values.get("t")
    if each and kind not in stuck_settling.KINDS:
        raise UsageError("-e is for one kind: -t pop, timer or delay; of half messages each has its row anyway")
    check_group(context)
    answers = []
    context.output.line(_ROW % ("#Broker", "#ID", "#Kind", "#Place", "#Count", "#Group", "#Waits", "#Why"))
    for address in await _brokers(context):
        try:
            answer = await cluster.stuck_work(
                context.session, address, kind=kind, group=context.values.get("g"), each=each
            )
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            context.output.line(f"{address}: a broker of the reference, it cannot say")
            continue
        except ClientError as error:
            if "b" in context.values:
                raise
            context.output.line(f"{address}: does not answer: {error}")
            continue
        if not answer["active"] and "b" not in context.values:
            answer["rows"] = [row for row in answer["rows"] if row["place"] == "handed out by the acting slave"]
        if "a" not in context.values:
            answer["rows"] = [row for row in answer["rows"] if row["stuck"]]
        answers.append({"brokerAddr": address, **answer})
        _show(context, answer)
    if not any(answer["rows"] for answer in answers):
        context.output.line("Nothing is stuck." if "a" not in context.values else "Nothing waits.")
    if "g" in context.values and kind is None:
        context.output.line("Timer messages and delayed ones belong to no group: leave -g out to see them.")
    return answers


async def _decide(context: Context) -> Any:
    address, group = _named(context), context.values.get("g")
    places = None
    if not any(context.values.get(choice) == ALL for choice in CHOICES):
        places = ",".join(f"{place.queue}:{place.offset}" for place, _ in chosen_of(context, ()))
    answer = await cluster.stuck_work(context.session, address, kind="half", group=group, places=places)
    if not answer["active"]:
        raise CommandFailedError(f"{address} does not look after them: {answer['activeReason']}")
    undo = UndoFile(_undo_path(context, address), address, answer["brokerName"])
    return await decide(context, undo, chosen_of(context, answer["rows"]), answer["rows"])


def _named(context: Context) -> str:
    address = context.values.get("b")
    if address is None:
        raise UsageError("name the broker (-b) that looks after it; stuckWork shows it")
    return address


def _undo_path(context: Context, address: str) -> Path:
    now_ms = context.session.world.clock.wall_ms()
    return Path(context.values.get("undo") or f"stuckWork-{address.replace(':', '-')}-{now_ms}.json")


async def _brokers(context: Context) -> list[str]:
    if "b" in context.values or "c" in context.values:
        return await context.brokers()
    info = await cluster.cluster_info(context.session)
    return [address for name in sorted(info.clusters) for address in info.addresses_of(name)]


def _show(context: Context, answer: dict[str, Any]) -> None:
    for row in answer["rows"]:
        where = (answer["brokerName"], answer["brokerId"], row["kind"], row["place"], row["count"], row["group"] or "-")
        why = row["why"] + (f"; {row['advice']}" if row["advice"] else "")
        context.output.line(_ROW % (*where, _time(row["waitsMs"]), why))
    if answer["more"]:
        context.output.line(f"{answer['brokerName']}: and more half messages behind these")


def _time(milliseconds: int) -> str:
    """Return how long something waits; with a minus, how long until it is due."""
    seconds = abs(milliseconds) // 1000
    text = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"-{text}" if milliseconds < 0 else text
