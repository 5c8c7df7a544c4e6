"""How figures of the quorum are told."""

from __future__ import annotations

import os
import statistics


def median_ms(samples: list[float]) -> str:
    """Return the median of durations in seconds as whole milliseconds."""
    return f"{statistics.median(samples) * 1000:.0f}"


def load() -> str:
    """Return what else the machine has to do."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
