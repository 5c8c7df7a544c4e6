"""Index files and keys that rot: a scrub writes the index anew from the log, or finds that the record has rotted."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio
from golden_stores import NAMES, manifest, opened, unpack
from store_fixtures import disk_of, lose_end, put, records_of, running_store, simulated_world, small_config
from test_store_rot import rot
from test_store_rot_outside_bodies import TOPIC, change, under_key

from understudy.runtime.world import World
from understudy.store.index_file import ENTRY_BYTES, HEADER_BYTES
from understudy.store.message_store import MessageStore
from understudy.testkit.waiting import until

COUNT, VICTIM = 80, 13
SLOTS, CAPACITY = 50, 100
ENTRIES_AT = HEADER_BYTES + 4 * SLOTS
#: Entry of the key of the victim: each message has three, its unique key, key and tags.
ENTRY_AT = ENTRIES_AT + (1 + VICTIM * 3 + 1) * ENTRY_BYTES
PLACES = {
    **{f"hash {byte}": ENTRY_AT + byte for byte in (0, 3)},
    **{f"physical offset {byte}": ENTRY_AT + 4 + byte for byte in (1, 5, 7)},
    **{f"seconds {byte}": ENTRY_AT + 12 + byte for byte in (0, 2)},
    **{f"older {byte}": ENTRY_AT + 16 + byte for byte in (0, 3)},
    **{f"slot {slot}": HEADER_BYTES + 4 * slot + 3 for slot in (3, 17, 49)},
    "begin time": 6,
    "end time": 8,
    "begin offset": 22,
    "end offset": 26,
    "count": 39,
}


async def filled(world: World) -> list[int]:
    """Store messages with keys, stop cleanly, and return where each begins."""
    async with running_store(world, small_config()) as store:
        found = []
        for number in range(COUNT):
            await trio.sleep(0.3)
            names = {"KEYS": f"key{number}", "TAGS": f"t{number % 3}", "UNIQ_KEY": f"{number:032X}"}
            found.append(put(store, TOPIC, b"body%02d" % number, 0, **names).physical_offset)
        return found


def by_key(store: MessageStore) -> list[int]:
    """Return the messages that their own keys find."""
    return [
        number
        for number in range(COUNT)
        if [number] == [each.queue_offset for each in under_key(store, f"key{number}")]
    ]


def everything(store: MessageStore) -> list[int]:
    """Return the queue offsets of the messages that the queue gives."""
    found, offset = [], 0
    while offset < COUNT:
        read = store.get(TOPIC, 0, offset, 32, 1 << 20)
        found += [each.queue_offset for each in records_of(read)]
        offset = read.next_begin_offset
    return found


async def scrubbed(store: MessageStore) -> tuple[list[int], bool]:
    """Have the log compared; return where damage begins, and whether anything of the index was written anew."""
    report = store.start_scrub()
    await until(lambda: not report.running, 10)
    return [first for first, _ in report.damaged], report.entries > 0


@pytest.mark.parametrize("place", PLACES)
async def test_an_index_file_that_rots_is_written_anew(place: str, autojump_clock: object) -> None:
    world = simulated_world()
    await filled(world)
    first, *others = disk_of(world).listdir("/store/index")
    assert len(others) == 2
    disk_of(world).damage(f"/store/index/{first}", partial(change, at=PLACES[place], bit=2))
    async with running_store(world) as store:
        # given that some are not found, or may not be found at some time
        assert ([], True) == await scrubbed(store)
        # then every key finds its message, at any time, and nothing is left to be mended
        assert list(range(COUNT)) == by_key(store)
        assert ([], False) == await scrubbed(store)
        found = store.query(TOPIC, "t1", 64, 0, 1 << 60, "T").records
        assert len(found) > 20
    # and it stays so
    async with running_store(world) as store:
        assert (list(range(COUNT)), ([], False)) == (by_key(store), await scrubbed(store))


@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY"])
async def test_a_message_whose_keys_rot_is_found_under_no_key_and_noted(name: str, autojump_clock: object) -> None:
    world = simulated_world()
    places = await filled(world)
    path = "/store/commitlog/" + "0" * 20
    at = disk_of(world).read(path).index(f"{name}\x01".encode(), places[VICTIM]) + len(name) + 2
    rot(world, at, 1)
    async with running_store(world) as store:
        assert list(range(COUNT)) == everything(store)  # nobody has seen it yet
        assert ([places[VICTIM]], False) == await scrubbed(store)
        await trio.sleep(0.1)
        assert store.hole == places[VICTIM]
        others = [number for number in range(COUNT) if number != VICTIM]
        assert [number for number in by_key(store) if name != "UNIQ_KEY" or number != VICTIM] == others
        # and nobody gets it from its queue any more
        assert others == everything(store)


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_that_the_reference_wrote_is_taken_for_rotten(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    async with opened(name, root, manifest(name)) as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        report = store.start_scrub()
        await until(lambda: not report.running, 20)
        assert (0, 0, []) == (report.entries, report.units, report.damaged)
        assert report.records > 0 or store.max_physical_offset <= 0
        nursery.cancel_scope.cancel()


async def test_a_scrub_beside_senders_mends_nothing_that_is_right(autojump_clock: object) -> None:
    world = simulated_world()
    await filled(world)
    async with running_store(world) as store:
        report = store.start_scrub()
        number = COUNT
        while report.running:
            put(store, TOPIC, b"more", 0, KEYS=f"key{number}", TAGS="t1")
            number += 1
            await trio.lowlevel.checkpoint()
        assert (0, 0, []) == (report.entries, report.units, report.damaged)
        assert number > COUNT + 3
        assert list(range(number)) == [
            record.queue_offset for each in range(number) for record in under_key(store, f"key{each}")
        ]


async def test_an_index_of_a_version_that_entered_no_tags_is_right(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(COUNT):
            put(store, TOPIC, b"body", 0, KEYS=f"key{number}", TAGS="t1", UNIQ_KEY=f"{number:032X}")
            waiting = store._core.unindexed
            store._core.unindexed = [(queue, unique, keys, None, *rest) for queue, unique, keys, _, *rest in waiting]
            store.enter_keys()
    async with running_store(world) as store:
        assert ([], False) == await scrubbed(store)
        assert (list(range(COUNT)), COUNT) == (by_key(store), len(everything(store)))


async def test_entries_of_what_a_log_held_before_it_was_cut_say_nothing(autojump_clock: object) -> None:
    # given a store that a reference has cut, as the copy of another master: entries of what lay there stay in its index
    world = simulated_world()
    places = await filled(world)
    disk = disk_of(world)
    former = {name: disk.read(f"/store/index/{name}") for name in disk.listdir("/store/index")}
    lose_end(world, places[VICTIM])
    await trio.sleep(60)
    async with running_store(world) as store:
        for number in range(VICTIM, COUNT):
            names = {"KEYS": f"abc{number}", "TAGS": f"t{number % 3}", "UNIQ_KEY": f"{number:032X}"[::-1]}
            assert places[number] == put(store, TOPIC, b"body%02d" % number, 0, **names).physical_offset
        put(store, TOPIC, b"body", 0)
    for name in disk.listdir("/store/index"):
        disk.remove(f"/store/index/{name}")
    for name, content in former.items():
        with closing(disk.open(f"/store/index/{name}")) as file:
            file.write_at(0, content)
    disk.remove("/store/recovery.mark")
    # then nobody takes a message of today for another one, nor does the second scrub
    async with running_store(world) as store:
        for _ in range(2):
            damage, _ = await scrubbed(store)
            assert damage == []
            assert list(range(COUNT)) == everything(store)
