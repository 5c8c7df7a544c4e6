"""What is read of the broker's own queues while one message among others has rotted."""

from __future__ import annotations

from typing import cast

import pytest

from understudy.broker.whole_records import whole_records
from understudy.format.record import encode_record
from understudy.store.message_store import MessageStore
from understudy.store.status import GetResult, GetStatus

TOPIC = "revive"
COUNT = 5


class FakeQueue:
    """A queue whose messages lie side by side."""

    def __init__(self, rotten: list[int]) -> None:
        self.noted: list[tuple[str, int, int]] = []
        self._records = [encode_record(TOPIC, 0, at, at * 400, b"%d" % at * 300, b"", born_ms=5) for at in range(COUNT)]
        for at in rotten:
            self._records[at] = self._records[at].replace(b"%d" % at * 300, b"%d" % at * 299 + b"x")

    def get(self, topic: str, queue_id: int, offset: int, count: int, size: int) -> GetResult:
        found = self._records[offset : offset + count]
        parts = [memoryview(b"".join(found))]
        return GetResult(GetStatus.FOUND, offset + len(found), 0, COUNT, parts, len(parts[0]), len(found))

    def note_rotten(self, topic: str, queue_id: int, offset: int) -> None:
        self.noted.append((topic, queue_id, offset))


@pytest.mark.parametrize("rotten", [[], [0], [2], [4], [1, 2], [0, 1, 2, 3, 4]], ids=str)
def test_damage_costs_itself_alone_and_is_noted(rotten: list[int]) -> None:
    queue = FakeQueue(rotten)
    found = whole_records(cast(MessageStore, queue), TOPIC, 0, 0, queue.get(TOPIC, 0, 0, 32, 1 << 20))
    assert [each.queue_offset for each in found] == [each for each in range(COUNT) if each not in rotten]
    assert queue.noted == [(TOPIC, 0, each) for each in rotten]


def test_what_lies_behind_a_read_is_left_to_the_next_one() -> None:
    queue = FakeQueue([1])
    gap = queue.get

    def get(topic: str, queue_id: int, offset: int, count: int, size: int) -> GetResult:
        return gap(topic, queue_id, max(offset, 4) if offset in (3, 4) else offset, count, size)  # there is no 3

    queue.get = get  # type: ignore[method-assign]
    read = gap(TOPIC, 0, 0, 4, 1 << 20)
    assert [each.queue_offset for each in whole_records(cast(MessageStore, queue), TOPIC, 0, 0, read)] == [0, 2]
