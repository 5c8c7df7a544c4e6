"""Which log an offset was made in: a small value that tells up to where two replicas' logs are the same. Pure.

A log has **lives**. A new one begins when a master may go on with other messages than those its slaves were given: at
its first start, and at a start that may have lost the end of the log. A life has an id of its own and the physical
offset at which it began. A slave has the history of the master whose log it was seen to continue.

* Two histories are the same up to their newest common life, and within it up to where either began the next one.
* An offset counts in another log up to that common point. What lies beyond was made in messages that this log never had
  or has lost, and their offsets belong to others by now.
* A replica without a history (the reference's) tells nothing; then bytes must be compared.

Epochs of a group that a controller leads are the same kind of value: id is the epoch, the start is where it began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

LIVES_MAX = 50
"""Newest lives that are remembered; what was made in older ones counts no more."""


@attrs.frozen
class Life:
    """From one uncertain start of a master to the next.

    Attributes:
        id: of this life; no other has it.
        start: physical offset at which it began (bytes).
    """

    id: str
    start: int


@attrs.frozen
class Parting:
    """Where two histories part.

    Attributes:
        at: physical offset up to which both logs are the same (bytes), infinity as long as they have not parted.
        own_goes_on, other_goes_on: which of them has a life beyond the common ones.
    """

    at: float
    own_goes_on: bool
    other_goes_on: bool


@attrs.frozen
class LogHistory:
    """The lives of one log, in order.

    Attributes:
        lives: empty while nothing is known.
    """

    lives: tuple[Life, ...] = ()

    def begun(self, life_id: str, start: int) -> LogHistory:
        """Return the history after a new life began at *start*; lives that lay behind it are lost."""
        kept = tuple(life for life in self.lives if life.start < start)
        return LogHistory((*kept, Life(life_id, start))[-LIVES_MAX:])

    def within(self, end: int) -> LogHistory:
        """Return the lives of which a log that ends at physical offset *end* has bytes."""
        return LogHistory(tuple(life for life in self.lives if life.start < end))

    def parting(self, other: LogHistory) -> Parting | None:
        """Return where *other* parts from this one; ``None`` when they have no life in common."""
        known = {life: number for number, life in enumerate(self.lives)}
        for number in range(len(other.lives) - 1, -1, -1):
            own = known.get(other.lives[number])
            if own is not None:
                nexts = (*self.lives[own + 1 : own + 2], *other.lives[number + 1 : number + 2])
                at = min((life.start for life in nexts), default=math.inf)
                return Parting(at, own + 1 < len(self.lives), number + 1 < len(other.lives))
        return None

    def to_json(self) -> list[dict[str, Any]]:
        """Return the lives as they are saved."""
        return [{"id": life.id, "start": life.start} for life in self.lives]

    @classmethod
    def from_json(cls, value: object) -> LogHistory:
        """Read what :meth:`to_json` returned. Raises ``ValueError`` when it is no such list."""
        if not isinstance(value, list):
            raise ValueError("lives: a list is expected")
        try:
            return cls(tuple(Life(str(each["id"]), int(each["start"])) for each in value))
        except (KeyError, TypeError, ValueError):
            raise ValueError("lives: each needs an id and a whole number as start") from None

    def to_text(self) -> str:
        """Return the lives as one header field, ``id@start`` each."""
        return ",".join(f"{life.id}@{life.start}" for life in self.lives)

    @classmethod
    def from_text(cls, text: str) -> LogHistory:
        """Read what :meth:`to_text` returned. Raises ``ValueError`` when it is none."""
        lives = []
        for part in filter(None, text.split(",")):
            life_id, separator, start = part.rpartition("@")
            if not separator or not start.isdecimal():
                raise ValueError(f"log history: {part!r} is no id@start")
            lives.append(Life(life_id, int(start)))
        return cls(tuple(lives[-LIVES_MAX:]))


def history_of(ext: Mapping[str, str]) -> LogHistory:
    """Return the history in the header of an answer, an empty one of a replica that tells none.

    Raises:
        ValueError: it cannot be read.
    """
    return LogHistory.from_text(ext.get(LOG_HISTORY, ""))


LOG_HISTORY = "logHistory"
"""Header field of ours in answers about progress: the history of the log that the offsets were made in."""
