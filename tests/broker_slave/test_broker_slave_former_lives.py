"""A topic that was deleted, or deleted and made again, at a master: nothing of its former life comes back anywhere."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import Pair, open_pair, run
from test_broker_slave_tables import delete_and_make_again

from understudy.broker.broker import Broker
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until


def ends(broker: Broker) -> dict[int, int]:
    """Return the end of each queue of the topic that has one."""
    return {
        queue_id: broker.store.max_queue_offset(topic, queue_id)
        for topic, queue_id in broker.store.queues()
        if topic == "orders"
    }


def total(broker: Broker) -> int:
    return sum(ends(broker).values())


async def caught_up(pair: Pair) -> None:
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)


async def delete(pair: Pair) -> None:
    assert (await pair.ask(pair.master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0


def store_folder(broker: Broker) -> str:
    return broker.options.store.store_path_root_dir


@pytest.mark.parametrize("new", [0, 3])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("mark", [False, True], ids=["no mark", "mark"])
@pytest.mark.parametrize("host", ["c1", "c2"])
def test_neither_master_nor_slave_brings_the_former_life_back(host: str, mark: bool, power: bool, new: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, {"flushDiskType": "SYNC_FLUSH"}) as pair:
            await pair.send(20)
            await caught_up(pair)
            # given a topic that was deleted and made again, as both know
            await delete_and_make_again(pair)
            await pair.send(new)
            await caught_up(pair)
            await until(lambda: total(pair.slave) == new, 10)
            # when one of them falls, with its mark or without
            broker = pair.master if host == "c1" else pair.slave
            folder, disk = store_folder(broker), pair.cluster.host(host).disk
            await trio.sleep(source.choice([0, 12]))
            await pair.cluster.kill(host, power=power)
            if not mark and disk.exists(f"{folder}/recovery.mark"):
                disk.remove(f"{folder}/recovery.mark")
            await pair.cluster.restart(host)
            # then both have the new life alone, and go on with it
            await caught_up(pair)
            await until(lambda: total(pair.slave) == total(pair.master) == new, 20)
            await pair.send(4)
            await caught_up(pair)
            await until(lambda: ends(pair.slave) == ends(pair.master), 10)
            assert total(pair.master) == new + 4

    run(scenario)


def test_a_slave_that_slept_through_it_drops_the_former_life_before_a_new_message_comes() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(8)
            await caught_up(pair)
            await until(lambda: pair.slave.topics.get("orders") is not None, 5)
            await pair.cluster.kill("c2")
            await pair.send(8)
            await delete_and_make_again(pair)
            await pair.cluster.restart("c2")
            await caught_up(pair)
            await until(lambda: total(pair.slave) == 0, 10)

    run(scenario)


def test_a_topic_that_was_only_deleted_stays_away() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(8)
            await caught_up(pair)
            await until(lambda: pair.slave.topics.get("orders") is not None, 5)
            await delete(pair)
            await until(lambda: pair.slave.topics.get("orders") is None, 5)
            await trio.sleep(12)
            # given two stores as the reference leaves them: without what only we write
            for host, broker in (("c1", pair.master), ("c2", pair.slave)):
                folder, disk = store_folder(broker), pair.cluster.host(host).disk
                await pair.cluster.kill(host)
                for name in ("recovery.mark", "deleted.topics"):
                    disk.remove(f"{folder}/{name}")
            await pair.cluster.restart("c1")
            await pair.cluster.restart("c2")
            await caught_up(pair)
            assert (ends(pair.master), ends(pair.slave)) == ({}, {})
            # and made again it is empty
            await pair.send(2)
            await until(lambda: total(pair.slave) == 2 == total(pair.master), 10)

    run(scenario)
