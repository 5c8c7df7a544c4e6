"""What others can do while something is worked on: turns of the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def in_each_turn(do: Callable[[], object]) -> AsyncIterator[None]:
    """Call *do* in each turn of the event loop, in a task of its own, as long as the context lasts."""

    async def other() -> None:
        while True:
            do()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        yield
        nursery.cancel_scope.cancel()


async def turns_beside(work: Callable[[], Awaitable[object]]) -> int:
    """Return how many turns another task had while *work* was done."""
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1

    async with in_each_turn(count):
        await trio.lowlevel.checkpoint()  # the other task runs by then
        begun = turns
        await work()
        return turns - begun
