"""A logical queue is read through its pieces, each message once and in order, whatever the pieces hold."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.broker.logical.reading import Found, Piece, leader_chain, read_logically
from understudy.format.static_topics import Items, MappingItem, TopicMapping, item_of
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError

FOUND, NOTHING, AGAIN, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@attrs.frozen
class Queue:
    """A physical queue: its first offset, and the offset behind its last message."""

    low: int
    high: int

    def pull(self, offset: int, most: int) -> tuple[Found, range]:
        """Answer as a broker's store does."""
        if self.low <= offset < self.high:
            end = min(offset + most, self.high)
            return Found(FOUND, end, self.low, self.high), range(offset, end)
        if offset < self.low:
            return Found(MOVED, self.low, self.low, self.high), range(0)
        if offset == self.high:
            return Found(NOTHING, offset, self.low, self.high), range(0)
        return Found(MOVED, self.high, self.low, self.high), range(0)


@some.composite
def histories(draw: some.DrawFn) -> tuple[Items, list[Queue]]:
    items, queues, begin = [], [], 0
    for generation in range(draw(some.integers(1, 4))):
        high = draw(some.integers(0, 20))
        low = draw(some.integers(0, high))
        ends = draw(some.booleans())
        items.append(MappingItem(generation, 0, "abcd"[generation], begin, 0, high if ends else -1))
        queues.append(Queue(low, high))
        begin += high + draw(some.integers(1, 30))
    items[-1] = attrs.evolve(items[-1], end_offset=-1)
    return tuple(items), queues


def read_through(items: Items, queues: list[Queue], start: int, most: int) -> tuple[list[tuple[int, int]], int]:
    """Follow the queue as a client does; return generation and offset of each message, and where it ended."""
    found: list[tuple[int, int]] = []
    offset = start
    for _ in range(200):
        item = item_of(items, offset)
        assert item is not None
        piece = Piece(items, item, item.to_physical(offset))
        queue = queues[item.generation]
        answer, messages = queue.pull(piece.offset, max(piece.most(most), 1))
        told = read_logically(piece, answer)
        if answer.code == FOUND:
            found += [(item.generation, each) for each in messages]
            assert told.shift == item.shift
        assert told.min_offset <= told.max_offset
        if told.code == NOTHING:
            return found, offset
        assert told.next_offset != offset
        offset = told.next_offset
    raise AssertionError(f"the reader runs in circles at {offset}")


@given(histories(), some.integers(1, 7))
def test_a_reader_from_the_start_finds_every_message_once_and_in_order(
    history: tuple[Items, list[Queue]], most: int
) -> None:
    items, queues = history
    found, end = read_through(items, queues, 0, most)
    assert found == [(number, each) for number, queue in enumerate(queues) for each in range(queue.low, queue.high)]
    assert end == items[-1].to_logic(queues[-1].high)


@given(histories(), some.integers(0, 150), some.integers(1, 7))
def test_a_reader_from_anywhere_finds_what_lies_behind(
    history: tuple[Items, list[Queue]], start: int, most: int
) -> None:
    items, queues = history
    found, _ = read_through(items, queues, start, most)
    behind = [
        (number, each)
        for number, queue in enumerate(queues)
        for each in range(queue.low, queue.high)
        if items[number].to_logic(each) >= start
    ]
    assert found == behind


def test_nobody_is_sent_on_to_a_piece_that_begins_nowhere_yet() -> None:
    items = (MappingItem(0, 0, "a", 0), MappingItem(1, 0, "b"))
    piece = Piece(items, items[0], 7)
    assert piece.may_wait
    told = read_logically(piece, Found(NOTHING, 7, 0, 7))
    assert (told.code, told.next_offset) == (NOTHING, 7)


def test_a_replica_that_may_lag_sends_nobody_on_before_the_end_that_the_mapping_knows() -> None:
    ended = (MappingItem(0, 0, "a", 0, end_offset=9), MappingItem(1, 0, "b", 10_000))
    lagging = Piece(ended, ended[0], 7, may_lag=True)
    assert read_logically(lagging, Found(NOTHING, 7, 0, 7)).code == NOTHING
    assert lagging.may_wait
    at_end = Piece(ended, ended[0], 9, may_lag=True)
    assert read_logically(at_end, Found(AGAIN, 7, 0, 7)).next_offset == 10_000
    unknown = (attrs.evolve(ended[0], end_offset=-1), ended[1])
    assert read_logically(Piece(unknown, unknown[0], 7, may_lag=True), Found(NOTHING, 7, 0, 7)).code == NOTHING
    # its master knows
    assert read_logically(Piece(unknown, unknown[0], 7), Found(NOTHING, 7, 0, 7)).next_offset == 10_000


def test_below_the_first_message_a_reader_is_told_only_in_the_oldest_piece() -> None:
    items = (MappingItem(0, 0, "a", 0, end_offset=9), MappingItem(1, 0, "b", 10_000))
    oldest = read_logically(Piece(items, items[0], 2), Found(MOVED, 5, 5, 9))
    assert (oldest.code, oldest.next_offset, oldest.min_offset, oldest.max_offset) == (MOVED, 5, 5, 10_000)
    later = read_logically(Piece(items, items[1], 2), Found(MOVED, 5, 5, 9))
    assert (later.code, later.next_offset) == (AGAIN, 10_005)


def test_who_does_not_lead_a_queue_refuses_it_with_the_code_that_makes_clients_look_for_the_leader() -> None:
    mapping = TopicMapping("t", "a", 1, 1, {0: (MappingItem(0, 0, "a", 0), MappingItem(1, 0, "b", 10_000))})
    for global_id in (0, 5):
        with pytest.raises(CommandError) as refused:
            leader_chain(mapping, global_id)
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert f"t-{global_id}" in refused.value.remark
