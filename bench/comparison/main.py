"""The real Java broker and ours under the same Java client in one run: ratios, and which targets they meet.

Both sides run the same configuration files one process per server. Each pair starts both on empty stores, plays every
step against one and then the other (the order swaps at every step and every pair), kills both and starts them again on
the log they have. Figures are medians over the pairs: two equal Java brokers differ by a quarter from run to run, and
absolute figures belong to the machine and its load. The table goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from bench.comparison.led import measure_led
from bench.comparison.load import SETUP, feature_steps, load_steps
from bench.comparison.processes import Cluster, Command, Java, Understudy
from bench.comparison.rounds import (
    Settings,
    log,
    measure_nine_idle,
    measure_round,
)
from bench.comparison.targets import Figures, Verdict, compared, medians, table

QUICK = {"pairs": 1, "seconds": 4, "warmup": 3}


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="understudy bench java", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3, help="rounds, each on empty stores (default 3)")
    parser.add_argument("--seconds", type=int, default=10, help="measured, each step (default 10)")
    parser.add_argument("--warmup", type=int, default=6, help="before, each step (default 6)")
    parser.add_argument("--quick", action="store_true", help="one pair of short steps, for a first look")
    parser.add_argument("--threads", default="1,64", help="threads of the synchronous sends (default 1,64)")
    parser.add_argument("--steps", help="only these, for example send_sync_64,send_async,consume_backlog")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--backlog", type=int, default=500_000, help="consume at most so many (default 500,000)")
    parser.add_argument("--heap", default="1g", help="heap of the real broker (default 1g)")
    parser.add_argument("--pause-other", action="store_true", help="stop the side that is not measured with SIGSTOP")
    parser.add_argument(
        "--stolen",
        type=float,
        metavar="PERCENT",
        help="measure a step again, up to three times, while a virtual machine's host gives more of its processors\n"
        "to others, and keep the quietest (default: measure once); its store holds more after that",
    )
    parser.add_argument("--features", action="store_true", help="also transactions, pop and timer messages")
    parser.add_argument("--timers", type=int, default=100_000, help="messages due in one minute (default 100,000)")
    parser.add_argument("--no-sync-flush", action="store_true", help="leave out the step with synchronous flush")
    parser.add_argument("--no-idle", action="store_true", help="leave out the nine idle brokers")
    parser.add_argument("--only-idle", action="store_true", help="only the nine idle brokers")
    parser.add_argument("--replicate-mb", type=int, default=0, help="also let an empty slave copy a log of this size")
    parser.add_argument("--sync-master", action="store_true", help="also send to a master that waits for its slave")
    parser.add_argument("--conditions", action="store_true", help="also consume by a condition that one in ten meets")
    parser.add_argument("--led", action="store_true", help="also groups of three that a controller leads")
    parser.add_argument("--only-led", action="store_true", help="only those groups, --pairs times")
    parser.add_argument("--only", choices=["java", "ours"], help="measure one side alone")
    parser.add_argument("--start-cmd", help="starts our cluster in the foreground instead of mqnamesrv and mqbroker")
    parser.add_argument("--slave-cmd", default="", help="starts our empty slave, with --start-cmd")
    parser.add_argument("--port", type=int, default=23100, help="first port of the real system, ours is 400 above")
    parser.add_argument("--folder", help="stores and logs, kept (default: a new folder, removed at the end)")
    parser.add_argument("--json", metavar="FILE", help="also write settings, every pair's figures and the ratios")
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio misses what it must be")
    options = parser.parse_args(given)
    if options.quick:
        vars(options).update(QUICK)
    if options.steps:
        threads = map(int, options.threads.split(","))
        timing = (options.seconds, options.warmup, options.size)
        known = [step.key for step in load_steps(threads, *timing) + feature_steps(*timing, options.timers)]
        unknown = sorted(set(options.steps.split(",")) - set(known))
        if unknown:
            parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def require_java() -> None:
    """Makes sure that the real system and the Java load client are installed."""
    done = subprocess.run([SETUP], stdout=subprocess.PIPE, stderr=None, text=True)
    if done.returncode:
        raise SystemExit("understudy bench java: needs the real system and its Java client (reason above)")
    os.environ["ROCKETMQ_JAVA_HOME"] = done.stdout.strip().splitlines()[-1]


def chosen_sides(options: argparse.Namespace, folder: Path) -> list[Cluster]:
    ours: Cluster
    if options.start_cmd:
        ours = Command(folder, options.port + 400, options.start_cmd, options.slave_cmd)
    else:
        ours = Understudy(folder, options.port + 400)
    sides = [Java(folder, options.port, options.heap), ours]
    return [side for side in sides if options.only in (None, side.name)]


def measure(options: argparse.Namespace, sides: list[Cluster]) -> dict[str, list[Figures]]:
    """Returns {side: figures of every pair}; what is measured once is in a further entry of the list."""
    settings = Settings(
        steps=frozenset(options.steps.split(",")) if options.steps else None,
        threads=tuple(int(number) for number in options.threads.split(",")),
        seconds=options.seconds,
        warmup=options.warmup,
        size=options.size,
        backlog=options.backlog,
        pause_other=options.pause_other,
        stolen_percent=options.stolen,
        with_features=options.features,
        timers=options.timers,
        with_sync_flush=not options.no_sync_flush,
        with_sync_master=options.sync_master,
        replicate_mb=options.replicate_mb,
        with_conditions=options.conditions,
    )
    rounds: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for number in range(0 if options.only_idle else options.pairs):
        log(f"pair {number + 1} of {options.pairs}")
        turn = sides if number % 2 == 0 else sides[::-1]
        if not options.only_led:
            for name, figures in measure_round(turn, settings).items():
                rounds[name].append(figures)
        if options.led or options.only_led:
            for side in turn:
                rounds[side.name].append(measure_led(side, settings))
    if not options.no_idle and not options.only_led:
        for side in sides:
            once = {"nine_idle": measure_nine_idle(side)}
            log(f"{side.name}: nine idle brokers: {once['nine_idle']}")
            rounds[side.name].append(once)
    return rounds


def problems(rounds: dict[str, list[Figures]]) -> list[str]:
    """Returns a line for every step that failed or had errors: its figures must not be read without them."""
    lines = []
    for side, taken in rounds.items():
        for number, figures in enumerate(taken, 1):
            for key, result in figures.items():
                if isinstance(result, dict) and (result.get("failed") or result.get("errors")):
                    lines.append(f"{side}, pair {number}, {key}: {result.get('failed') or result['errors']}")
    return lines


def write_json(path: str, options: argparse.Namespace, rounds: dict[str, list[Figures]], result: list[Any]) -> None:
    document = {
        "machine": {"cores": os.cpu_count(), "load_after": os.getloadavg(), "python": sys.version},
        "settings": {key: value for key, value in vars(options).items() if key not in ("folder", "json")},
        "ratios": [
            {
                "figure": row.target.label,
                "unit": row.target.unit,
                "java": row.java,
                "ours": row.ours,
                "ratio": row.ratio,
                "must": row.target.must,
                "goal": row.target.goal,
                "more_is_better": row.target.more_is_better,
                "result": row.verdict.value,
            }
            for row in result
        ],
        "pairs": rounds,
    }
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def terminated(signum: int, frame: object) -> NoReturn:
    raise SystemExit(128 + signum)


def main(given: list[str]) -> int:
    options = arguments(given)
    signal.signal(signal.SIGTERM, terminated)  # so that the servers are ended, not orphaned
    require_java()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="understudy-bench-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sides = chosen_sides(options, folder)
    try:
        rounds = measure(options, sides)
    except RuntimeError as error:
        log(str(error))
        return 1
    finally:
        for side in sides:
            side.end(signal.SIGKILL)
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    result = compared(medians(rounds.get("java", [])), medians(rounds.get("ours", [])))
    print(f"Python of ours: {sys.version}")
    print(table(result))
    for line in problems(rounds):
        print(f"note: {line}")
    if options.json:
        write_json(options.json, options, rounds, result)
    return 1 if options.check and any(row.verdict is Verdict.MISS for row in result) else 0
