"""What groups last asked for by conditions: `consumerFilter.json`, as brokers of the reference keep it.

Only a record: what a pull is filtered by is the subscription of a live member. A row is alive as long as a member of
its group has the subscription; a dead one is kept for `filterDataCleanTimeSpan`, and lives again when its version comes
back.

Source: ConsumerFilterManager.java, ConsumerFilterData.java.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from understudy.broker.filters import SQL92, Subscription, is_tag_type
from understudy.format.json_dialect import Rows
from understudy.format.json_values import name_of
from understudy.format.numbers import whole_number
from understudy.runtime.log import get_logger

log = get_logger("broker.consumer_filters")

NAME, FILE_NAME = "consumer filters", "consumerFilter.json"
DELAY_MS = 10_000
"""Longest time from a change to its write, the reference's."""
MOST_CHARACTERS = 4 << 20
"""Of all rows together; groups beyond it are served all the same."""
_ROW_CHARACTERS = 200
"""What a row takes beside its names and its text."""
_OTHERS_OF_A_STEP = 256
AWAY_MS = 30_000
"""A row that was alive when it was written is taken for dead since this long before it was read."""


@attrs.frozen
class ConsumerFilter:
    """One row.

    Attributes:
        group, topic, expression, kind: what was asked for; *kind* is its expression type.
        version: the client's, milliseconds of its clock.
        born_ms: when this expression came.
        bits: positions of group and topic in the Bloom filter, and its length; None without a filter.
        dead_ms: since when nobody asks for it; 0 while somebody does.
    """

    group: str
    topic: str
    expression: str
    kind: str
    version: int
    born_ms: int
    bits: tuple[list[int], int] | None = None
    dead_ms: int = 0

    @property
    def dead(self) -> bool:
        """Whether nobody asks for it."""
        return self.dead_ms >= self.born_ms

    @property
    def characters(self) -> int:
        """What it takes, about."""
        return _ROW_CHARACTERS + len(self.group) + len(self.topic) + len(self.expression)


