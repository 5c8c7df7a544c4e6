"""Calls through a portal from an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from understudy.runtime.portal import Held, Job, Portal

T = TypeVar("T")


class _LoopJob(Job):
    """Tells a future of an event loop."""

    __slots__ = ("calls", "future")

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        args: tuple[object, ...],
        calls: LoopCalls,
        future: asyncio.Future[Any],
    ) -> None:
        super().__init__(call, args)
        self.calls = calls
        self.future = future

    def returned(self, result: Any) -> None:
        self.calls.ended(self.future, result, None)

    def failed(self, error: BaseException) -> None:
        self.calls.ended(self.future, None, error)


class LoopCalls:
    """Calls of one event loop through one portal; the loop hears of many that have ended by one word.

    Args:
        portal: where the calls run.
        loop: where they are awaited.
    """

    def __init__(self, portal: Portal, loop: asyncio.AbstractEventLoop) -> None:
        self._portal = portal
        self._loop = loop
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False

    async def call(self, call: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run ``call(*args)`` in the portal and return its result; to cancel the awaiting task cancels it.

        Raises what it raises, and ``PortalClosedError`` when nothing runs any more.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        job = _LoopJob(call, args, self, future)
        self._portal.start(job)
        try:
            return await future
        except asyncio.CancelledError:
            self._portal.cancel(job)
            raise

    def ended(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Take what became of a call; called in the portal's thread.

        Args:
            future: to be told.
            result: what the call returned.
            error: what it raised, if it did.
        """
        self._ended.append((future, result, error))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, CancelledError):
                future.cancel()
            else:
                future.set_exception(error)


@asynccontextmanager
async def opened(
    portal: AbstractContextManager[Portal], make: Callable[[], AbstractAsyncContextManager[T]]
) -> AsyncIterator[tuple[LoopCalls, T]]:
    """Open a context manager of trio as long as the block lasts, and give what it gives, with a way to call it.

    Args:
        portal: where it runs; entered and left in a thread, as that may wait.
        make: returns it; called in this thread.
    """
    stack = ExitStack()
    entered = await asyncio.to_thread(stack.enter_context, portal)
    try:
        held = Held(entered, make())
        inner = await asyncio.wrap_future(held.open())
        try:
            yield LoopCalls(entered, asyncio.get_running_loop()), inner
        except BaseException as error:
            await asyncio.shield(asyncio.wrap_future(held.close(error)))
            raise
        await asyncio.shield(asyncio.wrap_future(held.close()))
    finally:
        await asyncio.shield(asyncio.to_thread(stack.close))
