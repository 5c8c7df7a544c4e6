"""What a slave that acts handed out goes elsewhere when its time is over, as far as anybody takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from pop_rig import open_virtual, prepare, virtual_world
from trio.testing import MockClock

from understudy.broker.deferred_service import DeferredService
from understudy.broker.inner import InnerMessage
from understudy.broker.pop.popped import Popped
from understudy.broker.pop.revive import POINTS, Revival
from understudy.broker.pop.revive_log import MOST_LOOKS, CheckPoint
from understudy.broker.pop.revive_target import ReviveTarget
from understudy.store.status import PutStatus


class Target:
    """Takes everything but what is of a topic that nobody has."""

    def __init__(self) -> None:
        self.tries = Counter[tuple[str, int]]()

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        statuses = list[PutStatus]()
        for each in messages:
            assert isinstance(each, Revival)
            self.tries[each.point.topic, each.point.start_offset] += 1
            taken = each.point.topic == "T"
            statuses.append(PutStatus.PUT_OK if taken else PutStatus.SERVICE_NOT_AVAILABLE)
        return statuses


@pytest.mark.parametrize("behind", [3, 99], ids=["comes", "never comes"])
async def test_what_a_replica_elsewhere_does_not_have_is_asked_for_again_as_long_as_it_may_come(
    autojump_clock: MockClock, behind: int
) -> None:
    world, asked = virtual_world(), list[float]()
    async with open_virtual(world=world) as rig:
        prepare(rig, queues=1)
        rig.send("T", b"popped")
        (record,) = rig.stored("T")

        async def read(broker_name: str, topic: str, queue_id: int, offset: int) -> Popped:
            asked.append(trio.current_time())
            assert (broker_name, topic, queue_id, offset) == ("elsewhere", "T", 0, 0)
            return Popped(record) if len(asked) > behind else Popped(None, lacks=True)

        pops = rig.broker.pops
        pops.revive.target = ReviveTarget(pops._parts, rig.broker.session.rules, read, pops.queues.returned)
        # given a message that was popped at another group of brokers, whose replica that is asked is behind
        looks = 4
        point = CheckPoint("T", "g", 0, 0, world.clock.wall_ms(), 5_000, "elsewhere", (0,), re_puts=MOST_LOOKS - looks)
        pops.log.write(point, 0, point.revive_ms)
        await trio.sleep(40_000)
        # then it is asked again, ever more rarely, and given up at last
        back = [each.body for each in rig.stored("%RETRY%g_T")] if "%RETRY%g_T" in rig.broker.topics.rows else []
        assert (back, len(asked)) == (([b"popped"], 4) if behind == 3 else ([], looks + 1))


async def test_what_nobody_takes_holds_up_no_others_and_is_tried_again(autojump_clock: MockClock) -> None:
    world, target = virtual_world(), Target()
    async with open_virtual(world=world) as rig:
        for topic in ("Nowhere", "T"):
            prepare(rig, topic, queues=1)
        await world.clock.sleep(1)
        await rig.broker.services.stop("pop revive")
        # given more than one read takes of what nobody takes, before and between what others do
        queues, acting = rig.broker.pops.queues, rig.broker.pops.acting
        first_ms = world.clock.wall_ms() - 60_000
        for number in range(6 * POINTS):
            topic = "Nowhere" if number < 2 * POINTS or number % 3 == 0 else "T"
            point = CheckPoint(topic, "g", 0, number, first_ms + number, 1_000, "broker-a", (number,))
            acting.add(point, 0, 0, logged=False)
        service = DeferredService(world.clock, queues, target)
        queues.announce = service.arrived
        rig.nursery.start_soon(service.run)
        await world.clock.sleep(10)
        # then the others are put once, and all of those that nobody takes again and again
        assert {row.point.topic for row in acting.rows()} == {"Nowhere"}
        assert {count for (topic, _), count in target.tries.items() if topic == "T"} == {1}
        assert min(count for (topic, _), count in target.tries.items() if topic == "Nowhere") > 2
        assert len(target.tries) == 6 * POINTS
        rig.nursery.cancel_scope.cancel()
