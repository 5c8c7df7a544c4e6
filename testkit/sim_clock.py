"""The clock of a simulated host, which can stand still as a stopped process or a suspended machine does.

What sleeps or waits on a stopped clock does not go on, so a process whose clock is stopped and that hears nothing does
nothing. Afterwards the time that passed either counts (a stopped process finds all its deadlines gone by) or not (a
suspended machine goes on where it was, only its wall clock has moved).
"""

from __future__ import annotations

import math
import weakref

import trio

from understudy.runtime.clock import VirtualClock


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
