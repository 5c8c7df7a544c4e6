"""A due message that the log shows as delivered is recognised, and no other is taken for it."""

from __future__ import annotations

import attrs
from broker_rig import Rig
from pop_rig import open_virtual, prepare
from trio.testing import MockClock

from understudy.broker.inner import InnerMessage, append
from understudy.broker.pop.revive_log import Ack, message_of
from understudy.container.escape.parts import escape_parts
from understudy.container.escape.recognition import delivered_before

KEY = ("T", "g", 0, 0, 1_000, "broker-a")


def acknowledged(rig: Rig, *offsets: int) -> InnerMessage:
    """Return the entry of an acknowledgement of *offsets*, as it comes into the revive topic."""
    log, now_ms = rig.broker.pops.log, rig.broker.world.clock.wall_ms()
    return message_of(Ack(KEY, offsets, True), log.topic, 0, 1_500, now_ms, log.host)


async def test_another_batch_of_the_same_pop_is_not_taken_for_one_that_came(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig)
        first, second = acknowledged(rig, 0, 1), acknowledged(rig, 2, 3)
        assert (first.properties, first.born_ms) == (second.properties, second.born_ms)
        append(rig.broker.store, first)
        await rig.broker.world.clock.sleep(1)
        parts, now_ms = escape_parts(rig.broker), rig.broker.world.clock.wall_ms()
        assert delivered_before(parts, first, now_ms)
        assert not delivered_before(parts, second, now_ms)
        assert not delivered_before(parts, attrs.evolve(first, reconsume_times=1), now_ms)
