"""What the revive service cannot read yet: it waits until all replicas have it, or until it came back into a hole."""

from __future__ import annotations

import pytest
import trio
from pop_rig import open_virtual, prepare
from trio.testing import MockClock

from understudy.broker.pop.revive_log import MOST_LOOKS, Ack, CheckPoint
from understudy.format import names
from understudy.store.message_store import MessageStore

RETRY = names.pop_retry_topic("g", "T", second_form=False)
INVISIBLE_MS = 1_500


@pytest.mark.parametrize("wait_ms", [0, 1_000])
async def test_what_was_acknowledged_does_not_come_again_while_that_is_hidden(
    wait_ms: int, autojump_clock: MockClock
) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        broker, store = rig.broker, rig.broker.store
        now_ms = broker.world.clock.wall_ms()
        store.append("T", 0, b"x", b"UNIQ_KEY\x01u\x02", now_ms, b"\x7f\x00\x00\x01\x00\x00\x27\x0f")
        # Given a check point that everybody sees, and an acknowledgement that a replica does not have yet: in the
        # revive topic, or on its way there in the timer
        point = CheckPoint("T", "g", 0, 0, now_ms, INVISIBLE_MS, broker.identity.name, (0,))
        broker.pops.log.write(point, 0, now_ms - 1_000)
        store.set_confirmed(store.max_physical_offset)
        broker.pops.log.write(Ack(point.key, (0,)), 0, now_ms - 1_000 + 2 * wait_ms)
        # When its time is long over
        await trio.sleep(30)
        assert store.max_queue_offset(RETRY, 0) == 0
        # Then it is done, and did not come again, once all have it
        store.set_confirmed(None)
        await trio.sleep(30)
        assert store.written_queue_offset(RETRY, 0) == 0
        assert broker.pops.queues.behind(0) == (0, 0)


@pytest.mark.parametrize(
    ("hole", "re_puts", "looks_again"),
    [(0, 0, True), (0, MOST_LOOKS - 1, True), (0, MOST_LOOKS, False), (None, 0, False)],
)
async def test_a_message_that_may_come_back_into_a_hole_is_looked_for_again_but_not_for_ever(
    hole: int | None, re_puts: int, looks_again: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        broker, now_ms = rig.broker, rig.broker.world.clock.wall_ms()
        monkeypatch.setattr(MessageStore, "hole", property(lambda store: hole))
        # Given a check point of a message that is not there
        point = CheckPoint("T", "g", 0, 5, now_ms, INVISIBLE_MS, broker.identity.name, (5,), re_puts=re_puts)
        broker.pops.log.write(point, 0, now_ms - 1_000)
        # When it is due, then it goes around again only where the message may come back, and not too often
        before = broker.timing.timer.topic.end
        await trio.sleep(8)
        assert (broker.timing.timer.topic.end > before) == looks_again
