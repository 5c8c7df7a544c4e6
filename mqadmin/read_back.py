"""Whether a change of a setting is in force: servers answer success to keys that they do not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from understudy.mqadmin.command import CommandFailedError, Context
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session
from understudy.runtime.properties import nearest_name

Read = Callable[[Session, str], Awaitable[dict[str, str]]]


async def read_back(context: Context, addresses: Sequence[str], read: Read, key: str, text: str) -> None:
    """Compare what servers say they have with what they were told.

    Args:
        context: of the command; a value that is another one is a line of its output.
        addresses: the servers.
        read: returns all settings of one.
        key: the setting.
        text: its new value.

    Raises:
        CommandFailedError: a server has no such setting, so that nothing was changed there.
    """
    without: list[str] = []
    nearest = None
    for address in addresses:
        try:
            values = await read(context.session, address)
        except ClientError:
            continue  # it took the change, and does not show what became of it
        if key in values:
            if not _same(values[key], text):
                context.output.line(f"{address} has {key}={values[key]} now")
        elif text and values:
            without.append(address)
            nearest = nearest or nearest_name(key, values)
    if without:
        hint = f", the nearest one is {nearest}" if nearest else ""
        raise CommandFailedError(f"nothing was changed at {', '.join(without)}: there is no key {key}{hint}")


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()
