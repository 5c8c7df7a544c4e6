"""What a slave that acts knows of pops and its log cannot hold, until its master has it. Pure.

A slave writes nothing into its log. What it hands out, what is acknowledged to it, and what of both comes due in its
copy of the timer stands in this table. It is saved, copied by the other slaves, and taken home by the master that
returns, which writes everything into its log: the receipts that clients hold lead where they did.

The laws:

* A check point stays until each of its messages is acknowledged or put into a retry topic elsewhere. What was handed
  out here and is acknowledged leaves no trace: no log speaks of it.
* An acknowledgement of what the master handed out stays until the master has it, for the check point is in its log. So
  does, as an acknowledgement, that one of its messages was put into a retry topic: the master may have taken the check
  point out of its timer before it died, and would put the message into one, too.
* Not for ever, though: an acknowledgement of one that cannot have come out of the master's timer (:attr:`since_ms`) is
  forgotten when the own timer has had it out and nothing is open of it, for with that timer's progress the master takes
  over that it is done. One of the reference does not: for it all are kept. So the table holds what is open, and what
  was acknowledged about the time when the master died.
* Each change has a number of the broker that made it (:attr:`ActingPops.changes`, numbers by broker id). Who has seen
  at least the changes of the other has the newer table, which counts whole. Two tables neither of which has seen the
  other, because a slave died before its last change was copied, or two acted at once, are put together. Each check
  point knows the change that made it: who has seen that change and has no such check point is done with it.

The reference's slave sends its check points to another master instead. A master that returned knows nothing of them
then, and what is acknowledged to it comes back all the same. A returning master of the reference does not ask for the
table: it gets it entry by entry, as messages of its revive topic (:mod:`understudy.broker.replicated.acting_pops`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from understudy.broker.merge import Limit
from understudy.broker.pop.acting_rows import Homeward, KnownAck, OpenPoint, RowKey, ack_of, read_acks, read_points
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint, Entry, Key
from understudy.broker.pop.stepped_clock import ClockSteps
from understudy.format.numbers import whole_number
from understudy.format.receipts import LONGEST_MS
from understudy.store.status import PutRejected, PutStatus

MOST = 20_000
"""Check points, and check points with acknowledgements: beyond it consumers bring nothing more. What comes out of the
own timer is never refused, for that would stop all that waits in it: the log says how many check points that can be."""
MOST_LOGGED_ACKS = MOST + MOST // 2
"""Check points with acknowledgements: beyond it those that come out of the timer are not kept for the master."""
CLOCKS_DIFFER_MS = 5_000
"""What was due so long after a slave began to act, its master has not had out of its timer: it was silent before."""
NEVER = float("inf")


class ActingPops:
    """The table of one broker.

    Args:
        own_name: name of its group of brokers.
        own_id: returns its id.
        now_ms: wall clock in milliseconds.
        steps: of that clock.

    Attributes:
        points: the check points by their key, then by how often they went around again.
        acks: what was acknowledged, by the key of the check point.
        changes: the number of the newest change of each broker, by its id, that this table has seen.
        on_change: called after every change.
        since_ms: wall time since when this broker acts; ``None`` while it does not.
        master_asks: the master was seen to know of this table, and so takes over how far the timer is, too.
    """

    def __init__(self, own_name: str, own_id: Callable[[], int], now_ms: Callable[[], int], steps: ClockSteps) -> None:
        self._own_name = own_name
        self._own_id = own_id
        self._now_ms = now_ms
        self._steps = steps
        self.points: dict[Key, dict[int, OpenPoint]] = {}
        self.acks: dict[Key, KnownAck] = {}
        self.changes: dict[int, int] = {}
        self._cut = set[RowKey]()
        self.on_change: list[Callable[[], None]] = []
        self.since_ms: int | None = None
        self.master_asks = False

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not (self.points or self.acks)

    def __len__(self) -> int:
        return len(self.acks) + sum(map(len, self.points.values()))

    @property
    def revision(self) -> str:
        """What tells one state of the table from another."""
        return ",".join(f"{broker_id}:{number}" for broker_id, number in sorted(self.changes.items()))

    # --- the acting slave --------------------------------------------------------------------------------------

    def add(self, entry: Entry, queue: int, revive_ms: int, *, logged: bool) -> None:
        """Take a check point or acknowledgements.

        Args:
            entry: one of them.
            queue: of the revive topic.
            revive_ms: wall time when it is due in that queue.
            logged: it came out of the log.

        Raises:
            PutRejected: it came from a consumer, and too much waits already.
        """
        if isinstance(entry, CheckPoint):
            self._add_point(entry, queue, logged)
        else:
            self._add_ack(entry, queue, revive_ms, logged)
        self.changed()

    def _add_point(self, point: CheckPoint, queue: int, logged: bool) -> None:
        known, acked = self.points.get(point.key, {}).get(point.re_puts), self.acks.get(point.key)
        if known is None and not logged and len(self.points) >= MOST:
            remark = f"{len(self.points)} check points wait for their master already"
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, remark)
        for offset in () if acked is None else acked.offsets:
            point = point.acked(offset)
        if known is not None:
            point = attrs.evolve(point, done=point.done | known.point.done)
            logged = logged or known.logged
        made = (self._own_id(), self._next()) if known is None else known.made
        self._put(OpenPoint(point, queue, logged, made))
        if acked is not None:
            self._keep_ack(point.key, (), queue, acked.revive_ms, logged)

    def _add_ack(self, ack: Ack, queue: int, revive_ms: int, logged: bool) -> None:
        rows = list(self.points.get(ack.key, {}).values())
        for known in rows:
            point = known.point
            for offset in ack.offsets:
                point = point.acked(offset)
            self._put(attrs.evolve(known, point=point))
        if not all(known.logged for known in rows):
            return
        if ack.key not in self.acks and len(self.acks) >= (MOST_LOGGED_ACKS if logged else MOST):
            if logged:
                return  # the master may put a message into a retry topic once more
            remark = f"{len(self.acks)} acknowledgements wait for their master already"
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, remark)
        self._keep_ack(ack.key, ack.offsets, queue, revive_ms, bool(rows))

    def _keep_ack(self, key: Key, offsets: Iterable[int], queue: int, revive_ms: int, came_out: bool) -> None:
        """Keep acknowledgements of a check point of the log, which *came_out* of the own timer."""
        before = self.acks.get(key)
        known = frozenset(offsets) if before is None else before.offsets | frozenset(offsets)
        settled = (came_out and key not in self.points) or (before is not None and before.settled)
        self.acks[key] = KnownAck(known, queue, revive_ms, settled)

    def settled(self, point: CheckPoint, offset: int) -> None:
        """Take note that a message of *point* was put into a retry topic, or needs not to be."""
        known = self.points.get(point.key, {}).get(point.re_puts)
        if known is not None:
            self._put(attrs.evolve(known, point=known.point.acked(offset)))
            # As many as were out when the master died, at most; those of consumers, which are answered, go first.
            fits = point.key in self.acks or len(self.acks) < MOST // 2
            if known.logged and fits and not self._goes_around(point.key, offset):
                self._keep_ack(point.key, (offset,), known.queue, point.revive_ms, True)
            self.changed()

    def forget_needless(self, out_before_ms: int) -> None:
        """Forget acknowledgements of which neither the master nor this broker has any use.

        Args:
            out_before_ms: wall time; what was due before has come out of the own timer, which will not have it again.
        """
        if self.since_ms is None or not self.master_asks:
            return
        first_ms = self.since_ms + CLOCKS_DIFFER_MS + AHEAD_MS
        needless = [
            key
            for key, known in self.acks.items()
            if known.settled and first_ms < known.revive_ms < out_before_ms and key not in self.points
        ]
        for key in needless:
            del self.acks[key]
        if needless:
            self.changed()

    def _goes_around(self, key: Key, offset: int) -> bool:
        """Return whether a message still waits, with a check point that has the key of the one that was worked off."""
        return any(offset in each.point.open_offsets for each in self.points.get(key, {}).values())

    def drop(self, point: CheckPoint) -> None:
        """Forget *point*: nobody wants its messages any more."""
        known = self.points.get(point.key, {}).get(point.re_puts)
        if known is not None:
            self._put(attrs.evolve(known, point=attrs.evolve(point, offsets=())))
            self.changed()

    def _put(self, row: OpenPoint) -> None:
        """Keep *row* in the place of what is known of its check point, unless nothing of it is open."""
        key = row.point.key
        if row.point.open_offsets:
            self.points[key] = {**self.points.get(key, {}), row.point.re_puts: row}
            self._cut.discard(row.row_key)
        else:
            self._remove(row.row_key)

    def _remove(self, row_key: RowKey) -> None:
        key, re_puts = row_key
        rows = self.points.get(key, {})
        rows.pop(re_puts, None)
        if not rows:
            self.points.pop(key, None)

    def rows(self) -> Iterator[OpenPoint]:
        """Return every check point."""
        return (row for rows in self.points.values() for row in rows.values())

    def ripe(self, before_ms: float, limit: int, but: Collection[RowKey] = ()) -> list[OpenPoint]:
        """Return check points whose time is over, the first ones first.

        Args:
            before_ms: their time was before this.
            limit: how many at the most.
            but: not these.
        """
        found = (
            row
            for key, rows in self.points.items()
            for re_puts, row in rows.items()
            if self._due_ms(row) < before_ms and (not but or (key, re_puts) not in but)
        )
        return heapq.nsmallest(limit, found, key=self._due_ms)

    def due_ms(self, group: str | None = None) -> float:
        """Return the wall time of the first check point, of *group* alone if it is named."""
        rows = (row for row in self.rows() if group in (None, row.point.group))
        return min(map(self._due_ms, rows), default=NEVER)

    def _due_ms(self, row: OpenPoint) -> int:
        return self._steps.due_ms(row.point.pop_ms, row.point.revive_ms)

    # --- other replicas ----------------------------------------------------------------------------------------

    def join(self, other: ActingPops) -> None:
        """Know what *other* knows, too: the newer table counts, or both when neither is newer."""
        if _has_seen(self.changes, other.changes):
            return
        if _has_seen(other.changes, self.changes):
            self.points = {key: dict(rows) for key, rows in other.points.items()}
            self.acks = dict(other.acks)
        else:
            self._merge(other)
        self._cut |= other._cut  # it has seen their changes, and is not done with them either
        for broker_id, number in other.changes.items():
            self.changes[broker_id] = max(number, self.changes.get(broker_id, 0))
        self.tell()

    def _merge(self, other: ActingPops) -> None:
        """Put together what two know, neither of whom has seen all changes of the other."""
        for own in list(self.rows()):
            if other.is_done_with(own):
                self._remove(own.row_key)
        for theirs in list(other.rows()):
            known = self.points.get(theirs.point.key, {}).get(theirs.point.re_puts)
            if known is None and self.is_done_with(theirs):
                continue
            done = theirs.point.done | (0 if known is None else known.point.done)
            self._put(attrs.evolve(theirs, point=attrs.evolve(theirs.point, done=done)))
        for key, ack in other.acks.items():
            before = self.acks.get(key)
            if before is not None:
                settled = ack.settled and before.settled
                ack = attrs.evolve(ack, offsets=ack.offsets | before.offsets, settled=settled)
            self.acks[key] = ack
        for key, ack in self.acks.items():
            for row in list(self.points.get(key, {}).values()):
                point = row.point
                for offset in ack.offsets:
                    point = point.acked(offset)
                self._put(attrs.evolve(row, point=point))

    def is_done_with(self, row: OpenPoint) -> bool:
        """Return whether nothing of *row* is open as this table knows it: it has had it, and has it no more."""
        if row.made is None or row.row_key in self._cut or row.point.re_puts in self.points.get(row.point.key, {}):
            return False
        broker_id, number = row.made
        return self.changes.get(broker_id, 0) >= number

    def cut(self, limit: Limit) -> None:
        """Leave out messages that the log does not have; of a table that was just read, so that it is no change.

        Args:
            limit: ``topic@group`` and queue id to the first offset that is left out, ``None`` for none.
        """
        for row in list(self.rows()):
            point = row.point
            own = point.broker_name == self._own_name
            most = limit(f"{point.topic}@{point.group}", point.queue_id) if own else None
            if most is not None:
                for offset in point.open_offsets:
                    point = point.acked(offset) if offset >= most else point
                self._put(attrs.evolve(row, point=point))
                if not point.open_offsets:
                    self._cut.add(row.row_key)

    def leave_logged(self) -> bool:
        """Leave out check points that the log has; of a table that was just read, so that it is no change yet.

        One that goes around again stays: whoever handed it out first, the log may not have it.

        Returns:
            Whether there was one: who joins the table must have its own counted as changed then.
        """
        logged = [row for row in self.rows() if row.logged and not row.point.re_puts]
        for row in logged:
            self._remove(row.row_key)
            self._cut.add(row.row_key)
        return bool(logged)

    @property
    def acted_last(self) -> bool:
        """Whether nobody has changed the table after this broker: it is the one that acted last."""
        return bool(self.changes) and max(self.changes, key=self.changes.__getitem__) == self._own_id()

    def forget_acks(self, key: Key, known: KnownAck) -> None:
        """Forget the acknowledgements of a check point, unless more than *known* has come: the master has them."""
        if self.acks.get(key) == known:
            del self.acks[key]
            self.changed()

    def homeward(self) -> Iterator[Homeward]:
        """Return everything, as it goes into a log; the table may change meanwhile.

        Acknowledgements come before the check points, which meet them there.
        """
        for key in list(self.acks):
            if (known := self.acks.get(key)) is not None:
                yield Homeward(ack_of(key, known), known.queue, known.revive_ms, known)
        for before in list(self.rows()):
            row = self.points.get(before.point.key, {}).get(before.point.re_puts)
            if row is not None:
                yield Homeward(row.point, row.queue, row.point.revive_ms - AHEAD_MS, row)

    def written(self, each: Homeward) -> None:
        """Forget what is in the log now, unless it has changed; others hear of it with :meth:`tell`."""
        if isinstance(each.row, OpenPoint):
            if self.points.get(each.entry.key, {}).get(each.row.point.re_puts) == each.row:
                self._put(attrs.evolve(each.row, point=attrs.evolve(each.row.point, offsets=())))
        elif self.acks.get(each.entry.key) == each.row:
            del self.acks[each.entry.key]
        self._count()

    def tell(self) -> None:
        """Have it saved and copied."""
        for listener in self.on_change:
            listener()

    def changed(self) -> None:
        """Give the table a new number, and have it saved and copied."""
        self._count()
        self.tell()

    def _count(self) -> None:
        self.changes[self._own_id()] = self._next()

    def _next(self) -> int:
        """Return the number of the next change, or a smaller one that no change has had."""
        # Of the clock, so that a broker that lost its disk does not begin with numbers others have seen.
        return max(self.changes.get(self._own_id(), 0) + 1, self._now_ms())

    # --- files and answers -------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, and of an answer."""
        return self.content()()

    def content(self) -> Callable[[], dict[str, Any]]:
        """Return what makes :meth:`to_json` of the table as it is now, in any thread."""
        changes, points, acks = dict(self.changes), list(self.rows()), list(self.acks.items())
        return lambda: {
            "changes": {str(broker_id): number for broker_id, number in changes.items()},
            "points": [each.to_json() for each in points],
            "acks": [each.to_json(key) for key, each in acks],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Have the content of a file or an answer, and nothing else. Raises ``ValueError`` naming what is wrong."""
        changes = value.get("changes", {})
        if not isinstance(changes, Mapping):
            raise ValueError("changes is no JSON object")
        points, acks = read_points(value, self._own_name), read_acks(value, self._own_name)
        self.changes = {
            whole_number(broker_id, "changes", 0, LONGEST_MS): whole_number(number, "changes", 0, LONGEST_MS)
            for broker_id, number in changes.items()
        }
        self.points, self.acks = points, acks


def _has_seen(changes: Mapping[int, int], others: Mapping[int, int]) -> bool:
    return all(changes.get(broker_id, 0) >= number for broker_id, number in others.items())
