"""A master that is alone in its sync-state set: its disk is the only other copy, so it is waited for."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_replication import ALL, Group, open_group

from understudy.broker.broker import Broker
from understudy.broker.role import Role
from understudy.broker.switch_question import SetQuestion
from understudy.broker.switch_replication import SwitchReplication
from understudy.testkit.led.group import BROKERS, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

LAZY = {"flushIntervalCommitLog": "60000", "flushCommitLogThoroughInterval": "60000"}
"""The log is made durable once a minute, unless somebody waits for it."""


async def elected_alone(group: Group) -> Broker:
    """Have broker 1 elected, and the others gone from its set."""
    master = await group.elect(1)
    for number in (2, 3):
        await group.stop(number)
    await until(lambda: group.members == {1}, 10)
    return master


@pytest.mark.covers("R232")
def test_what_a_lone_master_acknowledged_survives_its_loss_of_power() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **LAZY}) as group:
            name = await group.ready(3)
            await group.create_topic(name)
            for other in set(BROKERS) - {name}:
                await group.kill(other)
            await until(lambda: group.members() == [name], 10)
            sent = [b"%d" % each for each in range(20)]
            assert [await group.send(name, body) for body in sent] == [0] * len(sent)
            assert group.bodies(name) == sent
            await group.kill(name, power=True)
            await group.start_broker(name)
            assert await group.ready(1) == name
            await until(lambda: group.bodies(name) == sent, 10)

    run_seed(scenario, 1)


def test_the_controllers_hear_that_a_master_is_alone_when_its_disk_has_what_it_acknowledged() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **LAZY}) as group:
            name = await group.ready(3)
            await group.create_topic(name)
            assert await group.send(name, b"with others") == 0
            group.cluster.host(name).disk.sync_seconds = 0.5
            store = group.brokers[name].store
            assert store.flushed_offset < store.max_physical_offset
            for other in set(BROKERS) - {name}:
                await group.kill(other)
            assert store.flushed_offset < store.max_physical_offset
            await until(lambda: group.members() == [name], 10, 0.001)
            assert store.flushed_offset == store.max_physical_offset

    run_seed(scenario, 1)


def test_neither_answers_nor_readers_are_ahead_of_a_lone_masters_disk() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, **LAZY}) as group:
            master = await elected_alone(group)
            disk = group.cluster.host("c1").disk
            disk.sync_seconds = 5.0  # longer than a send waits for copies
            assert await group.send(master, b"written") == 12  # FLUSH_SLAVE_TIMEOUT: no other copy, not even on disk
            assert group.bodies(master) == []
            await until(lambda: group.bodies(master) == [b"written"], 30)

    run_seed(scenario, 1)


def test_a_master_whose_last_slave_leaves_has_everything_on_its_disk_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, **LAZY}) as group:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            assert await group.send(master, b"with others") == 0
            assert master.store.flushed_offset < master.store.max_physical_offset
            for number in (2, 3):
                await group.stop(number)
            await until(lambda: group.members == {1}, 10)
            await until(lambda: master.store.flushed_offset == master.store.max_physical_offset, 0.1)

    run_seed(scenario, 1)


def test_a_lone_masters_readers_see_what_each_sync_has_though_there_is_more_by_then() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, **LAZY}) as group, trio.open_nursery() as nursery:
            master = await elected_alone(group)
            group.cluster.host("c1").disk.sync_seconds = 1.2
            for each in range(60):
                nursery.start_soon(group.send, master, b"%d" % each)
                await trio.sleep(0.1)
            assert len(group.bodies(master)) > 20

    run_seed(scenario, 1)


def test_a_lone_master_that_flushes_each_message_says_that_its_disk_is_late() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, "flushDiskType": "SYNC_FLUSH"}) as group:
            master = await elected_alone(group)
            group.cluster.host("c1").disk.sync_seconds = 7.0
            assert await group.send(master, b"late") == 10  # FLUSH_DISK_TIMEOUT

    run_seed(scenario, 1)


@pytest.mark.covers("R232")
def test_a_master_relies_on_its_disk_while_the_only_other_copy_cannot_be_elected() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, **LAZY}) as group:
            master = await elected_alone(group)
            # given a slave that copies all, and controllers that do not take it into the set
            group.master = 0
            back = await group.start(2)
            await back.change_role(Role("SLAVE", 2, group.epoch, "elected another"))
            group.let_follow(2, master)
            keeper = group.part(1)._keeper
            assert keeper is not None
            await until(lambda: 2 in keeper.state.everybody, 10)
            assert keeper.state.accepted == {1}
            for each in range(10):
                assert await group.send(master, b"%d" % each) == 0
                assert master.store.flushed_offset == master.store.max_physical_offset

    run_seed(scenario, 1)


def test_a_set_of_the_master_alone_is_not_asked_for_when_a_slave_is_back_before_the_disk_is_through() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {**ALL, **LAZY}) as group:
            name = await group.ready(3)
            await group.create_topic(name)
            other, third = sorted(set(BROKERS) - {name})
            await group.kill(third)
            await until(lambda: sorted(group.members()) == sorted([name, other]), 10)
            assert await group.send(name, b"first") == 0
            store, part = group.brokers[name].store, group.brokers[name].replication
            assert isinstance(part, SwitchReplication)
            # given a slave that is back while the master's disk still writes what it has to have for a set without it
            disk = group.cluster.host(name).disk
            disk.sync_seconds, disk.effect_first = 4.0, True
            await group.kill(other)
            await group.start_broker(other)
            await until(lambda: len(part.copying()) == 1 and len(part.wanted_sync_state()) == 2, 10, 0.01)
            # when messages are acknowledged because that slave has them
            assert [await group.send(name, b"%d" % each) for each in range(3)] == [0] * 3
            acknowledged = store.max_physical_offset
            assert store.flushed_offset < acknowledged
            # then the controllers do not have the master alone in the set before they are on its disk
            with trio.move_on_after(10):
                await until(lambda: group.members() == [name], 20, 0.001)
                assert store.flushed_offset >= acknowledged

    run_seed(scenario, 1)


def test_what_is_acknowledged_while_a_master_prepares_to_be_alone_is_on_its_disk() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {**ALL, **LAZY}) as group, trio.open_nursery() as nursery:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            # given a question that is decided, though the slaves are there and another set is wanted
            disk = group.cluster.host("c1").disk
            disk.sync_seconds, disk.effect_first = 1.0, True
            keeper, changed = group.part(1)._keeper, group.part(1)._tell_copies
            assert keeper is not None
            question = SetQuestion(keeper, frozenset({1}), group.set_epoch, master.store, changed)
            changed()
            nursery.start_soon(question.durable_alone)
            # then what comes meanwhile waits for the disk
            for each in range(3):
                assert await group.send(master, b"%d" % each) == 0
                assert master.store.flushed_offset == master.store.max_physical_offset

    run_seed(scenario, 1)


def test_a_question_for_a_slave_that_is_gone_before_it_is_asked_does_not_leave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            master = await elected_alone(group)
            # given a question that was decided when a slave came, which is gone in the same moment
            assert group.part(1).wanted_sync_state() == {1}
            assert await group.send(master, b"the slave lacks it") == 0
            assert group.part(1).asking(frozenset({1, 2}), group.set_epoch) is None
            # while the set that is in force may be asked for, by who has to be heard
            assert group.part(1).asking(frozenset({1}), group.set_epoch) is not None

    run_seed(scenario, 1)
