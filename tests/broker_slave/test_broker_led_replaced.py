"""A led master that may have been replaced acknowledges nothing that its successor could lack."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALONE = {"inSyncReplicas": "1"}


def others(name: str) -> list[str]:
    return [each for each in BROKERS if each != name]


async def keep_sending(group: LedGroup, name: str, seconds: float) -> list[tuple[float, int]]:
    """Send to *name* again and again; return when each send began, and its code."""
    sent = []
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        began = trio.current_time()
        sent.append((began, await group.send(name, b"%f" % began)))
        await trio.sleep(0.02)
    return sent


@pytest.mark.parametrize("cut_from_slaves", [True, False], ids=["from all", "from controllers, and a slave is left"])
def test_a_master_that_is_cut_off_acknowledges_nothing_once_another_one_is_master(cut_from_slaves: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            away = [*CONTROLLERS, *(others(first) if cut_from_slaves else others(first)[:1])]
            group.cluster.partition([first], away)
            elected: list[float] = []

            async def watch() -> None:
                await until(lambda: any(not group.brokers[each].role.is_slave for each in others(first)), 20)
                elected.append(trio.current_time())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                sent = await keep_sending(group, first, 12)
            acknowledged = [began for began, code in sent if code == 0]
            # nobody else could be master in the beginning
            assert len(acknowledged) > 10
            assert max(acknowledged) < elected[0]
            group.cluster.heal()
            second = await group.ready(3)
            assert second != first
            assert await group.send(second, b"after") == 0
            await until(lambda: len({tuple(group.bodies(each)) for each in BROKERS}) == 1, 10)

    run_seed(scenario, 11)


@pytest.mark.parametrize("suspended", [False, True], ids=["stopped", "suspended"])
def test_a_master_that_stood_still_asks_before_it_acknowledges(suspended: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            group.cluster.freeze(first)
            codes: list[int] = []

            async def send() -> None:
                codes.append(await group.send(first, b"late"))

            async with trio.open_nursery() as nursery:
                await until(lambda: any(not group.brokers[each].role.is_slave for each in others(first)), 20)
                nursery.start_soon(send)
                await trio.sleep(0.5)
                group.cluster.unfreeze(first, suspended=suspended)
                # then it follows within a second, whatever waited there for copies
                await until(lambda: group.brokers[first].role.is_slave and len(group.members()) == 3, 1)
            assert codes != [0]
            second = await group.ready(3)
            assert second != first
            await until(lambda: all(group.bodies(each) == [b"before"] for each in BROKERS), 10)

    run_seed(scenario, 12)


@pytest.mark.covers("R263")
def test_without_controllers_traffic_goes_on_as_long_as_nobody_can_have_been_elected() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for name in CONTROLLERS:
                await group.kill(name)
            await trio.sleep(20)
            assert await group.send(first, b"x") == 0
            # when a member of the set is gone, too, nobody can tell whether it was elected
            await group.kill(others(first)[0])
            assert await group.send(first, b"y") == 12
            end = group.brokers[first].store.max_physical_offset
            assert await group.send(first, b"z") == 1
            assert group.brokers[first].store.max_physical_offset == end, "it is refused before it is written"
            # until the controllers are asked again
            for name in CONTROLLERS:
                await group.start_controller(name)
            await group.ready(2)
            await trio.sleep(1)
            assert await group.send(first, b"z") == 0

    run_seed(scenario, 13)


def test_a_slave_that_leaves_costs_a_master_with_controllers_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for name in others(first):
                await group.kill(name)
                began = trio.current_time()
                assert await group.send(first, b"x") == 0
                assert trio.current_time() - began < 0.1

    run_seed(scenario, 14)


def test_a_master_whose_connections_to_controllers_have_ended_trusts_what_they_said_before_no_more() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {"inSyncReplicas": "2", "controllerHeartBeatTimeoutMills": "10000", "brokerHeartbeatInterval": "1000"}
        async with led_group(source, keys) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            second, third = others(first)
            # given what stands between two rooms: it ends the connections that it knows, and lets nothing through
            network, address = group.cluster.network, group.cluster.address
            for each in (first, third):
                for controller in CONTROLLERS:
                    network.reset(address(each), address(controller))
            await trio.sleep(0.002)
            group.cluster.partition([first, third], [second, *CONTROLLERS])
            await until(lambda: group.master() == second, 2, 0.01)
            # then the other slave's copy is not enough, though controllers would not miss a silent master for long
            sent = await keep_sending(group, first, 6)
            assert 0 not in [code for _, code in sent]
            group.cluster.heal()
            await group.ready(3, 60)

    run_seed(scenario, 1)


def test_a_master_that_loses_its_connections_to_controllers_is_heard_at_once_when_it_is_still_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALONE) as group, trio.open_nursery() as nursery:
            first = await group.ready(3)
            await group.create_topic(first)
            leader = next(each for each in CONTROLLERS if group.controllers[each].member.leads())
            follower = next(each for each in CONTROLLERS if each != leader)
            group.cluster.partition([first], others(first))  # nobody else acknowledges
            nursery.start_soon(group.kill, follower)
            sent = await keep_sending(group, first, 1.0)
            assert [code for _, code in sent].count(0) > 0.9 * len(sent)

    run_seed(scenario, 1)
