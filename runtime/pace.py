"""Long work on the event loop, in pieces: others have their turn between them."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import trio

from understudy.runtime.clock import Clock
from understudy.runtime.load import Load

T = TypeVar("T")

PIECE_SECONDS = 0.002


class _Kept(Generic[T]):
    """Steps that are gone through with ``for``; :attr:`result` is what they return at their end."""

    result: T

    def __init__(self, steps: Generator[None, None, T]) -> None:
        self._steps = steps

    def __iter__(self) -> Generator[None, None, None]:
        self.result = yield from self._steps


def run_steps(steps: Generator[None, None, T]) -> T:
    """Run *steps* to their end in one go, and return what they return."""
    kept = _Kept(steps)
    for _ in kept:
        pass
    return kept.result


async def run_beside(clock: Clock, steps: Generator[None, None, T]) -> T:
    """Run *steps* to their end, with a turn for others whenever they have taken :data:`PIECE_SECONDS`.

    For what runs by itself, with nobody waiting for it; see :class:`Pace` for what somebody asked for.
    """
    kept, until = _Kept(steps), clock.monotonic() + PIECE_SECONDS
    for _ in kept:
        if clock.monotonic() >= until:
            await trio.lowlevel.checkpoint()
            until = clock.monotonic() + PIECE_SECONDS
    return kept.result


class Shared(Protocol):
    """What those share that work on one event loop, such as a :class:`~understudy.runtime.world.World`."""

    @property
    def clock(self) -> Clock: ...
    @property
    def load(self) -> Load: ...


class Pace:
    """The pace of one long piece of work; ``async with Pace(world) as pace``, and inside it ``await pace.breathe()``.

    Only one such work, or one connection with much to do, works in each turn of the event loop, in order of asking. So
    the work between two calls of :meth:`breathe` must be short, and nothing else may be waited for inside the block.

    Args:
        world: its clock and load.
    """

    def __init__(self, world: Shared) -> None:
        self._clock = world.clock
        self._load: Load = world.load
        self._until = 0.0

    async def __aenter__(self) -> Pace:
        await self._load.turn.acquire()
        self._until = self._clock.monotonic() + PIECE_SECONDS
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._held():
            self._load.turn.release()

    async def breathe(self) -> None:
        """Let others have their turn when this one has taken :data:`PIECE_SECONDS`."""
        if self._clock.monotonic() < self._until:
            return
        self._load.turn.release()
        await self._load.turn.acquire()
        self._until = self._clock.monotonic() + PIECE_SECONDS

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run *steps* to their end, with a breath between two of them, and return what they return."""
        kept = _Kept(steps)
        for _ in kept:
            await self.breathe()
        return kept.result

    def _held(self) -> bool:
        """Whether the turn is ours; not when :meth:`breathe` was cancelled while it waited."""
        return self._load.turn.statistics().owner is trio.lowlevel.current_task()
