"""What the revive service reads once more: after it was stopped, and when a read does not count."""

from __future__ import annotations

from typing import Any

import pytest
from broker_rig import Rig
from pop_rig import open_virtual, prepare
from trio.testing import MockClock

from understudy.broker.pop import revive
from understudy.broker.pop.revive import ACTING, Revival
from understudy.broker.pop.revive_log import Ack, CheckPoint

INVISIBLE_MS = 1_500
ONE_QUEUE = {"reviveQueueNum": "1"}


async def with_check_point(rig: Rig) -> CheckPoint:
    """Store two messages, and the check point of a pop of both, of which nothing was read yet; return it."""
    prepare(rig, queues=1)
    await rig.broker.world.clock.sleep(1)
    await rig.broker.services.stop("pop revive")
    for body in (b"0", b"1"):
        rig.send("T", body)
    now_ms = rig.broker.world.clock.wall_ms()
    point = CheckPoint("T", "g", 0, 0, now_ms, INVISIBLE_MS, rig.broker.identity.name, (0, 1))
    rig.broker.pops.log.write(point, 0, now_ms - 1_000)
    return point


async def ripe_offsets(rig: Rig, queue: int = 0) -> list[int | None]:
    """Return the offsets of what comes back by a read, when it was known for long enough."""
    queues = rig.broker.pops.queues
    for _ in range(3):
        found = queues.read(queue, queues.position(queue))
        if found.items:
            return [each.message.offset for each in found.items if isinstance(each.message, Revival)]
        await rig.broker.world.clock.sleep(10)
    return []


async def test_acknowledgements_that_no_log_has_count_for_a_check_point_that_is_read_anew(
    autojump_clock: MockClock,
) -> None:
    async with open_virtual(ONE_QUEUE) as rig:
        point, queues = await with_check_point(rig), rig.broker.pops.queues
        rig.broker.pops.acting.add(Ack(point.key, (0,)), 0, point.revive_ms, logged=True)
        for _ in range(2):  # whenever it begins to bring back
            queues.queues()
            assert await ripe_offsets(rig) == [1]


async def test_a_check_point_that_was_left_out_as_damaged_is_there_when_the_read_did_not_count(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_virtual(ONE_QUEUE) as rig:
        await with_check_point(rig)
        queues, damaged = rig.broker.pops.queues, list[Any]()
        queues.queues()
        with monkeypatch.context() as patched:
            patched.setattr(revive, "whole_records", lambda *given: damaged)
            assert await ripe_offsets(rig) == []
        queues.undo(0)
        assert await ripe_offsets(rig) == [0, 1]


async def test_what_no_log_has_is_found_at_once_when_the_read_did_not_count(autojump_clock: MockClock) -> None:
    async with open_virtual(ONE_QUEUE) as rig:
        await with_check_point(rig)
        queues, now_ms = rig.broker.pops.queues, rig.broker.world.clock.wall_ms()
        kept = CheckPoint("T", "g", 0, 0, now_ms - 60_000, 1_000, rig.broker.identity.name, (0,))
        rig.broker.pops.acting.add(kept, 0, 0, logged=False)
        queues.queues()
        assert await ripe_offsets(rig, ACTING) == [0]
        queues.undo(ACTING)
        assert len(queues.read(ACTING, queues.position(ACTING)).items) == 1
        assert queues.read(ACTING, queues.position(ACTING)).items == ()  # it waits for its turn once it was tried
