"""Whether heartbeats arrive: a broker that is lost one timeout after each registration is not heard in between.

Pure. A name server that has lost a broker gets it back at once. Where registrations arrive and heartbeats do not, that
would show the group complete all the time, though the broker is gone again and again, and a slave would begin and cease
to act each time. At every second such loss in a row the broker stays away for one timeout, so that its group notices.
That binds whoever registers because it was lost. A master that every name server has lost goes through pre-online, and
registers at the end of it whatever this says: its group has noticed by then.
"""

from __future__ import annotations

IN_A_ROW = 2


class Unheard:
    """Counts losses that nothing but missing heartbeats explains.

    Attributes:
        away_until: monotonic seconds at which the newest time away ends, or ended; 0 before the first.
    """

    def __init__(self) -> None:
        self._in_a_row = 0
        self._judged: float | None = None
        self.away_until = 0.0

    def may_return(self, now: float, told_at: float | None, timeout_seconds: float, notice_seconds: float) -> bool:
        """Return whether a broker that was just found lost may register at once.

        Args:
            now: monotonic seconds.
            told_at: when its last registration was accepted, ``None``: never.
            timeout_seconds: how long it may be silent.
            notice_seconds: how long after its loss it may find it out.
        """
        if now < self.away_until:
            return False
        if told_at is None or told_at == self._judged:
            return True
        self._judged = told_at
        explained = not timeout_seconds <= now - told_at < timeout_seconds + notice_seconds
        self._in_a_row = 0 if explained else self._in_a_row + 1
        if self._in_a_row < IN_A_ROW:
            return True
        self._in_a_row = 0
        self.away_until = now + timeout_seconds
        return False
