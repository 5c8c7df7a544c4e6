"""Runs many seeds in parallel processes and sums up what they showed; a failing seed prints how to replay it."""

from __future__ import annotations

import concurrent.futures
import gc
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs

FAULT = "fault "
"""Counts whose name begins like this say how often each kind of fault happened."""
_PROGRESS_SEEDS = 100
_SHOWN_CHARACTERS = 300
MOST_SECONDS = 60
"""Processor time after which one seed is given up."""
# A simulation makes few cycles and lives for seconds: looking for them at the usual pace costs a tenth of the run.
_GARBAGE_THRESHOLD = 50_000


class SeedResult(Protocol):
    """What one seed showed: broken promises, if any, and counts to be added up over all seeds."""

    seed: int
    counts: Counter[str]

    @property
    def violations(self) -> list[str]:
        """Each in a line."""
        ...


@attrs.define
class FailedRun:
    """A seed whose run did not even end."""

    seed: int
    violations: list[str]
    counts: Counter[str] = attrs.field(factory=Counter)


@attrs.define
class Summary:
    """All seeds together.

    Attributes:
        seeds: how many were played.
        failing: the results with violations.
        totals: sum of all counts.
        worst: the greatest value of each measure any seed has shown (an result may have ``measures``).
        seconds: wall time.
    """

    seeds: int = 0
    failing: list[SeedResult] = attrs.field(factory=list)
    totals: Counter[str] = attrs.field(factory=Counter)
    worst: dict[str, float] = attrs.field(factory=dict)
    seconds: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """How often each kind of fault happened."""
        return {key.removeprefix(FAULT): self.totals[key] for key in sorted(self.totals) if key.startswith(FAULT)}

    @property
    def rest(self) -> dict[str, int]:
        """The other counts."""
        return {key: self.totals[key] for key in sorted(self.totals) if not key.startswith(FAULT)}


def play_quietly(play: Callable[[int], SeedResult], seed: int) -> SeedResult:
    """Play one seed without log lines; a run that fails by itself is a violation too."""
    logging.disable(logging.CRITICAL)
    gc.set_threshold(_GARBAGE_THRESHOLD)
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        return play(seed)
    except Exception as error:
        return FailedRun(seed, [f"the run itself failed: {_leaf(error)!r}"])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.collect()  # the disks of the run: a hundred runs of them are gigabytes


def _give_up(*_: object) -> None:
    sys.unraisablehook = lambda _: None  # what is left of the run complains as it is torn down
    raise _TooLongError(f"not done after {MOST_SECONDS} s of computing: virtual time may stand still")


class _TooLongError(Exception):
    """A run whose virtual time does not go on."""


def play_seeds(
    play: Callable[[int], SeedResult],
    seeds: Sequence[int],
    processes: int,
    replay: Callable[[int], str] | None = None,
) -> Summary:
    """Play *seeds* and print each failing one at once.

    Args:
        play: a function that other processes can import, or a partial of one.
        seeds: what to play.
        processes: how many at a time.
        replay: the command that plays one seed again; without it failing seeds are not printed.
    """
    summary = Summary()
    started = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(min(processes, len(seeds)) or 1) as pool:
        runs = [pool.submit(play_quietly, play, seed) for seed in seeds]
        for run in concurrent.futures.as_completed(runs):
            result = run.result()
            summary.seeds += 1
            summary.totals.update(result.counts)
            measures: Mapping[str, float] = getattr(result, "measures", {})
            for name, value in measures.items():
                summary.worst[name] = max(summary.worst.get(name, value), value)
            if result.violations:
                summary.failing.append(result)
                if replay is not None:
                    print(f"VIOLATION seed {result.seed}: {result.violations[0][:_SHOWN_CHARACTERS]}")
                    print(f"  replay: {replay(result.seed)}", flush=True)
            summary.seconds = time.monotonic() - started
            if summary.seeds % _PROGRESS_SEEDS == 0:
                print(f"{summary.seeds} seeds, {len(summary.failing)} failing, {summary.seconds:.0f} s", flush=True)
    summary.failing.sort(key=lambda result: result.seed)
    return summary


def first_failing(play: Callable[[int], SeedResult], seeds: Sequence[int], processes: int) -> SeedResult | None:
    """Play *seeds* in their order, *processes* at a time; return the first that fails and play no more then."""
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        for begin in range(0, len(seeds), processes):
            for result in pool.map(partial(play_quietly, play), seeds[begin : begin + processes]):
                if result.violations:
                    return result
    return None


def processors() -> int:
    """Return how many processes are worth starting."""
    return os.cpu_count() or 1


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
