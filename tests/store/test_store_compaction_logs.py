"""Compaction topics and the log they are copied from: retention, deletion, cuts, slaves, full disks."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
import trio.testing
from compaction_rig import (
    LOG_FOLDER,
    QUEUE_FOLDER,
    TOPIC,
    Model,
    compacted,
    compacting,
    config,
    copied,
    key_of,
    read,
    run,
)
from store_fixtures import HOST, bodies_of, disk_of, put, running_store, simulated_world

from understudy.runtime.world import World
from understudy.store.message_store import MessageStore


def test_the_log_may_go_once_its_messages_are_copied() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            model = Model()
            for number in range(300):
                model.put(store, f"k{number % 4}", b"v%d" % number)
            await store.flush()
            assert await store._retention.delete_files(1 << 60, True) == 0
            await compacted(store)
            assert await store._retention.delete_files(1 << 60, True) > 0
            found = read(store, 0)
            model.check(found)
            assert store.min_queue_offset(TOPIC, 0) == min(found)
            assert min(found) < store._lookup.min_queue_offset(TOPIC, 0) or len(found) < 20
        async with compacting(world) as store:
            model.check(read(store, 0))
            model.put(store, "k0", b"behind")
            model.check(read(store, 0))

    run(scenario)


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        async with compacting(world) as store:
            for number in range(60):
                put(store, TOPIC, b"old %d" % number, KEYS=f"k{number}")
            await copied(store)
            store.delete_topic(TOPIC)
            assert read(store) == {}
            # made again at once
            store.declare_compacted([TOPIC], [])
            put(store, TOPIC, b"new", KEYS="k")
            assert read(store) == {0: b"new"}
            await copied(store)
            await copied(store)
            assert read(store) == {0: b"new"}
            assert disk.listdir(LOG_FOLDER) == [f"{0:020d}"]
            store.delete_topic(TOPIC)
            await copied(store)
            assert disk.listdir("/store/compaction/compactionLog") == []
        async with compacting(world) as store:
            assert read(store) == {}

    run(scenario)


def test_a_deletion_counts_though_the_process_dies_before_the_files_go() -> None:
    async def scenario(world: World) -> None:
        store = await MessageStore.open(world, config(), HOST)
        store.declare_compacted([TOPIC], [])
        for number in range(60):
            put(store, TOPIC, b"old %d" % number, KEYS=f"k{number}")
        await copied(store)
        store.delete_topic(TOPIC)
        await store.save_deletions()
        store.declare_compacted([TOPIC], [])
        put(store, TOPIC, b"new", KEYS="k")
        await store.flush()
        disk_of(world).kill_process()
        async with compacting(world) as store:
            assert read(store) == {0: b"new"}
            await copied(store)
            assert read(store) == {0: b"new"}

    run(scenario)


def test_what_is_cut_from_the_log_is_read_no_more() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            ends = [put(store, TOPIC, b"v%d" % number, KEYS=f"k{number % 3}") for number in range(60)]
            await compacted(store)
            assert len(read(store)) < 20
            await store.truncate(ends[30].physical_offset)
            # what superseded older messages is gone: they are there again, as the log still has them
            assert sorted(read(store, 0)) == list(range(30))
            again = put(store, TOPIC, b"again", KEYS="k0")
            assert again.queue_offset == 30
            await compacted(store)
            found = read(store, 0)
            assert found[30] == b"again"
            assert {28, 29, 30} <= set(found)
            assert max(found) == 30

    run(scenario)


def test_a_slave_makes_its_own_compaction_log() -> None:
    async def scenario(world: World) -> None:
        slave_world = simulated_world(2)
        async with compacting(world) as master, compacting(slave_world) as slave:
            model = Model()
            for number in range(80):
                model.put(master, f"k{number % 4}", b"v%d" % number)
            at = 0
            while at < master.max_physical_offset:
                data = bytes(master.slice(at, 1 << 20))
                slave.append_raw(at, data)
                at += len(data)
            await compacted(master)
            await compacted(slave)
            model.check(read(slave, 0))
            assert read(slave, 0) == read(master, 0)
            slave.set_correct_offsets(False)
            assert read(slave, 0) == read(master, 0)

    run(scenario)


def test_it_runs_by_itself() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world, config(compaction_interval_ms=60_000)) as store:
            model = Model()
            for number in range(80):
                model.put(store, f"k{number % 4}", b"v%d" % number)
            await trio.sleep(70)
            assert len(read(store)) < 20
            model.check(read(store))
            # live settings count
            store.change_settings(config(compaction_interval_ms=5_000))
            await trio.sleep(61)
            for number in range(80):
                model.put(store, f"k{number % 4}", b"w%d" % number)
            await trio.sleep(20)
            assert len(read(store)) < 20

    run(scenario)


def test_a_message_that_fits_into_no_file_stays_in_the_log() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            put(store, TOPIC, b"small", KEYS="a")
            put(store, TOPIC, bytes(4000), KEYS="b")
            put(store, TOPIC, b"behind", KEYS="c")
            for _ in range(100):
                put(store, "Other", bytes(500))
            await copied(store)
            assert sorted(read(store)) == [0, 1, 2]
            await store._retention.delete_files(1 << 60, True)
            assert sorted(read(store)) == [0, 1, 2]

    run(scenario)


def test_a_full_disk_stops_nothing_but_the_copy() -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        async with compacting(world) as store:
            model = Model()
            for number in range(60):
                model.put(store, f"k{number % 4}", b"v%d" % number)
            await store.flush()
            disk.used_bytes = disk.total_bytes
            await store._compaction.copy()
            assert read(store) == model.bodies
            disk.used_bytes = None
            await compacted(store)
            model.check(read(store))
            assert len(read(store)) < 20

    run(scenario)


def test_sealed_records_are_sealed_anew() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world, config(enabled_append_prop_crc=True)) as store:
            for number in range(30):
                put(store, TOPIC, b"v%d" % number, KEYS="k")
            await compacted(store)
            assert bodies_of(store.get(TOPIC, 0, 0, 1, 1000))

    run(scenario)


def test_settings_of_files_do_not_change_those_that_are_there() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            model = Model()
            for number in range(30):
                model.put(store, f"k{number}", b"v%d" % number)
        async with compacting(world, attrs.evolve(config(), compaction_queue_file_bytes=46 * 50)) as store:
            for number in range(30):
                model.put(store, f"k{number}", b"w%d" % number)
            await compacted(store)
            model.check(read(store))
            assert {disk_of(world).size(f"{QUEUE_FOLDER}/{name}") for name in disk_of(world).listdir(QUEUE_FOLDER)} == {
                460
            }

    run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_records_of_many_sizes_are_compacted_again_and_again(seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            model = Model()
            for _ in range(30):
                for _ in range(chance.randrange(30)):
                    model.put(store, f"key-{chance.randrange(12)}", bytes(chance.randrange(1, 700)))
                await compacted(store)
                model.check(read(store, 0))

    run(scenario)


def test_a_slave_removes_what_its_master_deleted() -> None:
    async def scenario(world: World) -> None:
        slave_world = simulated_world(2)
        async with compacting(world) as master, compacting(slave_world) as slave:
            for number in range(60):
                put(master, TOPIC, b"v%d" % number, KEYS=f"k{number}")
            slave.append_raw(0, bytes(master.slice(0, 1 << 20)))
            await copied(slave)
            assert disk_of(slave_world).listdir(LOG_FOLDER)
            master.delete_topic(TOPIC)
            slave.learn_deletions(master.deletions)
            assert read(slave) == {}
            await copied(slave)
            assert disk_of(slave_world).listdir("/store/compaction/compactionLog") == []
            # and the topic may be made again there
            master.declare_compacted([TOPIC], [])
            put(master, TOPIC, b"new", KEYS="k")
            at = slave.max_physical_offset
            slave.append_raw(at, bytes(master.slice(at, 1 << 20)))
            await copied(slave)
            assert read(slave) == {0: b"new"}
            assert disk_of(slave_world).listdir(LOG_FOLDER) == [f"{0:020d}"]

    run(scenario)


def test_a_message_that_is_put_back_into_the_log_is_copied_behind_time() -> None:
    async def scenario(world: World) -> None:
        async with running_store(world, config()) as store:
            model = Model()
            stored = []
            for number in range(60):
                model.put(store, f"k{number}", b"v%d" % number)
                stored.append(store._lookup.record_extent(TOPIC, 0, number))
            await store.checkpoint()
        # Given a store that lost a message in the middle of its log, and copied the others
        extent = stored[20]
        assert extent is not None
        physical, size = extent
        whole = disk_of(world).read("/store/commitlog/00000000000000000000")
        disk_of(world).remove("/store/recovery.mark")
        disk_of(world).damage(
            "/store/commitlog/00000000000000000000",
            lambda data: data[:physical] + bytes(size) + data[physical + size :],
        )
        async with compacting(world) as store:
            await compacted(store)
            assert 20 not in read(store, 0)
            # When its master fills the hole
            assert store.hole == physical
            repair = store.repair(physical)
            await repair.write(physical, whole[physical : store.max_physical_offset])
            await repair.finish(store.max_physical_offset)
            assert store.hole is None
            # Then the message is read in its place, and copied
            model.check(read(store, 0))
            await compacted(store)
            model.check(read(store, 0))
        async with compacting(world) as store:
            model.check(read(store, 0))

    run(scenario)


@pytest.mark.parametrize("stop", ["clean", "foreign", "killed", "power"])
def test_a_topic_outlives_all_of_its_messages_in_the_log(stop: str) -> None:
    async def scenario(world: World) -> None:
        disk, model = disk_of(world), Model()
        store = await MessageStore.open(world, config(), HOST)
        store.declare_compacted([TOPIC], [])
        for number in range(60):
            model.put(store, key_of(number), b"v%d" % number)
        await compacted(store)
        for _ in range(200):
            put(store, "Other", bytes(300))
        await store.checkpoint()
        assert await store._retention.delete_files(1 << 60, True) > 2
        assert store._lookup.min_queue_offset(TOPIC, 0) == 60
        model.check(read(store, 0))
        if stop in ("clean", "foreign"):
            await store.close()
            if stop == "foreign":  # as another broker leaves it
                disk.remove("/store/recovery.mark")
        elif stop == "killed":
            disk.kill_process()
        else:
            disk.lose_power()
        for expected in (60, 61):
            async with compacting(world) as store:
                model.check(read(store, 0))
                assert store.max_queue_offset(TOPIC, 0) == expected
                assert store.min_queue_offset(TOPIC, 0) == min(read(store, 0))
                model.put(store, "k0", b"next")
                await compacted(store)
                model.check(read(store, 0))

    run(scenario)
