"""Counts messages by topic, and how many there were in each of the last seconds."""

from __future__ import annotations

from collections import Counter, deque

from understudy.runtime.clock import Clock

SECONDS = 10
MOST_TOPICS = 100_000
"""Messages of any more topics are not counted by topic."""


class Tally:
    """See above.

    Args:
        clock: monotonic time.

    Attributes:
        of: counts by topic since the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: deque[tuple[int, int]] = deque(maxlen=SECONDS)
        self.of: Counter[str] = Counter()

    def add(self, topic: str) -> None:
        """Count one message of *topic*."""
        if topic in self.of or len(self.of) < MOST_TOPICS:
            self.of[topic] += 1
        second = int(self._clock.monotonic())
        before = self._seconds.pop()[1] if self._seconds and self._seconds[-1][0] == second else 0
        self._seconds.append((second, before + 1))

    def per_second(self) -> float:
        """Return how many messages there were in a second, over the last :data:`SECONDS`."""
        since = int(self._clock.monotonic()) - SECONDS
        return sum(count for second, count in self._seconds if second > since) / SECONDS
