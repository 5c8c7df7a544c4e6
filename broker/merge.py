"""Which offset is right when two replicas of a group disagree: queue by queue, never table by table.

The reference compares two version numbers and lets one whole table win, so that the other side's commits are lost. Here
the rules are:

* A commit only ever moves a group forward, so of two offsets of one queue the larger one is right.
* A *deliberate reset* (an administrator's) may go back. Each reset carries a stamp; a value under a newer stamp is
  right whatever its offset, because it was committed by somebody who knew of the reset.
* What only one side knows is kept. Nothing is deleted by a merge.

So each queue's value is the pair (stamp of its last reset, offset), and a merge takes the larger pair. That makes it
commutative, associative and idempotent: any number of replicas may be merged in any order, as often as one likes.
A replica that knows no stamps (the reference's) has stamp 0 everywhere, and only its larger offsets count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class StampedOffset(NamedTuple):
    """How far a group is in one queue.

    Attributes:
        reset_stamp: grows with each deliberate reset of the queue; 0 when there was none.
        offset: the committed queue offset.
    """

    reset_stamp: int
    offset: int


class Reason(Enum):
    """Why a value was chosen; the text is for people."""

    EQUAL = "both agree"
    OWN_AHEAD = "the master had committed further before it went away"
    OTHER_AHEAD = "the group went on at the acting slave"
    OWN_RESET = "a deliberate reset that only the master knows"
    OTHER_RESET = "a deliberate reset made at the acting slave"
    ONLY_OWN = "only the master knows this queue"
    ONLY_OTHER = "only the acting slave knows this queue"
    MOVED = "the group has moved at the master since it came back"
    OTHER_HISTORY = "the slave's offset was made in a log that parts from this one: only what both have counts"
    BEYOND_LOG = "the slave's offset lies behind the end of the master's queue: the master's log is shorter"


class Row(NamedTuple):
    """One queue of one group in the report.

    Attributes:
        key: ``topic@group``; for delay progress the level's name.
        queue_id: the queue.
        own: the returning master's offset, ``None`` when it has none.
        other: the slave's offset, ``None`` when it has none.
        merged: the offset from now on.
        reason: why.
    """

    key: str
    queue_id: int
    own: StampedOffset | None
    other: StampedOffset | None
    merged: StampedOffset
    reason: Reason

    @property
    def changed(self) -> bool:
        """Whether the master's value was replaced."""
        return self.own != self.merged


Table = Mapping[str, Mapping[int, StampedOffset]]
Limit = Callable[[str, int], int | None]
"""Key and queue to the offset up to which another replica's offsets count, ``None`` for all of them."""


def unlimited(key: str, queue_id: int) -> None:
    """Let every offset count; a :data:`Limit`."""


def merge(own: Table, other: Table, limit: Limit = unlimited) -> list[Row]:
    """Merge two replicas' offsets.

    Args:
        own: the returning master's, as recovered from its disk.
        other: a slave's, as it is now.
        limit: up to where the slave's offsets count; asked only where the slave is further.

    Returns:
        One row for each queue that either side knows, in order of key and queue.
    """
    rows: list[Row] = []
    for key in sorted(own.keys() | other.keys()):
        mine, theirs = own.get(key, {}), other.get(key, {})
        for queue in sorted(mine.keys() | theirs.keys()):
            row = _decide(key, queue, mine.get(queue), theirs.get(queue))
            if row.merged is not row.own:
                most = limit(key, queue)
                if most is not None and row.merged.offset > most:
                    row = _cut(row, most)
            rows.append(row)
    return rows


def _cut(row: Row, most: int) -> Row:
    """Return *row* as it is when the other side's offset counts up to *most* only."""
    assert row.other is not None
    cut = StampedOffset(row.other.reset_stamp, most)
    merged = cut if row.own is None else max(row.own, cut)
    return row._replace(merged=merged, reason=Reason.OTHER_HISTORY)


def _decide(key: str, queue_id: int, own: StampedOffset | None, other: StampedOffset | None) -> Row:
    if own is None or other is None:
        known = own if own is not None else other
        assert known is not None
        return Row(key, queue_id, own, other, known, Reason.ONLY_OWN if other is None else Reason.ONLY_OTHER)
    if own == other:
        return Row(key, queue_id, own, other, own, Reason.EQUAL)
    merged = max(own, other)
    if own.reset_stamp != other.reset_stamp:
        reason = Reason.OWN_RESET if merged is own else Reason.OTHER_RESET
    else:
        reason = Reason.OWN_AHEAD if merged is own else Reason.OTHER_AHEAD
    return Row(key, queue_id, own, other, merged, reason)


def within(rows: Sequence[Row], end_of: Callable[[str, int], int]) -> list[Row]:
    """Cut offsets that lie behind the end of the master's own queues.

    Needed when the slave's log is longer: messages that the master lost were consumed there, and the master will give
    their offsets to other messages. A group that stood behind the end would skip those.

    Args:
        rows: what was merged.
        end_of: key and queue to the offset that the master's next message will get.
    """
    found = []
    for row in rows:
        end = end_of(row.key, row.queue_id)
        if row.merged.offset > end:
            capped = StampedOffset(row.merged.reset_stamp, end)
            row = Row(row.key, row.queue_id, row.own, row.other, capped, Reason.BEYOND_LOG)
        found.append(row)
    return found


def up_to_date(rows: Sequence[Row], own: Table) -> list[Row]:
    """Merge once more where the master's own offset has changed since *rows* were made: clients commit all the time.

    Args:
        rows: what was merged.
        own: the master's offsets as they are now.

    Returns:
        Rows without those of queues whose offsets were removed meanwhile.
    """
    found = []
    for row in rows:
        now = own.get(row.key, {}).get(row.queue_id)
        if now == row.own:
            found.append(row)
        elif now is not None:
            merged = max(now, row.merged)
            reason = Reason.MOVED if merged is now else row.reason
            found.append(row._replace(own=now, merged=merged, reason=reason))
    return found


def unmoved(rows: Sequence[Row], before: Table) -> list[Row]:
    """Keep the master's own offset wherever it is another one than in *before*.

    Needed when the master serves already: whoever moved a group there, forward or back, knew better than a slave that
    nobody reached.

    Args:
        rows: what was merged.
        before: the master's offsets when it began to serve.

    Returns:
        Rows without those of queues whose offsets were removed meanwhile.
    """
    found = []
    for row in rows:
        if row.changed and row.own != before.get(row.key, {}).get(row.queue_id):
            if row.own is None:
                continue
            row = row._replace(merged=row.own, reason=Reason.MOVED)
        found.append(row)
    return found


def table_of(rows: Sequence[Row]) -> dict[str, dict[int, StampedOffset]]:
    """Return the merged offsets as a table."""
    table: dict[str, dict[int, StampedOffset]] = {}
    for row in rows:
        table.setdefault(row.key, {})[row.queue_id] = row.merged
    return table


def stamped(offsets: Mapping[str, Mapping[int, int]], stamps: Mapping[str, Mapping[int, int]] | None = None) -> Table:
    """Return offsets, and the stamps of their resets where there are any, together."""
    stamps = stamps or {}
    return {
        key: {queue: StampedOffset(stamps.get(key, {}).get(queue, 0), offset) for queue, offset in queues.items()}
        for key, queues in offsets.items()
    }
