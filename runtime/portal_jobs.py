"""Calls on their way through a portal: what is to be done, and who is told of its end."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from understudy.runtime.portal import Worker


class Told(Protocol):
    """Takes what became of a call that was begun without a task; called once, in the portal's thread."""

    def __call__(
        self,
        result: Any = None,
        *,
        error: BaseException | None = None,
        rest: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """Tell whoever asked, or have a task go on.

        Args:
            result: what the call returns.
            error: what it raises instead.
            rest: an async function that does what is left of it, and returns or raises for it.
        """
        ...


AtOnce = Callable[[Told], Callable[[], None] | None]
"""Begins a call without a task, in the portal's thread, and returns what gives it up: whoever asked is not told then.
Returns ``None`` when it did not, and a task is to do the call."""


class Job:
    """One call on its way through a portal; a subclass says whom to tell of its end.

    Args:
        call: an async function.
        args: for it.
        unclaimed: called in the portal's thread with what the call returned if whoever asked was cancelled before he
            had it: as it returns, or before anything begins that was asked after the cancel. Must not raise.
        at_once: does the call without a task if it can.
    """

    __slots__ = ("args", "at_once", "call", "give_up", "gone", "result", "unclaimed", "worker")

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        args: tuple[object, ...],
        unclaimed: Callable[[Any], None] | None = None,
        at_once: AtOnce | None = None,
    ) -> None:
        self.call = call
        self.args = args
        self.unclaimed = unclaimed
        self.at_once = at_once
        self.give_up: Callable[[], None] | None = None  # as long as it goes on without a task
        self.gone = False  # whoever asked does not wait any more; told and read in the portal's thread
        self.result: Any = None
        self.worker: Worker | None = None  # that does it now

    def give_back(self) -> None:
        """Give what the call returned, if it has, to whoever takes what nobody claims. In the portal's thread."""
        unclaimed, self.unclaimed = self.unclaimed, None
        if unclaimed is not None and self.result is not None:
            unclaimed(self.result)

    def returned(self, result: Any) -> None:
        """Called in the portal's thread with what the call returned; must not raise."""
        raise AssertionError("a subclass says it")

    def failed(self, error: BaseException) -> None:
        """Called in the portal's thread with what it raised, ``CancelledError`` if it was cancelled; must not raise."""
        raise AssertionError("a subclass says it")


class FutureJob(Job):
    """Tells a future."""

    __slots__ = ("future",)

    def __init__(self, call: Callable[..., Awaitable[Any]], args: tuple[object, ...], future: Future[Any]) -> None:
        super().__init__(call, args)
        self.future = future

    def returned(self, result: Any) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(result)

    def failed(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class WaitingJob(Job):
    """Wakes a thread that waits; much cheaper than a future."""

    __slots__ = ("done", "error")

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        args: tuple[object, ...],
        unclaimed: Callable[[Any], None] | None,
        at_once: AtOnce | None,
    ) -> None:
        super().__init__(call, args, unclaimed, at_once)
        self.done = threading.Lock()
        self.done.acquire()
        self.error: BaseException | None = None

    def returned(self, result: Any) -> None:
        self.done.release()

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.done.release()
