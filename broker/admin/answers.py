"""Bodies of administrative requests and answers: JSON in the reference's dialect."""

from __future__ import annotations

from typing import Any

from understudy.format import json_dialect
from understudy.format.json_dialect import ObjectKey
from understudy.remoting.bodies import json_of
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.fields import CommandError
from understudy.runtime.pace import Pace

MOST_ROWS = 20_000
"""Rows of a request that changes a table; they are taken in one piece."""

UNSET_REMARK = "not set any response code"
"""What the reference leaves in the remark of some good answers."""


def json_answer(
    command: Command, value: Any, *, ext: dict[str, str] | None = None, remark: str | None = None
) -> Command:
    """Return the good answer to *command* whose body is *value*, numbers as map keys unquoted.

    Args:
        command: that is answered.
        value: of the body.
        ext: fields of the header.
        remark: of the answer.
    """
    return response(command, ResponseCode.SUCCESS, remark, ext, json_dialect.dumps(value, bare_keys=True))


async def long_json_answer(
    command: Command,
    value: Any,
    pace: Pace,
    *,
    ext: dict[str, str] | None = None,
    remark: str | None = None,
    bare_keys: bool = True,
) -> Command:
    """Return what :func:`json_answer` returns, made in pieces.

    Args:
        value, bare_keys: as for :func:`~understudy.format.json_dialect.dump_pieces`.
        pace: of this work.
    """
    pieces = json_dialect.dump_pieces(value, bare_keys=bare_keys)
    return response(command, ResponseCode.SUCCESS, remark, ext, await pace.run(json_dialect.join_in_steps(pieces)))


def body_object(command: Command, what: str) -> dict[str, Any]:
    """Return the JSON object in the body of *command*.

    Args:
        what: name of the thing, for the refusal.

    Raises:
        CommandError (1): there is no body, or it is no JSON object.
    """
    if not command.body:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the request has no body, send {what} as JSON")
    try:
        value = json_of(command)
    except json_dialect.JsonError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body is not {what} in JSON: {error}") from None
    if not isinstance(value, dict):
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body is not {what} but another kind of JSON value")
    return value


def body_list(command: Command, name: str, what: str) -> list[dict[str, Any]]:
    """Return the list of JSON objects under *name* in the body of *command*. Raises CommandError (1)."""
    rows = body_object(command, what).get(name)
    if not isinstance(rows, list):
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body has no list {name} of {what}")
    if len(rows) > MOST_ROWS:
        remark = f"the body has {len(rows)} {what}, a request may have {MOST_ROWS}: send them in several"
        raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
    if not all([isinstance(row, dict) for row in rows]):
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body has no list {name} of {what}")
    return rows


def queue_key(topic: str, broker_name: str, queue_id: int) -> ObjectKey:
    """Return a queue as it stands as a map key."""
    return ObjectKey(queue_value(topic, broker_name, queue_id))


def queue_value(topic: str, broker_name: str, queue_id: int) -> dict[str, Any]:
    """Return a queue as it stands as a value."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def unknown_topic(topic: str, remark: str) -> CommandError:
    """Return the refusal of a request that names a topic this broker does not have."""
    return CommandError(ResponseCode.TOPIC_NOT_EXIST, remark.format(topic=topic))
