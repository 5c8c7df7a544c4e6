"""A slave that lost power: whatever is left of its log, it follows its master again."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import Pair, open_pair, run

from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.testkit.waiting import until

FILE_BYTES = 64 * 1024
SMALL = {"mappedFileSizeCommitLog": str(FILE_BYTES)}


async def check_that_it_follows(pair: Pair) -> None:
    """Check that the slave gets all its master has, and what came just now byte for byte."""
    master, slave = pair.master, pair.slave
    before = master.store.max_physical_offset
    await until(lambda: slave.store.max_physical_offset == before, 30)
    await pair.send(3)
    end = master.store.max_physical_offset
    await until(lambda: slave.store.max_physical_offset == end, 10)
    assert bytes(master.store.slice(before, end - before)) == bytes(slave.store.slice(before, end - before)) != b""


def test_a_slave_that_kept_its_first_file_without_a_byte_takes_the_masters_last_one() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, SMALL, {**SMALL, "flushDiskType": "ASYNC_FLUSH"}) as pair:
            # given a slave whose log exists as a file of zeros only
            await pair.send(3)
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            path = "/data/broker-a-1/commitlog/00000000000000000000"
            await pair.cluster.kill("c2", power=True)
            disk = pair.cluster.host("c2").disk
            for name in disk.listdir("/data/broker-a-1"):
                if name not in ("commitlog", "config"):
                    disk.remove_tree(f"/data/broker-a-1/{name}")
            disk.damage(path, lambda data: bytes(FILE_BYTES))
            # when its master is some files further
            for _ in range(10):
                await pair.producer.send(Message("orders", source.randbytes(20_000)))
            await pair.cluster.restart("c2")
            # then it goes on with the last one, also after another start
            await check_that_it_follows(pair)
            assert pair.slave.store.min_physical_offset >= 2 * FILE_BYTES
            await pair.cluster.kill("c2")
            await pair.cluster.restart("c2")
            await check_that_it_follows(pair)
            queue = pair.master.store.queues()
            ends = {each: pair.master.store.max_queue_offset(*each) for each in queue if each[0] == "orders"}
            assert ends == {each: pair.slave.store.max_queue_offset(*each) for each in ends}

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_slave_follows_again_after_each_power_loss(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        slave = {**SMALL, "flushDiskType": source.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])}
        master = {**SMALL, "haTransferWholeLog": source.choice(["true", "false"])}
        async with open_pair(source, master, slave) as pair:
            over = False

            async def write() -> None:
                while not over:
                    try:
                        await pair.producer.send(
                            Message("orders", source.randbytes(source.randint(1, 20_000))), timeout_ms=3_000
                        )
                    except ClientError:
                        continue
                    await trio.sleep(source.uniform(0, 0.2))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                for _ in range(6):
                    # the less there is on the disk, the stranger what is left of it
                    await trio.sleep(source.choice([0.0, 0.003, 0.02, 0.3, 1.1, 4]))
                    await pair.cluster.kill("c2", power=source.random() < 0.8)
                    await trio.sleep(source.choice([0.01, 0.5, 4]))
                    await pair.cluster.restart("c2")
                over = True
            await check_that_it_follows(pair)

    run(scenario, seed)
