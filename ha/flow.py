"""How much of a log was sent to a slave in a second, and how much more may be."""

from __future__ import annotations

from understudy.runtime.world import World


class Flow:
    """Bytes per second, and what is left of this second.

    Args:
        world: its clock counts the seconds.
    """

    UNLIMITED = 1 << 62

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        self._second = -1
        self._counted = 0
        self._before = 0

    def _turn(self) -> None:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._before = self._counted if second == self._second + 1 else 0
            self._second, self._counted = second, 0

    def count(self, size: int) -> None:
        """Count *size* bytes that were sent."""
        self._turn()
        self._counted += size

    def allowance(self, bytes_per_second: int | None) -> int:
        """Return how many bytes may be sent in this second; ``None`` is no limit."""
        self._turn()
        return self.UNLIMITED if bytes_per_second is None else max(bytes_per_second - self._counted, 0)

    def seconds_to_next(self) -> float:
        """Return how long this second lasts."""
        now = self._clock.monotonic()
        return max(int(now) + 1 - now, 0.001)

    @property
    def last_second(self) -> int:
        """Bytes of the last full second."""
        self._turn()
        return self._before
