"""Compaction topics: which records survive, and what readers see."""

from __future__ import annotations

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
    read,
    run,
)
from hypothesis import given
from hypothesis import strategies as st
from store_fixtures import bodies_of, disk_of, put, records_of

from understudy.format.java_hash import java_hash_of_bytes
from understudy.runtime.world import World
from understudy.store.compaction.layout import file_lengths
from understudy.store.compaction.survivors import TOMBSTONE_MS, Entry, Newest, digest
from understudy.store.status import GetStatus


def entry(key: str, offset: int, body: bytes = b"x", store_ms: int = 0) -> Entry:
    return Entry(digest(key.encode()), offset, not body, store_ms)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40), st.integers(0, 40))
def test_the_last_record_of_each_key_survives(sent: list[tuple[str, bool]], noted: int) -> None:
    # Given a table of keys that the first of the records went into
    entries = [entry(key, offset, b"" if gone else b"x") for offset, (key, gone) in enumerate(sent)]
    newest = Newest(1 << 20)
    for each in entries[:noted]:
        assert newest.note(each)
    # When all of them are asked, long after
    left = [each for each in entries if newest.survives(each, TOMBSTONE_MS)]
    # Then those behind stay, and before that the last of each key, unless it says that the key is gone
    model = {key: (offset, gone) for offset, (key, gone) in enumerate(sent[:noted])}
    expected = sorted(offset for offset, gone in model.values() if not gone)
    assert [each.offset for each in left] == expected + list(range(min(noted, len(sent)), len(sent)))


def test_a_tombstone_is_kept_for_a_day() -> None:
    newest = Newest(1 << 20)
    old, tombstone = entry("a", 0), entry("a", 1, b"", store_ms=1000)
    for each in (old, tombstone):
        newest.note(each)
    assert not newest.survives(old, 1000)
    assert newest.survives(tombstone, 1000 + TOMBSTONE_MS - 1)
    assert not newest.survives(tombstone, 1000 + TOMBSTONE_MS)


def test_a_full_table_leaves_the_rest_to_the_next_round() -> None:
    newest = Newest(0)
    entries = [entry(str(number % 150), number) for number in range(300)]
    noted = [each for each in entries if newest.last == each.offset - 1 and newest.note(each)]
    assert len(noted) == 100
    assert [each.offset for each in entries if newest.survives(each, 0)] == list(range(300))
    assert newest.note(entry("3", 300))  # a key that it knows


def test_files_have_the_lengths_of_the_reference() -> None:
    assert file_lengths(100 << 20, 10 << 20) == (104_857_460, 10_485_746)
    assert file_lengths(1000, 460) == (2300, 460)
    assert file_lengths(46 * 100 + 40, 460) == (4600, 460)
    assert file_lengths(46 * 100 + 300, 460) == (5060, 460)


