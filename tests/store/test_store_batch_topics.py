"""Whatever comes to a topic with batch queues stands in batch queues, before and after its kind is known."""

from __future__ import annotations

import random

from store_fixtures import HOST, bodies_of, disk_of, put, running_store, simulated_world, small_config
from test_store_replication import TOPIC, copy

from understudy.runtime.world import World
from understudy.store.deletions import LivingTopics
from understudy.store.message_store import MessageStore

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
