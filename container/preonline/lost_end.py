"""The end of its log that a master lost with the power, and who of its slaves may give it back. Pure.

What ``flushDiskType=ASYNC_FLUSH`` had not written is gone from the master, but slaves have copied it. As long as the
master has stored nothing since, its log is the beginning of theirs, and it may go on with their bytes. That it is the
beginning is told by bytes: what a slave has where the master's log ends must be what the master has there, as for a
slave that copies (:mod:`understudy.ha.overlap`). A master that has lost everything has no bytes to compare; then both
logs must have a life in common, and the slave must not have slept through a later one.

Of several slaves the one that has most is asked first. What another one has beyond follows if it goes on in the same
way.

A slave that was away while its master died takes what it lacks in the same way. One that has nothing begins where the
other one's log does. Where it knows of a life that the other one does not, it takes what comes before that life. Who
of two slaves serves better is told by the lives of which their logs have bytes, then by how far they go: a history says
that a life existed, not that anything of it is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs

from understudy.broker.log_history import LogHistory
from understudy.container.preonline.handshake import Member
from understudy.ha.continuity import MismatchError
from understudy.ha.overlap import Overlap
from understudy.ha.wire import Transfer


@attrs.frozen
class Reach:
    """How far a slave's log goes.

    Attributes:
        member: the slave.
        end: byte after the last one of its log.
    """

    member: Member
    end: int


def longest_first(own_end: int, reaches: Iterable[Reach]) -> list[Reach]:
    """Return those that go beyond *own_end* (bytes): the one that goes furthest first, of equals the smallest id."""
    beyond = (reach for reach in reaches if reach.end > own_end)
    return sorted(beyond, key=lambda reach: (-reach.end, reach.member))


def doubt(own: LogHistory, own_end: int, theirs: LogHistory, *, compared: bool, begins: bool = False) -> str:
    """Return why bytes of a slave may not follow a broker's log, as far as histories tell; ``""`` when they may.

    Args:
        own: history of the broker's log.
        own_end: where it ends (bytes).
        theirs: history of the slave's log.
        compared: bytes before *own_end* will be compared; they tell more than histories about what is before it.
        begins: the broker is a slave and has nothing: without a history it is new, and where it knows of no life that
            the other one does not, it may begin anywhere.
    """
    parting = own.parting(theirs)
    if parting is None:
        known = compared or (begins and not own.lives)
        return "" if known else "nothing of this broker's log is left, and the slave's may be another one"
    if parting.own_goes_on and parting.at == own_end:
        return f"this broker has had a life from {parting.at:.0f} on that the slave does not know"
    if not compared and parting.at < own_end and not (begins and not parting.own_goes_on):
        return f"its log is another one from {parting.at:.0f} on"
    return ""


def most_of(own: LogHistory, own_end: int, theirs: LogHistory) -> float:
    """Return up to where (bytes) what a slave has may follow a broker's log: to where that had a life of its own.

    Args:
        own: history of the broker's log, the lives included of which no byte is left.
        own_end: where it ends (bytes).
        theirs: history of the slave's log.
    """
    parting = own.parting(theirs)
    return parting.at if parting is not None and parting.own_goes_on and parting.at > own_end else math.inf


def later_life(own: LogHistory, theirs: LogHistory) -> int | None:
    """Return where (bytes) the other log goes on with a later life than ours; both histories are of what is there."""
    parting = own.parting(theirs)
    goes_on = parting is not None and parting.other_goes_on and not parting.own_goes_on
    return int(parting.at) if parting is not None and goes_on else None


def goes_on_ours(own: LogHistory, theirs: LogHistory, *, empty: bool, mismatched: bool) -> bool:
    """Return whether the log of a slave, longer than a broker's, is that one continued, as far as histories tell.

    Args:
        own: history of the broker's log, as far as there are bytes of it: what is lost serves nobody.
        theirs: history of the slave's log.
        empty: the broker has nothing.
        mismatched: bytes before the end of the broker's log are others: it goes on from an earlier place, or nowhere.
    """
    parting = own.parting(theirs)
    if parting is None:
        return empty and not own.lives
    return not parting.own_goes_on and (parting.other_goes_on or not mismatched)


class LostEnd:
    """What one slave gives, in order: first what is compared, then what follows.

    Args:
        own_end: where the master's log ends (bytes).
        overlap: the end of it, to be compared; ``None``: there is nothing that can be.

    Attributes:
        position: where to ask next.
    """

    def __init__(self, own_end: int, overlap: Overlap | None) -> None:
        self._own_end = own_end
        self._overlap = overlap
        self.position = own_end if overlap is None else overlap.position

    def take(self, part: bytes | memoryview) -> Sequence[Transfer]:
        """Take bytes from :attr:`position` on; return what may be appended.

        Raises:
            MismatchError: the slave has other bytes where the master's log ends; the message says which.
        """
        frames = [Transfer(self.position, memoryview(part))]
        self.position += len(part)
        if self._overlap is None:
            return frames
        try:
            frames = self._overlap.take(frames, 0.0)
        except MismatchError:
            raise MismatchError(f"it has other bytes before {self._own_end}, where this master's log ends") from None
        if frames:
            self._overlap = None
        return [frame for frame in frames if frame.body]
