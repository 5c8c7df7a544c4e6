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
