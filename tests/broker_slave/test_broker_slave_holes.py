"""A power loss took bytes out of the middle of a slave's log: its master gives them again, or it keeps what it has."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from slave_rig import Pair, bodies, open_pair, run

from understudy.broker.broker import Broker
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.testkit.waiting import until

FILE_BYTES = 64 * 1024
SMALL = {"mappedFileSizeCommitLog": str(FILE_BYTES)}
ASYNC = {**SMALL, "flushDiskType": "ASYNC_FLUSH"}
WHOLE = {**SMALL, "haTransferWholeLog": "true"}
STORE = "/data/broker-a-1"


def content(broker: Broker) -> bytes:
    """Return the whole log of *broker*."""
    store, found = broker.store, b""
    begin = max(store.min_physical_offset, 0)
    while part := store.slice(begin + len(found), store.max_physical_offset - begin - len(found)):
        found += part
    return found


def same(pair: Pair) -> bool:
    return pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset


async def lose(pair: Pair, places: Sequence[int], length: int = 300, *, first: bool = True) -> None:
    """Take power from the slave, and bytes at *places* from its log."""
    if first:
        await pair.cluster.kill("c2", power=True)
    disk = pair.cluster.host("c2").disk
    for place in places:
        start = place - place % FILE_BYTES
        at = place - start
        disk.damage(
            f"{STORE}/commitlog/{start:020d}", lambda data, at=at: data[:at] + bytes(length) + data[at + length :]
        )  # type: ignore[misc]
    if disk.exists(f"{STORE}/recovery.mark"):
        disk.remove(f"{STORE}/recovery.mark")


async def filled(pair: Pair, source: random.Random, count: int = 12) -> list[int]:
    """Send messages and return where each begins, when the slave has all of them durably."""
    starts = []
    for _ in range(count):
        starts.append(pair.master.store.max_physical_offset)
        await pair.producer.send(Message("orders", source.randbytes(12_000)))
    await until(lambda: same(pair), 10)
    await trio.sleep(15)
    return starts


@pytest.mark.parametrize("seed", range(3))
def test_a_slave_with_holes_gets_every_message_back(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, WHOLE, ASYNC) as pair:
            # given a slave that lost bytes of several messages in several files
            starts = await filled(pair, source)
            await lose(pair, [start + 2_000 for start in source.sample(starts[1:-1], 3)])
            # when it starts again beside its master, which goes on
            await pair.cluster.restart("c2")
            await pair.send(3)
            # then it has all its master has, byte for byte, and all of it can be read
            await until(lambda: pair.slave.store.hole is None and same(pair), 30)
            assert content(pair.slave) == content(pair.master)
            assert bodies(pair.slave) == bodies(pair.master)
            await pair.cluster.kill("c2")
            await pair.cluster.restart("c2")
            await until(lambda: same(pair), 10)
            assert bodies(pair.slave) == bodies(pair.master)

    run(scenario, seed)


def test_a_hole_is_remembered_while_there_is_no_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, WHOLE, ASYNC) as pair:
            starts = await filled(pair, source)
            whole = content(pair.master)
            await pair.cluster.kill("c1")
            # when the slave starts twice without its master
            await lose(pair, [starts[2] + 2_000, starts[7] + 2_000])
            for _ in range(2):
                await pair.cluster.restart("c2")
                # then it keeps everything else
                await trio.sleep(5)
                assert starts[2] == pair.slave.store.hole
                assert len(starts) - 2 <= len(bodies(pair.slave))
                assert len(whole) == pair.slave.store.max_physical_offset
                await pair.cluster.kill("c2", power=True)
            # and heals when the master is back
            await pair.cluster.restart("c1")
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.store.hole is None and same(pair), 60)
            assert content(pair.slave) == content(pair.master)
            assert content(pair.slave)[: len(whole)] == whole

    run(scenario)


def test_a_slave_cuts_nothing_when_its_master_has_deleted_that_part() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, WHOLE, ASYNC) as pair:
            starts = await filled(pair, source)
            whole = content(pair.master)
            # given a master without its first two files
            disk = pair.cluster.host("c1").disk
            await lose(pair, [starts[2] + 2_000])
            await pair.cluster.kill("c1")
            for number in range(2):
                disk.remove(f"/data/broker-a-0/commitlog/{number * FILE_BYTES:020d}")
            await pair.cluster.restart("c1")
            await pair.cluster.restart("c2")
            await until(lambda: len(pair.cluster.brokers("c2")) == 1, 10)
            await pair.send(3)
            # then the slave goes on with what it has
            await until(lambda: same(pair), 30)
            assert starts[2] == pair.slave.store.hole
            ours = content(pair.slave)
            assert ours[: starts[2]] + ours[starts[3] : len(whole)] == whole[: starts[2]] + whole[starts[3] :]
            assert ours[2 * FILE_BYTES :] == content(pair.master)

    run(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_power_that_goes_again_in_the_middle_of_healing_costs_nothing(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        flow = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "40000"}
        async with open_pair(source, {**WHOLE, **flow}, ASYNC) as pair:
            starts = await filled(pair, source)
            await lose(pair, [starts[2] + 2_000, starts[6] + 2_000])
            # when power goes again while it looks or copies, some times
            for _ in range(4):
                await pair.cluster.restart("c2")
                await trio.sleep(source.uniform(0.1, 9))
                await pair.cluster.kill("c2", power=True)
            await pair.cluster.restart("c2")
            # then it is whole in the end
            await until(lambda: pair.slave.store.hole is None and same(pair), 90)
            assert content(pair.slave) == content(pair.master)
            assert bodies(pair.slave) == bodies(pair.master)

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_master_that_dies_while_it_heals_a_slave_takes_nothing_with_it(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        flow = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "40000"}
        async with open_pair(source, {**WHOLE, **flow}, ASYNC) as pair:
            starts = await filled(pair, source)
            end = pair.slave.store.max_physical_offset
            places = sorted(source.sample(starts[1:-1], 3))
            await lose(pair, [start + 2_000 for start in places])
            await pair.cluster.restart("c2")
            await until(lambda: len(pair.cluster.brokers("c2")) == 1, 10)
            before = set(bodies(pair.slave))
            assert pair.slave.store.hole is not None
            assert len(before) < len(starts)
            # when the master dies while the slave looks or heals, some way or other
            rest = end - places[0]
            await trio.sleep(source.uniform(0.1, 2.5 * rest / 40_000))
            await pair.cluster.kill("c1", power=source.random() < 0.5)
            await trio.sleep(source.uniform(0, 5))
            # then the slave can give everything that it could before, also after another start
            for power in (None, False, True):
                if power is not None:
                    await pair.cluster.kill("c2", power=power)
                    await pair.cluster.restart("c2")
                    await until(lambda: len(pair.cluster.brokers("c2")) == 1, 10)
                assert end == pair.slave.store.max_physical_offset
                assert before <= set(bodies(pair.slave))
            # and gets the rest when the master is back
            await pair.cluster.restart("c1")
            await until(lambda: pair.slave.store.hole is None and same(pair), 90)
            assert content(pair.slave) == content(pair.master)
            assert bodies(pair.slave) == bodies(pair.master)

    run(scenario, seed)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", range(6))
def test_after_power_losses_the_logs_are_equal(seed: int, flush: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(
            source, {**WHOLE, "flushDiskType": "SYNC_FLUSH"}, {**SMALL, "flushDiskType": flush}
        ) as pair:
            over = False

            async def write() -> None:
                while not over:
                    try:
                        body = source.randbytes(source.randint(1, 2_500))
                        await pair.producer.send(Message("orders", body), timeout_ms=3_000)
                    except ClientError:
                        continue
                    await trio.sleep(source.uniform(0, 0.1))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                for _ in range(5):
                    await trio.sleep(source.choice([0.3, 1.1, 4]))
                    await pair.cluster.kill("c2", power=True)
                    await trio.sleep(source.choice([0.01, 0.5, 4]))
                    await pair.cluster.restart("c2")
                over = True
            await until(lambda: pair.slave.store.hole is None and same(pair), 60)
            begin = max(pair.slave.store.min_physical_offset, 0)
            assert content(pair.slave) == content(pair.master)[begin:]
            if begin == 0:
                assert bodies(pair.slave) == bodies(pair.master)

    run(scenario, seed)


@pytest.mark.covers("R106")
def test_a_slave_that_heals_does_not_count_for_a_synchronous_send() -> None:
    async def scenario(source: random.Random) -> None:
        double = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2"}
        async with open_pair(source, {**WHOLE, **double}, ASYNC) as pair:
            starts = await filled(pair, source)
            master = pair.master.replication.master
            assert master is not None
            end = pair.master.store.max_physical_offset
            copied: list[int] = []
            await lose(pair, [starts[2] + 2_000])
            # the connection of before the power loss may not be known to be dead; what it reported was true
            master.acknowledged.append(lambda: copied.append(master.status()[-1].acknowledged))
            await pair.cluster.restart("c2")
            await until(lambda: bool(copied) and copied[-1] >= end, 30)
            # then the master saw it at the hole first, and at the end only when it was there
            assert starts[2] == copied[0]
            assert sorted(copied) == copied
            assert pair.slave.store.hole is None and content(pair.slave)[:end] == content(pair.master)[:end]
            await pair.send(1)

    run(scenario)
