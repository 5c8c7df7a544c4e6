"""Damage that was found: it is known at once, noted durably a little later, and dated by the first of it."""

from __future__ import annotations

import random

import trio
from store_fixtures import disk_of, running_store, simulated_world
from test_store_replication import TOPIC
from test_store_rot import filled, rot

from understudy.store.message_store import MessageStore
from understudy.testkit.waiting import until

VICTIMS = (5, 9)


def look_at(store: MessageStore, number: int) -> None:
    store.get(TOPIC, 0, number, 1, 1 << 20)


async def test_what_is_found_while_other_damage_is_noted_is_not_taken_for_noted(autojump_clock: object) -> None:
    world = simulated_world()
    starts = await filled(world, random.Random(1))
    first, second = (starts[each] for each in VICTIMS)
    for each in (first, second):
        rot(world, each + 88, 1)
    async with running_store(world) as store:
        assert (store.holes.behind, store.hole) == (False, None)
        disk_of(world).sync_seconds = 2.0
        look_at(store, VICTIMS[1])
        assert store.holes.behind
        await trio.sleep(1)
        look_at(store, VICTIMS[0])
        await until(lambda: store.hole == second, 20)
        # given the first of them is on the disk, then it is known that there is more
        assert store.holes.behind
        await until(lambda: store.hole == first, 20)
        assert not store.holes.behind


async def test_damage_counts_as_found_when_the_first_of_it_was(autojump_clock: object) -> None:
    world = simulated_world()
    starts = await filled(world, random.Random(1))
    for each in VICTIMS:
        rot(world, starts[each] + 88, 1)
    async with running_store(world) as store:
        assert store.holes.found_s < 0
        look_at(store, VICTIMS[0])
        found_s = world.clock.monotonic()
        assert store.holes.found_s == found_s
        await trio.sleep(3)
        assert store.hole == starts[VICTIMS[0]]
        look_at(store, VICTIMS[1])
        assert (store.holes.behind, store.holes.found_s) == (True, found_s)
