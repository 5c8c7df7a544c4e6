"""Units of batch queues that rot: they cost no message, and are made again from the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio
from store_fixtures import disk_of, put, running_store, simulated_world, small_config
from test_store_batch_queues import FOLDER, TOPIC, put_inner, read
from test_store_rot import rot
from test_store_rot_outside_bodies import change

from understudy.runtime.world import World
from understudy.store import batch_repair
from understudy.store.batch_queue import UNIT_BYTES, BatchQueue, BatchUnit, Changes
from understudy.store.mapped_files import MappedFiles
from understudy.store.message_store import MessageStore
from understudy.store.segments import file_name
from understudy.store.status import GetStatus
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until

FILE_UNITS = 7
CONFIG = small_config(mapped_file_size_batch_consume_queue=FILE_UNITS * UNIT_BYTES)
COUNT, VICTIM = 20, 9
PLACES: dict[str, tuple[int, ...]] = {
    "physical offset": (3, 5, 6, 7),
    "size": (8, 10, 11),
    "tags code": (12, 19),
    "time": (24, 27),
    "first": (28, 31, 34, 35),
    "messages": (36, 37),
}


async def filled(world: World) -> tuple[dict[int, bytes], list[int]]:
    """Store batches, single messages and those of other queues; return what the queue holds, and where each begins."""
    chance, places = random.Random(5), []
    async with running_store(world, CONFIG) as store:
        store.declare_kinds([TOPIC])
        for number in range(COUNT):
            await trio.sleep(0.5)
            if number % 4 == 3:
                places.append(put(store, TOPIC, b"one %d" % number, TAGS="t").physical_offset)
            else:
                bodies = [b"%d %d" % (number, each) for each in range(1 + number % 3)]
                places.append(put_inner(store, bodies, TAGS="t").physical_offset)
            for _ in range(chance.randrange(3)):
                put(store, "Other", b"x", TAGS="t")
                put(store, TOPIC, b"y", 1, TAGS="t")
        return read(store), places


def rot_unit(world: World, number: int, damage: Callable[[bytes, int], bytes]) -> None:
    """Let *damage* change the file of a unit, which begins at the byte it is told."""
    start = number // FILE_UNITS * FILE_UNITS
    path = f"{FOLDER}/{file_name(start * UNIT_BYTES)}"
    disk_of(world).damage(path, partial(damage, at=(number - start) * UNIT_BYTES))  # type: ignore[call-arg]


async def scrubbed(store: MessageStore) -> tuple[list[int], int]:
    report = store.start_scrub()
    await until(lambda: not report.running, 30)
    return [first for first, _ in report.damaged], report.units


@pytest.mark.parametrize("victim", [0, VICTIM, COUNT - 2])
@pytest.mark.parametrize("part", PLACES)
async def test_a_unit_that_rots_costs_no_message(part: str, victim: int, autojump_clock: object) -> None:
    for byte in PLACES[part]:
        for bit in (1, 4, 64):
            world = simulated_world(byte)
            expected, _ = await filled(world)

            def damage(data: bytes, at: int, byte: int = byte, bit: int = bit) -> bytes:
                return change(data, at + byte, bit)

            rot_unit(world, victim, damage)
            # a reader gets everything, and no damage is noted, for the log has none
            async with running_store(world, CONFIG) as store:
                assert expected == read(store)
                assert ([], store.hole) == ((await scrubbed(store))[0], None)
                assert expected == read(store)
                assert ([], 0) == await scrubbed(store)


@pytest.mark.parametrize("part", PLACES)
async def test_a_scrub_mends_what_no_reader_came_upon(part: str, autojump_clock: object) -> None:
    world = simulated_world()
    expected, _ = await filled(world)

    def damage(data: bytes, at: int) -> bytes:
        return change(data, at + PLACES[part][-1], 2)

    rot_unit(world, VICTIM, damage)
    async with running_store(world, CONFIG) as store:
        assert ([], 1) == await scrubbed(store)
        assert ([], 0) == await scrubbed(store)
        assert expected == read(store)
    async with running_store(world, CONFIG) as store:
        assert ([], 0) == await scrubbed(store)


@pytest.mark.parametrize("seed", range(20))
async def test_units_that_rot_side_by_side_cost_no_message(seed: int, autojump_clock: object) -> None:
    chance, world = random.Random(seed), simulated_world(seed)
    expected, _ = await filled(world)
    first = chance.randrange(COUNT - 1)
    count = chance.randrange(1, min(FILE_UNITS - first % FILE_UNITS, COUNT - 1 - first) + 1)

    def damage(data: bytes, at: int) -> bytes:
        return data[:at] + chance.randbytes(count * UNIT_BYTES) + data[at + count * UNIT_BYTES :]

    rot_unit(world, first, damage)
    async with running_store(world, CONFIG) as store:
        if seed % 2:
            assert (await scrubbed(store))[0] == []
        assert expected == read(store)
        assert ([], 0, None) == (*await scrubbed(store), store.hole)


@pytest.mark.parametrize("unit_rots", [False, True])
async def test_a_record_that_says_another_queue_costs_itself(unit_rots: bool, autojump_clock: object) -> None:
    world = simulated_world()
    expected, places = await filled(world)
    rot(world, places[VICTIM] + 15, 4)

    def damage(data: bytes, at: int) -> bytes:
        return change(data, at + 5, 2)

    if unit_rots:
        rot_unit(world, VICTIM - 1, damage)
    async with running_store(world, CONFIG) as store:
        left = read(store)
        assert left.keys() < expected.keys()
        assert {b"%d 0" % VICTIM} == set(expected.values()) - set(left.values())
        await trio.sleep(1)
        assert store.hole == places[VICTIM]
        assert left == read(store)


async def test_readers_wait_while_the_whole_log_is_compared(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(batch_repair, "_SEARCH_BYTES", 100)
    world = simulated_world()
    expected, _ = await filled(world)

    def damage(data: bytes, at: int) -> bytes:
        return change(data, at + 6, 16)

    rot_unit(world, VICTIM, damage)
    rot_unit(world, VICTIM + 1, damage)
    async with running_store(world, CONFIG) as store:
        offset = next(offset for offset, body in expected.items() if body == b"%d 0" % VICTIM)
        result = store.get(TOPIC, 0, offset, 32, 1 << 20)
        assert (GetStatus.OFFSET_OVERFLOW_ONE, offset) == (result.status, result.next_begin_offset)
        await until(lambda: store.get(TOPIC, 0, offset, 32, 1 << 20).status is GetStatus.FOUND, 30)
        assert expected == read(store)


@pytest.mark.parametrize("physical", [1, 1 << 40])
def test_where_a_queue_begins_is_found_beside_a_unit_that_has_rotted(physical: int) -> None:
    disk = SimDisk(random.Random(1))
    for victim in range(1, 20):
        queue = BatchQueue(disk, TOPIC, victim, f"{FOLDER}{victim}", 5 * UNIT_BYTES, MappedFiles(disk, 2), Changes())
        for number in range(20):
            queue.append(BatchUnit(100 * number, 100, 0, 0, 3 * number, 3))
        queue.put(victim, BatchUnit(physical, 100, 0, 0, 3 * victim, 3))
        assert queue.min_offset(0) == 0
        assert queue.min_offset(450) <= 3 * 5
