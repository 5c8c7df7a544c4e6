"""Many simulated failovers of a ring: one seed each, in parallel processes; a failing seed prints how to replay it.

./understudy bench sim-acting --seeds 1000
./understudy bench sim-acting --replay 1234
./understudy bench sim-acting --pop --seeds 100      with pops, too; --half and --timers the same with other kinds
./understudy bench sim-acting --allowed              prints what is allowed, as docs/failover.md has it
./understudy bench sim-acting --broken               plays the seeds of acting_broken.toml, which once broke a promise
./understudy bench sim-acting --mutations            plants the faults of acting_mutations.toml, one at a time; with
                                                    --fresh no seed is played first that noticed one before
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from understudy.testkit.drills.acting_allowances import allowed_table
from understudy.testkit.drills.acting_answers import answers_table
from understudy.testkit.drills.acting_applications import Wanted
from understudy.testkit.drills.acting_faults import ELSEWHERE_FAULTS, FAULTS, LATER_FAULTS
from understudy.testkit.drills.acting_kinds import kinds_table
from understudy.testkit.drills.acting_seeds import LONG_SEEDS, WORK_SEEDS, play, tell
from understudy.testkit.drills.acting_windows import PAIR_SEEDS, WINDOW_SEEDS, empty_pairs, empty_windows
from understudy.testkit.drills.drill_result import DrillResult
from understudy.testkit.sim.mutations import hunt_listed
from understudy.testkit.sim.seeds import play_quietly, play_seeds, processors

MUTATIONS = Path(__file__).with_name("acting_mutations.toml")
BROKEN = Path(__file__).with_name("acting_broken.toml")
SEEDS_PER_MUTATION = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds; *arguments* are those of the process when ``None``. Return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=processors())
    parser.add_argument("--replay", type=int, metavar="SEED")
    for name, what in (("timers", "timer messages"), ("half", "half messages"), ("pop", "pops")):
        parser.add_argument(f"--{name}", action="store_true", help=f"there are {what}, too; each seed stays what it is")
    parser.add_argument("--allowed", action="store_true", help="print which repeats and answers are allowed, as tables")
    parser.add_argument("--broken", action="store_true", help="play the seeds that once broke a promise")
    parser.add_argument("--mutations", nargs="*", metavar="NAME", help="all of them, or those that are named")
    parser.add_argument(
        "--fresh", action="store_true", help="with --mutations: seeds from --first on only, not their own ones first"
    )
    options = parser.parse_args(arguments)
    if options.fresh and options.mutations is None:
        parser.error("--fresh is for --mutations")
    if options.allowed:
        print(f"{allowed_table()}\n\n{answers_table()}")
        return 0
    if options.mutations is not None:
        seeds = range(options.first, options.first + SEEDS_PER_MUTATION)
        return hunt_listed(MUTATIONS, options.mutations, play, seeds, options.processes, fresh=options.fresh)
    wanted = Wanted(timers=options.timers, halves=options.half, pops=options.pop)
    chosen = partial(play, wanted=wanted)
    kinds = "".join(f" --{name}" for name in ("timers", "half", "pop") if getattr(options, name))
    if options.replay is not None:
        return _replay(chosen, options.replay)
    if options.seeds < 1:
        parser.error("--seeds must be at least 1")
    seeds = broken() if options.broken else range(options.first, options.first + options.seeds)
    again = f"./understudy bench sim-acting{kinds} --replay "
    summary = play_seeds(chosen, seeds, options.processes, lambda seed: f"{again}{seed}")
    print(tell(summary))
    if min(seeds) >= LONG_SEEDS and (empty := empty_parts(summary.totals, len(seeds))):
        print(f"  nothing fell due: {', '.join(empty)}")
        return 1
    if options.broken or options.first >= WORK_SEEDS:  # these draw few of the faults, or kinds of their own
        return bool(summary.failing)
    never = [kind for kind in (*FAULTS, *LATER_FAULTS, *ELSEWHERE_FAULTS) if not summary.faults.get(kind)]
    if never:
        print(f"  never happened: {', '.join(never)}; play more seeds")
    return bool(summary.failing)


def empty_parts(counts: Mapping[str, int], seeds: int) -> list[str]:
    """Return the parts of failovers in which nothing fell due, of those that a run of so many *seeds* must reach."""
    if seeds >= PAIR_SEEDS:
        return empty_pairs(counts)
    return empty_windows(counts) if seeds >= WINDOW_SEEDS else []


def broken() -> list[int]:
    """Return the seeds that once broke a promise, in order."""
    return sorted(int(seed) for seed in tomllib.loads(BROKEN.read_text(encoding="utf-8"))["seeds"])


def _replay(chosen: Callable[[int], DrillResult], seed: int) -> int:
    result = play_quietly(chosen, seed)
    if isinstance(result, DrillResult):
        print(f"seed {seed}: the master of {result.group}; {result.fault}")
        for step in result.steps:
            print(f"  {step.seconds:8.3f}  {step.name}")
        print("\n".join(kinds_table(result.kinds)))
        print(result.verdict)
    for violation in result.violations:
        print(f"  {violation}")
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())
