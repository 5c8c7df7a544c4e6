"""A master dies, its slave acts, the master gets everything back: played in virtual time from a seed.

    understudy drill acting-master [--seed N] [--fault KIND] [--seeds COUNT]
    understudy drill acting-master --real|--clients java|grpc [--fault suspend] [--quiet SECONDS]

Three containers, each with one master and one slave of both other groups; senders and a consumer group work all the
time. Prints the timeline, what the returning master took over queue by queue, and the verdict over what clients saw.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from understudy.container.preonline.service import rows_of
from understudy.runtime.log import configure
from understudy.testkit.drills.acting_applications import ALL_KINDS, Wanted
from understudy.testkit.drills.acting_faults import FAULTS
from understudy.testkit.drills.acting_kinds import kinds_table
from understudy.testkit.drills.acting_processes import RealRun
from understudy.testkit.drills.acting_scenario import Run
from understudy.testkit.drills.acting_seeds import tell
from understudy.testkit.drills.drill_result import DrillResult
from understudy.testkit.drills.ring_processes import DrillError
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.seeds import play_seeds, processors

_MOST_ROWS = 20
_Row = tuple[str, int, int | None, int | None, int, str]
"""Of the give-back: topic and group, queue, before, slave, merged, why."""
TIMELINE = "Timeline, seconds after the fault (virtual time)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the drill.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 when nothing was violated, 1 otherwise, 2 for unknown options.
    """
    parser = argparse.ArgumentParser(
        prog="understudy drill acting-master",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what everything random is drawn from (1)")
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="play this many seeds from --seed on")
    parser.add_argument(
        "--fault", choices=(*FAULTS, "any"), help="what happens to the master (kill; with --seeds: any)"
    )
    parser.add_argument("--real", action="store_true", help="real processes and SIGKILL instead of virtual time")
    parser.add_argument("--clients", choices=tuple(CLIENTS), help="whose clients send and consume; means --real (ours)")
    parser.add_argument(
        "--quiet", type=float, metavar="SECONDS", help="with --real: traffic before, during and after the outage (5)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the log lines of the brokers")
    for name, what in (("timers", "timer messages"), ("half", "half messages"), ("pop", "pops")):
        parser.add_argument(f"--{name}", action="store_true", help=f"of the kinds that need a service, only {what}")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="put the run into FILE, a page that shows one, and print nothing"
    )
    arguments = parser.parse_args(argv)
    if arguments.seeds < 1:
        print("drill: --seeds must be at least 1", file=sys.stderr)
        return 2
    configure("INFO" if arguments.verbose else logging.getLevelName(logging.CRITICAL))
    if arguments.real or arguments.clients:
        if arguments.timers or arguments.half or arguments.pop:
            print(
                "drill: --timers, --half and --pop are for virtual time, without --real and --clients", file=sys.stderr
            )
            return 2
        if arguments.fault not in (None, "kill", "suspend") or arguments.seeds != 1:
            print("drill: --real plays one run with --fault kill or suspend", file=sys.stderr)
            return 2
        if arguments.quiet is not None and arguments.quiet <= 0:
            print("drill: --quiet must be above 0 seconds", file=sys.stderr)
            return 2
        return _real(arguments.seed, arguments.fault or "kill", arguments.clients or "ours", arguments.quiet or 5.0)
    if arguments.quiet is not None:
        print("drill: --quiet needs --real or --clients", file=sys.stderr)
        return 2
    chosen = arguments.fault or ("kill" if arguments.seeds == 1 else "any")
    fault = None if chosen == "any" else chosen
    named = Wanted(timers=arguments.timers, halves=arguments.half, pops=arguments.pop, pops_in_order=arguments.pop)
    wanted = ALL_KINDS if named == Wanted() else named
    if arguments.seeds == 1:
        result = play(arguments.seed, fault, wanted=wanted)
        if arguments.into is not None:
            return _put_into(arguments.into, result)
        _show(result)
        return 0 if result.ok else 1
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    return _many(seeds, fault, wanted)


def play(
    seed: int,
    fault: str | None = None,
    *,
    quiet_seconds: float = 10.0,
    wanted: Wanted = ALL_KINDS,
) -> DrillResult:
    """Play one seed; equal seeds give equal results.

    Args:
        seed: of everything that is drawn.
        fault: kind of the fault; drawn from the seed if not given.
        quiet_seconds: traffic before the fault, while it lasts and after the return.
        wanted: which kinds of messages there are beside plain and delayed ones.
    """

    async def scenario(source: random.Random) -> DrillResult:
        run = Run(source, seed, fault, quiet_seconds=quiet_seconds, wanted=wanted)
        return await run.play()

    return run_seed(scenario, seed)


def _many(seeds: range, fault: str | None, wanted: Wanted) -> int:
    def again(seed: int) -> str:
        named = " --timers" * wanted.timers + " --half" * wanted.halves + " --pop" * wanted.pops
        kinds = "" if wanted == ALL_KINDS else named
        return f"understudy drill acting-master --seed {seed} --fault {fault or 'any'}{kinds}"

    kinds = partial(play, fault=fault, wanted=wanted)
    summary = play_seeds(kinds, seeds, processors(), again)
    print(tell(summary))
    return 1 if summary.failing else 0


