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
        self._seconds: deque[tuple[int, int]] = deque(maxlen=SECONDS)  # before the one that is counted now
        self._second = self._count = 0
        self.of: Counter[str] = Counter()

    def add(self, topic: str) -> None:
        """Count one message of *topic*."""
        if topic in self.of or len(self.of) < MOST_TOPICS:
            self.of[topic] += 1
        second = int(self._clock.monotonic())
        if second != self._second:
            self._seconds.append((self._second, self._count))
            self._second, self._count = second, 0
        self._count += 1

    def per_second(self) -> float:
        """Return how many messages there were in a second, over the last :data:`SECONDS`."""
        since = int(self._clock.monotonic()) - SECONDS
        counted = (*self._seconds, (self._second, self._count))
        return sum(count for second, count in counted if second > since) / SECONDS
