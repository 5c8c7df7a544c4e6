"""What an operator decides about pops, timer messages and delayed ones that are stuck: said first, then done.

As with half messages (:mod:`~understudy.mqadmin.stuck_actions`): without ``--yes`` nothing is done, and a new file has
everything as it was. The broker itself takes the decisions, and refuses what it does not look after.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.mqadmin.command import CommandFailedError, Context
from understudy.mqadmin.options import UsageError
from understudy.mqadmin.stuck_actions import ALL, kept_message, outcome_of, places_of, queue_of
from understudy.mqadmin.undo_file import DONE, REFUSED, UNKNOWN, WAITS, UndoFile
from understudy.mqadmin.undo_messages import base64_of, to_send
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import ClientError
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import ResponseCode

CHOICES = ("requeue", "drop")
KINDS = ("pop", "timer", "delay")
_VERBS = {"requeue": "have wait once more", "drop": "drop"}
_OUTCOMES = {"done": DONE, "waits": WAITS, "refused": REFUSED}


async def settle(context: Context, address: str, undo: Path) -> list[dict[str, Any]]:
    """Requeue or drop what the operator named; without ``--yes`` only say what would be done.

    Args:
        context: of the command.
        address: of the broker, ``host:port``.
        undo: file that gets everything as it was before anything is done, and then what became of each.

    Returns:
        What was decided, or would be.

    Raises:
        UsageError: kind or places are missing or wrong.
        CommandFailedError: the broker does not look after it, something is not there or not stuck, there is nothing to
            write to, or the broker refuses or does not answer; then it says what became of each.
        ClientError: the broker does not hand out what is to be decided.
    """
    kind = context.values.get("t")
    choices = [choice for choice in CHOICES if choice in context.values]
    if kind not in KINDS or len(choices) > 1:
        raise UsageError(f"--requeue or --drop, one of them, is for one kind: name it with -t {', '.join(KINDS)}")
    check_group(context)
    (choice,) = choices
    text = context.values[choice]
    wanted = None if text == ALL else list(dict.fromkeys(f"{each.queue}:{each.offset}" for each in places_of(text)))
    places = None if wanted is None else ",".join(wanted)
    group = context.values.get("g")
    answer = await cluster.stuck_work(context.session, address, kind=kind, group=group, places=places, each=True)
    if not answer["active"]:
        raise CommandFailedError(f"{address} does not look after them: {answer['activeReason']}")
    rows = {_place(row): row for row in answer["rows"] if wanted is not None or row["stuck"]}
    for place in wanted or ():
        if place not in rows:
            raise CommandFailedError(f"{place}: nothing is due there; see stuckWork -e -t {kind} -b {address}")
        if not rows[place]["stuck"]:
            raise CommandFailedError(f"{place}: {rows[place]['why']}")
    if not rows:
        raise CommandFailedError(f"nothing of it is stuck at {address}; see stuckWork -a -t {kind} -b {address}")
    entries = [await _entry(context, address, answer["brokerName"], row, choice) for row in rows.values()]
    if "yes" not in context.values:
        for each in entries:
            context.output.line(f"would {_sentence(each)}")
        context.output.line("Nothing was done; --yes does it.")
        return entries
    file = UndoFile(undo, address, answer["brokerName"])
    with file.created(entries):
        try:
            outcomes = await cluster.settle_stuck_work(
                context.session, address, kind=kind, decision=choice, places=",".join(rows)
            )
        except ClientError as error:
            for number in range(len(entries)):
                file.note(number, outcome_of(error, ResponseCode.SYSTEM_ERROR))
            raise CommandFailedError(f"{error}; {file.summary()}") from error
        _tell(context, file, entries, outcomes)
    context.output.line(f"{undo} has everything as it was.")
    return entries


def check_group(context: Context) -> None:
    """Raise :class:`UsageError` when a group is named for a kind that has none."""
    kind = context.values.get("t")
    if "g" in context.values and kind in ("timer", "delay"):
        raise UsageError(f"-g is for half messages and pops: {kind} messages belong to no group")


def _tell(
    context: Context, file: UndoFile, entries: Sequence[dict[str, Any]], outcomes: Sequence[dict[str, str]]
) -> None:
    said = {each["place"]: each for each in outcomes}
    refused = []
    for number, entry in enumerate(entries):
        outcome = said.get(entry["place"], {"outcome": "", "why": "the broker does not tell"})
        file.note(number, _OUTCOMES.get(outcome["outcome"], UNKNOWN))
        if outcome["outcome"] == "done":
            context.output.line(f"done: {_sentence(entry)}")
        elif outcome["outcome"] == "waits":
            context.output.line(f"waits: {_sentence(entry)}; {outcome['why']}")
        else:
            refused.append(f"{entry['place']}: {outcome['why']}")
    if refused:
        raise CommandFailedError(f"{'; '.join(refused)}; {file.summary()}")


async def _entry(context: Context, address: str, broker_name: str, row: dict[str, Any], choice: str) -> dict[str, Any]:
    holds = row["holds"]
    queue = MessageQueue(holds["topic"], broker_name, holds["queueId"])
    kept = await kept_message(context, address, queue, holds["offset"])
    if kept is None:
        raise CommandFailedError(f"{row['place']}: cannot be read, so that it could not be undone")
    is_point = "open" in row
    return {
        "place": row["place"],
        "choice": choice,
        "group": row["group"],
        "topic": row["topic"],
        "uniqKey": kept.properties.get("UNIQ_KEY", ""),
        "properties": kept.properties,
        "bodyBase64": base64_of(kept),
        **({"open": row["open"]} if is_point else {}),
        "send": (
            await _popped(context, address, broker_name, row["open"])
            if is_point
            else [to_send(kept, row["topic"], queue_of(kept.properties.get("REAL_QID", "0")))]
        ),
    }


async def _popped(context: Context, address: str, broker_name: str, point: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is to be sent in the place of a check point: each message that is open, with its body.

    One that is gone, as it would be when the time of the check point comes, is left out, and so are those in a queue of
    another broker. Raises :class:`ClientError`: the broker does not hand them out.
    """
    if point["brokerName"] != broker_name:
        return []
    queue, found = MessageQueue(point["topic"], broker_name, point["queueId"]), list[dict[str, Any]]()
    for offset in point["offsets"]:
        kept = await kept_message(context, address, queue, offset)
        if kept is not None:
            found.append({**to_send(kept, point["returnsTo"], 0), "bodyBase64": base64_of(kept)})
    return found


def _place(row: dict[str, Any]) -> str:
    queue, offset = (part.rpartition(" ")[2] for part in row["place"].split(", "))
    return f"{queue}:{offset}"


def _sentence(entry: dict[str, Any]) -> str:
    whose = f" of {entry['group']}" if entry["group"] else ""
    return f"{_VERBS[entry['choice']]} {entry['uniqKey'] or 'what is'}{whose} to {entry['topic']} ({entry['place']})"
