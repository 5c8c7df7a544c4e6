"""What an operator decides about half messages that are stuck: said first, done on request, and written down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

from understudy.format import names
from understudy.mqadmin.command import CommandFailedError, Context
from understudy.mqadmin.message_queries import TOOLS_GROUP
from understudy.mqadmin.options import UsageError
from understudy.mqadmin.undo_file import DONE, REFUSED, UNKNOWN, UndoFile
from understudy.mqadmin.undo_messages import base64_of, to_send
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.pull import PullRequest, pull
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionState
from understudy.remoting.codes import RequestCode, ResponseCode

CHOICES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}
_GROUP, _TOPIC, _QUEUE = "PGROUP", "REAL_TOPIC", "REAL_QID"


ALL = "all"
"""In the place of places: all of the kind, and of the group if one is named, that are stuck."""
_IN_DOUBT = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
"""What a broker answers also when it has done something, and cannot say whether that is safe."""
_PLACE_OF_A_ROW = re.compile(r"half queue (\d+), offset (\d+)")


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


def chosen_of(context: Context, rows: Sequence[dict[str, Any]]) -> list[tuple[Place, str]]:
    """Return the places that the operator named, and what is to become of each. Raises :class:`UsageError`.

    Args:
        context: of the command.
        rows: what ``all`` means.
    """
    stuck = [found for row in rows if row["stuck"] and (found := _PLACE_OF_A_ROW.fullmatch(row["place"]))]
    everything = [Place(int(found[1]), int(found[2])) for found in stuck]
    chosen = [
        (place, choice)
        for choice in CHOICES
        if choice in context.values
        for place in (everything if context.values[choice] == ALL else places_of(context.values[choice]))
    ]
    if len({place for place, _ in chosen}) < len(chosen):
        raise UsageError("a half message is named twice")
    return chosen


async def decide(
    context: Context, undo: UndoFile, chosen: Sequence[tuple[Place, str]], rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Commit or roll back the half messages that the operator named; without ``--yes`` only say what would be done.

    Args:
        context: of the command.
        undo: gets every message as it was before anything is decided, and then what became of each.
        chosen: the places, see :func:`chosen_of`.
        rows: what the broker says about these places.

    Returns:
        What was decided, or would be.

    Raises:
        CommandFailedError: one is not among *rows*, is not stuck, there is nothing to write to, or the broker refuses
            or does not answer a decision; then it says what became of each.
        ClientError: the broker does not hand out what is to be decided.
    """
    address, broker_name = undo.address, undo.broker_name
    if not chosen:
        raise CommandFailedError(f"no half message is stuck at {address}; see stuckWork -a -t half -b {address}")
    known = {row["place"]: row for row in rows}
    for place, _ in chosen:
        row = known.get(str(place))
        if row is None:
            raise CommandFailedError(
                f"{place}: no half message waits there now, each check moves it on; "
                f"see stuckWork -a -t half -b {address}"
            )
        if not row["stuck"]:
            raise CommandFailedError(f"{place}: {row['why']}")
    halves = [(await _half(context, address, broker_name, place), place, choice) for place, choice in chosen]
    entries = [_entry(half, place, choice) for half, place, choice in halves]
    if "yes" not in context.values:
        for each in entries:
            context.output.line(f"would {_sentence(each)}")
        context.output.line("Nothing was done; --yes does it.")
        return entries
    with undo.created(entries):
        for number, (half, place, choice) in enumerate(halves):
            ext = {
                "producerGroup": half.properties[_GROUP],
                "tranStateTableOffset": str(place.offset),
                "commitLogOffset": str(half.commit_log_offset),
                "commitOrRollback": str(int(CHOICES[choice])),
                "fromTransactionCheck": "true",
                "bname": broker_name,
            }
            try:
                await context.session.call(address, RequestCode.END_TRANSACTION, ext)
            except ClientError as error:
                undo.failed(number, outcome_of(error))
                raise CommandFailedError(f"{place}: {error}; {undo.summary()}") from error
            undo.note(number, DONE)
            context.output.line(f"done: {_sentence(entries[number])}")
    context.output.line(f"{undo.path} has the messages as they were.")
    return entries


def outcome_of(error: ClientError, *in_doubt: int) -> str:
    """Return what became of decisions for which a broker answered *error*.

    Args:
        error: what came.
        in_doubt: further codes of answers that do not say that nothing was done.
    """
    refused = isinstance(error, BrokerError) and error.code not in (*_IN_DOUBT, *in_doubt)
    return REFUSED if refused else UNKNOWN


async def kept_message(context: Context, address: str, queue: MessageQueue, offset: int) -> ReceivedMessage | None:
    """Return one message as it stands in a queue; ``None`` when there is none.

    Args:
        context: of the command.
        address: of the broker, ``host:port``.
        queue: of any topic.
        offset: in *queue*.

    Raises:
        ClientError: the broker does not hand it out.
    """
    wanted = PullRequest(
        TOOLS_GROUP, queue, offset, subscription(queue.topic, "*", 0), 1, hold_ms=0, send_subscription=True
    )
    result = await pull(context.session, address, wanted)
    return next((each for each in result.messages if each.queue_offset == offset), None)


def queue_of(text: str) -> int:
    """Return the queue id in a property; 0 where it holds none."""
    return int(text) if text.isascii() and text.isdecimal() else 0


async def _half(context: Context, address: str, broker_name: str, place: Place) -> ReceivedMessage:
    half = await kept_message(context, address, MessageQueue(names.HALF_TOPIC, broker_name, place.queue), place.offset)
    if half is None or not half.properties.get(_GROUP) or not half.properties.get(_TOPIC):
        raise CommandFailedError(f"{place}: cannot be read, or names neither producer group nor topic")
    return half


def _entry(half: ReceivedMessage, place: Place, choice: str) -> dict[str, Any]:
    topic, queue_text = half.properties[_TOPIC], half.properties.get(_QUEUE, "0")
    return {
        "place": str(place),
        "choice": choice,
        "group": half.properties[_GROUP],
        "topic": topic,
        "queueId": queue_text,
        "uniqKey": half.properties.get("UNIQ_KEY", ""),
        "properties": half.properties,
        "bodyBase64": base64_of(half),
        "send": [to_send(half, topic, queue_of(queue_text))],
    }


def _sentence(entry: dict[str, Any]) -> str:
    verb = {"commit": "commit", "rollback": "roll back"}[entry["choice"]]
    return f"{verb} {entry['uniqKey']} of {entry['group']} to {entry['topic']} ({entry['place']})"
