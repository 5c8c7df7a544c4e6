"""A context manager of trio that is open in the thread of a portal, for programs that do not run trio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Generic, TypeVar

import trio

from understudy.runtime.portal import Portal, PortalClosedError

T = TypeVar("T")


class Held(Generic[T]):
    """An async context manager that is open in a portal's thread.

    Args:
        portal: where.
        manager: not entered yet.
    """

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal = portal
        self._manager = manager
        self._opened: Future[T] = Future()
        self._leave = trio.Event()
        self._error: BaseException | None = None
        self._task: Future[None] | None = None

    def open(self) -> Future[T]:
        """Begin to enter it; the future has what it gives."""
        task = self._task = self._portal.submit(self._hold)
        task.add_done_callback(self._ended)
        self._opened.add_done_callback(lambda opened: task.cancel() if opened.cancelled() else None)
        return self._opened

    def close(self, error: BaseException | None = None) -> Future[None]:
        """Begin to leave it, by *error* if there is one; the future has ended when it was left."""
        assert self._task is not None  # opened before
        self._error = error
        left: Future[None] = Future()
        if self._portal.elsewhere:
            left.set_result(None)  # it is open in the process that was copied, and stays so
            return left
        if not self._task.done():
            self._portal.submit(self._let_go)
        elif self._task.cancelled() or isinstance(self._task.exception(), CancelledError):
            left.set_result(None)  # it was left when the portal was closed, perhaps because Python ends
            return left
        return self._task

    async def _let_go(self) -> None:
        self._leave.set()

    async def _hold(self) -> None:
        try:
            async with self._manager as value:
                if not self._opened.set_running_or_notify_cancel():
                    return
                self._opened.set_result(value)
                await self._leave.wait()
                if self._error is not None:
                    raise _Left
        except _Left:
            return

    def _ended(self, task: Future[None]) -> None:
        if self._opened.done():
            return
        if task.cancelled():
            self._opened.cancel()
            return
        self._opened.set_exception(task.exception() or PortalClosedError("it ended while it was opened"))


class _Left(Exception):
    """The block of the caller was left by an exception, which stays with the caller."""


@contextmanager
def opened(
    portal: AbstractContextManager[Portal], make: Callable[[], AbstractAsyncContextManager[T]]
) -> Iterator[tuple[Portal, T]]:
    """Open a context manager of trio as long as the block lasts, and give what it gives, with the portal to call it.

    Args:
        portal: where it runs.
        make: returns it; called in this thread.
    """
    with portal as entered:
        held = Held(entered, make())
        opening = held.open()
        try:
            inner = opening.result()
        except BaseException:
            opening.cancel()
            raise
        try:
            yield entered, inner
        except BaseException as error:
            held.close(error).result()
            raise
        held.close().result()
