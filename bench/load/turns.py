"""How long each turn of a server's event loop takes: ``python -m bench.load.turns FILE PROGRAM ...``.

Runs a server program of this project with an instrument on its loop, which writes a line for each long turn. Processor
time of the loop's thread is what the loop was held by its own work; that the machine was busy is not in it. A thread
beside it looks who holds Python's lock: a worker that computes in one call without giving it back holds the loop, too.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TextIO, cast

import attrs
import trio

from bench.load.waits import Waits
from understudy.runtime.loop_watch import innermost

NOTED_S = 0.001
"""Shorter turns are not written down."""
LOOK_S = 0.004
"""Between two looks of the thread that sees where the loop is; a turn that is older than that is one it can name."""

WITHOUT_VARIABLE = "UNDERSTUDY_BENCH_WITHOUT"
"""In the environment: names of bounds that the program shall not have (``without.py``)."""

OUTSIDE = "a worker thread that kept Python's lock"


@attrs.frozen
class Turn:
    """One turn of the loop: everything that ran between two looks for input. Or one call of a worker that held it up.

    Attributes:
        ended: monotonic seconds.
        processor_ms: processor time of the loop's thread.
        wall_ms: how long it took.
        where: module, function and line at which it was seen, :data:`OUTSIDE` for a worker, or empty.
    """

    ended: float
    processor_ms: float
    wall_ms: float
    where: str


class Turns(trio.abc.Instrument):
    """Writes a line for each turn that is longer than :data:`NOTED_S`.

    Args:
        file: for the lines.
        looked: called with the time, monotonic seconds, at each look of the thread beside the loop.
    """

    def __init__(self, file: TextIO, looked: Callable[[float], None] = lambda now: None) -> None:
        self._file = file
        self._looked = looked
        self._loop = 0
        self._began = 0.0  # of the turn that is going on; 0 between two
        self._processor = 0.0
        self._seen = (0.0, "")
        self._garbage_since = 0.0

    def before_run(self) -> None:
        self._loop = threading.get_ident()
        gc.callbacks.append(self._on_garbage)
        threading.Thread(target=self._look, name="turns", daemon=True).start()

    def _on_garbage(self, phase: str, facts: dict[str, int]) -> None:
        """Name a long look for garbage as what its turn was held by."""
        if phase == "start":
            self._garbage_since = time.thread_time()
        elif threading.get_ident() == self._loop and time.thread_time() - self._garbage_since > LOOK_S:
            self._seen = self._began, f"a look for garbage, generation {facts['generation']}"

    def after_io_wait(self, timeout: float) -> None:
        self._began, self._processor = time.monotonic(), time.thread_time()

    def before_io_wait(self, timeout: float) -> None:
        began, self._began = self._began, 0.0
        took = time.thread_time() - self._processor
        if began and took > NOTED_S:
            ended = time.monotonic()
            where = self._seen[1] if self._seen[0] == began else ""
            self._file.write(f"{ended:.6f} {took * 1000:.3f} {(ended - began) * 1000:.3f} {where}\n")

    def _look(self) -> None:
        loop = time.pthread_getcpuclockid(self._loop)
        while True:
            before, used, own = time.monotonic(), time.process_time(), time.clock_gettime(loop)
            time.sleep(LOOK_S)
            # To wake up needs the lock; what the others used meanwhile, beyond the sleep, they used while they held it.
            ended = time.monotonic()
            self._looked(ended)
            kept = time.process_time() - used - (time.clock_gettime(loop) - own) - LOOK_S
            if kept > LOOK_S:
                self._file.write(f"{ended:.6f} {kept * 1000:.3f} {(ended - before) * 1000:.3f} {OUTSIDE}\n")
            began = self._began
            if began and time.monotonic() - began > LOOK_S and self._seen[0] != began:
                frame = sys._current_frames().get(self._loop)
                if frame is not None:
                    self._seen = began, innermost(frame)


def read_turns(path: Path, since: float = 0.0) -> list[Turn]:
    """Return the long turns in *path* that ended after *since*, monotonic seconds of this machine."""
    turns = []
    for line in path.read_text().splitlines():
        ended, processor, wall, where = line.split(" ", 3)
        if float(ended) > since:
            turns.append(Turn(float(ended), float(processor), float(wall), where))
    return turns


def command(path: Path, program: str) -> list[str]:
    """Return the command line of *program* up to its own arguments; its long turns are written to *path*."""
    return [sys.executable, "-m", "bench.load.turns", str(path), program]


def waits_of(path: Path) -> Path:
    """Return the file of what waits beside that of the turns."""
    return path.with_suffix(".waits")


def main(arguments: list[str]) -> int:
    """Run the program that *arguments* name after the file, with its own arguments."""
    path, name, *rest = arguments
    if os.environ.get(WITHOUT_VARIABLE):
        importlib.import_module("bench.load.without").leave_out(os.environ[WITHOUT_VARIABLE])
    (program,) = entry_points(group="console_scripts", name=name)
    start = cast("Callable[[list[str]], int]", program.load())
    with open(path, "w", buffering=1) as file, waits_of(Path(path)).open("w", buffering=1) as beside:
        waits = Waits(beside)
        waits.watch()
        run: Callable[..., object] = trio.run

        def measured(work: Callable[..., Awaitable[object]], *values: object, **options: object) -> object:
            instruments = [*cast("list[object]", options.pop("instruments", [])), Turns(file, waits.look)]
            return run(work, *values, **options, instruments=instruments)

        trio.run = measured  # type: ignore[assignment]  # for every way in which a program starts its loop
        return start(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
