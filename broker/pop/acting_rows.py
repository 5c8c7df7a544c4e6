"""What the table of a slave that acts has of one check point, and its form in a file (:mod:`acting`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.broker.pop.revive_log import (
    BATCH_ACK,
    CHECK_POINT,
    Ack,
    CheckPoint,
    Entry,
    Key,
    ReviveLogError,
    read_entry,
)
from understudy.format.json_values import list_of
from understudy.format.numbers import whole_number
from understudy.format.receipts import LONGEST_MS, ORDER_QUEUE

RowKey = tuple[Key, int]
"""Key of a check point, and how often it went around again."""


@attrs.frozen
class OpenPoint:
    """A check point that waits.

    Attributes:
        point: with everything done that is.
        queue: the queue of the revive topic that its receipts name.
        logged: the log of the group has it, too.
        made: with which change of the table: broker id, and number of the change; ``None``: an older version wrote it.
    """

    point: CheckPoint
    queue: int
    logged: bool
    made: tuple[int, int] | None = None

    @property
    def row_key(self) -> RowKey:
        """What no other row of the table has."""
        return self.point.key, self.point.re_puts

    def to_json(self) -> dict[str, Any]:
        """Return its form in a file, and in an answer."""
        value = {"queue": self.queue, "logged": self.logged, "point": self.point.body.decode()}
        return value if self.made is None else {**value, "made": list(self.made)}


@attrs.frozen
class KnownAck:
    """Acknowledgements of one check point of the log.

    Attributes:
        offsets: of the messages.
        queue: the queue of the revive topic that the receipt names.
        revive_ms: when the check point is due.
        settled: that has come out of the timer of the slave, which has nothing to do for it any more.
    """

    offsets: frozenset[int]
    queue: int
    revive_ms: int
    settled: bool = False

    def to_json(self, key: Key) -> dict[str, Any]:
        """Return the form in a file, and in an answer, of those of the check point *key*."""
        value = {"queue": self.queue, "reviveTime": self.revive_ms, "ack": ack_of(key, self).body.decode()}
        return {**value, "settled": True} if self.settled else value


@attrs.frozen
class Homeward:
    """What goes into the log of the broker that the receipts name.

    Attributes:
        entry: a check point, or acknowledgements.
        queue: of the revive topic.
        deliver_ms: wall time when it is due there.
        row: what the table has of it.
    """

    entry: Entry
    queue: int
    deliver_ms: int
    row: OpenPoint | KnownAck


def ack_of(key: Key, known: KnownAck) -> Ack:
    """Return what is known of a check point's acknowledgements as one entry of the revive topic."""
    return Ack(key, tuple(sorted(known.offsets)), True)


def read_points(value: Mapping[str, Any], own_name: str) -> dict[Key, dict[int, OpenPoint]]:
    """Return the check points of a file or an answer, by key and by how often they went around again.

    Args:
        value: all of it.
        own_name: name of the group of brokers.

    Raises:
        ValueError: it is none; says what is wrong.
    """
    points = dict[Key, dict[int, OpenPoint]]()
    for number, row in enumerate(list_of(value.get("points"), "points")):
        entry = _entry(row, "point", CHECK_POINT, own_name, f"points {number}")
        assert isinstance(entry, CheckPoint)
        what = f"points {number}"
        point = OpenPoint(entry, _queue(row, what), row.get("logged") is True, _made(row, what))
        points.setdefault(entry.key, {})[entry.re_puts] = point
    return points


def read_acks(value: Mapping[str, Any], own_name: str) -> dict[Key, KnownAck]:
    """Return the acknowledgements of a file or an answer by the key of their check point; as :func:`read_points`."""
    acks = dict[Key, KnownAck]()
    for number, row in enumerate(list_of(value.get("acks"), "acks")):
        entry = _entry(row, "ack", BATCH_ACK, own_name, f"acks {number}")
        assert isinstance(entry, Ack)
        revive_ms = whole_number(row.get("reviveTime"), f"acks {number}: reviveTime", 0, LONGEST_MS)
        queue, settled = _queue(row, f"acks {number}"), row.get("settled") is True
        acks[entry.key] = KnownAck(frozenset(entry.offsets), queue, revive_ms, settled)
    return acks


def _entry(row: object, name: str, tag: str, own_name: str, what: str) -> Entry:
    text = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(text, str):
        raise ValueError(f"{what}: {name} is no text")
    try:
        return read_entry(tag, text.encode(), own_name)
    except ReviveLogError as error:
        raise ValueError(f"{what}: {error}") from None


def _made(row: Mapping[str, Any], what: str) -> tuple[int, int] | None:
    if row.get("made") is None:
        return None
    pair = list_of(row["made"], f"{what}: made")
    if len(pair) != 2:
        raise ValueError(f"{what}: made is not a broker id and the number of a change")
    broker_id, number = (whole_number(each, f"{what}: made", 0, LONGEST_MS) for each in pair)
    return broker_id, number


def _queue(row: Mapping[str, Any], what: str) -> int:
    return whole_number(row.get("queue"), f"{what}: queue", 0, ORDER_QUEUE - 1)
