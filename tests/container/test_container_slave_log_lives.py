"""Of two slaves the one serves whose log has bytes of a later life, or more of the same: a history alone is no log."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import run
from test_container_lost_end import FILE_BYTES, Group, bodies, content, copied, fail, open_group
from test_container_slave_log_end import acts

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.waiting import until


async def begin_a_life_without_the_second_slave(group: Group, count: int) -> bytes:
    """Let the second slave be away while the master loses so many messages and goes on, and the first one follow it.

    Returns:
        The log of the second slave.
    """
    await copied(group, 1, 2)
    await group.send(count, b"of the former life")
    await copied(group, 1, 2)
    await trio.sleep(4)
    former = content(group.slave(2))
    await group.cluster.kill("c3")
    await group.cluster.kill("c2")
    await fail(group)
    group.cluster.host("c2").disk.wipe()
    await group.cluster.restart("c1")
    await group.online()
    await group.cluster.restart("c2")
    async with open_producer(group.cluster.client_world("w"), group.cluster.name_servers, "w") as producer:
        await producer.send(Message("orders", b"of the later life"))
    await copied(group, 1)
    await trio.sleep(4)
    assert len(group.slave(1).history.value.lives) == 2
    await group.cluster.kill("c1")
    return former


def lose_log(group: Group, host: str, folder: str) -> None:
    """Take the log away, and leave what is known of it."""
    disk = group.cluster.host(host).disk
    for part in ("commitlog", "recovery.mark", "checkpoint"):
        path = f"{folder}/{part}"
        if part == "commitlog":
            for name in disk.listdir(path):
                disk.remove(f"{path}/{name}")
        elif disk.exists(path):
            disk.remove(path)


@pytest.mark.parametrize("more", [0, 8])
def test_a_slave_that_lost_its_log_leaves_it_to_one_that_has_more_of_a_former_life(more: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="5000") as group:
            # given a slave that knows of a later life, of which it has nothing, and one that has the former one
            former = await begin_a_life_without_the_second_slave(group, more)
            await group.cluster.kill("c2")
            lose_log(group, "c2", "/data/g-1")
            await group.cluster.restart("c3")
            await until(lambda: acts(group.slave(2)), 60)
            # when the first one comes back
            await group.cluster.restart("c2")
            assert content(group.slave(1)) == b""
            lives = group.slave(1).history.value
            assert len(lives.lives) == 2
            await trio.sleep(40)
            # then it has what comes before the later life, and acts when that is all
            assert content(group.slave(1)) == former[: group.durable]
            assert acts(group.slave(1)) is (not more)
            assert acts(group.slave(2)) is bool(more)
            # and has not forgotten that life
            assert group.slave(1).history.value == lives
            await group.cluster.restart("c1")
            await group.online()
            await until(lambda: content(group.slave(1)) == content(group.master), 60)
            assert b"of the later life" in bodies(group.slave(1))

    run(scenario)


def test_a_slave_with_a_longer_log_leaves_it_to_one_of_a_later_life() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="5000") as group:
            await copied(group, 1, 2)
            # given a slave that has much of a former life of the log, and one that has the later one
            await group.send(30, b"of the former life")
            await copied(group, 1)
            former = content(group.slave(1))
            assert len(former) < FILE_BYTES
            await trio.sleep(4)
            await group.cluster.kill("c2")
            await group.cluster.kill("c3")
            group.cluster.host("c3").disk.wipe()
            await fail(group)
            await group.cluster.restart("c1")
            await group.online()
            await group.cluster.restart("c3")
            async with open_producer(group.cluster.client_world("w"), group.cluster.name_servers, "w") as producer:
                await producer.send(Message("orders", b"of the later life"))
            await copied(group, 2)
            await trio.sleep(4)
            await group.cluster.kill("c1")
            await until(lambda: acts(group.slave(2)), 60)
            assert len(content(group.slave(2))) < len(former)
            # when the first one comes back, whose id is the smaller one
            await group.cluster.restart("c2")
            await trio.sleep(40)
            # then the other one goes on
            assert acts(group.slave(2))
            assert not acts(group.slave(1))
            # as long as it is there
            await group.cluster.kill("c3")
            await until(lambda: acts(group.slave(1)), 90)

    run(scenario)