class ConsumerFilters:
    """The rows of one broker.

    Args:
        now_ms: wall clock in milliseconds.
        is_live: whether a live member of a group (first) has a condition on a topic.
        compiles: whether a text of an expression type (first) is a condition.
        keep_dead_ms: how long a dead row is kept.
        bits: positions in the Bloom filter of a group (first) and a topic, and its length; None without a filter.

    Attributes:
        on_change: called after each change.
        on_row: called with the topic of each row that changes.
        newest_ms: returns the greatest store time of messages whose bit map was made, which may be ahead of the clock.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        is_live: Callable[[str, str], bool],
        compiles: Callable[[str, str], bool],
        keep_dead_ms: Callable[[], int],
        bits: Callable[[str, str], tuple[list[int], int] | None],
    ) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.on_row: Callable[[str], None] = lambda topic: None
        self.newest_ms: Callable[[], int] = lambda: 0
        self._now_ms = now_ms
        self._is_live = is_live
        self._compiles = compiles
        self._keep_dead_ms = keep_dead_ms
        self._bits = bits
        self._rows: dict[tuple[str, str], ConsumerFilter] = {}  # by topic and group
        self._of_topics: dict[str, dict[str, ConsumerFilter]] = {}  # the same by topic, then by group
        self._characters = 0

    def of_topic(self, topic: str) -> Iterable[ConsumerFilter]:
        """Return the rows of *topic*."""
        return self._of_topics.get(topic, {}).values()

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the row of *group* and *topic*."""
        return self._rows.get((topic, group))

    def take(self, group: str, subscriptions: Iterable[Subscription]) -> Generator[None, None, None]:
        """Note the conditions of a heartbeat, one in each step: each may have to be compiled."""
        for number, wanted in enumerate(subscriptions):
            if number % _OTHERS_OF_A_STEP == _OTHERS_OF_A_STEP - 1:
                yield
            if not is_tag_type(wanted.expression_type) and wanted.expression:
                if self._take(group, wanted):
                    self._tell()
                yield

    def _take(self, group: str, wanted: Subscription) -> bool:
        key, now_ms = (wanted.topic, group), self._now_ms()
        known = self._rows.get(key)
        if known is not None and wanted.version <= known.version:
            if wanted.version == known.version and known.dead:
                self._put(key, attrs.evolve(known, dead_ms=0))
                return True
            return False
        if known is not None and (known.expression, known.kind) == (wanted.expression, wanted.expression_type):
            self._put(key, attrs.evolve(known, version=wanted.version, dead_ms=0))
            return True
        if not self._compiles(wanted.expression_type, wanted.expression):
            return self._put(key, None)
        row = ConsumerFilter(
            group,
            wanted.topic,
            wanted.expression,
            wanted.expression_type,
            wanted.version,
            max(now_ms, self.newest_ms()),
            self._bits(group, wanted.topic),
        )
        if self._characters + row.characters > MOST_CHARACTERS:
            log.warning("too many conditions, one is not noted", group=group, topic=wanted.topic)
            return self._put(key, None)
        return self._put(key, row)

    def burying(self) -> Generator[None, None, None]:
        """Note, in steps, which rows nobody asks for any more, and forget those that have been dead for long."""
        now_ms, keep_ms = self._now_ms(), self._keep_dead_ms()
        changed = False
        for number, (key, row) in enumerate(list(self._rows.items())):
            if number % _OTHERS_OF_A_STEP == _OTHERS_OF_A_STEP - 1:
                yield
            if self._rows.get(key) is not row:
                continue
            if not row.dead:
                if not self._is_live(row.group, row.topic):
                    changed |= self._put(key, attrs.evolve(row, dead_ms=max(now_ms, row.born_ms)))
            elif now_ms - row.dead_ms >= keep_ms:
                changed |= self._put(key, None)
        if changed:
            self._tell()

    def snapshot(self) -> dict[str, Any]:
        """Return the content of the file as of now; it is made while it is written."""
        return {"filterDataByTopic": Rows(_topics_of(list(self._rows.values())))}

    def load(self, content: Mapping[str, Any], *, doubtful: bool = False) -> None:
        """Put the content of the file over what is there.

        Bits follow from the names. Where they are others than they were, bit maps from before now know none of the
        conditions.

        Args:
            content: of the file.
            doubtful: the conditions that came last may be missing in it, so those in it may not be what bit maps from
                before now were made for.

        Raises:
            ValueError: naming an entry that is none; nothing was taken then.
        """
        rows = [
            self._read(f"{topic}: {group}", value, doubtful)
            for topic, groups in _members(content.get("filterDataByTopic"), "filterDataByTopic")
            for group, value in _members(dict(_members(groups, topic)).get("groupFilterData"), topic)
        ]
        for row in rows:
            if self._characters + row.characters <= MOST_CHARACTERS:
                self._put((row.topic, row.group), row)

    def _read(self, what: str, value: object, doubtful: bool) -> ConsumerFilter:
        fields = dict(_members(value, what))
        born_ms = whole_number(fields.get("bornTime") or 0, f"{what}: bornTime")
        dead_ms = whole_number(fields.get("deadTime") or 0, f"{what}: deadTime")
        group = name_of(fields.get("consumerGroup") or "", f"{what}: consumerGroup")
        topic = name_of(fields.get("topic") or "", f"{what}: topic")
        bits = self._bits(group, topic)
        if doubtful or (bits is not None and _stored_bits(fields.get("bloomFilterData")) != bits):
            born_ms = max(self._now_ms(), self.newest_ms())
        return ConsumerFilter(
            group,
            topic,
            name_of(fields.get("expression") or "", f"{what}: expression"),
            name_of(fields.get("expressionType") or SQL92, f"{what}: expressionType"),
            whole_number(fields.get("clientVersion") or 0, f"{what}: clientVersion"),
            born_ms,
            bits,
            dead_ms or max(self._now_ms() - AWAY_MS, born_ms),
        )

    def _put(self, key: tuple[str, str], row: ConsumerFilter | None) -> bool:
        """Put *row* in the place of what is there; return whether anything changed."""
        known = self._rows.pop(key, None)
        if known is not None:
            self._characters -= known.characters
            del self._of_topics[key[0]][key[1]]
            if not self._of_topics[key[0]]:
                del self._of_topics[key[0]]
        if row is not None:
            self._rows[key] = row
            self._of_topics.setdefault(key[0], {})[key[1]] = row
            self._characters += row.characters
        self.on_row(key[0])
        return row is not known

    def _tell(self) -> None:
        for changed in self.on_change:
            changed()


def _topics_of(rows: list[ConsumerFilter]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows.sort(key=lambda row: (row.topic, row.group))
    for topic, of_topic in itertools.groupby(rows, lambda row: row.topic):
        yield topic, {"groupFilterData": Rows((row.group, _entry_of(row)) for row in of_topic), "topic": topic}


def _entry_of(row: ConsumerFilter) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "bornTime": row.born_ms,
        "clientVersion": row.version,
        "consumerGroup": row.group,
        "dead": row.dead,
        "deadTime": row.dead_ms,
        "expression": row.expression,
        "expressionType": row.kind,
        "topic": row.topic,
    }
    if row.bits is not None:
        entry["bloomFilterData"] = {"bitNum": row.bits[1], "bitPos": list(row.bits[0])}
    return entry


def _stored_bits(value: object) -> tuple[list[int], int] | None:
    """Return the bits that a file has for a row; nothing where they are none."""
    if not isinstance(value, Mapping):
        return None
    positions, length = value.get("bitPos"), value.get("bitNum")
    return (list(positions), length) if isinstance(positions, Sequence) and isinstance(length, int) else None


def _members(value: object, what: str) -> Iterable[tuple[str, Any]]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is no object")
    return value.items()
