"""A nursery for the background tasks of an object that is used in an ``async with`` block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the block ends.

    An exception of the block alone leaves it as it is, not wrapped in a group: the user of the block sees his own
    errors; the tasks behind it are nobody's business unless they fail.
    """
    body: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                body = error
                raise
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if body is None or group.exceptions != (body,):
            raise
    if body is not None:
        raise body
