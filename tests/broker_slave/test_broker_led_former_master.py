"""A former master that does not know that it was replaced is followed by nobody, and nothing is cut for it."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import ALL, open_group

from understudy.broker.role import Role
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


@pytest.mark.covers("R213", "R217")
@pytest.mark.parametrize("commanded", [False, True], ids=["shown by name servers", "commanded"])
def test_a_broker_that_comes_back_keeps_what_a_former_master_never_had(commanded: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            former = await group.elect(1)
            await group.in_step()
            assert await group.send(former, b"both") == 0
            # given a former master that hears nothing, and a message that its successor acknowledged alone
            group.master = 0  # the controllers hear nothing of it
            lost = group.brokers.pop(1)
            group.cluster.network.partition({group.cluster.address("c1")}, {group.cluster.address("c2")})
            await group.stop(3)
            successor = await group.elect(2)
            await until(lambda: group.members == {2}, 10)
            assert await group.send(successor, b"acknowledged") == 0
            end = successor.store.max_physical_offset
            # when that one starts again, and finds the former master first
            group.master = 0
            await group.stop(2)
            group.cluster.network.heal()
            back = await group.start(2)
            group.brokers[1] = lost
            await back.change_role(Role("SLAVE", 2, 0, "no controller has said it yet"))
            if commanded:
                group.let_follow(2, lost)
            else:
                back.replication.follow(lost.identity.address, lost.identity.ha_address)
            await trio.sleep(10)
            # then it has cut nothing, and has it when it leads again
            assert back.store.max_physical_offset == end
            slave = back.replication.slave
            assert slave is not None
            if commanded:
                assert "leads no more" in slave.progress().refusal
            else:
                assert slave.progress().master_address is None
            await group.elect(2)
            await until(lambda: group.bodies(back)[-1:] == [b"acknowledged"], 30)

    run_seed(scenario, 3)
