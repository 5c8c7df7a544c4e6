"""Controllers that are started anew, and a master or a slave that comes back before they have heard the others."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import open_group

from understudy.broker.role import Role
from understudy.broker.role_change import RoleChangeError
from understudy.runtime.network import ListenError
from understudy.testkit.led.group import BROKERS, CONTROLLERS, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true", "inSyncReplicas": "2"}
SYNC = {**ALL, "flushDiskType": "SYNC_FLUSH"}
TIMES = {"brokerHeartbeatInterval": "1000", "controllerHeartBeatTimeoutMills": "10000"}
"""Those of the defaults."""
ONE = CONTROLLERS[:1]


def epochs(group: LedGroup, name: str) -> list[int]:
    replication = group.brokers[name].replication
    return [row.epoch for row in replication.epochs()]  # type: ignore[attr-defined]


async def acknowledged(group: LedGroup, name: str, count: int = 5) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    assert [await group.send(name, body) for body in bodies] == [0] * count
    return bodies


async def second_master(group: LedGroup) -> str:
    """Have a master of epoch 2 with the whole group in its set: what is written then has an epoch before it."""
    first = await group.ready(3)
    await group.create_topic(first)
    await group.kill(first)
    await group.ready(2)
    await group.start_broker(first)
    return await group.ready(3)


async def kill_with_controllers(group: LedGroup, *names: str, power: bool = False) -> None:
    for each in group.quorum:
        await group.kill(each)
    for each in names:
        await group.kill(each, power=power)


async def start_controllers(group: LedGroup) -> None:
    for each in group.quorum:
        await group.start_controller(each)


@pytest.mark.parametrize("quorum", [ONE, CONTROLLERS], ids=["one controller", "three"])
@pytest.mark.parametrize("keys", [ALL, SYNC], ids=["loses its power", "is killed"])
def test_a_master_that_comes_back_with_its_controllers_leads_in_its_old_epoch_no_more(
    keys: dict[str, str], quorum: tuple[str, ...]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys, quorum=quorum) as group:
            master = await second_master(group)
            sent = await acknowledged(group, master)
            epoch = epochs(group, master)[-1]
            await kill_with_controllers(group, master, power=keys is ALL)
            await start_controllers(group)
            await group.start_broker(master)
            # then others in its set, which have what was acknowledged, are asked first: they were never away
            after = await group.ready(3, 5)
            assert epochs(group, after)[-1] > epoch
            assert after != master
            assert group.bodies(after) == sent

    run_seed(scenario, 1)


def test_nobody_cuts_what_is_confirmed_whenever_the_master_is_cut_off_and_killed_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, SYNC) as group:
            master = await second_master(group)
            slaves = [each for each in BROKERS if each != master]
            sent = await acknowledged(group, master)
            await until(lambda: all(group.bodies(each) == sent for each in slaves), 5)
            await kill_with_controllers(group, master)
            await start_controllers(group)
            await group.start_broker(master)
            # given that it hears who is master, if anybody, and nothing afterwards
            led = group.brokers[master].led
            assert led is not None
            await until(lambda: led.ids.problem == "", 5, 0.001)
            await trio.sleep(0.01)
            group.cluster.partition([master], CONTROLLERS)
            await trio.sleep(1)
            assert [group.bodies(each) for each in slaves] == [sent, sent]
            await group.kill(master)
            group.cluster.heal()
            await group.start_broker(master)
            assert group.bodies(await group.ready(3)) == sent

    run_seed(scenario, 1)


@pytest.mark.parametrize("quorum", [ONE, CONTROLLERS], ids=["one controller", "three"])
@pytest.mark.parametrize("times", [{}, TIMES], ids=["short times", "default times"])
def test_the_only_one_that_comes_back_leads_again_in_a_new_epoch(
    times: dict[str, str], quorum: tuple[str, ...]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**SYNC, **times}, quorum=quorum) as group:
            master = await second_master(group)
            sent = await acknowledged(group, master)
            epoch = epochs(group, master)[-1]
            await kill_with_controllers(group, *BROKERS, power=True)
            await start_controllers(group)
            await group.start_broker(master)
            await until(lambda: group.master() == master, 25)
            assert epochs(group, master)[-1] > epoch
            await until(lambda: group.bodies(master) == sent, 25)
            await group.send(master, b"meets a connection to the process that is gone")
            assert await group.send(master, b"alone") == 0

    run_seed(scenario, 1)


def test_the_only_member_of_its_set_waits_for_nobody() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **TIMES}, quorum=ONE) as group:
            master = await second_master(group)
            for each in BROKERS:
                if each != master:
                    await group.kill(each)
            await until(lambda: group.members() == [master], 10)
            assert await group.send(master, b"alone") == 0
            epoch = epochs(group, master)[-1]
            await kill_with_controllers(group, master, power=True)
            await start_controllers(group)
            await group.start_broker(master)
            await until(lambda: group.master() == master, 6)
            assert epochs(group, master)[-1] > epoch
            assert group.bodies(master) == [b"alone"]

    run_seed(scenario, 1)


def test_a_whole_group_that_comes_back_at_once_waits_for_nobody_else() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**SYNC, **TIMES}) as group:
            master = await second_master(group)
            sent = await acknowledged(group, master)
            await kill_with_controllers(group, *BROKERS, power=True)
            await start_controllers(group)
            for each in (master, *BROKERS):
                if each not in group.brokers:
                    await group.start_broker(each)
            assert group.bodies(await group.ready(3, 8)) == sent

    run_seed(scenario, 1)


def test_a_master_that_was_not_missed_yet_is_elected_anew_when_nobody_else_is_there() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **TIMES}) as group:
            master = await second_master(group)
            for each in BROKERS:
                if each != master:
                    await group.kill(each)
            await until(lambda: group.members() == [master], 10)
            epoch = epochs(group, master)[-1]
            # given controllers that stay, and see no end of its connections
            group.cluster.partition([master], CONTROLLERS)
            await group.kill(master, power=True)
            group.cluster.heal()
            await group.start_broker(master)
            await until(lambda: group.master() == master, 15)
            assert epochs(group, master)[-1] > epoch

    run_seed(scenario, 1)


@pytest.mark.parametrize("power", [True, False], ids=["loses its power", "is killed"])
@pytest.mark.parametrize("quorum", [ONE, CONTROLLERS], ids=["one controller", "three"])
def test_a_slave_that_comes_back_with_the_controllers_replaces_no_living_master(
    power: bool, quorum: tuple[str, ...]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **TIMES}, quorum=quorum) as group:
            master = await group.ready(3)
            await group.create_topic(master)
            sent = await acknowledged(group, master)
            slave = next(each for each in BROKERS if each != master)
            await kill_with_controllers(group, slave, power=power)
            await start_controllers(group)
            await group.start_broker(slave)
            await until(lambda: group.facts() is not None, 5)
            facts = group.facts()
            assert facts is not None
            epoch = facts.master_epoch
            for _ in range(15):
                await trio.sleep(1)
                facts = group.facts()
                assert facts is not None
                assert facts.master_epoch == epoch
            assert await group.ready(3) == master
            assert group.bodies(slave) == sent

    run_seed(scenario, 1)


@pytest.mark.parametrize("quorum", [ONE, CONTROLLERS], ids=["one controller", "three"])
def test_a_master_that_does_not_come_back_with_the_controllers_is_replaced(quorum: tuple[str, ...]) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL, quorum=quorum) as group:
            master = await group.ready(3)
            await group.create_topic(master)
            sent = await acknowledged(group, master)
            slaves = [each for each in BROKERS if each != master]
            await kill_with_controllers(group, master, slaves[0])
            await start_controllers(group)
            await group.start_broker(slaves[0])  # it asks who is master, and hears it
            after = await group.ready(2, 15)
            assert after in slaves
            assert group.bodies(after) == sent

    run_seed(scenario, 1)


def test_the_role_of_a_master_of_a_former_life_is_refused_whoever_gives_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            master = await group.elect(1)
            await group.in_step()
            assert await group.send(master, b"x") == 0
            end, rows = master.store.max_physical_offset, group.part(1).epochs()
            group.master = 0  # the controllers hear nothing of it
            await group.stop(1)
            back = await group.start(1)
            for epoch in (group.epoch, group.epoch - 1):
                with pytest.raises(RoleChangeError, match=f"epoch {epoch} is no new one"):
                    await back.change_role(Role("SYNC_MASTER", 0, epoch, "elected in a former life"))
            assert back.role.is_slave
            assert (back.store.max_physical_offset, group.part(1).epochs()) == (end, rows)
            assert await group.elect(1) is back
            await until(lambda: group.bodies(back) == [b"x"], 5)

    run_seed(scenario, 1)


def test_a_change_of_role_that_failed_is_made_again_in_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            await group.elect(1)
            await group.in_step()
            second = group.brokers[2]
            begun: list[int] = []

            async def refuse(role: Role) -> None:
                begun.append(group.part(2).last_epoch())
                monkeypatch.undo()
                raise ListenError("its port is taken")

            monkeypatch.setattr(second.replication, "bind", refuse)
            with pytest.raises(RoleChangeError, match="its port is taken"):
                await group.elect(2)
            assert begun == [group.epoch]
            await second.change_role(Role("SYNC_MASTER", 0, group.epoch, "elected"))
            assert group.part(2).last_epoch() == group.epoch

    run_seed(scenario, 1)
