"""Blocks of zeros in queue files: found at a start and by readers, and entered again from the log."""

from __future__ import annotations

import random

import pytest
import trio
from store_fixtures import bodies_of, disk_of, put, running_store, simulated_world, small_config
from test_store_replication import queue_bodies

from understudy.format.java_hash import java_hash
from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.consume_queue import UNIT, UNIT_BYTES, is_torn
from understudy.store.message_store import MessageStore
from understudy.store.recovery import FILES_WALKED
from understudy.store.status import GetStatus

TOPIC, OTHER = "Orders", "Others"
QUEUE = f"/store/consumequeue/{TOPIC}/0/{0:020d}"
BLOCK_BYTES = 4096


def config() -> StoreConfig:
    """Return settings with queue files of some blocks."""
    return small_config(mapped_file_size_consume_queue=1_000 * 20)


def fill(store: MessageStore, count: int) -> None:
    """Store messages so that the first ones lie before the files that a start walks without a mark."""
    for number in range(count):
        put(store, TOPIC, b"%d" % number, 0, TAGS=f"t{number % 2}")
        put(store, OTHER, bytes(700))
    assert len(store._core.segments.items) > FILES_WALKED + 5


def zero(world: World, at: int, length: int) -> None:
    file = disk_of(world).open(QUEUE)
    file.write_at(at, bytes(length))
    file.sync()


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("mark", [True, False], ids=["mark", "no mark"])
@pytest.mark.parametrize("count", [300, 700, 950])
@pytest.mark.parametrize("block", [0, 1])
async def test_a_start_enters_a_lost_block_again(block: int, count: int, mark: bool, autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, config()) as store:
        fill(store, count)
        others = store.max_queue_offset(OTHER, 0)
    zero(world, block * BLOCK_BYTES, BLOCK_BYTES)
    if not mark:
        disk_of(world).remove("/store/recovery.mark")
    async with running_store(world, config()) as store:
        if block == 0 or not mark:  # else a reader finds it, see below
            assert store.min_queue_offset(TOPIC, 0) == 0
            assert queue_bodies(store)[TOPIC, 0] == expected(count)
        assert store.max_queue_offset(OTHER, 0) == others
        assert put(store, TOPIC, b"next").queue_offset == count
    if not mark:
        disk_of(world).lose_power()
        async with running_store(world, config()) as store:
            assert queue_bodies(store)[TOPIC, 0] == [*expected(count), b"next"]


@pytest.mark.parametrize("sector", range(1, 6))
async def test_a_start_that_walks_the_log_mends_units_of_which_a_part_was_lost(
    sector: int, autojump_clock: object
) -> None:
    # given a power loss that took a sector: it begins, and ends, in the middle of a unit, at each place that there is
    world = simulated_world()
    async with running_store(world, config()) as store:
        for number in range(200):
            put(store, TOPIC, b"%d" % number, 0, TAGS=f"t{number % 2}")
    before = bytes(disk_of(world).read(QUEUE))
    zero(world, sector * 512, 512)
    disk_of(world).remove("/store/recovery.mark")
    async with running_store(world, config()) as store:
        # then every unit is as it was, and readers get every message, also those that want some only
        assert queue_bodies(store)[TOPIC, 0] == expected(200)
        found = store.get(TOPIC, 0, 0, 200, 1 << 20, lambda each: each == java_hash("t1"))
        assert bodies_of(found) == expected(200)[1:64:2]
    assert disk_of(world).read(QUEUE) == before


@pytest.mark.parametrize("code", [0, 5, java_hash("t1"), java_hash("a tag"), -1, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("kept", [8, 12, 16])
def test_a_torn_unit_is_told_from_another_one(kept: int, code: int) -> None:
    whole = UNIT.pack(7, 100, code)
    assert not is_torn(UNIT.unpack(whole), 100, code)
    torn = UNIT.unpack(whole[:kept] + bytes(UNIT_BYTES - kept))
    assert is_torn(torn, 100, code) == (torn != UNIT.unpack(whole))
    behind = UNIT.unpack(whole[:8] + bytes(kept - 8) + whole[kept:])
    assert is_torn(behind, 100, code) == (behind != UNIT.unpack(whole))
    assert not is_torn((7, 100, -(1 << 63) + 100), 100, code)


@pytest.mark.parametrize("code", [None, java_hash("t1"), java_hash("nothing has this")])
@pytest.mark.parametrize("seed", range(4))
async def test_a_reader_that_finds_lost_units_waits_and_gets_every_message(
    seed: int, code: int | None, autojump_clock: object
) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    async with running_store(world, config()) as store:
        fill(store, 900)
        # given units that are lost while the store runs, in blocks that begin in the middle of one
        at = chance.randint(0, 3) * 512 + BLOCK_BYTES * chance.randint(0, 2)
        zero(world, at, BLOCK_BYTES * chance.randint(1, 2))
        told = []
        store.arrived.append(lambda topic, queue_id, offset, *rest: told.append((topic, queue_id, offset)))
        # when all of it is read, then a read that comes to them finds nothing yet, and is told when it does
        found: list[bytes] = []
        offset = 0
        while offset < 900:
            read = store.get(TOPIC, 0, offset, 32, 1 << 20, None if code is None else lambda each: each == code)
            if read.status is GetStatus.OFFSET_OVERFLOW_ONE:
                assert (read.next_begin_offset, read.count) == (offset, 0)
                before = len(told)
                while len(told) == before:
                    await trio.lowlevel.checkpoint()
            found += bodies_of(read)
            assert read.next_begin_offset >= offset
            offset = read.next_begin_offset
        wanted = {None: 0, java_hash("t1"): 1}.get(code)
        every = expected(900)
        assert found == ([] if wanted is None else every if code is None else every[1::2])
        if wanted is not None:
            assert (TOPIC, 0, 900) in told
        assert store.offset_by_time(TOPIC, 0, 0) == 0


async def test_what_has_grown_too_old_is_passed_over(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, config()) as store:
        fill(store, 400)
        # given lost units of messages of which some lie in files that are gone
        while store.min_physical_offset < 40_000:
            store._core.segments.delete_first()
        first = store.min_queue_offset(TOPIC, 0)
        assert 0 < first < 204
    zero(world, 0, BLOCK_BYTES)
    async with running_store(world, config()) as store:
        assert store.min_queue_offset(TOPIC, 0) == first
        assert queue_bodies(store)[TOPIC, 0] == expected(400)[first:]
