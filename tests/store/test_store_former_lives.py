"""Messages of a queue that was deleted stay deleted, whatever a start knows of the folder.

The log keeps them: a queue that is made again under the same name begins with offset 0, and so its old messages with
higher offsets would fit behind the new ones.
"""

from __future__ import annotations

import random

import pytest
import trio
from store_fixtures import HOST, LOG_FILE_BYTES, disk_of, lose_end, put, running_store, simulated_world, small_config
from test_store_replication import TOPIC, copy, queue_bodies

from understudy.runtime.world import World
from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH
from understudy.store.deletions import LivingTopics
from understudy.store.message_store import MessageStore

MARK = "/store/recovery.mark"
NEW = [b"new 0", b"new 1", b"new 2"]


def live_twice(store: MessageStore) -> None:
    """Store ten messages, delete their queue as a store of the reference does, and store three."""
    for number in range(10):
        put(store, TOPIC, b"old %d" % number)
    store.delete_topic(TOPIC)
    for body in NEW:
        put(store, TOPIC, body)


def lose_what_only_we_write(world: World) -> None:
    """Leave what the reference writes, too."""
    for name in ("recovery.mark", "deleted.topics"):
        disk_of(world).remove(f"/store/{name}")


@pytest.mark.parametrize("queues_left", [True, False], ids=["queues", "no queues"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_a_start_that_walks_the_log_enters_the_last_life_only(
    end: str, queues_left: bool, autojump_clock: object
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        live_twice(store)
        put(store, "Other", b"stays")
        if end == "killed":
            disk_of(world).kill_process()
    # given a folder as the reference leaves it, with or without its queues
    lose_what_only_we_write(world)
    if not queues_left:
        disk_of(world).remove_tree("/store/consumequeue")
    for _ in range(2):
        async with running_store(world) as store:
            # then the queue has its new messages, and the next send stands behind them
            assert queue_bodies(store) == {(TOPIC, 0): NEW, ("Other", 0): [b"stays"]}
            assert store.max_queue_offset(TOPIC, 0) == len(NEW)
        lose_what_only_we_write(world)
    async with running_store(world) as store:
        assert put(store, TOPIC, b"next").queue_offset == len(NEW)


@pytest.mark.parametrize("old", [10, 30, 130], ids=["one file", "two files", "seven files"])
async def test_a_file_of_a_deleted_queue_that_the_reference_left_adds_nothing(old: int, autojump_clock: object) -> None:
    world = simulated_world()
    disk = disk_of(world)
    folder = f"/store/consumequeue/{TOPIC}/0"
    async with running_store(world) as store:
        for number in range(old):
            put(store, TOPIC, b"old %d" % number)
        await store.flush()
        files = {name: disk.read(f"{folder}/{name}") for name in sorted(disk.listdir(folder))}
        store.delete_topic(TOPIC)
        for body in NEW:
            put(store, TOPIC, body)
    # given a queue that was made again over files of its former life
    for name, former in files.items():
        path = f"{folder}/{name}"
        new = disk.read(path).rstrip(b"\0") if disk.exists(path) else b""
        file = disk.open(path)
        file.write_at(0, new + former[len(new) :])
        file.close()
    lose_what_only_we_write(world)
    for _ in range(2):
        async with running_store(world) as store:
            # then the queue has its new messages only, also when the process ends and starts again
            assert queue_bodies(store) == {(TOPIC, 0): NEW}
            assert store.max_queue_offset(TOPIC, 0) == len(NEW)
    async with running_store(world) as store:
        assert put(store, TOPIC, b"next").queue_offset == len(NEW)


async def test_a_replica_started_again_has_what_its_master_has(autojump_clock: object) -> None:
    chance = random.Random(3)
    slave_world = simulated_world(2)
    async with running_store(simulated_world(1)) as master:
        async with running_store(slave_world) as slave:
            live_twice(master)
            copy(master, slave, chance)
            assert queue_bodies(slave) == queue_bodies(master)
        lose_what_only_we_write(slave_world)
        async with running_store(slave_world) as slave:
            assert queue_bodies(slave) == queue_bodies(master)
            put(master, TOPIC, b"next")
            copy(master, slave, chance)
            assert queue_bodies(slave) == queue_bodies(master) == {(TOPIC, 0): [*NEW, b"next"]}


# --- a deletion that was answered --------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", [ASYNC_FLUSH, SYNC_FLUSH])
@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_a_deletion_that_was_answered_survives_a_power_loss(
    seed: int, made_again: bool, flush: str, autojump_clock: object
) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    config = small_config(flush_disk_type=flush)
    store = await MessageStore.open(world, config, HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        for number in range(60):
            put(store, TOPIC, b"old %d" % number, number % 2)
            put(store, "Other", b"stays %d" % number)
        await trio.sleep(chance.choice([0.3, 11]))
        # given a topic whose deletion is durable, though nobody made the folders of its queues durable
        store.delete_topic(TOPIC)
        await store.save_deletions()
        if made_again:
            for body in NEW:
                put(store, TOPIC, body)
            if chance.random() < 0.5:
                assert await store.flush()
        nursery.cancel_scope.cancel()
    # when the power goes, and perhaps the mark with it
    disk_of(world).lose_power()
    if chance.random() < 0.5 and disk_of(world).exists(MARK):
        disk_of(world).remove(MARK)
    async with running_store(world, config) as store:
        # then none of the old messages is there, and the next one stands where a new topic continues
        found = queue_bodies(store)
        new = found.get((TOPIC, 0), [])
        assert new == NEW[: len(new)]
        assert found.get((TOPIC, 1), []) == []
        assert put(store, TOPIC, b"next").queue_offset == len(new)
        assert put(store, TOPIC, b"next", 1).queue_offset == 0
        # and the others are
        others = found.get(("Other", 0), [])
        assert others == [b"stays %d" % number for number in range(len(others))]
    async with running_store(world, config) as store:
        assert queue_bodies(store)[TOPIC, 0] == [*new, b"next"]


async def test_what_is_stored_where_a_lost_end_of_the_log_was_is_new(autojump_clock: object) -> None:
    # given a deletion whose place in the log is lost
    world = simulated_world()
    async with running_store(world) as store:
        kept = put(store, TOPIC, b"old").physical_offset
        lost = put(store, TOPIC, b"old" * 100).physical_offset
        store.delete_topic(TOPIC)
        await store.save_deletions()
    lose_end(world, lost)
    # when other messages of the topic are stored there, at the same time
    async with running_store(world) as store:
        assert store.deletions[TOPIC].position == lost > kept
        for number in range(2):
            assert put(store, TOPIC, b"%d" % number).queue_offset == number
    for _ in range(2):
        disk_of(world).remove(MARK)
        async with running_store(world) as store:
            assert queue_bodies(store) == {(TOPIC, 0): [b"0", b"1"]}


async def test_deletions_go_with_the_log_files_they_speak_of(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(3):
            put(store, TOPIC, b"old")
            store.delete_topic(f"{TOPIC} {number}")
        assert len(store.deletions) == 3
        while store.max_physical_offset < 4 * LOG_FILE_BYTES:
            put(store, "Other", bytes(3_000))
        assert await store.flush()
        disk = disk_of(world)
        disk.used_bytes = disk.total_bytes * 86 // 100  # so full that files go
        await trio.sleep(61)
        assert store.min_physical_offset > 0
        assert store.deletions == {}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"topics":[]}', b'{"topics":{"Orders":[1]}}', b'{"topics":{"Orders":[true,-1]}}']
)
async def test_a_damaged_file_of_deletions_does_not_stop_a_start(damage: bytes, autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, TOPIC, b"here")
    file = disk_of(world).open("/store/deleted.topics")
    file.write_at(0, damage)
    file.close()
    async with running_store(world) as store:
        assert queue_bodies(store) == {(TOPIC, 0): [b"here"]}


# --- a store of the reference ------------------------------------------------------------------------------------


async def test_a_topic_that_the_table_lacks_is_not_restored(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, "Gone", b"old")
        put(store, "Gone", b"old", 1)
        put(store, "%LMQ%light", b"in no table")
        put(store, "Kept", b"in the table")
        store.delete_topic("Gone")
        await trio.sleep(0.1)
        changed_ms = world.clock.wall_ms()
        await trio.sleep(0.1)
        put(store, "Young", b"made after the table was saved")
    lose_what_only_we_write(world)
    disk_of(world).remove_tree("/store/consumequeue")  # nor does any queue tell
    living = LivingTopics(frozenset({"Kept"}), changed_ms)
    expected = {("%LMQ%light", 0): [b"in no table"], ("Kept", 0): [b"in the table"]}
    young = {("Young", 0): [b"made after the table was saved"]}
    store = await MessageStore.open(world, small_config(), HOST, living)
    assert queue_bodies(store) == expected | young
    # when the topic is made again it begins anew, also for a later start that knows nothing else
    assert put(store, "Gone", b"new").queue_offset == 0
    await store.close()
    disk_of(world).remove(MARK)
    async with running_store(world) as store:
        assert queue_bodies(store) == expected | young | {("Gone", 0): [b"new"]}


async def test_a_topic_with_queues_is_living_whatever_the_table_says(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, TOPIC, b"here")
    lose_what_only_we_write(world)
    store = await MessageStore.open(world, small_config(), HOST, LivingTopics(frozenset(), world.clock.wall_ms() + 1))
    assert queue_bodies(store) == {(TOPIC, 0): [b"here"]}
    await store.close()


# --- what a slave is told ----------------------------------------------------------------------------------------


async def test_a_replica_deletes_what_its_master_did_before_it_sees_anything_new(autojump_clock: object) -> None:
    chance, dropped = random.Random(5), list[str]()
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as slave:
        slave.dropped.append(dropped.extend)
        for number in range(4):
            put(master, TOPIC, b"old %d" % number)
        copy(master, slave, chance)
        for number in range(4, 8):
            put(master, TOPIC, b"old %d" % number)
        master.delete_topic(TOPIC)
        # given a replica that has a part of the log only when it hears of the deletion
        slave.learn_deletions(master.deletions)
        assert dropped == [TOPIC]
        slave.learn_deletions(master.deletions)
        assert dropped == [TOPIC]
        # when the rest comes, then it is of nobody
        put(master, "Other", b"stays")
        copy(master, slave, chance)
        assert queue_bodies(slave) == {("Other", 0): [b"stays"]}
        for body in NEW:
            put(master, TOPIC, body)
        copy(master, slave, chance)
        assert queue_bodies(slave) == {("Other", 0): [b"stays"], (TOPIC, 0): NEW}
        # and hearing of it late costs nothing of the new life
        slave.learn_deletions({TOPIC: master.deletions[TOPIC]._replace(store_ms=0)})
        slave.learn_deletions(master.deletions)
        assert dropped == [TOPIC]
        assert queue_bodies(slave)[TOPIC, 0] == NEW
