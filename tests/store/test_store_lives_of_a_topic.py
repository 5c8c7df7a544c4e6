"""What was deleted with a topic stays deleted in all its queues, also in those that got no message after it.

A queue that begins anew says that its topic was deleted; what is certain to be older goes, and nothing else does.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from store_fixtures import HOST, LOG_FILE_BYTES, disk_of, put, simulated_world, small_config
from test_store_former_lives import MARK, NEW, lose_what_only_we_write
from test_store_replication import TOPIC, copy, queue_bodies

from understudy.runtime.world import World
from understudy.store.config import SYNC_FLUSH, StoreConfig
from understudy.store.deletions import LivingTopics
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.clock import VirtualClock

BATCH = LivingTopics(frozenset({TOPIC, "Other"}), 0, frozenset({TOPIC}))
SIMPLE = LivingTopics(frozenset({TOPIC, "Other"}), 0)
KINDS = pytest.mark.parametrize("living", [SIMPLE, BATCH], ids=["simple queues", "batch queues"])
ELSEWHERE = ("10.9.8.7", 10911)


@asynccontextmanager
async def opened(
    world: World, living: LivingTopics = SIMPLE, host: tuple[str, int] = HOST, config: StoreConfig | None = None
) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(world, config or small_config(), host, living)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


def delete_and_make_again(store: MessageStore, living: LivingTopics) -> None:
    store.delete_topic(TOPIC)
    store.declare_kinds(living.batch)


def begin_queue_anew(store: MessageStore, queue_id: int) -> None:
    """Forget one queue, as the reference does when the files of its last messages are gone."""
    core = store._core
    core.consume_queues.delete(core.consume_queues.by_key[TOPIC, queue_id])


def fill_file(store: MessageStore) -> None:
    """Let what comes next stand in another file of the log."""
    file = store.max_physical_offset // LOG_FILE_BYTES
    while store.max_physical_offset // LOG_FILE_BYTES == file:
        put(store, "Other", bytes(1_000))


def bodies(store: MessageStore) -> dict[int, list[bytes]]:
    """Return the messages of each queue of the topic that has any."""
    return {queue_id: found for (topic, queue_id), found in queue_bodies(store).items() if topic == TOPIC and found}


@KINDS
@pytest.mark.parametrize("queues_left", [True, False], ids=["queues", "no queues"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_a_start_that_walks_the_log_enters_no_queue_of_a_former_life(
    end: str, queues_left: bool, living: LivingTopics, autojump_clock: object
) -> None:
    world = simulated_world()
    async with opened(world, living) as store:
        for number in range(10):
            put(store, TOPIC, b"old %d" % number, number % 2)
        delete_and_make_again(store, living)
        for body in NEW:
            put(store, TOPIC, body)
        if end == "killed":
            disk_of(world).kill_process()
    # given a folder as the reference leaves it, with or without its queues
    lose_what_only_we_write(world)
    if not queues_left:
        for name in ("consumequeue", "batchconsumequeue"):
            disk_of(world).remove_tree(f"/store/{name}")
    for _ in range(2):
        async with opened(world, living) as store:
            # then the queue without a new message has none
            assert bodies(store) == {0: NEW}
        lose_what_only_we_write(world)
    async with opened(world, living) as store:
        # and begins with the first, as the other one goes on
        assert put(store, TOPIC, b"next", 1).queue_offset == 0
        assert put(store, TOPIC, b"next", 0).queue_offset == len(NEW)
        assert bodies(store) == {0: [*NEW, b"next"], 1: [b"next"]}
        # and all of that is known to a start that has the deletion only
    disk_of(world).remove(MARK)
    async with opened(world, living) as store:
        assert bodies(store) == {0: [*NEW, b"next"], 1: [b"next"]}


@KINDS
@pytest.mark.parametrize("held", [False, True], ids=["shown at once", "held back until flushed"])
@pytest.mark.parametrize("host", [HOST, ELSEWHERE], ids=["same host", "another host"])
async def test_a_replica_that_is_not_told_finds_the_deletion_in_the_log(
    host: tuple[str, int], held: bool, living: LivingTopics, autojump_clock: object
) -> None:
    chance, slave_world = random.Random(7), simulated_world(2)
    config = small_config(flush_disk_type=SYNC_FLUSH) if held else small_config()
    dropped = list[str]()
    async with opened(simulated_world(1), living) as master:
        async with opened(slave_world, living, host, config) as slave:
            slave.dropped.append(dropped.extend)
            for number in range(10):
                put(master, TOPIC, b"old %d" % number, number % 2)
            copy(master, slave, chance)
            delete_and_make_again(master, living)
            for body in NEW:
                put(master, TOPIC, body)
            copy(master, slave, chance)
            await trio.sleep(1)
            # then it has what its master has, and those who wait for the topic are told
            assert bodies(slave) == bodies(master) == {0: NEW}
            assert dropped == [TOPIC]
            put(master, TOPIC, b"next", 1)
            copy(master, slave, chance)
            await trio.sleep(1)
            assert bodies(slave) == bodies(master) == {0: NEW, 1: [b"next"]}
        lose_what_only_we_write(slave_world)
        async with opened(slave_world, living, host, config) as slave:
            assert bodies(slave) == bodies(master)


@KINDS
@pytest.mark.parametrize("way", ["start", "copy"])
@pytest.mark.parametrize("certain", [True, False])
async def test_only_what_is_certain_to_be_older_goes(
    certain: bool, way: str, living: LivingTopics, autojump_clock: object
) -> None:
    world, slave_world, chance = simulated_world(), simulated_world(2), random.Random(8)
    async with opened(world, living) as store, opened(slave_world, living) as slave:
        for number in range(3):
            put(store, TOPIC, b"old 0.%d" % number, 0)
            put(store, TOPIC, b"old 1.%d" % number, 1)
        put(store, TOPIC, b"before the last old one", 2)
        put(store, TOPIC, b"last old one", 0)
        # given a queue that begins behind the last old message of the one that is made again
        put(store, TOPIC, b"of either life", 3)
        if certain:  # an old queue goes on behind it, so that the deletion came later
            put(store, TOPIC, b"goes on", 2)
        delete_and_make_again(store, living)
        for body in NEW:
            put(store, TOPIC, body)
        copy(store, slave, chance)
        copied = bodies(slave)
    lose_what_only_we_write(world)
    for name in ("consumequeue", "batchconsumequeue"):
        disk_of(world).remove_tree(f"/store/{name}")
    async with opened(world, living) as store:
        # then it stays, unless it must have been there before the deletion
        expected = {0: NEW} if certain else {0: NEW, 3: [b"of either life"]}
        assert (bodies(store) if way == "start" else copied) == expected


async def test_what_is_older_goes_whatever_the_clock_said(autojump_clock: object) -> None:
    world = simulated_world()
    assert isinstance(world.clock, VirtualClock)
    async with opened(world) as store:
        put(store, TOPIC, b"old", 1)
        put(store, TOPIC, b"old", 0)
        # given an old message of an hour that only came again after the new ones
        world.clock.jump(3_600_000)
        put(store, TOPIC, b"old", 1)
        world.clock.jump(-3_600_000)
        store.delete_topic(TOPIC)
        put(store, TOPIC, b"new", 0)
    lose_what_only_we_write(world)
    for _ in range(2):
        async with opened(world) as store:
            assert bodies(store) == {0: [b"new"]}
        disk_of(world).remove(MARK)


async def test_nothing_is_concluded_of_a_queue_whose_last_messages_are_in_another_file(autojump_clock: object) -> None:
    world = simulated_world()
    async with opened(world) as store:
        for number in range(4):
            put(store, TOPIC, b"old %d" % number, number % 2)
        # given a file that this broker, or the one whose log this was, may have given up, and the queue with it
        fill_file(store)
        begin_queue_anew(store, 0)
        put(store, TOPIC, b"new", 0)
    lose_what_only_we_write(world)
    async with opened(world) as store:
        assert bodies(store) == {0: [b"new"], 1: [b"old 1", b"old 3"]}


async def test_a_record_that_stands_in_for_a_lost_one_begins_no_life(autojump_clock: object) -> None:
    async with opened(simulated_world()) as store:
        lost = [put(store, TOPIC, b"%d" % number, 0).physical_offset for number in range(2)]
        put(store, TOPIC, b"idle", 1)
        there = put(store, TOPIC, b"2", 0)
        # given a queue whose first units point to its third record, and an older one that comes back
        core = store._core
        queue = core.consume_queues.by_key[TOPIC, 0]
        for offset in range(2):
            core.consume_queues._write(queue, offset, there.physical_offset, there.size_bytes, 0)
        head = core.log.parse_at(lost[1])
        assert head is not None
        store._dispatcher.former_lives.note(queue, head.physical_offset, head.size_bytes)
        store._dispatcher.former_lives.settle()
        assert bodies(store)[1] == [b"idle"]


async def test_an_earlier_deletion_takes_no_later_one_s_place(autojump_clock: object) -> None:
    async with opened(simulated_world()) as store:
        old = [put(store, TOPIC, b"old %d" % number, number % 2) for number in range(4)]
        store.delete_topic(TOPIC)
        known = store.deletions[TOPIC]
        put(store, TOPIC, b"new", 0)
        core = store._core
        store._dispatcher.former_lives.note(core.consume_queues.by_key[TOPIC, 0], old[0].physical_offset, 1)
        store._dispatcher.former_lives.settle()
        assert store.deletions[TOPIC] == known


# --- a queue that begins anew alone ------------------------------------------------------------------------------


async def test_a_topic_of_which_a_queue_goes_on_was_not_deleted(autojump_clock: object) -> None:
    # given a queue that the broker numbered anew, while another one went on
    world = simulated_world()
    async with opened(world) as store:
        for number in range(10):
            put(store, TOPIC, b"old %d" % number, number % 2)
        begin_queue_anew(store, 0)
        put(store, TOPIC, b"new", 0)
        assert put(store, TOPIC, b"goes on", 1).queue_offset == 5
        expected = {0: [b"new"], 1: [*(b"old %d" % number for number in range(1, 10, 2)), b"goes on"]}
        assert bodies(store) == expected
    for lost in (["recovery.mark"], ["recovery.mark", "consumequeue"]):
        for name in lost:
            disk_of(world).remove_tree(f"/store/{name}")
        async with opened(world) as store:
            assert bodies(store) == expected


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_queue_that_grew_too_old_at_the_master_takes_no_other_one_of_a_replica_with_it(
    goes_on: bool, autojump_clock: object
) -> None:
    chance, slave_world = random.Random(9), simulated_world(2)
    old = {1: [b"lives %d" % number for number in range(5)]}
    async with opened(simulated_world(1)) as master:
        async with opened(slave_world, host=ELSEWHERE) as slave:
            for number in range(5):
                put(master, TOPIC, b"old %d" % number, 0)
                put(master, TOPIC, b"lives %d" % number, 1)
            # given a master that has given up the file of the last message of one queue, which begins anew
            fill_file(master)
            begin_queue_anew(master, 0)
            copy(master, slave, chance)
            put(master, TOPIC, b"new", 0)
            copy(master, slave, chance)
            assert bodies(slave) == {0: [b"new"], **old}
            if goes_on:
                old[1].append(b"goes on")
                put(master, TOPIC, b"goes on", 1)
                copy(master, slave, chance)
            assert bodies(slave) == {0: [b"new"], **old}
        # then the other one stays at a replica that keeps its files for longer, also when it starts again
        for lost in (["recovery.mark"], ["recovery.mark", "consumequeue"]):
            for name in lost:
                disk_of(slave_world).remove_tree(f"/store/{name}")
            async with opened(slave_world, host=ELSEWHERE) as slave:
                assert bodies(slave) == {0: [b"new"], **old}


async def test_old_messages_that_come_back_into_a_hole_stay_out(autojump_clock: object) -> None:
    world = simulated_world()
    async with opened(world) as store:
        put(store, "Other", b"before")
        starts = [put(store, TOPIC, b"old %d" % number, number % 2).physical_offset for number in range(10)]
        store.delete_topic(TOPIC)
        end = store.max_physical_offset
        for body in NEW:
            put(store, TOPIC, body)
        content = bytes(store.slice(0, store.max_physical_offset))
    # given a log that has lost all messages of the former life, and a start that knows of no deletion
    lose_what_only_we_write(world)
    path = "/store/commitlog/00000000000000000000"
    disk_of(world).damage(path, lambda data: data[: starts[0]] + bytes(end - starts[0]) + data[end:])
    async with opened(world) as store:
        assert (store.hole, bodies(store)) == (starts[0], {0: NEW})
        # when they come back from a replica
        repair = store.repair(starts[0])
        await repair.write(starts[0], content[starts[0] :])
        await repair.finish(len(content))
        # then they are in the log and in no queue
        assert bytes(store.slice(0, len(content))) == content
        assert bodies(store) == {0: NEW}


async def test_a_system_topic_is_never_deleted(autojump_clock: object) -> None:
    world, topic = simulated_world(), "SCHEDULE_TOPIC_XXXX"
    async with opened(world) as store:
        for number in range(4):
            put(store, topic, b"%d" % number, number % 2)
        store.delete_topic(topic)
        put(store, topic, b"new", 0)
    lose_what_only_we_write(world)
    async with opened(world) as store:
        assert queue_bodies(store) == {(topic, 0): [b"new"], (topic, 1): [b"1", b"3"]}


@KINDS
@pytest.mark.parametrize("met", [slice(0, 10), slice(0, 2), slice(8, 10)], ids=["all", "the first", "the last"])
async def test_old_records_that_are_met_again_say_what_they_said_the_first_time(
    met: slice, living: LivingTopics, autojump_clock: object
) -> None:
    async with opened(simulated_world(), living) as store:
        old = [put(store, TOPIC, b"old %d" % number, 1 - number % 2).physical_offset for number in range(10)]
        delete_and_make_again(store, living)
        new = [put(store, TOPIC, body).physical_offset for body in NEW]
        # given a store that knows of no deletion, and has its new messages when the old ones are entered
        store._core.deletions.clear()
        for physical in [*old[met], *new]:
            head = store._core.log.parse_at(physical)
            assert head is not None
            store._dispatcher.dispatch(head)
        assert bodies(store).keys() == {0, 1}
        store._dispatcher.former_lives.settle()
        # then it finds the deletion behind the last of them
        assert bodies(store) == {0: NEW}
        last = store._core.log.parse_at(old[met][-1])
        assert last is not None
        assert store.deletions[TOPIC].position == last.physical_offset + last.size_bytes
