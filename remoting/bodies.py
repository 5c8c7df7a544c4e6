"""What the body of a request says, read without keeping the event loop.

A small body is read by its handler, in place. A large one is read in a thread before its handler is called, in steps
that leave the loop its turns; :func:`body_of` then returns what the thread has read. Because of that a request with a
large body may be overtaken by a later one of its connection, as it may be in the reference's thread pools.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from understudy.format.json_dialect import STEPS_LIMIT, JsonError, loads_in_steps
from understudy.format.json_dialect import loads as loads_at_once
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError
from understudy.remoting.limits import LaneLimits
from understudy.runtime.threads import Threads

LARGE_BODY_BYTES = 16 * 1024
"""Bodies from this size on are read in a thread."""

SMALL_BODY_STEPS = 50_000
"""Largest cost of a small body that is no standard JSON: it is read in place."""

LARGE_BODY_LANE = LaneLimits(running=2, waiting=256)
"""Bounds of the lane in which large bodies are read; two threads, for they share one interpreter."""

Read = Callable[[Command], Any]


def json_of(command: Command) -> Any:
    """Return the JSON value in the body of *command*.

    Raises:
        JsonError: it is none, or large and its code has no :class:`Reading`: nothing large is read in place.
    """
    return body_of(command, _read_json)


def body_of(command: Command, read: Read) -> Any:
    """Return what *read* returns for *command*, or raise what it raises, without doing it again after a thread did.

    What a thread has read in another way is not taken for it: a check of JSON never sees less than the body says. But
    where a thread had to read the JSON for what it read, that is kept, too, until :func:`only`.
    """
    ahead = command.read_ahead
    if ahead is None:
        return read(command)
    assert isinstance(ahead, dict)
    done = ahead.get(read)
    if done is None:
        done = ahead[read] = _done(command, read)
    if done.error is not None:
        raise done.error
    return done.value


def is_large(command: Command) -> bool:
    """Return whether the body of *command* is read in a thread."""
    return len(command.body) >= LARGE_BODY_BYTES


@attrs.frozen
class Reading:
    """How the body of a request is read.

    Attributes:
        read: takes the request; called in a thread when *ahead* says so, hence free of side effects. May raise
            ``ValueError`` or :class:`CommandError`, which :func:`body_of` raises again.
        ahead: whether that takes long enough for a thread.
    """

    read: Read
    ahead: Callable[[Command], bool] = is_large


async def read_ahead(threads: Threads, command: Command, read: Read) -> None:
    """Call *read* in one of *threads* and keep what comes of it in *command* for :func:`body_of`."""

    def fill() -> dict[Read, _Done]:
        command.read_ahead = ahead = dict[Read, _Done]()
        ahead[read] = _done(command, read)
        return ahead

    command.read_ahead = await threads.run(fill)


async def read_answer(threads: Threads, answer: Command, read: Read | None = None) -> None:
    """Have :func:`body_of` say what *read* returns for *answer*: called in one of *threads* now if that is large.

    Args:
        threads: of the process.
        answer: of a peer.
        read: as of :class:`Reading`; :func:`json_of` says what it returns without one.
    """
    if is_large(answer):
        await read_ahead(threads, answer, read or JSON.read)


def only(command: Command, read: Read) -> None:
    """Keep of what a thread has read what *read* returned, and nothing that it needed for that."""
    ahead = command.read_ahead
    if isinstance(ahead, dict):
        command.read_ahead = {read: ahead[read]}


async def json_value(threads: Threads, data: bytes, steps_limit: int = STEPS_LIMIT) -> Any:
    """Return the JSON value of an answer, read in one of *threads* when it is large.

    Args:
        threads: of the process.
        data: the body.
        steps_limit: largest cost, as of :func:`~understudy.format.json_dialect.loads_in_steps`.

    Raises:
        JsonError: it is none, or costs too much.
    """
    if len(data) < LARGE_BODY_BYTES:
        return loads_at_once(data, steps_limit)
    return await threads.run(partial(loads_in_steps, data, steps_limit))


@attrs.frozen
class _Done:
    value: Any
    error: Exception | None


def _done(command: Command, read: Read) -> _Done:
    try:
        return _Done(read(command), None)
    except (ValueError, CommandError) as error:
        return _Done(None, error)


def _read_json(command: Command) -> Any:
    if not is_large(command):
        return loads_at_once(command.body, SMALL_BODY_STEPS)
    if command.read_ahead is None:  # by a handler that was registered without a reading
        most = LARGE_BODY_BYTES - 1
        raise JsonError(f"it has {len(command.body)} bytes, such a body may have {most}")
    return loads_in_steps(command.body)


JSON = Reading(_read_json)

JSON_BODIES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.SETTLE_FIRST_READS,
    }
)
"""Requests whose body is JSON; their handlers call :func:`json_of`."""

__all__ = [
    "JSON",
    "JSON_BODIES",
    "LARGE_BODY_BYTES",
    "LARGE_BODY_LANE",
    "JsonError",
    "Read",
    "Reading",
    "body_of",
    "is_large",
    "json_of",
    "json_value",
    "only",
    "read_ahead",
    "read_answer",
]
