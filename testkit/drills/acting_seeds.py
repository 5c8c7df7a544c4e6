"""Many simulated failovers: one seed each with faults drawn at random, on whichever hosts.

One seed is one history: a ring of three containers under traffic, one fault of the watched master's host and mostly
further ones of other hosts that overlap with it. Checked are the promises to clients (nothing acknowledged is lost,
nothing is invented, order holds, no delayed message is early by more than clocks jumped) and those between brokers: two
slaves never act at once for longer than a view may be old, the ring completes again, and in the end all replicas hold
the same bytes and offsets.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from understudy.testkit.drills.acting_faults import draw_plan
from understudy.testkit.drills.acting_scenario import Outcome, Run
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.seeds import Summary

QUIET_SECONDS = 3.0
SEND_SECONDS = 0.4


def play(seed: int) -> Outcome:
    """Play one seed; equal seeds give equal outcomes."""

    async def scenario(source: random.Random) -> Outcome:
        run = Run(source, seed, quiet_seconds=QUIET_SECONDS, send_seconds=SEND_SECONDS, plan=draw_plan)
        return await run.play()

    return run_seed(scenario, seed)


def tell(summary: Summary) -> str:
    """Return *summary* as text for people."""
    return "\n".join(
        (
            f"{summary.seeds} seeds, {len(summary.failing)} with violations, {summary.seconds:.0f} s",
            f"  faults    {_list(summary.faults)}",
            f"  messages  {_list(summary.rest)}",
            *(f"  worst     {name:45} {seconds:8.3f} s" for name, seconds in sorted(summary.worst.items())),
        )
    )


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
