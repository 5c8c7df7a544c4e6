"""Nobody of the sync-state set lives: one outside it is elected with ``enableElectUncleanMaster``, else nobody."""

from __future__ import annotations

import random

import trio

from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.led.group import ASK_MS, BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}
MISSED_SECONDS = 15.0
"""Several times as long as it takes until a master of this group is missed and another one is elected."""


async def alone_and_lost(group: LedGroup) -> tuple[str, list[str]]:
    """Have a master take messages alone, and lose it before the others are back; return it and those others."""
    first = await group.ready(3)
    await group.create_topic(first)
    assert [await group.send(first, b"all %d" % number) for number in range(3)] == [0] * 3
    await until(lambda: all(len(group.bodies(name)) == 3 for name in BROKERS), 10)
    others = [name for name in BROKERS if name != first]
    for name in others:
        await group.kill(name)
    await until(lambda: group.members() == [first], 20)
    assert [await group.send(first, b"alone %d" % number) for number in range(2)] == [0] * 2
    await group.kill(first)
    for name in others:
        await group.start_broker(name)
    return first, others


def test_one_outside_the_set_is_elected_and_the_former_master_follows_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, others = await alone_and_lost(group)
            # when an operator gives up what only the lost one has
            for name in CONTROLLERS:
                address = f"{group.cluster.address(name)}:{API_PORT}"
                change = request(RequestCode.UPDATE_CONTROLLER_CONFIG, {}, b"enableElectUncleanMaster=true")
                assert (await group.client.invoke(address, change, ASK_MS)).code == 0
            # then one of those who live leads, in a newer epoch, without what only the lost one had
            second = await group.ready(2)
            assert second in others
            assert group.bodies(second) == [b"all 0", b"all 1", b"all 2"]
            assert await group.send(second, b"after") == 0
            # and the former master gives up what it had alone, when it is back
            await group.start_broker(first)
            assert await group.ready(3) == second
            expected = [b"all 0", b"all 1", b"all 2", b"after"]
            await until(lambda: all(group.bodies(name) == expected for name in BROKERS), 10)
            ends = {group.brokers[name].store.max_physical_offset for name in BROKERS}
            assert len(ends) == 1

    run_seed(scenario, 1)


def test_without_the_key_nobody_outside_the_set_is_elected() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, others = await alone_and_lost(group)
            # then nobody leads, however long that takes
            await trio.sleep(MISSED_SECONDS)
            assert group.master() is None
            assert all(group.brokers[name].role.is_slave for name in others)
            assert 0 not in [await group.send(name, b"refused") for name in others]
            # and the one that was lost leads again, with all that it had acknowledged
            await group.start_broker(first)
            assert await group.ready(3) == first
            expected = [b"all 0", b"all 1", b"all 2", b"alone 0", b"alone 1"]
            await until(lambda: all(group.bodies(name) == expected for name in BROKERS), 10)

    run_seed(scenario, 2)
