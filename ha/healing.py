"""How a slave gets back what a power loss took out of the middle of its log: decisions over offsets, nothing else.

Recovery leaves void records where bytes were lost and notes where the first of them stands, the *hole*. Everything
after it may be good, so it is not given up before the master has shown that it has it too:

1. **Look**: a connection asks from the hole on (from byte 1 for one at byte 0). What comes is compared and thrown away.
   A master that sends everything up to the end of our log, and every byte outside of our void records as we have it,
   has all that we have.
2. **Heal**: another connection asks from the hole on. What comes is written over the void records, in place; nothing
   of ours is given up for it. When master or slave fail in the middle, not more is missing than before, and it begins
   anew. From the end of our log on it goes on as always.

A master that begins elsewhere, ends earlier or has other bytes cannot help: nothing is written, and the slave goes on
at the end of its log. Until it is healed, a slave that looks or heals reports the hole, so that no send counts on bytes
it lacks.

What a master sent in place of lost messages it may have got back from another slave. That, too, is looked for: a
**probe** asks first for the beginning of the record only, for all that follows may be much.

A master that says nothing of the bytes at the hole may have them: it stops, or gives nobody what it asks others for. It
is looked at again, at the latest when it is seen to continue the end of our log; only then its silence means that it
has them no more.

The reference cuts its log in recovery, whether there is a master that can fill it or not.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import attrs

from understudy.ha.wire import Transfer

PROBE_BYTES = 128
"""Of a void record: more than its lengths, times and flags."""


class Step(Enum):
    """What the next connection is for."""

    CONTINUE = "go on at the end of the log"
    PROBE = "see whether the master has something else than the void record that it sent"
    LOOK = "see whether the master can fill the hole"
    HEAL = "write what is missing over the void records"


@attrs.frozen
class LookResult:
    """How a look ended.

    Args:
        master: HA address of the master that was looked at.
        hole: where the hole was.
        end: where our log ended.
        why_not: why the master cannot fill the hole; ``""`` when it can.
        is_probe: it was a probe, after which it may be able to.
    """

    master: str
    hole: int
    end: int
    why_not: str = ""
    is_probe: bool = False


def next_step(hole: int | None, end: int, master: str, result: LookResult | None, *, copied: bool = False) -> Step:
    """Return what the next connection to *master* is for.

    Args:
        hole: first byte that is missing in our log; ``None`` for a log without a hole.
        end: the end of our log in bytes.
        master: HA address.
        result: of the connection before this one, when it was a look that came to an end.
        copied: what is missing is missing in a copy of a master's log, as far as is known.
    """
    if hole is None or hole >= end:
        return Step.CONTINUE
    if result is None or (result.master, result.hole, result.end) != (master, hole, end):
        return Step.PROBE if copied else Step.LOOK
    if result.why_not:
        return Step.CONTINUE
    return Step.LOOK if result.is_probe else Step.HEAL


def from_first_byte(frames: list[Transfer]) -> list[Transfer]:
    """Return *frames* as if they had been asked for from byte 0 of the log on, not from byte 1.

    Who asks from 0 is empty, and may get the last file only. The first byte needs not be asked for: it is the highest
    of the length of a record, which is 0 below 16 MiB, the most that a frame to a broker can hold. A record that is
    longer after all is not whole without it, and stays missing.
    """
    return [Transfer(0, frame.body and b"\0" + bytes(frame.body)) if frame.offset == 1 else frame for frame in frames]


def probe(hole: int, ours: bytes) -> Look:
    """Return a look that ends well when a master has *ours*, the beginning of our void record, at *hole* (bytes)."""

    def differs_at(position: int, theirs: bytes | memoryview) -> int | None:
        at = position - hole
        return None if ours[at : at + len(theirs)] == theirs else position

    return Look(hole, hole + len(ours), differs_at)


class Look:
    """One look at what a master sends from the hole on.

    Args:
        hole: where it was asked to begin.
        end: the end of our log in bytes.
        differs_at: returns the first byte of ours, not counting those that are missing, that differs from the given
            ones at the given offset; ``None`` when all are the same.

    Attributes:
        unsure: the master did not show that it lacks what is missing; it gave nothing of what was asked for.
    """

    def __init__(self, hole: int, end: int, differs_at: Callable[[int, bytes | memoryview], int | None]) -> None:
        self._end = end
        self._differs_at = differs_at
        self._position = hole
        self.unsure = False

    def take(self, transfer: Transfer) -> str | None:
        """Take what came; return why the master cannot help, ``""`` when it can, ``None`` while that is open."""
        self.unsure = transfer.offset != self._position or not transfer.body
        if transfer.offset != self._position:
            return f"it begins at {transfer.offset}"
        if not transfer.body:
            return f"it gives nothing from {self._position} on"
        body = transfer.body[: self._end - self._position]
        differs = self._differs_at(self._position, body)
        if differs is not None:
            return f"it has other bytes at {differs}"
        self._position += len(body)
        return None if self._position < self._end else ""
