"""Which half messages of one half queue are decided, and how far the queue is done. Pure.

The laws:

* Everything before :attr:`~HalfLedger.done` is decided, given up or stored anew, and is not looked at again.
* The first decision about a half message counts, whichever of its copies it names.
* To be done is not to be decided: what was given up may be committed still, so what became of one is kept apart
  (:class:`Outcome`) as long as ``done`` has not passed it.
* ``done`` passes no half message whose decision an op message does not name yet, or whose copy is not stored.
* An op message is needed as long as it names a half message that ``done`` has not passed.
* An op message speaks of half messages that lie before it in the log. One behind it got the queue offset of another one
  that was lost; nothing is decided about it. So what was read of op messages only claims that something was decided,
  until a half message is seen at that offset.

Source: TransactionalMessageServiceImpl.java (check, fillOpRemoveMap, calculateOpOffset).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from understudy.broker.transactions.half import Half, Identity
from understudy.format.record import Record

UNWRITTEN = -1


class Outcome(Enum):
    """What became of a half message about which nothing is left to be done."""

    DECIDED = "its producer decided"
    GIVEN_UP = "nobody decided in time; it may be committed still"
    UNKNOWN = "it was passed, or stored anew: the log may tell"


class HalfLedger:
    """One half queue.

    Args:
        done: queue offset before which everything is done.
        op_done: offset in the op queue before which nothing is needed any more.
        passed: queue offset and place in the log (bytes); a half message before both is done, though the queue ended
            before it when this began: it was lost, and is back.

    Attributes:
        done: see above.
    """

    def __init__(self, done: int, op_done: int, passed: tuple[int, int] = (0, 0)) -> None:
        self.done = done
        self._passed = passed
        self._op_done = op_done
        self._op_end = op_done
        self._decided: dict[int, int] = {}  # half offset to the op message that says so
        self._named: dict[int, int] = {}  # op offset to the number of half messages it names that are not passed
        self._claims: dict[int, int] = {}  # as _decided, of what was not seen yet
        self._positions: dict[int, int] = {}  # op offset to where it lies in the log, of those that claim something
        self._newest: dict[Identity, int] = {}  # of those that were stored anew
        self._renewed: dict[int, Identity] = {}  # half offset of the newest copy to its identity
        self._outcomes: dict[int, Outcome] = {}  # of those in _decided that nobody decided, by their half offset

    @property
    def op_done(self) -> int:
        """Offset in the op queue before which no op message is needed any more."""
        return min(self._named, default=self._op_end)

    @property
    def undone(self) -> int:
        """How many decisions are remembered."""
        return len(self._decided)

    @property
    def moves(self) -> bool:
        """Whether an op message names the first half message that is not passed, so that it can be."""
        return self._decided.get(self.done, UNWRITTEN) != UNWRITTEN

    def is_decided(self, offset: int) -> bool:
        """Return whether nothing is left to be done about the half message at *offset*."""
        return offset < self.done or offset in self._decided

    def has_decided(self, record: Record) -> bool:
        """Return whether nothing is left to be done about the half message *record*, which is in its place."""
        if self._claims:
            self._see(record.queue_offset, record.physical_offset)
        if record.queue_offset < self._passed[0] and record.physical_offset < self._passed[1]:
            self._end_undecided(record.queue_offset, Outcome.UNKNOWN)
        return self.is_decided(record.queue_offset)

    def newest(self, identity: Identity | None) -> int | None:
        """Return the queue offset of the newest copy of a half message; ``None`` when there is none but the first."""
        return None if identity is None else self._newest.get(identity)

    def outcome(self, offset: int) -> Outcome:
        """Return what became of the half message at *offset*, about which nothing is left to be done."""
        return Outcome.UNKNOWN if offset < self.done else self._outcomes.get(offset, Outcome.DECIDED)

    def decide(self, offset: int) -> None:
        """Note the decision about the half message at *offset*, of which no op message tells yet."""
        self._decided.setdefault(offset, UNWRITTEN)
        self._outcomes.pop(offset, None)

    def give_up(self, offset: int) -> None:
        """Note that nobody decides about the half message at *offset*."""
        self._end_undecided(offset, Outcome.GIVEN_UP)

    def _end_undecided(self, offset: int, outcome: Outcome) -> None:
        if offset not in self._decided:
            self._decided[offset] = UNWRITTEN
            self._outcomes[offset] = outcome

    def op_message(self, op_offset: int, halves: Iterable[int]) -> None:
        """Take note of the op message at *op_offset*, which names *halves*."""
        self._op_end = max(self._op_end, op_offset + 1)
        count = 0
        for offset in halves:
            if offset >= self.done and self._decided.get(offset, UNWRITTEN) == UNWRITTEN:
                self._decided[offset] = op_offset
                count += 1
        if count:
            self._named[op_offset] = count

    def claim(self, op_offset: int, position: int, halves: Iterable[int]) -> None:
        """Take note of an op message that was read; of several that name the same half message the last one counts.

        Args:
            op_offset: its offset in the op queue.
            position: where it lies in the log (bytes).
            halves: what it names.
        """
        self._op_end = max(self._op_end, op_offset + 1)
        for offset in halves:
            if offset >= self.done:
                self._forget(self._claims.get(offset, UNWRITTEN))
                self._claims[offset] = op_offset
                self._named[op_offset] = self._named.get(op_offset, 0) + 1
                self._positions[op_offset] = position

    def believe(self, end: int) -> None:
        """Count what is claimed about half messages before offset *end* of which nothing is to be seen.

        Their places are theirs alone: if they come back, then into these.
        """
        for offset in [each for each in self._claims if each < end]:
            self._decided.setdefault(offset, self._claims.pop(offset))
        self._positions = {each: self._positions[each] for each in set(self._claims.values())}

    def _see(self, offset: int, position: int) -> None:
        """Find out whether what is claimed about *offset* is meant for the half message at byte *position*."""
        op_offset = self._claims.pop(offset, UNWRITTEN)
        if op_offset != UNWRITTEN and position < self._positions[op_offset]:
            self._decided[offset] = op_offset
        else:
            self._forget(op_offset)

    def _forget(self, op_offset: int) -> None:
        """Count one half message less that the op message at *op_offset* names."""
        if op_offset != UNWRITTEN:
            self._named[op_offset] -= 1
            if not self._named[op_offset]:
                del self._named[op_offset]

    def renew(self, half: Half, offset: int) -> None:
        """Note that *half* was stored anew at *offset*: its old place is done."""
        self._end_undecided(half.offset, Outcome.UNKNOWN)
        self.copied(half, offset)

    def copied(self, half: Half, offset: int) -> None:
        """Note that the newest copy of *half* stands at *offset*."""
        self._forget(self._claims.pop(offset, UNWRITTEN))
        identity = half.identity
        if identity is not None:
            before = self._newest.get(identity)
            if before is not None:
                del self._renewed[before]
            self._newest[identity] = offset
            self._renewed[offset] = identity

    def advance(self, offset: int) -> None:
        """Move :attr:`done` forward to *offset*."""
        while self.done < offset:
            self._forget(self._decided.pop(self.done, UNWRITTEN))
            if self._outcomes:
                self._outcomes.pop(self.done, None)
            if self._claims:
                self._forget(self._claims.pop(self.done, UNWRITTEN))
            identity = self._renewed.pop(self.done, None)
            if identity is not None:
                del self._newest[identity]
            self.done += 1
