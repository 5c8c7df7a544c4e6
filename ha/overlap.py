"""Whether a master's log is the one that ours was copied from: the end of ours is compared before anything follows it.

Offsets alone do not tell. A master whose machine died may have lost messages that its slave has, and once it has stored
enough others in their place, its log is the longer one again. So may be the log of another group. So a slave asks from
a little before its own end on. What comes first must be what it has; only then it goes on, and reports its end.

Where a recovery of either side made a damaged record void, and before it, both may differ.

The reference asks from its end on and appends whatever comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.ha.continuity import MismatchError
from understudy.ha.settings import ReplicatedLog
from understudy.ha.wire import Transfer
from understudy.store.walk import VOID_TOPIC

COMPARED_BYTES = 4096
"""More than the end of a message that tells it from all others: its times and its unique key."""
MOST_COMPARED_BYTES = 16 << 20
"""More than the zeros that fill a file: the largest message did not fit into it."""
PATIENCE_SECONDS = 3.0
"""A master that has sent nothing for so long, but says that it is there, has nothing more."""
_VOID = bytes([len(VOID_TOPIC)]) + VOID_TOPIC + b"\0\0"  # without properties


class Overlap:
    """The end of our log, as one connection is asked for it.

    Args:
        start: where the master was asked to begin.
        ours: our bytes from there to the end.

    Attributes:
        position: up to here the master's log is as ours.
        end: where our log ends.
    """

    def __init__(self, start: int, ours: bytes) -> None:
        self.position = start
        self.end = start + len(ours)
        self._ours = ours
        self._theirs = bytearray()

    def take(self, frames: Sequence[Transfer], waited_seconds: float) -> list[Transfer]:
        """Compare what came; return the frames that follow our end, at least one when all was compared.

        Args:
            frames: frames that arrived together, in order.
            waited_seconds: time since the master was asked.

        Raises:
            MismatchError: it sends something else, or has nothing more.
        """
        for number, frame in enumerate(frames):
            if frame.offset != self.position:
                raise self._mismatch(f"was asked from {self.position} on and sends from {frame.offset}")
            if not frame.body and waited_seconds > PATIENCE_SECONDS:
                raise self._mismatch(f"has nothing from {self.position} on: this slave is ahead of it")
            part = frame.body[: self.end - self.position]
            self._theirs += part
            self.position += len(part)
            if self.position == self.end:
                self._compare()
                return [Transfer(self.end, frame.body[len(part) :]), *frames[number + 1 :]]
        return []

    def _compare(self) -> None:
        ours, theirs = self._ours, self._theirs
        void_until = max(data.rfind(_VOID) + len(_VOID) if _VOID in data else 0 for data in (ours, theirs))
        if ours[void_until:] != theirs[void_until:]:
            differs = next(at for at in range(void_until, len(ours)) if theirs[at] != ours[at])
            raise self._mismatch(f"has other bytes at {self.end - len(ours) + differs}")

    def _mismatch(self, what: str) -> MismatchError:
        return MismatchError(
            f"our log ends at {self.end}, the master {what}: it lost messages that this slave has, or has another "
            "history. Nothing was written. Compare both logs; to follow this master, move this store away and start "
            "again"
        )


def end_of(log: ReplicatedLog, file_bytes: int, intact_from: int = 0) -> Overlap | None:
    """Return what to compare of *log*, which is not empty: the end of its last file that has bytes.

    A log that ends with a file mostly ends with the zeros that fill it. They are the same in every history, so what
    stands before them is compared as well.

    Args:
        log: ours.
        file_bytes: size of one file: of files before the last one the master may have nothing any more.
        intact_from: nothing from here on was lost and made void.

    Returns:
        The comparison; ``None`` for a log of one byte, or without anything intact at its end.
    """
    end = log.max_physical_offset
    # who asks from 0 is empty
    first = max((end - 1) // file_bytes * file_bytes, log.min_physical_offset, 1, min(intact_from, end))
    reach = COMPARED_BYTES
    while True:
        start = max(end - reach, first)
        ours = bytes(log.slice(start, end - start))
        if start == first or reach >= MOST_COMPARED_BYTES or len(ours.rstrip(b"\0")) >= COMPARED_BYTES:
            return Overlap(start, ours) if ours else None
        reach *= 2
