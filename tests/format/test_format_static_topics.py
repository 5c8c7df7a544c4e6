"""Mappings of static topics: their JSON, offsets of chains, and which mapping may follow which."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.format.json_dialect import loads
from understudy.format.static_topics import (
    OFFSET_MAX,
    Items,
    MappingError,
    MappingItem,
    TopicMapping,
    check_items,
    item_after,
    item_of,
    successor,
)

# As the real mqadmin sends it (captured, 5.4.0), two of its four queues.
CAPTURED = (
    b'{"bname":"broker-a","currIdMap":{},"dirty":false,"epoch":1795246411327,"hostedQueues":{0:[{"bname":"broker-a",'
    b'"endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}],1:[{"bname":'
    b'"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":1,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},'
    b'"scope":"__global__","topic":"StaticT","totalQueues":2}'
)


@some.composite
def chains(draw: some.DrawFn) -> Items:
    """Chains as moves leave them: ends known or not, the last perhaps undecided."""
    items: list[MappingItem] = []
    begin = 0
    for generation in range(draw(some.integers(1, 4))):
        size = draw(some.integers(0, 50))
        ends = draw(some.booleans())
        items.append(MappingItem(generation, generation, "abcd"[generation], begin, 0, size if ends else -1))
        begin += size + draw(some.integers(1, 100))
    if draw(some.booleans()) and len(items) > 1:
        items[-1] = attrs.evolve(items[-1], logic_offset=-1)
    items[-1] = attrs.evolve(items[-1], end_offset=-1)
    return tuple(items)


def mapping_of(items: Items, epoch: int = 5, broker: str = "a") -> TopicMapping:
    return TopicMapping("t", broker, 1, epoch, {0: items})


def test_a_captured_mapping_is_read_and_written_as_it_came() -> None:
    mapping = TopicMapping.from_json(loads(CAPTURED))
    assert mapping.to_json() == loads(CAPTURED)
    assert mapping.info() == {
        "bname": "broker-a",
        "currIdMap": {"0": 0, "1": 1},
        "dirty": False,
        "epoch": 1795246411327,
        "scope": "__global__",
        "topic": "StaticT",
        "totalQueues": 2,
    }
    assert mapping.logical_broker == "__syslo__global__"


@given(chains())
def test_every_chain_survives_its_json_and_is_sound(items: Items) -> None:
    check_items(items)
    assert TopicMapping.from_json(mapping_of(items).to_json()) == mapping_of(items)


@given(chains(), some.integers(0, 500))
def test_an_offset_belongs_to_one_item_and_comes_back_from_it(items: Items, offset: int) -> None:
    item = item_of(items, offset)
    assert item is not None
    assert item.decided
    after = item_after(items, item)
    assert after is None or offset < after.logic_offset
    assert item.logic_offset <= offset
    assert item.to_logic(item.to_physical(offset)) == offset


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (5, "no JSON object"),
        ({"topic": "t", "bname": "a", "hostedQueues": {"x": []}}, "global queue id"),
        ({"topic": "t", "bname": "a", "hostedQueues": {"0": [{"queueId": 0}]}}, "bname of an item"),
        ({"topic": "t", "bname": "a", "hostedQueues": {"0": [7]}}, "no JSON object"),
        ({"topic": "t", "bname": "a", "hostedQueues": [1]}, "hostedQueues"),
        ({"topic": "t"}, "bname"),
    ],
)
def test_what_is_no_mapping_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TopicMapping.from_json(value)


FIRST = MappingItem(0, 0, "a", 0)
SECOND = MappingItem(1, 0, "b", 10_000)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ((attrs.evolve(FIRST, logic_offset=-1), SECOND), "no logical offset"),
        ((SECOND, FIRST), "generations"),
        ((FIRST, attrs.evolve(SECOND, logic_offset=0)), "logical offsets"),
        ((attrs.evolve(FIRST, end_offset=10_000), SECOND), "logical offsets"),
        ((attrs.evolve(FIRST, start_offset=5, end_offset=4),), "ends before"),
        ((attrs.evolve(FIRST, queue_id=-1),), "negative"),
        ((attrs.evolve(FIRST, logic_offset=OFFSET_MAX + 1),), "greater than"),
        ((attrs.evolve(FIRST, start_offset=OFFSET_MAX + 1),), "greater than"),
        ((attrs.evolve(FIRST, end_offset=OFFSET_MAX + 1),), "greater than"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(items: Items, why: str) -> None:
    with pytest.raises(MappingError, match=why):
        successor(None, mapping_of(items))


def test_what_was_said_of_an_item_stays_but_for_what_was_open() -> None:
    open_end = attrs.evolve(SECOND, logic_offset=-1)
    known = mapping_of((FIRST, open_end))
    ended = attrs.evolve(FIRST, end_offset=70)
    settled = mapping_of((ended, SECOND))
    assert successor(known, settled) == settled
    for other, why in (
        (mapping_of((ended, attrs.evolve(SECOND, logic_offset=20_000))), "another one"),
        (mapping_of((attrs.evolve(ended, queue_id=3), SECOND)), "another one"),
        (mapping_of((ended, SECOND), epoch=4), "small epoch"),
        (mapping_of((ended,)), "another leader"),
        (TopicMapping("t", "a", 1, 5, {}), "missing"),
        (attrs.evolve(settled, scope="mine"), "scope"),
    ):
        with pytest.raises(MappingError, match=why):
            successor(settled, other)
        assert successor(settled, other, force=True).queues.keys() == {0}


def test_chains_that_a_newer_mapping_lacks_are_kept() -> None:
    known = TopicMapping("t", "a", 2, 5, {0: (FIRST,), 1: (attrs.evolve(FIRST, queue_id=1),)})
    newer = TopicMapping("t", "a", 2, 6, {0: (attrs.evolve(FIRST, end_offset=9), SECOND)})
    assert successor(known, newer).queues == {**known.queues, **newer.queues}


def test_two_logical_queues_do_not_share_a_physical_one() -> None:
    with pytest.raises(MappingError, match="share queue 0 of a"):
        successor(None, TopicMapping("t", "a", 2, 5, {0: (FIRST,), 1: (FIRST,)}))
