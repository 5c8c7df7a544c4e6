"""One seed, one run: trio's scheduler, its clock and the trace of what happened, made repeatable.

Trio shuffles runnable tasks on purpose. Seeding that shuffle, jumping a virtual clock whenever every task is blocked
and keeping real threads out (the simulated disk runs its calls inline) makes a whole cluster a function of its seed.
Code under simulation must not depend on the iteration order of sets of strings; ``PYTHONHASHSEED`` changes that order
from process to process.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio._core._run as scheduler
import trio.testing

from understudy.remoting import command

T = TypeVar("T")


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """Seed trio's task order while the block runs and give it back its entropy afterwards."""
    module: Any = scheduler
    before = module._ALLOW_DETERMINISTIC_SCHEDULING
    module._ALLOW_DETERMINISTIC_SCHEDULING = True
    module._r.seed(seed)
    try:
        yield
    finally:
        module._ALLOW_DETERMINISTIC_SCHEDULING = before
        module._r.seed()


def run_seed(scenario: Callable[[random.Random], Awaitable[T]], seed: int) -> T:
    """Run *scenario* in virtual time with everything drawn from *seed* and return its result.

    What it raises has a note with the seed and the line that plays it again.

    Args:
        scenario: called with a generator seeded by *seed*; hand parts of it to network, disks and faults.
        seed: the whole run; the same seed gives the same run, event for event.
    """
    command._opaque = itertools.count()  # how many bytes its digits take must not depend on earlier runs
    try:
        with deterministic_scheduling(seed):
            return trio.run(scenario, random.Random(seed), clock=_jumping_clock())
    except BaseException as error:
        name = getattr(scenario, "__qualname__", repr(scenario))
        error.add_note(f"seed {seed}; played again by: run_seed({name}, {seed})")
        raise


def _jumping_clock() -> trio.testing.MockClock:
    """Return a clock that jumps when all tasks wait, and asks no real one: trio's own does so at every question."""
    clock: Any = trio.testing.MockClock(autojump_threshold=0)

    def jump() -> None:
        at = scheduler.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if clock._virtual_base < at < math.inf:
            clock._virtual_base = at

    clock.current_time = lambda: clock._virtual_base
    clock._autojump = jump
    found: trio.testing.MockClock = clock
    return found


class Trace:
    """What happened, folded into one digest: two runs of a seed are equal when their digests are.

    Args:
        keep: how many of the newest lines to keep for a reader; the digest covers all of them.
    """

    def __init__(self, keep: int = 200) -> None:
        self._digest = hashlib.sha256()
        self._keep = keep
        self._newest: list[str] = []
        self.count = 0

    def record(self, *fields: object) -> None:
        """Add one line, stamped with virtual time."""
        line = f"{trio.current_time():.6f} " + " ".join(str(field) for field in fields)
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.count += 1
        self._newest.append(line)
        if len(self._newest) > 2 * self._keep:
            del self._newest[: -self._keep]

    def newest(self) -> list[str]:
        """Return the last lines, oldest first."""
        return self._newest[-self._keep :]

    def digest(self) -> str:
        """Return 16 hexadecimal digits that stand for the whole run."""
        return self._digest.hexdigest()[:16]
