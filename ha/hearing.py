"""What a master hears of the slaves that copy from it, as a value."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Voice:
    """One connected slave; times are monotonic seconds.

    Attributes:
        host: where it comes from.
        known: it has said how far it is.
        heard_at: when it said something last.
        waits_since: when it was first sent what it has not confirmed; infinity: it has confirmed everything.
    """

    host: str
    known: bool
    heard_at: float
    waits_since: float

    def heard(self, now: float, seconds: float) -> bool:
        """Return whether it said something in the last *seconds* and gets what is sent to it."""
        return self.heard_at >= now - seconds and not self.stalled(now, seconds)

    def stalled(self, now: float, seconds: float) -> bool:
        """Return whether it was sent something and has not reported more for *seconds*."""
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
