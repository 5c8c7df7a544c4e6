"""Wall and monotonic time as an input.

Two kinds of time must not be mixed: *wall* time (milliseconds since the epoch, written into messages and files, may
jump) and *monotonic* time (seconds of the trio clock, for deadlines and ages).
"""

from __future__ import annotations

import time
from typing import Protocol

import trio


class Clock(Protocol):
    """What a service may know about time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 UTC; may jump when an operator sets the clock."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for *seconds* of monotonic time."""
        ...

    async def sleep_until(self, monotonic_seconds: float) -> None:
        """Sleep until :meth:`monotonic` reaches *monotonic_seconds*; returns at once (after a checkpoint) if it has."""
        ...

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        """Return a cancel scope that ends *seconds* from now (use as ``with clock.move_on_after(3): ...``)."""
        ...


class SystemClock:
    """The machine's clocks. Also right under a trio test clock for everything but wall time."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def sleep_until(self, monotonic_seconds: float) -> None:
        await trio.sleep_until(monotonic_seconds)

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)
