"""Many simulated failovers: one seed each with faults drawn at random, on whichever hosts.

One seed is one history: a ring of two to four containers and one to three name servers under traffic, with or without
synchronous flush, one fault of the watched master's host and mostly further ones of other hosts that overlap with it.
Checked are the promises to clients and those between brokers. Nothing acknowledged is lost but what was not flushed
when the power failed; nothing is invented; nothing is repeated outside the table of :mod:`acting_allowances`; order
holds; no delayed message is early by more than clocks jumped. No slave acts before it knows its group's tables
or after it has lost the name servers, no two members of a group deliver at once for longer than a view may be old, the
ring completes again, and in the end all replicas hold the same bytes and offsets.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import attrs

from understudy.testkit.drills.acting_allowances import ALLOWED
from understudy.testkit.drills.acting_applications import ALL_KINDS, Wanted
from understudy.testkit.drills.acting_faults import (
    LONG_FAULTS,
    draw_elsewhere_plan,
    draw_later_plan,
    draw_long_plan,
    draw_plan,
    draw_work_plan,
)
from understudy.testkit.drills.acting_scenario import NOTHING_MORE, Run
from understudy.testkit.drills.acting_traffic import LONG_DELAYS, SHORT_DELAYS
from understudy.testkit.drills.acting_windows import DUE, WINDOWS, due_name, in_windows
from understudy.testkit.drills.drill_result import ALLOWED_REPEAT, DrillResult
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.seeds import Summary

QUIET_SECONDS, LONG_QUIET_SECONDS = 3.0, 8.0
SEND_SECONDS = 0.4
REPLICAS = (2, 3, 3, 4)
NAME_SERVERS = (1, 1, 2, 3)
"""What a ring's shape is drawn from."""
START_PAUSES = (0.0, 0.0, 0.0, 2.0)
"""Seconds between the starts of two containers: in a pause a slave is there whose master has never been."""
LATER_SEEDS = 100_000
"""Seeds from this one on draw what older ones do not know, from a generator of its own: groups that come, commit and
go, and more kinds of faults. What an older seed shows stays what it was."""
ELSEWHERE_SEEDS = 200_000
"""Seeds from this one on are of rings whose slaves live apart from masters; what is lost is a master to escape to."""
SLOW_DISK_SEEDS = 250_000
"""Seeds from this one on are of such rings, too; what is escaped to is not lost, but its disk is slow."""
WORK_SEEDS = 300_000
"""Seeds from this one on have every kind of message, and processes that end in the midst of what is done with them."""
LONG_SEEDS = 400_000
"""Seeds from this one on have messages that wait for half a minute and longer, and a master that is away for as long:
some fall due in every part of a failover."""


def play(seed: int, wanted: Wanted = NOTHING_MORE) -> DrillResult:
    """Play one seed; equal seeds give equal results.

    Args:
        seed: of everything that is drawn.
        wanted: which kinds of messages there are beside plain and delayed ones; all from :data:`WORK_SEEDS` on,
            and timer messages from :data:`LONG_SEEDS` on.
    """
    works, waits = WORK_SEEDS <= seed < LONG_SEEDS, seed >= LONG_SEEDS
    elsewhere = ELSEWHERE_SEEDS <= seed < WORK_SEEDS
    slow_disks = seed >= SLOW_DISK_SEEDS
    later = random.Random(f"later {seed}") if LATER_SEEDS <= seed < ELSEWHERE_SEEDS else None

    async def scenario(source: random.Random) -> DrillResult:
        apart = elsewhere or (works and source.random() < 0.25)
        ring = Ring(3 if apart else source.choice(REPLICAS), source.choice(NAME_SERVERS), apart)
        plan = (
            draw_long_plan
            if waits
            else draw_work_plan
            if works
            else draw_plan
            if later is None
            else partial(draw_later_plan, later)
        )
        run = Run(
            source,
            seed,
            quiet_seconds=LONG_QUIET_SECONDS if waits else QUIET_SECONDS,
            send_seconds=SEND_SECONDS,
            plan=partial(draw_elsewhere_plan, ring.masters, ring.servers, slow_disks) if elsewhere else plan,
            commits=later,
            ring=ring,
            wanted=ALL_KINDS if works else attrs.evolve(wanted, timers=wanted.timers or waits),
            delays=LONG_DELAYS if waits else SHORT_DELAYS,
            flush=source.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
            start_pause_seconds=source.choice(START_PAUSES),
        )
        return await run.play()

    return run_seed(scenario, seed)


def tell(summary: Summary) -> str:
    """Return *summary* as text for people."""
    repeats = {name: count for name, count in summary.rest.items() if name.startswith(ALLOWED_REPEAT)}
    rest = {name: count for name, count in summary.rest.items() if not name.startswith((ALLOWED_REPEAT, DUE))}
    due = in_windows(summary.rest)
    of_faults = {kind: [summary.rest.get(due_name(kind, window), 0) for window in WINDOWS] for kind in LONG_FAULTS}
    return "\n".join(
        (
            f"{summary.seeds} seeds, {len(summary.failing)} with violations, {summary.seconds:.0f} s",
            f"  faults    {_list(summary.faults)}",
            f"  messages  {_list(rest)}",
            f"  fell due  {_list(due)}",
            *(f"    {kind:16}{''.join(f'{count:7}' for count in row)}" for kind, row in of_faults.items() if any(row)),
            *(f"  repeats   {repeats.get(ALLOWED_REPEAT + row.name, 0):5}  {row.name}: {row.why}" for row in ALLOWED),
            *(f"  worst     {name:60} {seconds:8.3f} s" for name, seconds in sorted(summary.worst.items())),
        )
    )


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
