"""The files of deleted queues go in pieces, off the event loop, and nothing that comes meanwhile is lost with them."""

from __future__ import annotations

import errno
import random
from collections import Counter
from itertools import pairwise

import pytest
import trio
from store_fixtures import HOST, counting_world, disk_of, put, running_store, simulated_world, small_config
from test_store_replication import copy, queue_bodies

from understudy.runtime.pace import run_steps
from understudy.store.discarded import FOLDERS_AT_ONCE, OBJECTS_AT_ONCE, Discarded
from understudy.store.message_store import MessageStore
from understudy.store.topic_deletion import QUEUES_IN_A_STEP
from understudy.testkit.sim.disk import SimMapping
from understudy.testkit.turns import in_each_turn

TOPIC = "Orders"
MANY = 3 * QUEUES_IN_A_STEP
DELETED = "/store/deleted"
QUEUES = "/store/consumequeue"


def fill(store: MessageStore, topic: str = TOPIC, queues: int = MANY) -> None:
    for queue_id in range(queues):
        put(store, topic, b"old", queue_id)


@pytest.mark.parametrize("extended", [False, True])
async def test_a_topic_of_many_queues_is_deleted_with_a_few_calls(
    extended: bool, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, disk = counting_world()
    given_back = Counter[bool]()
    close = SimMapping.close

    def counted(mapping: SimMapping) -> None:
        given_back[disk.is_in_thread] += 1
        close(mapping)

    monkeypatch.setattr(SimMapping, "close", counted)
    async with running_store(world, small_config(enable_consume_queue_ext=extended)) as store:
        store.extensions.bits = lambda topic, properties: b"\1"
        fill(store)
        fill(store, "Other", 3)
        await trio.sleep(1)
        given_back.clear()
        # when the topic is deleted, then what the event loop asks of the disk has nothing to do with its queues
        disk.on_loop.clear()
        store.delete_topic(TOPIC)
        assert disk.on_loop.total() < 10
        assert sorted(store.queues()) == [("Other", 0), ("Other", 1), ("Other", 2)]
        for folder in (QUEUES, "/store/consumequeue_ext"):
            assert not disk.sim.exists(f"{folder}/{TOPIC}")
        # and its files go, in threads, a few queues at a time
        disk.in_threads.clear()
        disk.on_loop.clear()
        await trio.sleep(1)
        assert disk.sim.listdir(DELETED) == []
        assert sum(calls["remove_tree"] for calls in disk.in_threads) > MANY
        assert max(calls["remove_tree"] for calls in disk.in_threads) == FOLDERS_AT_ONCE
        assert disk.on_loop["remove_tree"] == 0
        assert given_back == {True: MANY * (1 + extended)}
    async with running_store(world) as store:
        assert queue_bodies(store) == {("Other", number): [b"old"] for number in range(3)}


async def test_what_was_known_of_many_queues_is_let_go_in_turns(autojump_clock: object) -> None:
    class Known:
        alive = 0

        def __init__(self) -> None:
            Known.alive += 1

        def __del__(self) -> None:
            Known.alive -= 1

    discarded = Discarded(disk_of(simulated_world()), DELETED)
    discarded.take(f"{QUEUES}/{TOPIC}", objects=[Known() for _ in range(5 * OBJECTS_AT_ONCE)])
    alive = [Known.alive]
    async with in_each_turn(lambda: alive.append(Known.alive)), trio.open_nursery() as nursery:
        nursery.start_soon(discarded.run)
        while Known.alive:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    at_once = max(before - after for before, after in pairwise(alive))  # the other task may be first, then last
    assert at_once <= 2 * OBJECTS_AT_ONCE


async def test_a_topic_made_again_keeps_its_files_while_the_old_ones_go(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for life in range(3):
            for queue_id in range(MANY):
                assert put(store, TOPIC, b"%d" % life, queue_id).queue_offset == 0
            if life < 2:
                store.delete_topic(TOPIC)
                await trio.lowlevel.checkpoint()
        assert await store.flush()
        await trio.sleep(1)
        assert disk_of(world).listdir(DELETED) == []
        assert len(disk_of(world).listdir(f"{QUEUES}/{TOPIC}")) == MANY
    async with running_store(world) as store:
        assert queue_bodies(store) == {(TOPIC, number): [b"2"] for number in range(MANY)}


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("end", ["killed", "power"])
@pytest.mark.parametrize("seed", range(6))
async def test_a_process_that_ends_while_files_go_leaves_them_to_the_next(
    seed: int, end: str, made_again: bool, autojump_clock: object
) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    disk = disk_of(world)
    disk.sync_seconds = 0.01
    store = await MessageStore.open(world, small_config(), HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        fill(store)
        fill(store, "Other", 3)
        await trio.sleep(chance.choice([0.3, 11]))
        # given a deletion that was answered
        store.delete_topic(TOPIC)
        await store.save_deletions()
        if made_again:
            put(store, TOPIC, b"new", 1)
        # when the process ends at some moment of the removal
        await trio.sleep(chance.uniform(0, 0.12))
        if made_again:
            assert await store.flush()
        nursery.cancel_scope.cancel()
    if end == "killed":
        disk.kill_process()
    else:
        disk.lose_power()
    for _ in range(2):
        async with running_store(world) as store:
            # then neither the topic nor its files come back, nor does anything else go
            new = {(TOPIC, 1): [b"new"]} if made_again else {}
            found = {key: bodies for key, bodies in queue_bodies(store).items() if bodies}
            assert {key: bodies for key, bodies in found.items() if key[0] == TOPIC} == new
            if end == "killed" or made_again:
                assert found == new | {("Other", number): [b"old"] for number in range(3)}
            await trio.sleep(5)
            assert disk.listdir(DELETED) == []


async def test_a_disk_without_room_for_a_name_has_the_files_removed_at_once(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    world = simulated_world()
    async with running_store(world) as store:
        fill(store, queues=3)
        with monkeypatch.context() as patch:
            patch.setattr(disk_of(world), "replace", refuse)
            store.delete_topic(TOPIC)
        assert not disk_of(world).exists(f"{QUEUES}/{TOPIC}")
        assert list(store.queues()) == []
        assert put(store, TOPIC, b"new").queue_offset == 0


async def test_files_that_cannot_be_removed_harm_nobody(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    world = simulated_world()
    async with running_store(world) as store:
        fill(store, queues=3)
        with monkeypatch.context() as patch:
            patch.setattr(disk_of(world), "remove_tree", refuse)
            store.delete_topic(TOPIC)
            await trio.sleep(1)
            assert disk_of(world).listdir(DELETED) == ["1"]
        # and the next deletion takes them along
        fill(store, queues=3)
        store.delete_topic(TOPIC)
        await trio.sleep(1)
        assert disk_of(world).listdir(DELETED) == []


# --- where each queue must be looked at -------------------------------------------------------------------------


async def test_a_replica_looks_at_many_queues_in_steps(autojump_clock: object) -> None:
    chance = random.Random(5)
    dropped = set[str]()
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as slave:
        slave.dropped.append(dropped.update)
        fill(master)
        copy(master, slave, chance)
        master.delete_topic(TOPIC)
        # given queues of which some have messages of the next life when the replica hears of the deletion, ...
        for queue_id in (0, MANY - 1):
            put(master, TOPIC, b"new", queue_id)
        copy(master, slave, chance)
        slave.learn_deletions(master.deletions)
        assert dropped == {TOPIC}
        dropped.clear()
        assert len(list(slave.queues())) == MANY - QUEUES_IN_A_STEP + 1
        # ... and one gets some while it looks
        put(master, TOPIC, b"new", MANY - 2)
        copy(master, slave, chance)
        await trio.sleep(1)
        # then these are what is left
        assert queue_bodies(slave) == queue_bodies(master)
        assert queue_bodies(slave) == {(TOPIC, number): [b"new"] for number in (0, MANY - 1, MANY - 2)}
        assert dropped == {TOPIC}


async def test_a_topic_that_is_made_while_unused_ones_are_cleaned_stays(autojump_clock: object) -> None:
    known = {"Keep"}
    async with running_store(simulated_world()) as store:
        for topic in ("Unused 1", "Keep", "Unused 2", "Unused 3"):
            fill(store, topic, 2)
        steps = store.clean_unused(known)
        next(steps)
        known.add("Unused 3")
        store.delete_topic("Unused 2")
        assert run_steps(steps) == ["Unused 1"]
        assert {topic for topic, _ in store.queues()} == {"Keep", "Unused 3"}
