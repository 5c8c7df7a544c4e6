"""What every server program does around its work: signals, exit codes, one line for what went wrong."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Awaitable, Callable

import trio

from understudy.runtime.descriptors import raise_limit
from understudy.runtime.garbage import GarbageKeeper
from understudy.runtime.loop_watch import watched
from understudy.runtime.os_failure import os_failure
from understudy.runtime.wake_limit import wake_limit

EXIT_FAILED = 1
SWITCH_SECONDS = 0.001
"""How long a thread that computes keeps the event loop waiting; Python's own 5 ms would be felt by peers."""


class UsageError(Exception):
    """A program cannot do what it was asked; the message is the one line its user sees."""


def run_server(work: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Run the event loop of a server program: with all descriptors it may have, and a watch over who holds the loop."""
    raise_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    with watched() as watch, wake_limit():
        trio.run(work, *arguments, instruments=[watch, GarbageKeeper()])


def booted() -> None:
    """Take what was loaded so far for lasting: no look for garbage goes through it again."""
    gc.freeze()


def run_program(name: str, work: Callable[[], Awaitable[None]], *, refusals: tuple[type[Exception], ...] = ()) -> int:
    """Run *work* until it ends or SIGTERM or SIGINT arrives.

    Args:
        name: the program, for messages.
        work: cancelled by the signals; what it does then must be bounded in time.
        refusals: exceptions whose message is meant for the user (a port in use, a locked folder).

    Returns:
        The exit code: 0 after a clean end, 1 after one line on standard error.
    """

    async def until_signalled() -> None:
        scope = trio.CancelScope()

        async def watch() -> None:
            async for _ in received:
                scope.cancel()

        # Open until the very end: a second signal during the clean stop changes nothing.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                with scope:
                    await work()
                nursery.cancel_scope.cancel()

    try:
        run_server(until_signalled)
    except BaseException as error:
        cause = _cause((UsageError, OSError, *refusals), error)
        if cause is not None:
            print(f"{name}: {one_line(cause)}", file=sys.stderr, flush=True)
            return EXIT_FAILED
        raise
    return 0


def _cause(expected: tuple[type[Exception], ...], error: BaseException) -> BaseException | None:
    """Return the one of the *expected* exceptions that the user is told; ``None`` when another one is in *error*."""
    cause = single_cause(error)
    if isinstance(cause, BaseExceptionGroup):
        if cause.split(lambda each: isinstance(each, expected))[1] is not None:
            return None
        # One of them, and what others said while they were stopped for it.
        cause = first_cause(cause.subgroup(UsageError) or cause)
    return cause if isinstance(cause, expected) else None


def one_line(error: BaseException) -> str:
    """Return what the user of a program reads about *error*."""
    return os_failure(error) if isinstance(error, OSError) else str(error)


def single_cause(error: BaseException) -> BaseException:
    """Return the exception inside *error* when every group around it holds only one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception inside *error*, for a program that ends whichever of them it tells of."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
