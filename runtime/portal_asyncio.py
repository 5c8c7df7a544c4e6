"""Calls through a portal from an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from understudy.runtime.portal import Portal, PortalClosedError
from understudy.runtime.portal_held import Held
from understudy.runtime.portal_jobs import AtOnce, Job

T = TypeVar("T")


class _LoopJob(Job):
    """Tells a future of an event loop."""

    __slots__ = ("calls", "future")

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        args: tuple[object, ...],
        unclaimed: Callable[[Any], None] | None,
        at_once: AtOnce | None,
        calls: LoopCalls,
        future: asyncio.Future[Any],
    ) -> None:
        super().__init__(call, args, unclaimed, at_once)
        self.calls = calls
        self.future = future

    def returned(self, result: Any) -> None:
        self.calls.ended(self.future, result, None)

    def failed(self, error: BaseException) -> None:
        self.calls.ended(self.future, None, error)


class LoopCalls:
    """Calls of one event loop through one portal.

    Each side says to the other by one word what has come together in a turn of its own. A word for each call would wake
    the other thread in the middle of this one's work, and both would do nothing but wait for Python's lock.

    Args:
        portal: where the calls run.
        loop: where they are awaited.

    Attributes:
        portal: see above.
    """

    def __init__(self, portal: Portal, loop: asyncio.AbstractEventLoop) -> None:
        self.portal = portal
        self._loop = loop
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False  # whether the loop will look for what has ended
        self._asked: list[_LoopJob] = []

    async def call(
        self,
        call: Callable[..., Awaitable[T]],
        *args: object,
        unclaimed: Callable[[T], None] | None = None,
        at_once: AtOnce | None = None,
    ) -> T:
        """Run ``call(*args)`` in the portal and return its result; to cancel the awaiting task cancels it.

        Raises what it raises, and ``PortalClosedError`` when nothing runs any more.

        Args:
            call: an async function.
            args: for it.
            unclaimed: see :class:`~understudy.runtime.portal.Job`.
            at_once: see :class:`~understudy.runtime.portal.Job`.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        job = _LoopJob(call, args, unclaimed, at_once, self, future)
        self._asked.append(job)
        if len(self._asked) == 1:
            self._loop.call_soon(self._ask)
        try:
            return await future
        except asyncio.CancelledError:
            self.portal.cancel(job)
            raise

    def _ask(self) -> None:
        asked, self._asked = self._asked, []
        jobs = [job for job in asked if not job.future.done()]  # the others were cancelled in this turn
        if not jobs:
            return
        try:
            self.portal.start(*jobs)
        except PortalClosedError as error:
            for job in jobs:
                job.future.set_exception(error)

    def ended(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Take what became of a call; called in the portal's thread.

        Args:
            future: to be told.
            result: what the call returned.
            error: what it raised, if it did.
        """
        # As the portal does it: it stands here before `_told` is read, and the loop looks after it has taken that back.
        self._ended.append((future, result, error))
        if not self._told:
            self._told = True
            self.portal.after_this_turn(self._wake)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._told = False
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
