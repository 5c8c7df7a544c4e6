"""Who is elected where one copy was enough: the one that has it, however old what the heartbeats say is."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replaced import others

from understudy.testkit.led.group import LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed

TWO = {"inSyncReplicas": "2", "minInSyncReplicas": "2"}


async def acknowledged_by_one(group: LedGroup, lagging: int) -> tuple[str, str]:
    """Return the master, and who alone has what it acknowledges while one of the others hears nothing of it."""
    first = await group.ready(3)
    await group.create_topic(first)
    assert await group.send(first, b"before") == 0
    await trio.sleep(1)
    lags, copies = others(first)[lagging], others(first)[1 - lagging]
    group.cluster.partition([first], [lags])
    assert await group.send(first, b"one copy") == 0
    return first, copies


@pytest.mark.covers("R170", "R237")
@pytest.mark.parametrize("lagging", [0, 1])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_one_slave_has_and_no_heartbeat_tells_is_not_lost(lagging: int, seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, TWO) as group:
            first, copies = await acknowledged_by_one(group, lagging)
            await group.kill(first)
            group.cluster.heal()
            second = await group.ready(1)
            assert second == copies
            assert b"one copy" in group.bodies(second)
            await group.start_broker(first)
            await group.ready(3)
            assert all(b"one copy" in group.bodies(each) for each in group.brokers)

    run_seed(scenario, seed)


def test_a_replica_that_does_not_say_where_its_log_ends_holds_nobody_up() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, TWO) as group:
            first, copies = await acknowledged_by_one(group, 0)
            group.cluster.freeze(others(first)[0])
            killed_at = trio.current_time()
            await group.kill(first)
            assert await group.ready(1) == copies
            assert trio.current_time() - killed_at < 0.5

    run_seed(scenario, 1)
