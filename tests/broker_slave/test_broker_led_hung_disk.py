"""Led brokers whose disk hangs, without an error, or has failed where only its master knows: others lead meanwhile."""

from __future__ import annotations

import errno
import random

import pytest
import trio
from test_broker_led_failed_disk import ALL
from test_broker_led_replaced import others
from test_broker_led_rows import part

from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.led.group import LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

SYNC = {**ALL, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "500"}
MISSED_SECONDS = 2.0
"""``controllerHeartBeatTimeoutMills`` of the groups here."""


def hang(group: LedGroup, name: str) -> trio.Event:
    """Let the disk of *name* answer no more before the event is set."""
    answers = group.cluster.host(name).disk.answers = trio.Event()
    return answers


async def with_topic(group: LedGroup) -> str:
    first = await group.ready(3)
    await group.create_topic(first)
    assert await group.send(first, b"before") == 0
    await trio.sleep(1)
    return first


def epoch(group: LedGroup) -> int:
    facts = group.facts()
    assert facts is not None
    return facts.master_epoch


def test_a_master_whose_disk_hangs_gives_way_and_follows_once_it_answers() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, SYNC) as group:
            first = await with_topic(group)
            answers, before = hang(group, first), epoch(group)
            assert await group.send(first, b"not on its disk") != 0
            await until(lambda: group.master() not in (None, first), 3 * MISSED_SECONDS)
            second = await group.ready(2)
            assert await group.send(second, b"goes on") == 0
            # while it hangs it is no obstacle, and once it answers it follows
            await trio.sleep(10)
            assert await group.send(second, b"goes on still") == 0
            answers.set()
            await until(lambda: first in group.members(), 10)
            assert (group.master(), epoch(group)) == (second, before + 1)
            await until(lambda: group.bodies(first) == group.bodies(second), 10)

    run_seed(scenario, 1)


@pytest.mark.parametrize(("keys", "seconds"), [(SYNC, MISSED_SECONDS - 1), (ALL, 30.0)], ids=["short", "no send waits"])
def test_a_master_whose_disk_hangs_stays_while_that_is_no_worse_than_to_replace_it(
    keys: dict[str, str], seconds: float
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys) as group:
            first = await with_topic(group)
            answers, before = hang(group, first), epoch(group)
            with trio.move_on_after(seconds) as waits:
                assert await group.send(first, b"while it hangs") == 0
            assert waits.cancelled_caught == (keys == SYNC)
            await trio.sleep_until(waits.deadline)
            answers.set()
            await trio.sleep(1)
            assert await group.send(first, b"goes on") == 0
            await trio.sleep(10)
            assert (group.master(), epoch(group)) == (first, before)

    run_seed(scenario, 1)


def test_a_master_that_nobody_can_replace_goes_on_at_once_when_its_disk_answers() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL | {"flushIntervalCommitLog": "60000", "inSyncReplicas": "1"}) as group:
            first = await with_topic(group)
            answers = hang(group, first)
            assert await group.send(first, b"on no disk") == 0
            # given controllers that are not asked to have it alone: that waits for the disk
            for each in others(first):
                await group.kill(each)
            await group.send(first, b"neither")
            before = epoch(group)
            await trio.sleep(3 * MISSED_SECONDS + 10)
            assert group.master() == first
            assert len(group.members()) > 1
            answers.set()
            await until(lambda: group.members() == [first], 2.0)
            assert await group.send(first, b"goes on") == 0
            assert epoch(group) == before

    run_seed(scenario, 1)


@pytest.mark.parametrize("away_seconds", [0.5, 5 * MISSED_SECONDS])
def test_a_slave_that_is_back_comes_in_though_the_disk_hangs_that_its_master_would_be_alone_with(
    away_seconds: float,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL | {"flushIntervalCommitLog": "60000"}) as group:
            first = await with_topic(group)
            hang(group, first)
            assert await group.send(first, b"on no disk") == 0
            back, last = others(first)
            # given one that is not in the set that the controllers have, when its master wants to be alone
            await group.kill(back)
            await until(lambda: back not in group.members(), 5)
            await group.kill(last)
            await trio.sleep(away_seconds)
            assert part(group, first).wanted_sync_state() == {part(group, first).own_id}
            assert last in group.members()
            await group.start_broker(back)
            await until(lambda: back in group.members(), 5)
            assert group.master() == first
            assert await group.send(first, b"on two hosts") == 0

    run_seed(scenario, 1)


def test_a_master_with_a_failed_disk_gives_way_though_it_wants_to_be_alone() -> None:
    async def scenario(source: random.Random) -> None:
        keys = ALL | {"haHousekeepingInterval": "2000"}
        async with led_group(source, keys) as group:
            first = await with_topic(group)
            # given slaves that only the master does not hear, and controllers that have them in the set
            group.cluster.partition([first], others(first))
            group.cluster.host(first).disk.sync_error = OSError(errno.EIO, "Input/output error")
            await group.send(first, b"nobody has it")
            await until(lambda: group.brokers[first].store.disk_failed, 10)
            await until(lambda: group.master() not in (None, first), 10)
            assert await group.send(await group.ready(2), b"goes on") == 0

    run_seed(scenario, 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_who_is_elected_while_an_older_change_of_its_role_hangs_gives_way(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        own = {name: {"brokerElectionPriority": each} for name, each in (("b1", "30"), ("b2", "20"), ("b3", "10"))}
        async with led_group(source, ALL, own) as group:
            first = await with_topic(group)
            hanging, third = others(first)
            answers = hang(group, hanging)
            # given a third who is elected while all live, so that the one whose disk hangs is to follow it
            leading = next(name for name, one in group.controllers.items() if one.member.leads())
            fields = {"clusterName": "DefaultCluster", "brokerName": "g", "designateElect": "true"}
            fields["brokerId"] = str(part(group, third).own_id)
            elect = request(RequestCode.CONTROLLER_ELECT_MASTER, fields)
            await group.client.invoke(f"{group.cluster.address(leading)}:{API_PORT}", elect, 3000)

            def changes() -> bool:
                led = group.brokers[hanging].led
                return led is not None and led.state is not None and led.state.changing is not None

            await until(changes, 5, 0.0002)
            await group.kill(third)
            await group.kill(first)
            await trio.sleep(1)
            facts = group.facts()
            assert facts is not None and facts.master_id == part(group, hanging).own_id
            # then one that is back leads, whatever that change waits for
            await group.start_broker(first)
            await until(lambda: group.master() == first, 5 * MISSED_SECONDS)
            answers.set()
            await until(lambda: hanging in group.members(), 10)
            assert group.master() == first

    run_seed(scenario, seed)
