"""A wall clock that was set forward, and what that means for times that were agreed before: the rules are pure.

What is popped belongs to its consumer for a time, and the end of it is written down as a time of the wall clock. When
that clock is set forward, all these ends come at once, while every consumer still works on what it has. So they are
moved by as much:

* A step is what the wall clock moved beyond the monotonic one between two looks; each pop is a look. What was agreed
  before the last look at the former time, and ends after it, ends later by the step. So does the rest of a time in
  which the machine slept: nobody waits for longer than was agreed.
* Setting the clock back takes that away again, and no more: times after that may be those of before, so nobody can say
  which of them were agreed earlier. What was popped before then comes back late by the step, as everything does that
  waits in the timer.
* Steps are forgotten with the process.

Differs: in the reference a clock that is set forward gives everything that is popped to somebody else at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from understudy.runtime.clock import Clock

LEAST_STEP_MS = 1_000
"""Less is no step: clocks are slewed, and the two are not read in one moment."""
MOST_STEPS = 16
"""Steps that are remembered."""


@attrs.frozen
class Step:
    """The wall clock was set.

    Attributes:
        before_ms: what it showed at the last look before.
        by_ms: by how much it was set; below zero: back.
    """

    before_ms: int
    by_ms: int

    def moved(self, since_ms: int, due_ms: int) -> int:
        """Return when a time that was agreed at *since_ms* to end at *due_ms* ends (wall times)."""
        return due_ms + self.by_ms if since_ms <= self.before_ms < due_ms else due_ms


class ClockSteps:
    """By how much a wall clock was set forward, and when."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._forward: deque[Step] = deque(maxlen=MOST_STEPS)

    def look(self, monotonic_ms: float, wall_ms: int) -> Step | None:
        """Take what both clocks show; return the step since the last look."""
        last, self._last = self._last, (monotonic_ms, wall_ms)
        if last is None:
            return None
        by_ms = round(wall_ms - last[1] - (monotonic_ms - last[0]))
        if abs(by_ms) < LEAST_STEP_MS:
            return None
        step = Step(last[1], by_ms)
        if by_ms > 0:
            self._forward.append(step)
        else:
            self._take_away(-by_ms)
        return step

    def _take_away(self, by_ms: int) -> None:
        while by_ms and self._forward:
            newest = self._forward.pop()
            if newest.by_ms > by_ms:
                self._forward.append(attrs.evolve(newest, by_ms=newest.by_ms - by_ms))
            by_ms = max(by_ms - newest.by_ms, 0)

    def due_ms(self, since_ms: int, due_ms: int) -> int:
        """Return when a time that was agreed at *since_ms* to end at *due_ms* ends (wall times)."""
        for step in self._forward:
            due_ms = step.moved(since_ms, due_ms)
        return due_ms


class PopClock:
    """The wall clock as pops see it: every look at it may find that it was set.

    Args:
        clock: both clocks.

    Attributes:
        steps: what was found.
        on_step: called with each step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.steps = ClockSteps()
        self.on_step: list[Callable[[Step], None]] = []

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""
        wall_ms = self._clock.wall_ms()
        step = self.steps.look(self._clock.monotonic() * 1000, wall_ms)
        if step is not None:
            for listener in self.on_step:
                listener(step)
        return wall_ms
