"""Nurseries for the background tasks of an object that is used in an ``async with`` block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import trio

T = TypeVar("T")


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


class ShieldedTasks:
    """Tasks that a cancellation from outside does not reach; made by :func:`open_shielded`.

    Ctrl-C does not hit them either, but the main task: raised in the middle of a wait it would leave the task among
    those that are to be woken, and trio does not survive that. What they start in a nursery of their own needs
    ``trio.lowlevel.enable_ki_protection`` for it, and code of the application :func:`interruptible`.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()
        self._ended = False
        self._failed = False

    def start_soon(self, run: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run ``run(*args)`` beside the block, until it returns or the block has ended."""
        self._nursery.start_soon(self._run, run, args)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, run: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        if self._ended:
            return
        with trio.CancelScope(shield=True) as scope:
            self._scopes.add(scope)
            try:
                await run(*args)
            finally:
                self._scopes.discard(scope)

    def fail(self, error: BaseException) -> None:
        """End the block by *error*: it is cancelled, and raises *error* when its clean-up is done.

        Only the first one counts. The other tasks go on until then, as if the cancellation had come from outside.
        """
        if not self._failed:
            self._failed = True
            self._nursery.start_soon(self._raise, error)

    async def _raise(self, error: BaseException) -> None:
        raise error

    def cancel(self) -> None:
        """End all of them."""
        self._ended = True
        for scope in list(self._scopes):
            scope.cancel()


@trio.lowlevel.disable_ki_protection
async def interruptible(call: Callable[..., Awaitable[T]], *args: object) -> T:
    """Await ``call(*args)`` where Ctrl-C may hit it: code of the application, which may compute for ever.

    Args:
        call: of the application.
        args: its arguments.

    Returns:
        What it returns.
    """
    return await call(*args)


@asynccontextmanager
async def open_shielded() -> AsyncIterator[ShieldedTasks]:
    """Open a place for tasks that live until the block has ended, its clean-up included.

    When the block is cancelled its ``finally`` clauses still have what these tasks do for it: connections that say
    good-bye, workers that finish what they began. They are cancelled right after it.
    """
    async with open_background() as nursery:
        tasks = ShieldedTasks(nursery)
        try:
            yield tasks
        finally:
            tasks.cancel()


@contextmanager
def bare_errors() -> Iterator[None]:
    """Let a block's only error leave as itself, not wrapped in the groups of the nurseries it passed."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is group or isinstance(error, BaseExceptionGroup):
            raise
        raise error from error.__cause__
