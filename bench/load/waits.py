"""How many bytes wait in a server, as it counts them itself (``runtime/load.py``), looked at every few milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import attrs

from understudy.runtime.load import Load

NOTED_BYTES = 1 << 16
"""Smaller changes are not written down."""


@attrs.frozen
class Waited:
    """The most that waited at a time.

    Attributes:
        outgoing: bytes of answers that peers had not taken.
        incoming: bytes of requests that were incomplete or waited for a handler.
        parked: bytes of requests that waited for something to happen.
    """

    outgoing: int = 0
    incoming: int = 0
    parked: int = 0


class Waits:
    """Writes a line whenever what waits in this process has changed.

    Args:
        file: for the lines.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._loads: list[Load] = []
        self._last = (0, 0, 0)

    def watch(self) -> None:
        """Look at every total that is made from now on in this process."""
        make: Callable[..., None] = Load.__init__

        def made(load: Load, *values: int) -> None:
            make(load, *values)
            self._loads.append(load)

        Load.__init__ = made  # type: ignore[method-assign]  # nobody else knows all of them

    def look(self, now: float) -> None:
        """Write down what waits at *now*, monotonic seconds."""
        found = (
            sum(load.outgoing.used for load in self._loads),
            sum(load.incoming.used for load in self._loads),
            sum(load.parked.used for load in self._loads),
        )
        if max(abs(one - other) for one, other in zip(found, self._last, strict=True)) > NOTED_BYTES:
            self._last = found
            self._file.write(f"{now:.6f} {found[0]} {found[1]} {found[2]}\n")


def read_waits(path: Path, since: float) -> Waited:
    """Return the most of what the lines of *path* say that was written after *since*, monotonic seconds."""
    rows = [line.split(" ") for line in path.read_text().splitlines()]
    late = [tuple(map(int, numbers)) for when, *numbers in rows if float(when) > since]
    return Waited(*(max(each) for each in zip(*late, strict=True))) if late else Waited()
