"""What work costs, judged so that a busy machine fails no test."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def least_seconds(
    work: Callable[[], object], enough: float, most_tries: int = 10, clock: Callable[[], float] = time.thread_time
) -> float:
    """Do *work* until it took less than *enough*; what else runs on the machine only adds to what it takes.

    Args:
        work: done in this thread, at least once.
        enough: seconds below which no further try is made; 0 makes all of them.
        most_tries: how often it is done at most.
        clock: whose processor time counts; this thread's unless told otherwise.

    Returns:
        The least that it took, in seconds of *clock*.
    """
    least = float("inf")
    for _ in range(most_tries):
        began = clock()
        work()
        least = min(least, clock() - began)
        if least < enough:
            break
    return least


def least_turns(work: Callable[[], object], enough: float, most_tries: int = 10) -> float:
    """Do *work* until it took less than *enough* turns of a loop that is timed beside it, as slow as the machine is.

    Args:
        work: done in this thread, at least once.
        enough: turns below which no further try is made.
        most_tries: how often it is done at most.

    Returns:
        The least that it took, in turns; 650 of them took a second where figures of the tests come from.
    """
    least = float("inf")
    for _ in range(most_tries):
        turn = least_seconds(_ten_turns, 0, 5) / 10
        least = min(least, least_seconds(work, 0, 1) / turn)
        if least < enough:
            break
    return least


def _ten_turns() -> dict[bytes, list[object]]:
    """Do what readers of text do: make small values, put them into tables, and let them go."""
    found: dict[bytes, list[object]] = {}
    for number in range(100_000):
        text = b"%d" % number
        found[text[-3:]] = [number, text]
    return found


def waited_for_processor(pid: int) -> float:
    """Return how long a process could have run and had no processor, in seconds since it began.

    Args:
        pid: its id.

    Returns:
        The most of its threads; 0 where the system does not tell, and of a process that has ended.
    """
    waited = 0.0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited = max(waited, int(path.read_text().split()[1]) / 1e9)
        except (OSError, IndexError):  # it has ended meanwhile, or the system counts nothing
            continue
    return waited
