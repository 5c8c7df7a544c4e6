"""Timer messages that are found to be damaged when they are read: they wait until it is known who has them."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from test_broker_timer_take_overs import delivered_three_seconds
from timer_rig import START_MS, Rig, rig
from trio.testing import MockClock

from understudy.broker.inner import InnerMessage
from understudy.broker.timer.source import TimerSource
from understudy.format.names import TIMER_TOPIC
from understudy.format.record import Record


class Rotten:
    """Has reads of the timer topic find a message to be damaged, until it is mended."""

    def __init__(self, own: Rig, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._own, self._offset, self._read = own, offset, own.timer.topic.read
        self._patch = monkeypatch
        monkeypatch.setattr(own.timer.topic, "read", self._without)

    def _without(self, offset: int, count: int) -> tuple[list[Record], int]:
        found, following = self._read(offset, count)
        self._own.store.holes.behind |= offset <= self._offset < following
        return [each for each in found if each.queue_offset != self._offset], following

    def mend(self) -> None:
        self._patch.setattr(self._own.timer.topic, "read", self._read)
        self._own.store.holes.behind = False


async def test_what_is_damaged_is_put_into_its_slot_when_it_is_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await rig()
    own.keep(1, 2, 3)
    own.timer.begin(True)
    rotten = Rotten(own, 1, monkeypatch)
    own.enqueue()
    assert own.timer.progress.enqueued == 0
    rotten.mend()
    own.enqueue()
    assert own.waiting() == Counter({1: 1, 2: 1, 3: 1})


async def test_what_is_damaged_when_it_is_entered_again_is_not_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a take over from a replica that had three messages only
    own = await delivered_three_seconds(1, 2, 3, 20, 4, 30)
    own.hears(10, 3)
    own.timer.begin(True)
    rotten = Rotten(own, 4, monkeypatch)
    own.enqueue()
    rotten.mend()
    own.enqueue()
    assert own.waiting() == Counter({11: 1, 20: 1, 30: 1})


async def test_a_message_that_was_taken_back_does_not_come_when_what_took_it_back_was_damaged(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await rig()
    for text in ("UNIQ_KEY\x01k\x02", "TIMER_DEL_UNIQKEY\x01T+k\x02"):
        place = f"TIMER_OUT_MS\x01{START_MS + 1_000}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        own.store.append(TIMER_TOPIC, 0, b"x", f"{place}{text}".encode(), 1, b"\0" * 8)
    source = TimerSource(own.world.clock, own.timer, lambda *told: None, lambda: False)
    source.queues()
    await trio.sleep(5)

    def due() -> list[InnerMessage | None]:
        while not (found := source.read(0, source.position(0))).items:
            assert found.due_ms is None
        return [each.message for each in found.items]

    read = own.timer.record
    with monkeypatch.context() as patched:
        patched.setattr(own.timer, "record", lambda unit: None if unit.deletes else read(unit))
        assert [each is None for each in due()] == [False, True]
    # when that read did not count, and it is back
    source.undo(0)
    assert due() == [None, None]
