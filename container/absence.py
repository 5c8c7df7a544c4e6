"""Whether a broker was away: stopped, suspended or cut off for so long that others have acted for it meanwhile.

Pure. A process that is stopped or moved does not notice: for it no time has passed, and it would go on with what it
knew. The only trace is in the clocks, so every decision that could be out of date looks at them first.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Moment:
    """One reading of both clocks, in milliseconds. A suspended machine stops the first, not the second."""

    monotonic_ms: float
    wall_ms: int


def limit_ms(timeout_ms: int, *periods_ms: int) -> float:
    """Return how long a broker may be silent before it must think that others act for it.

    Args:
        timeout_ms: when name servers drop a silent broker.
        periods_ms: of what is sent and asked regularly; the last sign of life may be as old as that.
    """
    return max(timeout_ms - 2 * max(periods_ms, default=0), timeout_ms / 2)


def gap_ms(before: Moment, now: Moment) -> float:
    """Return how long nothing happened between two readings: what either clock says, the longer time."""
    return max(now.monotonic_ms - before.monotonic_ms, now.wall_ms - before.wall_ms)
