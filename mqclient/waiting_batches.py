"""Batches that wait for a task to consume them, and the limit on how long a listener may take."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from understudy.runtime.clock import Clock

if TYPE_CHECKING:
    from understudy.mqclient.assigned import Batch

_LEAST_SLEEP_SECONDS = 0.001  # a sum of floats may be a little less than the moment that is waited for


class WaitingBatches:
    """What was pulled, in the order in which it came, for several tasks that take from the front.

    Those who put something in bound its size by the windows of their queues, and say when one of these is left behind:
    at least half of the messages that wait are wanted then. Tasks are woken one at a time: one that must wait gives
    back what it has not begun, which wakes the next, so a listener that never waits costs one task's turn for many
    batches.
    """

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._woken = False
        self._messages = 0
        self._unwanted = 0  # at most so many of them

    def __len__(self) -> int:
        return self._messages

    def put(self, batch: Batch) -> None:
        """Add *batch* at the end."""
        self._batches.append(batch)
        self._messages += len(batch.messages)
        self._wake_one()

    def give_back(self, rest: Batch) -> None:
        """Put the *rest* of a batch, or nothing, in front again, for others: who took it does something else now."""
        if rest.messages:
            self._batches.appendleft(rest)
            self._messages += len(rest.messages)
        self._wake_one()

    async def take(self) -> Batch:
        """Return the first one; waits while there is none."""
        while (batch := self.take_now()) is None:
            await self._idle.park()
            self._woken = False
        return batch

    def take_now(self) -> Batch | None:
        """Return the first one, if there is one."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._messages -= len(batch.messages)
        return batch

    def forget(self, most: int) -> None:
        """Let go of what is not wanted any more.

        To look through all for each of many queues would hold the event loop, so it waits until it is worth it.

        Args:
            most: how many messages have become so by now, at most.
        """
        self._unwanted += most
        if self._unwanted > self._messages // 2:
            self._batches = deque(batch for batch in self._batches if batch.wanted)
            self._messages = sum(len(batch.messages) for batch in self._batches)
            self._unwanted = 0

    def _wake_one(self) -> None:
        if self._batches and self._idle and not self._woken:
            self._woken = True
            self._idle.unpark()


class Watchdog:
    """Cancels listeners that take too long: one task looks after all of them, for a deadline for each would cost more.

    Args:
        clock: of the world.
        limit_seconds: how long each may take.
    """

    def __init__(self, clock: Clock, limit_seconds: float) -> None:
        self._clock = clock
        self._limit = limit_seconds
        self._since: dict[trio.CancelScope, float] = {}

    def begin(self, scope: trio.CancelScope, now: float) -> None:
        """Cancel *scope* when the limit is over, counted from *now* (monotonic seconds)."""
        self._since[scope] = now

    def end(self, scope: trio.CancelScope) -> bool:
        """Leave *scope* alone again; return whether it was in time."""
        return self._since.pop(scope, None) is not None

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            now = self._clock.monotonic()
            for scope, since in list(self._since.items()):
                if now >= since + self._limit:
                    scope.cancel()
                    del self._since[scope]
            # What begins later is late later.
            due = min(self._since.values(), default=now) + self._limit
            await self._clock.sleep(max(due - now, _LEAST_SLEEP_SECONDS))
