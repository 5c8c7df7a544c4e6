"""What the blocking and the asyncio client hand to the trio client: functions of theirs that it can await."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import trio

from understudy.mqclient.listener import INTERRUPTS, Role, check_listener

T = TypeVar("T")
P = ParamSpec("P")


@contextmanager
def _as_errors() -> Iterator[None]:
    """Let what would end a program be an error like any other: the thread of the client has others to serve."""
    try:
        yield
    except INTERRUPTS as error:
        raise RuntimeError(f"it was interrupted by {error!r}") from error


def now(call: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    """Return *call*, which does not wait, as an async function."""

    async def asked() -> T:
        return call()

    return asked


def in_threads(call: Callable[P, T], most: int, *, abandon: bool = False) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return *call* as an async function that runs it in threads of its own, *most* at a time."""
    limiter = trio.CapacityLimiter(most)

    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with _as_errors():
            return await trio.to_thread.run_sync(
                partial(call, *args, **kwargs), limiter=limiter, abandon_on_cancel=abandon
            )

    return called


def in_loop(call: Callable[P, Coroutine[Any, Any, T]], role: Role) -> Callable[P, Awaitable[T]]:
    """Return a function for the portal that runs *call* as a task of the loop that runs now."""
    import asyncio  # only where a loop of it runs: plain programs need not wait for its import

    check_listener(call, role)
    loop = asyncio.get_running_loop()

    async def asked(*args: P.args, **named: P.kwargs) -> T:
        future = asyncio.run_coroutine_threadsafe(call(*args, **named), loop)
        token, done = trio.lowlevel.current_trio_token(), trio.Event()
        future.add_done_callback(lambda _: token.run_sync_soon(done.set))
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        with _as_errors():
            return future.result()

    return asked
