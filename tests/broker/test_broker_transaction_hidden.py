"""Half messages that nobody may see yet when their broker begins to lead: not all replicas have them."""

from __future__ import annotations

import pytest
import trio
from transaction_rig import COMMIT, HALF, OPS, TOPIC, killed, open_producer
from trio.testing import MockClock

from understudy.broker.transactions.reading import HalfReader
from understudy.testkit.sim.disk import SimDisk


@pytest.mark.parametrize("written_ops", [0, 1])
async def test_what_is_shown_later_is_not_committed_again(
    disk: SimDisk, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, written_ops: int
) -> None:
    # given a committed half message, and a process that dies before or after the op message
    async with open_producer(disk) as producer:
        shown = producer.rig.broker.store.max_physical_offset
        half = producer.prepare("k")
        assert producer.decide(half, COMMIT).code == 0
        await trio.sleep(5 if written_ops else 0.1)
        assert (producer.delivered(), len(producer.rig.stored(OPS))) == (["k"], written_ops)
        left = killed(disk)
    learn = HalfReader.learn

    async def while_hidden(self: HalfReader) -> object:
        self._store.hide_after(shown)
        found = await learn(self)
        self._store.set_confirmed(None)
        return found

    # when all of it is hidden as transactions begin, and shown a moment later
    monkeypatch.setattr(HalfReader, "learn", while_hidden)
    async with open_producer(left) as producer:
        await trio.sleep(70)
        # then nobody is asked, and it was delivered once
        assert producer.checks() == []
        assert producer.delivered() == ["k"]


async def test_half_messages_behind_lost_ones_are_known_after_a_start(
    disk: SimDisk, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_producer(disk) as producer:
        producer.prepare("lost")
        producer.prepare("k")
        left = killed(disk)
    read = HalfReader.read

    def without_the_first(self: HalfReader, topic: str, number: int, at: int, most: int = 32) -> object:
        return ([], 1) if (topic, at) == (HALF, 0) else read(self, topic, number, at, most)

    # when a broker begins to look after half messages, of which it cannot read the first ones
    monkeypatch.setattr(HalfReader, "read", without_the_first)
    async with open_producer(left) as producer:
        # then those behind them are open
        assert producer.rig.broker.transactions.counts.open == {TOPIC: 1}
