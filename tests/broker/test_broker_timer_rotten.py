"""Timer messages that are found to be damaged when they are read: they wait until it is known who has them."""

from __future__ import annotations

from collections import Counter

import pytest
from test_broker_timer_take_overs import delivered_three_seconds
from timer_rig import Rig, rig
from trio.testing import MockClock

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
