"""A slave that flushes each message acknowledges what its disk has."""

from __future__ import annotations

import random

import trio
from test_broker_led_replication import ALL, SYNC, open_group

from understudy.testkit.led.group import BROKERS, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


def test_a_slave_that_flushes_each_message_acknowledges_it_once_it_is_on_its_disk() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL | SYNC) as group, trio.open_nursery() as nursery:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            # given a slave whose disk is slow
            store = group.brokers[2].store
            group.cluster.host("c2").disk.sync_seconds = 1.0
            answers: list[tuple[int, bool]] = []

            async def send() -> None:
                code = await group.send(master, b"message")
                answers.append((code, store.flushed_offset == store.max_physical_offset))

            nursery.start_soon(send)
            await until(lambda: store.max_physical_offset == master.store.max_physical_offset > 0, 10, 0.001)
            assert store.flushed_offset < store.max_physical_offset
            # then the message is acknowledged as soon as it is there, and not before
            await until(lambda: store.flushed_offset == store.max_physical_offset or bool(answers), 10, 0.001)
            await until(lambda: answers == [(0, True)], 0.1, 0.001)

    run_seed(scenario, 1)


def test_many_messages_share_the_syncs_of_a_slave_that_flushes_each() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL | SYNC) as group, trio.open_nursery() as nursery:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            group.cluster.host("c2").disk.sync_seconds = 0.5
            answers: list[int] = []

            async def send(number: int) -> None:
                answers.append(await group.send(master, b"%d" % number))

            for number in range(40):
                nursery.start_soon(send, number)
                await trio.sleep(0.05)
            await until(lambda: len(answers) == 40, 1.5, 0.001)
            assert set(answers) == {0}
            assert group.members == {1, 2, 3}

    run_seed(scenario, 1)


def test_what_members_that_flush_each_message_acknowledged_survives_their_losses_of_power() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL | SYNC | {"inSyncReplicas": "2", "minInSyncReplicas": "2"}) as group:
            name = await group.ready(3)
            await group.create_topic(name)
            other, third = sorted(set(BROKERS) - {name})
            await group.kill(third)
            await until(lambda: sorted(group.members()) == sorted([name, other]), 10)
            disk = group.cluster.host(other).disk
            disk.sync_seconds = 1.0
            await trio.sleep(1)
            acknowledged = [body for body in (b"0", b"1", b"2") if await group.send(name, body) == 0]
            assert acknowledged
            # given a slave that loses its power, and comes to lead
            await group.kill(other, power=True)
            await group.kill(name)
            disk.sync_seconds = 0.0
            await group.start_broker(other)
            await until(lambda: group.master() == other, 30)
            await group.start_broker(name)
            assert await group.ready(2, 30) == other
            await until(lambda: set(acknowledged) <= set(group.bodies(other)), 10)

    for seed in range(3):
        run_seed(scenario, seed)


def test_a_slave_whose_master_is_gone_has_everything_on_its_disk_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        lazy = {"flushIntervalCommitLog": "60000", "flushCommitLogThoroughInterval": "60000"}
        async with open_group(source, ALL | lazy) as group:
            master = await group.elect(1)
            await group.in_step()
            await until(lambda: len(group.members) == 3, 10)
            assert await group.send(master, b"message") == 0
            store = group.brokers[2].store
            assert store.flushed_offset < store.max_physical_offset
            group.scopes.pop(1).cancel()
            await until(lambda: store.flushed_offset == store.max_physical_offset, 0.1, 0.001)

    run_seed(scenario, 1)
