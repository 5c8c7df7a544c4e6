"""What work costs, judged so that a busy machine fails no test."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_seconds(work: Callable[[], object], enough: float, most_tries: int = 10) -> float:
    """Do *work* until it took less than *enough*; what else runs on the machine only adds to what it takes.

    Args:
        work: done in this thread, at least once.
        enough: seconds below which no further try is made; 0 makes all of them.
        most_tries: how often it is done at most.

    Returns:
        The least that it took, in seconds of this thread's processor time.
    """
    least = float("inf")
    for _ in range(most_tries):
        began = time.thread_time()
        work()
        least = min(least, time.thread_time() - began)
        if least < enough:
            break
    return least
