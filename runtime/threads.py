"""Work of the processor's that takes too long for the event loop, done beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class Threads(Protocol):
    """Where such work is done."""

    async def run(self, function: Callable[[], T]) -> T:
        """Call *function*, which must be free of side effects: a cancelled caller goes on without it.

        Returns:
            What it returns; what it raises is raised here.
        """
        ...


class WorkerThreads:
    """Threads of this process, no more than *count* at once; they take turns with the event loop."""

    def __init__(self, count: int = 2) -> None:
        self._limiter = trio.CapacityLimiter(count)

    async def run(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=True)


class InPlace:
    """No threads: the work is done at once, in no virtual time."""

    async def run(self, function: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return function()
