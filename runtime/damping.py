"""Log lines that peers can cause as often as they like: a few of a kind in a second, and how many there were besides.

So that nobody fills a disk, or buries what matters, by connecting again and again.
"""

from __future__ import annotations

from collections.abc import Callable

MOST = 3
"""Lines of one kind in a second: as many as a group has slaves that come back together."""


Say = Callable[..., None]
"""A method of a :class:`~understudy.runtime.log.Logger`: takes the event, then fields by name."""


class Damping:
    """Which lines are told and which only counted; what they say is their kind, so it must not come from a peer."""

    def __init__(self) -> None:
        self._seconds: dict[str, tuple[int, int]] = {}  # of each kind: the second, and how many lines it had

    def tell(self, say: Say, event: str, now: float, **fields: object) -> None:
        """Log a line, or count it, if :data:`MOST` of its kind were told in this second.

        Args:
            say: how it is logged.
            event: what happened: the kind of the line.
            now: monotonic seconds.
            fields: of the line; ``left_out`` beside them says how many lines of the kind were counted only, before.
        """
        second, count = self._seconds.get(event, (0, 0))
        if second == int(now) and count >= MOST:
            self._seconds[event] = second, count + 1
            return
        left_out = 0
        if second != int(now):
            second, count, left_out = int(now), 0, max(count - MOST, 0)
        self._seconds[event] = second, count + 1
        say(event, **fields, **({"left_out": left_out} if left_out else {}))
