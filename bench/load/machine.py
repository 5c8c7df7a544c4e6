"""Whether this machine had time for what is measured: how much of it others took meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import attrs

from bench.comparison.processes import cpu_seconds

QUIET_SHARE = 0.1
"""Of all processors: what others, the host of a virtual machine included, may take while wall-clock time is judged."""


@attrs.frozen
class Ticks:
    """Processor time since the start of the machine, in seconds of one processor.

    Attributes:
        busy: used by anybody, what the host gave to others included.
        total: used or not.
        ours: used by the processes that belong to the measurement.
    """

    busy: float
    total: float
    ours: float


def ticks_now(pids: Iterable[int]) -> Ticks:
    """Return the processor time so far; *pids* are the measured processes beside this one and its ended children."""
    user, nice, system, idle, wait, interrupt, soft, stolen = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    )
    busy = user + nice + system + interrupt + soft + stolen
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system + sum(map(cpu_seconds, pids))
    each = os.sysconf("SC_CLK_TCK")
    return Ticks(busy / each, (busy + idle + wait) / each, ours)


def others_share(before: Ticks, after: Ticks) -> float:
    """Return which share of the machine others took between two looks, from 0 to 1."""
    taken = (after.busy - before.busy) - (after.ours - before.ours)
    return max(taken, 0.0) / max(after.total - before.total, 0.01)


def proven(judged: int, count: int) -> str:
    """Return what a run without a fault has shown."""
    rest = "" if judged == count else ": the machine was not quiet in the others, whose turns of the loop alone count"
    return f"p99 judged in {judged} of {count} rows{rest}"