def _real(seed: int, fault: str, clients: str, quiet_seconds: float) -> int:
    lack = CLIENTS[clients].missing()
    if lack is not None:
        print(f"drill: not {CLIENTS[clients].title}: {lack}", file=sys.stderr)
        return 2
    run = RealRun(random.Random(seed), suspend=fault == "suspend", clients=clients, quiet_seconds=quiet_seconds)
    try:
        result = trio.run(run.play)
    except DrillError as error:
        print(f"drill: {error}", file=sys.stderr)
        return 1
    print(
        f"Ring of three container processes, {CLIENTS[clients].title}: the master of {result.group} meets {fault!r}.\n"
    )
    print("Timeline, seconds after the fault")
    for name, seconds in result.steps:
        print(f"  {seconds:8.3f}  {name}")
    print("\nGive-back")
    report = result.report or {"slaves": [], "compared": 0, "changed": 0}
    print(f"  compared {report['compared']} offsets, {report['changed']} changed")
    allowed = [f"  {count} x {name}: an allowed repeat" for name, count in result.allowed.items()]
    tables = (*_table(changed_rows(report)), "", "Messages", *kinds_table(result.kinds), *allowed, "")
    for line in (*tables, *result.notes, f"Verdict: {result.verdict}"):
        print(line)
    for violation in result.verdict.violations[:_MOST_ROWS]:
        print(f"  {violation.rule}: {violation.detail}")
    return 0 if result.verdict.ok else 1


def changed_rows(report: Mapping[str, Any]) -> list[_Row]:
    """Return the rows of every table in the file of a *report* whose offset is another one now: all that it counts."""
    found = [row for each in report["slaves"] for rows in each.values() if isinstance(rows, list) for row in rows]
    return [
        (row["key"], row["queueId"], row["before"], row["slave"], row["merged"], row["why"])
        for row in found
        if row["before"] != row["merged"]
    ]


def _show(result: DrillResult) -> None:
    print(f"Ring of three containers, seed {result.seed}: the master of {result.group} meets {result.fault!r}.\n")
    print("\n".join(told(result)))


def told(result: DrillResult) -> list[str]:
    """Return what a run showed, for people: the timeline, the give-back and the verdict, line by line."""
    lines = [TIMELINE, *(f"  {step.seconds:8.3f}  {step.name}" for step in result.steps), "", "Give-back"]
    if result.report is None:
        lines.append("  none: the master was never away for long enough")
    else:
        lines.append(f"  {result.report.line()}")
        rows = [
            (
                row.key,
                row.queue_id,
                None if row.own is None else row.own.offset,
                None if row.other is None else row.other.offset,
                row.merged.offset,
                row.reason.value,
            )
            for row in rows_of(result.report)
            if row.changed
        ]
        lines += _table(rows)
    lines += ["", "Messages", *kinds_table(result.kinds)]
    if result.lateness is not None:
        lines.append(f"  {result.lateness.sentence()}")
    lines += ["", f"Verdict: {result.verdict}"]
    lines += (f"  {violation.rule}: {violation.detail}" for violation in result.verdict.violations[:_MOST_ROWS])
    return lines + [f"  {problem}" for problem in result.problems]


def excerpt_of(page: str) -> tuple[int, int]:
    """Return where the run stands that *page* (Markdown) shows: begin and end of the lines of its block.

    Raises:
        ValueError: the page has no such block, or more than one.
    """
    begin = page.find(f"```\n{TIMELINE}\n") + len("```\n")
    if begin < len("```\n") or page.count(TIMELINE) != 1:
        raise ValueError(f"it must hold one block that begins with: {TIMELINE}")
    return begin, page.index("```", begin)


def _put_into(path: Path, result: DrillResult) -> int:
    try:
        page = path.read_text(encoding="utf-8")
        begin, end = excerpt_of(page)
        lines = "\n".join(told(result))
        path.write_text(f"{page[:begin]}{lines}\n{page[end:]}", encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"drill: {path}: {error}", file=sys.stderr)
        return 2
    return 0


def _table(rows: Sequence[_Row]) -> list[str]:
    """Return rows of the give-back as lines."""
    if not rows:
        return []
    width = max(32, *(len(row[0]) for row in rows[:_MOST_ROWS]))
    lines = [f"  {'topic@group':{width}} {'queue':>5} {'before':>8} {'slave':>8} {'merged':>8}  why"]
    lines += (
        f"  {key:{width}} {queue_id:5} {_offset(before):>8} {_offset(slave):>8} {merged:8}  {why}"
        for key, queue_id, before, slave, merged, why in rows[:_MOST_ROWS]
    )
    return lines + ([f"  and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else [])


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


if __name__ == "__main__":
    sys.exit(main())
