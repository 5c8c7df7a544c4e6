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


class VirtualClock(SystemClock):
    """Wall time derived from the trio clock, for runs under ``trio.testing.MockClock``.

    Args:
        epoch_ms: wall time, in milliseconds, at the trio clock's value when the object is first asked.
    """

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self._epoch_ms = epoch_ms
        self._zero: float | None = None
        self._jump_ms = 0

    def wall_ms(self) -> int:
        now = trio.current_time()
        if self._zero is None:
            self._zero = now
        return self._epoch_ms + self._jump_ms + round((now - self._zero) * 1000)

    def jump(self, by_ms: int) -> None:
        """Move wall time by *by_ms* milliseconds (negative: back), as an operator or a bad NTP server would."""
        self.wall_ms()
        self._jump_ms += by_ms
