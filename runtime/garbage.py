"""When a server looks for garbage: in short looks while it serves, and through everything when nobody waits.

What a server holds for long (tables, connections) is most of its memory and hardly ever garbage, and Python's full look
goes through all of it: a tenth of a second and more for the tables of a large cluster. So what has outlived two looks
at young objects is taken out of sight: no look goes through it again, however much it is. It is freed as ever when
nobody refers to it; only what refers to itself in a circle stays until the next full look. That one happens when the
server has little to do, or when its memory has grown so much that something may be wrong.

Python looks when so many more objects were made than freed. When thousands of connections leave, what is freed is old,
and ever more young objects come together meanwhile, to be gone through in one look. So the loop looks by itself, too,
when it has worked for some time.
"""

from __future__ import annotations

import gc
import os
from time import perf_counter

import attrs
import trio

from understudy.runtime.log import get_logger

log = get_logger("runtime.garbage")

YOUNG = 5_000
"""Objects made, beyond those freed, between two looks at young ones; such a look takes half a millisecond."""
YOUNG_LOOKS = 1
"""Looks at young objects before one that goes through what they left: some 15,000 objects, a few milliseconds."""
WORK_SECONDS = 0.01
"""Work of the loop between two looks at young objects: it makes some 5,000 meanwhile."""
NEVER = 1_000_000_000

MANY = 100
"""Times that survivors were taken out of sight before a full look is worth it."""
QUIET_SECONDS = 0.05
QUIET_SLEEPS = 4
"""The loop slept so often in a row, so long each time: a full look holds up nobody who is busy."""

GROWTH = 1.5
GROWTH_BYTES = 128 << 20
"""Memory that is above what the last full look left, by this factor and these bytes: then one is due at once."""


@attrs.define
class Looks:
    """What is known of the memory since the last full look; pure.

    Attributes:
        settled: how often survivors were taken out of sight since then.
        left_bytes: memory in use when that look had ended.
        worked: how long the loop has worked since the last look at young objects, in seconds.
        slept_at: when the loop began to sleep last, in seconds.
        quiet: how often in a row it slept long.
    """

    settled: int = 0
    left_bytes: int = 0
    worked: float = 0.0
    slept_at: float = 0.0
    quiet: int = 0

    def sleeps(self, now: float) -> bool:
        """Take note that the loop is about to sleep; return whether this is the moment for a full look that is due."""
        self.quiet = self.quiet + 1 if now - self.slept_at >= QUIET_SECONDS else 0
        self.slept_at = now
        return self.settled >= MANY and self.quiet >= QUIET_SLEEPS

    def works(self, seconds: float) -> bool:
        """Take note of work of the loop; return whether young objects are to be looked at now."""
        self.worked += seconds
        return self.worked >= WORK_SECONDS

    def grew(self, used_bytes: int) -> bool:
        """Tell whether so much memory is in use that a full look is due, busy or not."""
        return used_bytes > self.left_bytes * GROWTH + GROWTH_BYTES

    def looked(self, used_bytes: int) -> None:
        """Take note of a full look that has ended."""
        self.settled, self.quiet, self.left_bytes = 0, 0, used_bytes


class GarbageKeeper(trio.abc.Instrument):
    """An instrument of the event loop of a server program; one in a process.

    Attributes:
        full_looks: how many there were.
    """

    def __init__(self) -> None:
        self.full_looks = 0
        self._looks = Looks()
        self._since = 0.0  # when the turn began
        self._measured = 0  # as many times survivors were out of sight when the memory was measured last

    def before_run(self) -> None:
        gc.set_threshold(YOUNG, YOUNG_LOOKS, NEVER)
        gc.callbacks.append(self._noted)
        self._looks.left_bytes = used_bytes()

    def after_run(self) -> None:
        gc.callbacks.remove(self._noted)

    def after_io_wait(self, timeout: float) -> None:
        self._since = perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        looks, now = self._looks, perf_counter()
        if looks.works(now - self._since):
            gc.collect(0)
        if looks.sleeps(now):
            self.look()
        elif looks.settled != self._measured:
            self._measured = looks.settled
            if looks.grew(used_bytes()):
                self.look()
                log.info("the memory has grown, looked through it for garbage", megabytes=looks.left_bytes >> 20)

    def look(self) -> None:
        """Look through everything that is there."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.full_looks += 1
        self._measured = 0
        self._looks.looked(used_bytes())

    def _noted(self, phase: str, facts: dict[str, int]) -> None:
        """Take what two looks at young objects have left out of sight; called by Python, in whatever thread."""
        if phase == "stop":
            self._looks.worked = 0.0
        if phase == "stop" and facts["generation"] == 1:
            gc.freeze()
            self._looks.settled += 1


def used_bytes() -> int:
    """Return the memory of this process that no file stands behind; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared = file.read().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
