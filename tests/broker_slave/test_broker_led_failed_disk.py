"""Brokers that cannot lead, for their disk has failed or something else is in the way: others do."""

from __future__ import annotations

import errno
import random

import pytest
import trio
from test_broker_led_replaced import others
from test_broker_led_rows import part

from understudy.broker.role import Role
from understudy.broker.switch_replication import SwitchReplication
from understudy.testkit.led.group import BROKERS, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true", "inSyncReplicas": "2", "haSendHeartbeatInterval": "200"}
BROKEN = OSError(errno.EIO, "Input/output error")


async def fail_once(group: LedGroup, name: str) -> None:
    """Let one sync of the disk of *name* fail."""
    disk, store = group.cluster.host(name).disk, group.brokers[name].store
    disk.sync_error = BROKEN
    master = group.master()
    assert master is not None
    with trio.move_on_after(30):
        while not store.disk_failed:
            await group.send(master, b"written")
    assert store.disk_failed
    disk.sync_error = None


async def left_with_two(group: LedGroup) -> tuple[str, str]:
    """Create the topic, and have the third member leave; return the hosts of the master and of its last slave."""
    first = await group.ready(3)
    await group.create_topic(first)
    second, third = others(first)
    await group.kill(third)
    await until(lambda: len(group.members()) == 2, 10)
    return first, second


def test_a_slave_whose_disk_has_failed_leaves_the_set() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            broken, healthy = others(first)
            await fail_once(group, broken)
            await until(lambda: sorted(group.members()) == sorted([first, healthy]), 10)
            await trio.sleep(5)
            assert sorted(group.members()) == sorted([first, healthy])
            assert await group.send(first, b"goes on") == 0
            slave = part(group, broken).slave
            assert slave is not None and "its disk has failed" in slave.progress().refusal
            # and comes back once it is started with a good one
            await group.kill(broken)
            await group.start_broker(broken)
            await group.ready(3)

    run_seed(scenario, 1)


def test_a_master_whose_disk_has_failed_gives_way() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            await fail_once(group, first)
            await until(lambda: group.master() not in (None, first), 5)
            master = await group.ready(2)
            assert await group.send(master, b"goes on") == 0

    run_seed(scenario, 1)


def test_a_master_alone_whose_disk_has_failed_goes_on_giving_what_it_has() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL | {"inSyncReplicas": "1"}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            for each in others(first):
                await group.kill(each)
            await until(lambda: group.members() == [first], 10)
            assert await group.send(first, b"kept") == 0
            await fail_once(group, first)
            await trio.sleep(10)
            assert group.master() == first
            assert group.bodies(first)[0] == b"kept"

    run_seed(scenario, 1)


@pytest.mark.parametrize("lasting", [True, False], ids=["for good", "for a while"])
def test_who_is_elected_and_cannot_take_the_role_gives_way(monkeypatch: pytest.MonkeyPatch, lasting: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            failing: list[SwitchReplication] = []
            prepare = SwitchReplication.prepare

            async def full(replication: SwitchReplication, role: Role) -> None:
                if not role.is_slave and failing in ([], [replication]):  # the first one who tries
                    failing[:] = [replication]
                    raise OSError(errno.ENOSPC, "No space left on device")
                await prepare(replication, role)

            monkeypatch.setattr(SwitchReplication, "prepare", full)
            await group.kill(first)
            await until(lambda: group.master() not in (None, first), 10)
            assert part(group, str(group.master())) is not failing[0]
            if not lasting:
                monkeypatch.setattr(SwitchReplication, "prepare", prepare)
            await group.ready(2)
            assert await group.send(str(group.master()), b"goes on") == 0

    run_seed(scenario, 1)


def test_who_is_elected_alone_and_cannot_take_the_role_takes_it_once_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, second = await left_with_two(group)
            prepare = SwitchReplication.prepare

            async def full(replication: SwitchReplication, role: Role) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            monkeypatch.setattr(SwitchReplication, "prepare", full)
            await group.kill(first)
            await trio.sleep(10)
            assert group.master() is None
            monkeypatch.setattr(SwitchReplication, "prepare", prepare)
            await until(lambda: group.master() == second, 10)
            assert set(BROKERS) > set(group.brokers)

    run_seed(scenario, 1)


def test_a_master_that_lost_its_power_is_none_that_leads_while_its_successor_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, second = await left_with_two(group)
            await trio.sleep(3)
            sent = [b"%d" % number for number in range(20)]
            for body in sent:
                assert await group.send(first, body) == 0
            prepare = SwitchReplication.prepare

            async def full(replication: SwitchReplication, role: Role) -> None:
                if not role.is_slave and replication is part(group, second):
                    raise OSError(errno.ENOSPC, "No space left on device")
                await prepare(replication, role)

            monkeypatch.setattr(SwitchReplication, "prepare", full)
            # given one loss of power; the other member has everything, and cannot take the role for a while
            await group.kill(first, power=True)
            await trio.sleep(1.5)
            await group.start_broker(first)
            await trio.sleep(10)
            assert group.master() is None
            monkeypatch.setattr(SwitchReplication, "prepare", prepare)
            await group.ready(2)
            assert group.master() == second
            assert group.bodies(second) == sent

    run_seed(scenario, 1)


def test_who_is_elected_and_whose_disk_hangs_gives_way_until_it_answers() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"before") == 0
            # given a disk that fails no call, and takes very long for each
            hanging = min(others(first), key=lambda each: part(group, each).own_id)
            disk = group.cluster.host(hanging).disk
            disk.sync_seconds = 60.0
            assert await group.send(first, b"not on the disk that hangs") == 0
            await group.kill(first)
            await until(lambda: group.master() not in (None, first), 10)
            # then another one leads, and who hung follows it at last
            master = str(group.master())
            assert master != hanging
            assert await group.send(master, b"goes on") == 0
            disk.sync_seconds = 0.0
            await until(lambda: hanging in group.members(), 130)
            assert group.master() == master

    run_seed(scenario, 1)
