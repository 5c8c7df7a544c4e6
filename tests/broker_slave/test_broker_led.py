"""Three brokers led by three controllers: a master is elected without a person, and nothing acknowledged is lost."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.broker.switch_replication import SwitchReplication
from understudy.testkit.led.group import BROKERS, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


@pytest.mark.covers("R135", "R147", "R152", "R243", "R253", "R260", "CC-17")
def test_a_group_of_three_elects_a_master_and_another_one_when_it_is_killed() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(5)] == [0] * 5
            # when it is killed
            await group.kill(first)
            killed = trio.current_time()
            second = await group.ready(2)
            assert second != first
            assert await group.send(second, b"after") == 0
            print("again after", trio.current_time() - killed)
            # and comes back
            await group.start_broker(first)
            await group.ready(3)
            assert group.master() == second
            sent = [b"%d" % number for number in range(5)] + [b"after"]
            await until(lambda: all(group.bodies(name) == sent for name in BROKERS), 10)
            ids = {group.brokers[name].replication.own_id for name in BROKERS
                   if isinstance(group.brokers[name].replication, SwitchReplication)}  # fmt: skip
            assert ids == {1, 2, 3}

    run_seed(scenario, 1)
