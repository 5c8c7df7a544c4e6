"""Which conditions of groups a message meets, as bits: what extends its unit in the consume queue.

Each group that asks for a topic by a condition has some bits, by its name and the topic's. Those of the groups that
want the message are set, so that a group of which one is not set does not want it. Groups that went away count, too:
when they come back, their bits say of these messages what they would have said.

Source: CommitLogDispatcherCalcBitMap.java.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.conditions import Conditions, UnsupportedFilterError
from understudy.broker.consumer_filters import ConsumerFilters
from understudy.broker.property_filter import CHARACTERS_OF_A_READ, PropertyFilter
from understudy.broker.sql_filter.lexer import SqlError
from understudy.store.extensions import Extensions, WantedBits

_MOST_TOPICS = 1024


class FilterBits:
    """The bits of the messages of one broker.

    Args:
        filters: who asks for what.
        conditions: compiles it.
        enabled: whether bits are made at all (``enableCalcFilterBitMap``).
    """

    def __init__(self, filters: ConsumerFilters, conditions: Conditions, enabled: Callable[[], bool]) -> None:
        self._filters = filters
        self._conditions = conditions
        self._enabled = enabled
        #: Of a topic: conditions with the bits of those who have them, bits that are always set, and bytes of a map.
        self._topics: dict[str, tuple[list[tuple[PropertyFilter, int]], int, int]] = {}
        filters.on_row = self._forget

    def of(self, topic: str, properties: bytes) -> bytes:
        """Return the bit map of a message of *topic* with these properties; nothing where no group has a condition."""
        if not self._enabled():
            return b""
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= _MOST_TOPICS:
                self._topics.clear()
            found = self._topics[topic] = self._conditions.compiling(lambda: self._made(topic))
        conditions, bits, length = found
        for condition, those in conditions:
            if condition.passes(properties):
                bits |= those
        return bits.to_bytes(length, "little")

    def _made(self, topic: str) -> tuple[list[tuple[PropertyFilter, int]], int, int]:
        """Compile the conditions on *topic*; whoever has one that takes too long may want every message."""
        texts: dict[str, int] = {}
        always = length = characters = 0
        for row in self._filters.of_topic(topic):
            if row.bits is None:
                continue
            positions, bits = row.bits
            own = 0
            for position in positions:
                own |= 1 << position
            length = bits // 8
            if row.expression not in texts:
                characters += len(row.expression)
                if characters > CHARACTERS_OF_A_READ:
                    always |= own
                    continue
            texts[row.expression] = texts.get(row.expression, 0) | own
        conditions = []
        for text, own in texts.items():
            try:
                conditions.append((self._conditions.get("SQL92", text), own))
            except (SqlError, UnsupportedFilterError):
                always |= own
        return conditions, always, length

    def _forget(self, topic: str) -> None:
        self._topics.pop(topic, None)


def keep_bits(extensions: Extensions, filters: ConsumerFilters, conditions: Conditions, config: BrokerConfig) -> None:
    """Have units say which conditions their messages meet.

    Args:
        extensions: of the units of a store.
        filters: who asks for what.
        conditions: compiles it.
        config: whether bits are made at all, now.
    """
    filters.newest_ms = lambda: extensions.newest_ms
    extensions.bits = FilterBits(filters, conditions, lambda: config.enable_calc_filter_bit_map).of


def wanted_bits(filters: ConsumerFilters, group: str, topic: str, condition: PropertyFilter) -> WantedBits | None:
    """Return which bits the messages must have that *group* wants by *condition*; ``None`` when none says it.

    Args:
        filters: what bits were made for.
        group, topic: who reads what.
        condition: by which it reads, be it another than the one it has announced.
    """
    row = filters.get(topic, group)
    if row is None or row.bits is None or row.expression != condition.text:
        return None
    positions, length = row.bits
    return WantedBits(tuple(positions), length, row.born_ms)
