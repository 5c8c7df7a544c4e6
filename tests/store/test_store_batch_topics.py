"""Whatever comes to a topic with batch queues stands in batch queues, before and after its kind is known."""

from __future__ import annotations

import random

import pytest
from store_fixtures import (
    HOST,
    PRODUCER,
    bodies_of,
    disk_of,
    put,
    records_of,
    running_store,
    simulated_world,
    small_config,
)
from test_store_replication import TOPIC, copy

from understudy.format.batch import encode_batch
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP
from understudy.runtime.world import World
from understudy.store.batch_topics import RECORDS_AT_ONCE, RECORDS_IN_A_STEP
from understudy.store.deletions import LivingTopics
from understudy.store.message_store import MessageStore
from understudy.testkit.waiting import until

MANY = 6 * RECORDS_AT_ONCE
BATCH, SIMPLE = "/store/batchconsumequeue", "/store/consumequeue"


def bodies(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    while (read := store.get(TOPIC, 0, len(found), 1, 1 << 20)).count:
        found += bodies_of(read)
    return found


def only_batch_queues(world: World) -> bool:
    disk = disk_of(world)
    return disk.listdir(BATCH) == [TOPIC] and TOPIC not in disk.listdir(SIMPLE)


async def test_a_replica_that_learns_late_moves_what_it_has(autojump_clock: object) -> None:
    chance, slave_world = random.Random(1), simulated_world(2)
    async with running_store(simulated_world(1)) as master, running_store(slave_world) as slave:
        for number in range(30):
            put(master, TOPIC, b"%d" % number)
            put(master, "Other", b"%d" % number)
        copy(master, slave, chance)
        # when the attribute comes after messages, and others after it
        slave.declare_kinds([TOPIC])
        put(master, TOPIC, b"30")
        copy(master, slave, chance)
        # then all of them stand in a batch queue
        assert bodies(slave) == [b"%d" % number for number in range(31)]
        assert only_batch_queues(slave_world)
        assert slave.max_queue_offset("Other", 0) == 30
    async with running_store(slave_world) as slave:
        assert bodies(slave) == [b"%d" % number for number in range(31)]


async def test_a_replica_that_has_much_moves_it_beside_what_else_it_does(autojump_clock: object) -> None:
    chance, slave_world = random.Random(1), simulated_world(2)
    async with running_store(simulated_world(1)) as master, running_store(slave_world) as slave:
        for number in range(MANY):
            put(master, TOPIC, b"%d" % number)
            put(master, "Other", b"%d" % number)
        copy(master, slave, chance)
        # given queues that are being made anew, and messages that come meanwhile
        slave.declare_kinds([TOPIC], beside=True)
        steps = slave._kinds.steps(TOPIC)
        for number in range(MANY, MANY + 30):
            assert next(steps) is None
            put(master, TOPIC, b"%d" % number)
            copy(master, slave, chance)
            # then readers see all messages, and no queue of the other kind is there
            assert slave.max_queue_offset(TOPIC, 0) == number + 1
            assert bodies(slave) == [b"%d" % each for each in range(number + 1)]
            assert disk_of(slave_world).listdir(BATCH) == []
        assert TOPIC in slave.changing_kinds
        # and in the end they see them in batch queues, each read in its turn
        assert sum(1 for _ in steps) >= (MANY - RECORDS_AT_ONCE) // RECORDS_IN_A_STEP - 30
        assert bodies(slave) == [b"%d" % number for number in range(MANY + 30)]
        assert only_batch_queues(slave_world)
        assert slave.changing_kinds == {}
        put(master, TOPIC, b"last")
        copy(master, slave, chance)
        assert bodies(slave)[-1] == b"last"
    async with running_store(slave_world) as slave:
        assert len(bodies(slave)) == MANY + 31


async def test_a_kind_that_is_taken_back_in_time_moves_nothing(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(MANY):
            put(store, TOPIC, b"%d" % number)
        store.declare_kinds([TOPIC], beside=True)
        steps = store._kinds.steps(TOPIC)
        next(steps)
        store.declare_kinds([], [TOPIC], beside=True)
        assert list(steps) == []
        await store.settle_kinds()
        assert (set(store.batch_topics), store.changing_kinds) == (set(), {})
        assert len(bodies(store)) == MANY
        assert disk_of(world).listdir(SIMPLE) == [TOPIC]
        # while the store itself does what is left to do
        store.declare_kinds([TOPIC], beside=True)
        await until(lambda: not store.changing_kinds)
        assert (len(bodies(store)), only_batch_queues(world)) == (MANY, True)


@pytest.mark.parametrize("accident", ["deleted", "cut", "made again"])
async def test_what_becomes_of_queues_while_they_are_made_anew_counts(accident: str, autojump_clock: object) -> None:
    world, chance = simulated_world(), random.Random(4)
    async with running_store(simulated_world(1)) as master, running_store(world) as store:
        for number in range(MANY):
            put(master, TOPIC, b"%d" % number)
        copy(master, store, chance)
        store.declare_kinds([TOPIC], beside=True)
        steps = store._kinds.steps(TOPIC)
        next(steps)
        expected = [b"new %d" % number for number in range(3)]
        if accident == "cut":
            expected = [b"%d" % number for number in range(7)]
            (seventh,) = records_of(store.get(TOPIC, 0, 7, 1, 1 << 20))
            await store.truncate(seventh.physical_offset)
        elif accident == "deleted":
            store.delete_topic(TOPIC)
            for body in expected:
                put(store, TOPIC, body)
        else:  # at the master, of which this replica has not heard yet
            master.delete_topic(TOPIC)
            for body in expected:
                put(master, TOPIC, body)
            copy(master, store, chance)
        for _ in steps:
            pass
        assert bodies(store) == expected
        assert only_batch_queues(world)


async def test_what_readers_may_not_see_yet_stays_hidden_in_the_new_queues(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(10):
            put(store, TOPIC, b"%d" % number)
        store.set_confirmed(store.max_physical_offset)
        for number in range(10, 20):
            put(store, TOPIC, b"%d" % number)
        store.declare_kinds([TOPIC], beside=True)
        await store.settle_kinds()
        assert only_batch_queues(world)
        assert bodies(store) == [b"%d" % number for number in range(10)]
        store.set_confirmed(None)
        assert bodies(store) == [b"%d" % number for number in range(20)]


async def test_a_topic_that_is_made_again_as_an_ordinary_one_has_simple_queues(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        # given one that never had a message, and one that had
        store.declare_kinds([TOPIC, "Other"])
        put(store, "Other", b"x")
        store.declare_kinds([], [TOPIC, "Other"])
        assert set(store.batch_topics) == set()
        put(store, TOPIC, b"y")
        put(store, "Other", b"y")
        assert ([b"y"], 2) == (bodies(store), store.max_queue_offset("Other", 0))
        disk = disk_of(world)
        assert sorted((TOPIC, "Other")) == disk.listdir(SIMPLE)
        assert disk.listdir(BATCH) == []


@pytest.mark.parametrize(("number", "base"), [("5", "7"), ("5", "9" * 5_000), ("9" * 5_000, "1"), ("5", "9" * 19)])
async def test_what_a_client_says_of_batches_in_an_ordinary_topic_numbers_nothing(
    number: str, base: str, autojump_clock: object
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, TOPIC, b"0")
        put(store, TOPIC, b"1", INNER_NUM=number, INNER_BASE=base)
        put(store, TOPIC, b"2")
        # when the queues of the topic are made anew as batch queues
        store.declare_kinds([TOPIC])
        assert ([b"0", b"1", b"2"], 3) == (bodies(store), store.max_queue_offset(TOPIC, 0))


async def test_simple_queues_that_an_older_version_left_are_made_anew_at_a_start(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(30):
            put(store, TOPIC, b"%d" % number)
        assert not only_batch_queues(world)
    living = LivingTopics(frozenset({TOPIC}), 0, frozenset({TOPIC}))
    for _ in range(2):
        store = await MessageStore.open(world, small_config(), HOST, living)
        assert bodies(store) == [b"%d" % number for number in range(30)]
        assert only_batch_queues(world)
        await store.close()


async def test_a_scrub_finds_nothing_wrong_with_batches(autojump_clock: object) -> None:
    world = simulated_world()
    living = LivingTopics(frozenset({TOPIC}), 0, frozenset({TOPIC}))
    store = await MessageStore.open(world, small_config(), HOST, living)
    for number in range(40):
        put(store, TOPIC, b"%d" % number, UNIQ_KEY=f"u{number}", KEYS=f"k{number} all", TAGS="t")
        body, pairs = encode_batch([(0, b"a", b""), (0, b"b", b"")]), f"UNIQ_KEY\x01b{number}\x02INNER_NUM\x012\x02"
        store.append(TOPIC, 0, body, pairs.encode(), 1, PRODUCER, sys_flag=FLAG_INNER_BATCH | FLAG_NEED_UNWRAP)
    await store.close()
    async with running_store(world) as store:
        report = store.start_scrub()
        await until(lambda: not report.running)
        assert (report.records, report.damaged, report.units, report.entries) == (80, [], 0, 0)
        assert store.hole is None
        for key in ("k7", "b7"):
            assert len(store.query(TOPIC, key, 5, 0, 1 << 62).records) == 1
