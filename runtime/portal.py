"""A way into trio for programs that do not run it: one trio run in a thread of its own.

Whatever is asked of it runs there as a task; the caller has a future that is cancelled as the task is, and the other
way round. So back-pressure, time-outs and errors are those of the trio call.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class PortalClosedError(RuntimeError):
    """The thread behind the portal has ended, or it is asked from that thread itself."""


class Portal:
    """A trio run in a thread. Use it as a context manager."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="understudy-portal", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Portal:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs and wait until the thread has ended; a second call does nothing."""
        self._closing = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._end)
        self._thread.join()

    def submit(self, call: Callable[..., Awaitable[T]], *args: object) -> Future[T]:
        """Run ``call(*args)`` as a task.

        Args:
            call: an async function.
            args: for it.

        Returns:
            Its result or error; cancelling the future cancels the task.

        Raises:
            PortalClosedError: nothing runs any more.
        """
        if self._closing or self._token is None or threading.current_thread() is self._thread:
            raise PortalClosedError("the portal is closed, or is asked from its own thread, where `await` would do")
        future: Future[T] = Future()
        scope = trio.CancelScope()
        future.add_done_callback(lambda done: self._cancel(scope) if done.cancelled() else None)
        try:
            self._token.run_sync_soon(self._start, future, scope, call, args)
        except trio.RunFinishedError:
            raise PortalClosedError("the portal is closed") from None
        return future

    def call(self, call: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run ``call(*args)`` and wait for its result; an interrupt of the caller cancels it. Raises what it raises."""
        future = self.submit(call, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as failure:  # there is nobody above a thread; who asks next is told
            self._failure = failure
        finally:
            self._closing = True
            self._ready.set()

    async def _serve(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await trio.sleep_forever()

    def _end(self) -> None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def _start(
        self, future: Future[T], scope: trio.CancelScope, call: Callable[..., Awaitable[T]], args: tuple[object, ...]
    ) -> None:
        if self._nursery is None or self._nursery.cancel_scope.cancel_called:
            future.cancel()
            return
        self._nursery.start_soon(self._task, future, scope, call, args)

    async def _task(
        self, future: Future[T], scope: trio.CancelScope, call: Callable[..., Awaitable[T]], args: tuple[object, ...]
    ) -> None:
        result: Any = None
        error: Exception | None = None
        finished = False
        try:
            with scope:
                try:
                    result = await call(*args)
                    finished = True
                except Exception as raised:
                    error = raised
        finally:
            if future.set_running_or_notify_cancel():
                if error is not None:
                    future.set_exception(error)
                elif finished:
                    future.set_result(result)
                else:
                    future.set_exception(CancelledError())

    def _cancel(self, scope: trio.CancelScope) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(scope.cancel)


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
        if not self._task.done():
            self._portal.submit(self._let_go)
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


_shared_lock = threading.Lock()
_shared: list[Portal] = []
_users = 0


@contextmanager
def shared_portal() -> Iterator[Portal]:
    """Use the one portal of this process; it is there as long as anybody uses it."""
    global _users
    with _shared_lock:
        if not _shared:
            _shared.append(Portal().__enter__())
        _users += 1
        portal = _shared[0]
    try:
        yield portal
    finally:
        with _shared_lock:
            _users -= 1
            if not _users:
                _shared.pop().close()
