"""Whether a change of a setting is in force: servers answer success to keys that they do not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from understudy.mqadmin.command import CommandFailedError, Context
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session
from understudy.runtime.properties import nearest_name

Read = Callable[[Session, str], Awaitable[dict[str, str]]]


async def read_back(context: Context, address: str, read: Read, key: str, text: str) -> None:
    """Compare what a server says it has with what it was told.

    Args:
        context: of the command; a value that is another one is a line of its output.
        address: the server.
        read: returns all its settings.
        key: the setting.
        text: its new value.

    Raises:
        CommandFailedError: the server has no such setting, so that nothing was changed.
    """
    try:
        values = await read(context.session, address)
    except ClientError:
        return  # it took the change, and does not show what became of it
    if key in values:
        if not _same(values[key], text):
            context.output.line(f"{address} has {key}={values[key]} now")
    elif text and values:
        nearest = nearest_name(key, values)
        hint = f", the nearest one is {nearest}" if nearest else ""
        raise CommandFailedError(f"nothing was changed: {address} has no key {key}{hint}")


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()
