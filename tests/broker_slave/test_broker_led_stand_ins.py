"""A led slave that copied something in place of a lost message comes to lead: it asks for that, and then serves."""

from __future__ import annotations

import random

import trio
from test_broker_led_replication import ALL

from understudy.testkit.led.group import BROKERS, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


def test_a_new_master_that_lacks_something_takes_messages_when_its_slaves_were_asked() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            name = await group.ready(3)
            await group.create_topic(name)
            for number in range(3):
                assert await group.send(name, b"%d" % number) == 0
            others = sorted(set(BROKERS) - {name})
            end = group.brokers[name].store.max_physical_offset
            await until(lambda: all(group.brokers[each].store.max_physical_offset == end for each in others), 10)
            # given slaves that know of a record that it stands in for a lost one, as their master sent it
            for each in others:
                group.brokers[each].store._core.holes.copy(0)
            await group.kill(name)
            await until(lambda: group.master() not in (None, name), 30)
            heir = group.master()
            assert heir is not None
            # then the one that leads asks the other one, and takes messages within the bound
            with trio.fail_after(8):
                while await group.send(heir, b"after") != 0:  # noqa: ASYNC110 - it is a send, each time
                    await trio.sleep(0.2)
            assert group.brokers[heir].store.hole is None  # the other one has it

    run_seed(scenario, 1)
