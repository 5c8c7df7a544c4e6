"""What a master hears of the slaves that copy from it, as a value."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import attrs

MARK_SECONDS = 0.1
"""How exactly it is remembered when bytes were sent."""
_MOST_MARKS = 256


class Unconfirmed:
    """When what a slave has not confirmed yet was sent to it.

    A report that confirms more does not say that the slave is there now: it may have been under way for long. What
    tells is how old the oldest bytes are that it does not confirm.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()

    def sent(self, end: int, now: float) -> None:
        """Learn that everything before *end* (bytes) has been sent at *now* (monotonic seconds)."""
        marks = self._marks
        if marks and (now - marks[-1][1] < MARK_SECONDS or len(marks) >= _MOST_MARKS):
            now = marks.pop()[1]
        marks.append((end, now))

    def confirmed(self, end: int) -> None:
        """Learn that the slave has everything before *end* (bytes)."""
        while self._marks and self._marks[0][0] <= end:
            self._marks.popleft()

    @property
    def since(self) -> float:
        """Monotonic seconds when the oldest unconfirmed bytes were sent; infinity: all are confirmed."""
        return self._marks[0][1] if self._marks else math.inf


@attrs.frozen
class Voice:
    """One connected slave; times are monotonic seconds.

    Attributes:
        host: where it comes from.
        known: it has said how far it is.
        heard_at: when it said something last.
        waits_since: when what it has not confirmed was sent to it; infinity: it has confirmed everything.
    """

    host: str
    known: bool
    heard_at: float
    waits_since: float

    def heard(self, now: float, seconds: float) -> bool:
        """Return whether it said something in the last *seconds* and gets what is sent to it."""
        return self.heard_at >= now - seconds and not self.stalled(now, seconds)

    def stalled(self, now: float, seconds: float) -> bool:
        """Return whether it was sent something and has not confirmed it for *seconds*."""
        return now - self.waits_since > seconds


@attrs.frozen
class Hearing:
    """All slaves.

    Attributes:
        voices: those that are connected, in the order they came.
        left: hosts whose newest connection has ended, and when.
    """

    voices: tuple[Voice, ...] = ()
    left: Mapping[str, float] = attrs.field(factory=dict)

    def heard_within(self, now: float, seconds: float) -> int:
        """Return how many said something in the last *seconds* and get what is sent to them."""
        return sum(voice.heard(now, seconds) for voice in self.voices)

    def misses(self, now: float, seconds: float, since: float) -> bool:
        """Return whether a slave that was connected in this time is not heard now, as far as hosts tell slaves apart.

        A number of slaves that are heard does not say it: one may have left while another came.

        Args:
            now, seconds: as for :meth:`heard_within`.
            since: who left before does not matter.
        """
        newest = {voice.host: voice for voice in self.voices if voice.known}
        gone = any(ended >= since for ended in self.left.values())
        return gone or any(not voice.heard(now, seconds) for voice in newest.values())