def test_readers_get_what_survives_and_then_what_is_new() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            model = Model()
            for number in range(60):
                model.put(store, f"k{number % 4}", b"v%d" % number)
            # Before the copy, in the middle of it and after it the same is read
            assert read(store) == model.bodies
            await copied(store)
            assert read(store) == model.bodies
            assert len(disk_of(world).listdir(LOG_FOLDER)) > 3
            # When a round has run
            await compacted(store)
            # Then only the last of each key is left of the closed files, and everything else
            found = read(store)
            model.check(found)
            assert len(found) < 20
            assert len(disk_of(world).listdir(LOG_FOLDER)) == 2
            assert disk_of(world).listdir(LOG_FOLDER) == disk_of(world).listdir(QUEUE_FOLDER)
            # and the queue begins where the first of them is, which a read from the beginning finds
            low = min(found)
            assert low > 0
            assert store.min_queue_offset(TOPIC, 0) == low
            got = store.get(TOPIC, 0, 0, 1, 1 << 20)
            assert (got.status, got.min_offset, got.max_offset) == (GetStatus.FOUND, low, 60)
            assert records_of(got)[0].queue_offset == low
            assert read(store, 0) == found
            # A message is read at once, though it is not copied
            model.put(store, "k0", b"new")
            assert read(store)[60] == b"new"
            assert store.get(TOPIC, 0, 61, 1, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE
            assert store.get(TOPIC, 0, 70, 1, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_BADLY
            # and a second round goes on where the first one ended
            for number in range(40):
                model.put(store, f"k{number % 4}", b"w%d" % number)
            await compacted(store)
            model.check(read(store))
            assert min(read(store)) > 60
        async with compacting(world) as store:
            model.check(read(store))

    run(scenario)


def test_filters_and_times_reach_into_what_is_compacted() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            for number in range(40):
                put(store, TOPIC, b"v%d" % number, KEYS=f"k{number % 7}", TAGS=f"t{number % 2}", n=str(number))
                await trio.sleep(10)
            await compacted(store)
            left = sorted(read(store))
            assert left[0] >= 20
            tagged = store.get(TOPIC, 0, 0, 32, 1 << 20, {java_hash_of_bytes(b"t1")}.__contains__)
            assert [record.queue_offset for record in records_of(tagged)] == [each for each in left if each % 2]
            none = store.get(TOPIC, 0, 0, 32, 1 << 20, lambda code: False)
            assert none.status is GetStatus.NO_MATCHED_MESSAGE
            asked = store.get(TOPIC, 0, 0, 32, 1 << 20, None, lambda properties: b"n\x0139" in properties)
            assert bodies_of(asked) == [b"v39"]
            times = {offset: store.store_time_of(TOPIC, 0, offset) for offset in left}
            assert store.earliest_store_time(TOPIC, 0) == times[left[0]]
            assert store.store_time_of(TOPIC, 0, 0) == times[left[0]]
            for before, offset in zip([left[0], *left], left, strict=False):
                assert store.offset_by_time(TOPIC, 0, times[offset]) == offset
                assert store.offset_by_time(TOPIC, 0, times[offset] - 1) == offset
                assert store.offset_by_time(TOPIC, 0, times[offset], "upper") == offset
                assert store.offset_by_time(TOPIC, 0, times[offset] - 1, "upper") == before
            assert store.offset_by_time(TOPIC, 0, times[left[-1]] + 1) == 40

    run(scenario)


def test_other_topics_and_messages_without_a_key_are_as_they_were() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            for number in range(50):
                put(store, "Other", b"o%d" % number, KEYS="same")
                put(store, TOPIC, b"n%d" % number)
            await compacted(store)
            assert len(read(store, topic="Other")) == 50
            # what has no key is in no compaction log, and read only as long as it is not copied past
            assert read(store) == {}
            assert store.min_queue_offset(TOPIC, 0) == 50
            put(store, TOPIC, b"keyed", KEYS="k")
            assert read(store) == {50: b"keyed"}

    run(scenario)


def test_tombstones_are_read_for_a_day_and_go_then() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            put(store, TOPIC, b"value", KEYS="gone")
            put(store, TOPIC, b"", KEYS="gone")
            for number in range(30):
                put(store, TOPIC, b"x", KEYS=f"k{number % 3}")
            await compacted(store)
            assert read(store)[1] == b""
            assert 0 not in read(store)
            await trio.sleep(TOMBSTONE_MS / 1000)
            for number in range(30):
                put(store, TOPIC, b"y", KEYS=f"k{number % 3}")
            await compacted(store)
            assert 1 not in read(store)

    run(scenario)


def test_a_round_that_may_not_note_every_key_goes_on_in_the_next() -> None:
    async def scenario(world: World) -> None:
        async with compacting(world, config(compaction_map_bytes=1)) as store:
            model = Model()
            for number in range(500):
                model.put(store, f"k{number % 120}", b"%d" % number)
            left = []
            for _ in range(6):
                await compacted(store)
                model.check(read(store))
                left.append(len(read(store)))
            # Each round sees a hundred keys, so the first finds no second message of any
            assert left[0] == 500
            assert left == sorted(left, reverse=True)
            assert left[1] < 500
            assert left[-1] < 140

    run(scenario)
