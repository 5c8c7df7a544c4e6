"""Virtual time: wall time that follows trio's mock clock, and the clock of a simulated host, which can stand still.

What sleeps or waits on a stopped clock does not go on, so a process whose clock is stopped and that hears nothing does
nothing. Afterwards the time that passed either counts (a stopped process finds all its deadlines gone by) or not (a
suspended machine goes on where it was, only its wall clock has moved).
"""

from __future__ import annotations

import math
import weakref

import trio

from understudy.runtime.clock import SystemClock


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


class StoppableClock(VirtualClock):
    """Virtual wall and monotonic time of one host."""

    def __init__(self) -> None:
        super().__init__()
        self._zero = 0.0  # all hosts agree until an accident befalls one
        self._scopes: weakref.WeakSet[trio.CancelScope] = weakref.WeakSet()
        self._waiting: list[tuple[trio.CancelScope, float]] = []
        self._stopped_at: float | None = None
        self._skipped_seconds = 0.0

    def monotonic(self) -> float:
        now = trio.current_time() if self._stopped_at is None else self._stopped_at
        return now - self._skipped_seconds

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.monotonic() + seconds)

    async def sleep_until(self, monotonic_seconds: float) -> None:
        if monotonic_seconds <= self.monotonic():
            await trio.lowlevel.checkpoint()
            return
        with self._until(monotonic_seconds):
            await trio.sleep_forever()

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        return self._until(self.monotonic() + seconds)

    @property
    def stopped(self) -> bool:
        """Whether time stands still."""
        return self._stopped_at is not None

    def stop(self) -> None:
        """Let time stand still for whoever looks at this clock; without effect when it does."""
        if self._stopped_at is not None:
            return
        self._stopped_at = trio.current_time()
        for scope in list(self._scopes):
            if scope.deadline < math.inf and not scope.cancelled_caught:
                self._waiting.append((scope, scope.deadline))
                scope.deadline = math.inf

    def go_on(self, *, counted: bool) -> None:
        """Let time go on.

        Args:
            counted: the time that passed counts, as for a process that was stopped; otherwise monotonic time has stood
                still, as on a suspended machine. Wall time counts it in both cases.
        """
        if self._stopped_at is None:
            return
        skipped = 0.0 if counted else trio.current_time() - self._stopped_at
        self._stopped_at = None
        self._skipped_seconds += skipped
        waiting, self._waiting = self._waiting, []
        for scope, deadline in waiting:
            scope.deadline = math.nextafter(deadline + skipped, math.inf)

    def _until(self, monotonic_seconds: float) -> trio.CancelScope:
        deadline = monotonic_seconds + self._skipped_seconds
        while deadline - self._skipped_seconds < monotonic_seconds:  # rounded down: who waits would never arrive
            deadline = math.nextafter(deadline, math.inf)
        scope = trio.CancelScope(deadline=deadline if self._stopped_at is None else math.inf)
        if self._stopped_at is not None:
            self._waiting.append((scope, deadline))
        self._scopes.add(scope)
        return scope
