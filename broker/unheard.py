"""Whether heartbeats arrive: a broker that is lost one timeout after each registration is not heard in between.

Pure. A name server that has lost a broker gets it back at once. Where registrations arrive and heartbeats do not, that
would show the group complete all the time, though the broker is gone again and again, and a slave would begin and cease
to act each time. At every second such loss in a row the broker stays away for one timeout, so that its group notices.
That binds whoever registers because it was lost. A master that every name server has lost goes through pre-online, and
registers at the end of it whatever this says: its group has noticed by then.
"""

from __future__ import annotations

import attrs

IN_A_ROW = 2


@attrs.frozen
class Unheard:
    """Losses that nothing but missing heartbeats explains.

    Attributes:
        in_a_row: how many.
        judged: the registration after which the newest loss was judged, ``None`` before the first.
        away_until: monotonic seconds at which the newest time away ends, or ended; 0 before the first.
    """

    in_a_row: int = 0
    judged: float | None = None
    away_until: float = 0.0


def lost(
    state: Unheard, now: float, told_at: float | None, timeout_seconds: float, notice_seconds: float
) -> tuple[Unheard, bool]:
    """Judge that the broker was just found lost; return the state after that, and whether it may register at once.

    Args:
        state: before.
        now: monotonic seconds.
        told_at: when its last registration was accepted, ``None``: never.
        timeout_seconds: how long it may be silent.
        notice_seconds: how long after its loss it may find it out.
    """
    if now < state.away_until:
        return state, False
    if told_at is None or told_at == state.judged:
        return state, True
    explained = not timeout_seconds <= now - told_at < timeout_seconds + notice_seconds
    in_a_row = 0 if explained else state.in_a_row + 1
    if in_a_row < IN_A_ROW:
        return Unheard(in_a_row, told_at, state.away_until), True
    return Unheard(0, told_at, now + timeout_seconds), False
