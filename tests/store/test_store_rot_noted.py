"""Damage that was found: it is known at once, noted durably a little later, and dated by the first of it."""

from __future__ import annotations

import random

import pytest
import trio
from store_fixtures import PRODUCER, disk_of, running_store, simulated_world
from test_store_replication import TOPIC
from test_store_rot import filled, rot

from understudy.format.record import FLAG_TRANSACTION_ROLLBACK
from understudy.store.message_store import MessageStore
from understudy.store.walk import VOID_TOPIC
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


@pytest.mark.parametrize(("what", "is_damage"), [("rotten", True), ("of another size", False), ("whole", False)])
async def test_only_a_damaged_record_is_damage_whoever_looked_for_another_one(
    what: str, is_damage: bool, autojump_clock: object
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put = store.append(TOPIC, 0, b"x" * 300, b"", 1, PRODUCER)
    if what != "whole":
        rot(world, put.physical_offset + 88, 1)
    async with running_store(world) as store:
        store.note_rotten_record(TOPIC, 0, put.physical_offset, put.size_bytes + (what == "of another size"))
        assert store.holes.behind == is_damage


async def test_what_stands_in_for_damage_is_no_damage(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        put = store.append(VOID_TOPIC.decode(), 0, b"", b"", 1, PRODUCER, sys_flag=FLAG_TRANSACTION_ROLLBACK)
        store.note_rotten_record(VOID_TOPIC.decode(), 0, put.physical_offset, put.size_bytes)
        assert not store.holes.behind
