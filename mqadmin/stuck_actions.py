"""What an operator decides about half messages that are stuck: said first, done on request, and written down."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from understudy.format import names
from understudy.mqadmin.command import CommandFailedError, Context
from understudy.mqadmin.message_queries import TOOLS_GROUP
from understudy.mqadmin.options import UsageError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.pull import PullRequest, pull
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionState
from understudy.remoting.codes import RequestCode

CHOICES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}
_GROUP, _TOPIC, _QUEUE = "PGROUP", "REAL_TOPIC", "REAL_QID"


@attrs.frozen
class Place:
    """Where a half message stands, as a row of ``stuckWork`` names it.

    Attributes:
        queue: number of the half queue.
        offset: in that queue.
    """

    queue: int
    offset: int

    def __str__(self) -> str:
        return f"half queue {self.queue}, offset {self.offset}"


def places_of(text: str) -> list[Place]:
    """Return the places in ``QUEUE:OFFSET,QUEUE:OFFSET``. Raises :class:`UsageError`."""
    found = []
    for part in text.split(","):
        queue, colon, offset = part.partition(":")
        if not (colon and queue.isdecimal() and offset.isdecimal()):
            raise UsageError(f"{part!r} names no half message; say QUEUE:OFFSET as #Place shows them, commas between")
        found.append(Place(int(queue), int(offset)))
    return found


async def decide(
    context: Context, address: str, broker_name: str, rows: Sequence[dict[str, Any]], undo: Path
) -> list[dict[str, Any]]:
    """Commit or roll back the half messages that the operator named; without ``--yes`` only say what would be done.

    Args:
        context: of the command.
        address: of the broker that looks after them, ``host:port``.
        broker_name: its name.
        rows: of its answer, half messages only.
        undo: gets every message as it was, before anything is decided.

    Returns:
        What was decided, or would be.

    Raises:
        CommandFailedError: one is not among *rows*, is not stuck, or there is nothing to write to.
        UsageError: what was named is no place.
        ClientError: the broker refuses, or does not answer.
    """
    chosen = [(place, choice) for choice in CHOICES if choice in context.values for place in _named(context, choice)]
    if len({place for place, _ in chosen}) < len(chosen):
        raise UsageError("a half message is named twice")
    known = {row["place"]: row for row in rows}
    for place, _ in chosen:
        row = known.get(str(place))
        if row is None:
            raise CommandFailedError(f"{place}: no half message waits there now; see stuckWork -a -t half -b {address}")
        if not row["stuck"]:
            raise CommandFailedError(f"{place}: {row['why']}")
    halves = [(await _half(context, address, broker_name, place), place, choice) for place, choice in chosen]
    done = [_entry(half, place, choice) for half, place, choice in halves]
    if "yes" not in context.values:
        for each in done:
            context.output.line(f"would {_sentence(each)}")
        context.output.line("Nothing was done; --yes does it.")
        return done
    try:
        with undo.open("x", encoding="utf-8") as file:  # it must never take the place of an older one
            json.dump({"brokerAddr": address, "brokerName": broker_name, "decided": done}, file, indent=2)
    except OSError as error:
        raise CommandFailedError(f"{undo}: {error.strerror}; nothing was done, for it could not be undone") from None
    for (half, place, choice), each in zip(halves, done, strict=True):
        ext = {
            "producerGroup": half.properties[_GROUP],
            "tranStateTableOffset": str(place.offset),
            "commitLogOffset": str(half.commit_log_offset),
            "commitOrRollback": str(int(CHOICES[choice])),
            "fromTransactionCheck": "true",
            "bname": broker_name,
        }
        await context.session.call(address, RequestCode.END_TRANSACTION, ext)
        context.output.line(f"done: {_sentence(each)}")
    context.output.line(f"{undo} has the messages as they were.")
    return done


def _named(context: Context, choice: str) -> list[Place]:
    return places_of(context.values[choice])


async def _half(context: Context, address: str, broker_name: str, place: Place) -> ReceivedMessage:
    queue = MessageQueue(names.HALF_TOPIC, broker_name, place.queue)
    wanted = PullRequest(
        TOOLS_GROUP, queue, place.offset, subscription(queue.topic, "*", 0), 1, hold_ms=0, send_subscription=True
    )
    result = await pull(context.session, address, wanted)
    half = next((each for each in result.messages if each.queue_offset == place.offset), None)
    if half is None or not half.properties.get(_GROUP) or not half.properties.get(_TOPIC):
        raise CommandFailedError(f"{place}: cannot be read, or names neither producer group nor topic")
    return half


def _entry(half: ReceivedMessage, place: Place, choice: str) -> dict[str, Any]:
    return {
        "place": str(place),
        "choice": choice,
        "group": half.properties[_GROUP],
        "topic": half.properties[_TOPIC],
        "queueId": half.properties.get(_QUEUE, "0"),
        "uniqKey": half.properties.get("UNIQ_KEY", ""),
        "properties": half.properties,
        "bodyBase64": base64.b64encode(half.body).decode(),
    }


def _sentence(entry: dict[str, Any]) -> str:
    verb = {"commit": "commit", "rollback": "roll back"}[entry["choice"]]
    return f"{verb} {entry['uniqKey']} of {entry['group']} to {entry['topic']} ({entry['place']})"
