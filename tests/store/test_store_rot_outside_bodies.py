"""Bytes that rot in heads, properties and queue units: mended from what stands twice, or noticed and left out."""

from __future__ import annotations

import gzip
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from store_fixtures import PRODUCER, bodies_of, disk_of, put, records_of, running_store, simulated_world, small_config
from test_store_rot import everything, rot

from understudy.format.batch import encode_batch
from understudy.format.java_hash import java_hash
from understudy.format.properties import format_properties
from understudy.format.record import Record, decode_records
from understudy.runtime.world import World
from understudy.store import queue_repair
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.seals import NAME, is_as_sealed, seal, unsealed
from understudy.store.status import GetStatus, PutRejected
from understudy.testkit.waiting import until

TOPIC = "Orders"
COUNT, VICTIM = 30, 11
LAST = 1 << 60
#: Bytes of a record with a body of six, by what they are of; all but the last of each part counted from its beginning.
HEAD_PARTS = {"queue id": 15, "queue offset": 27, "topic": 88 + 6 + 3}
VECTORS: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "store" / "records.json.gz").read_bytes())
)
SEALED = [vector for vector in VECTORS["records"] if vector["input"]["appendPropCRC"]]


def change(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


async def filled(world: World, config: StoreConfig | None = None) -> list[tuple[int, int]]:
    """Store messages with tags and keys, stop cleanly, and return where each begins and how long it is."""
    async with running_store(world, config) as store:
        return [
            put(
                store,
                TOPIC,
                b"body%02d" % number,
                0,
                KEYS=f"k{number}",
                TAGS=f"t{number % 3}",
                UNIQ_KEY=f"{number:032X}",
            )[:2]
            for number in range(COUNT)
        ]


def rot_unit(world: World, at: int, bit: int) -> None:
    """Change a byte of the unit of the victim."""
    path = f"/store/consumequeue/{TOPIC}/0/{0:020d}"
    disk_of(world).damage(path, partial(change, at=VICTIM * 20 + at, bit=bit))


def under_key(store: MessageStore, key: str) -> list[Record]:
    return [record for part in store.query(TOPIC, key, 10, 0, LAST).records for record in decode_records(part)]


async def scrubbed(store: MessageStore) -> tuple[list[int], int]:
    """Have the log compared; return where damage begins, and how many units were entered again."""
    report = store.start_scrub()
    await until(lambda: not report.running, 10)
    assert report.records == COUNT - len(report.damaged)
    return [first for first, _ in report.damaged], report.units


@pytest.mark.parametrize("bit", [1, 64])
@pytest.mark.parametrize("at", range(20))
async def test_a_unit_that_rots_costs_no_message(at: int, bit: int, autojump_clock: object) -> None:
    for at_once in (1, 32):
        world = simulated_world(at)
        await filled(world)
        rot_unit(world, at, bit)
        async with running_store(world) as store:
            assert list(range(COUNT)) == [each.queue_offset for each in everything(store, at_once)]
            # and no damage is noted, for the log has none
            await trio.sleep(0.1)
            assert store.hole is None
            assert (await scrubbed(store))[0] == []


@pytest.mark.parametrize("at", [3, 5, 6, 10])
@pytest.mark.parametrize("bit", [1, 2, 64])
async def test_units_that_rot_side_by_side_cost_no_message(at: int, bit: int, autojump_clock: object) -> None:
    world = simulated_world(at)
    await filled(world)
    path = f"/store/consumequeue/{TOPIC}/0/{0:020d}"
    for number in range(VICTIM, VICTIM + 3):
        disk_of(world).damage(path, partial(change, at=number * 20 + at, bit=bit))
    async with running_store(world) as store:
        assert list(range(COUNT)) == [each.queue_offset for each in everything(store)]
        assert (await scrubbed(store))[0] == []


@pytest.mark.parametrize("at", [3, 7, 11, 13, 18])
async def test_a_scrub_finds_rotten_units_that_no_reader_comes_upon(at: int, autojump_clock: object) -> None:
    world = simulated_world(at)
    await filled(world)
    rot_unit(world, at, 4)
    code = java_hash(f"t{VICTIM % 3}")
    async with running_store(world) as store:
        # given who reads by tags and does not get a message when its tags code has rotted
        assert ([], 1) == await scrubbed(store)
        # then nothing is missing after a scrub
        found = everything(store, accept=lambda each: each == code)
        assert [number for number in range(COUNT) if number % 3 == VICTIM % 3] == [each.queue_offset for each in found]
        assert ([], 0) == await scrubbed(store)


async def test_readers_wait_while_the_log_is_searched_for_a_message(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(queue_repair, "_STEP_BYTES", 100)
    world = simulated_world()
    await filled(world)
    rot_unit(world, 9, 1)
    async with running_store(world) as store:
        told: list[int] = []
        store.arrived.append(lambda topic, queue_id, offset, *rest: told.append(offset))
        # when a reader comes to it and its neighbours are far away
        read = store.get(TOPIC, 0, VICTIM, 1, 1 << 20)
        assert (GetStatus.OFFSET_OVERFLOW_ONE, VICTIM) == (read.status, read.next_begin_offset)
        # then it is told when the message was found
        await until(lambda: COUNT in told, 10)
        assert [b"body%02d" % VICTIM] == bodies_of(store.get(TOPIC, 0, VICTIM, 1, 1 << 20))


@pytest.mark.parametrize("part", HEAD_PARTS)
async def test_what_says_another_place_is_handed_to_nobody(part: str, autojump_clock: object) -> None:
    world = simulated_world()
    places = await filled(world)
    rot(world, places[VICTIM][0] + HEAD_PARTS[part], 1)
    others = [number for number in range(COUNT) if number != VICTIM]
    async with running_store(world) as store:
        # neither by its key
        assert under_key(store, f"k{VICTIM}") == []
        assert [VICTIM + 1] == [each.queue_offset for each in under_key(store, f"k{VICTIM + 1}")]
        # nor from its queue
        assert others == [each.queue_offset for each in everything(store)]
        assert ([places[VICTIM][0]], 0) == await scrubbed(store)
        await trio.sleep(0.1)
        assert store.hole == places[VICTIM][0]


async def test_tags_that_rot_cost_their_message(autojump_clock: object) -> None:
    world = simulated_world()
    places = await filled(world)
    path = "/store/commitlog/" + "0" * 20
    tags = f"TAGS\x01t{VICTIM % 3}".encode()
    at = disk_of(world).read(path).index(tags, places[VICTIM][0]) + len(tags) - 1
    rot(world, at, 2)
    async with running_store(world) as store:
        # given an index that says under which tags it was stored
        assert [number for number in range(COUNT) if number != VICTIM] == [
            each.queue_offset for each in everything(store)
        ]
        await trio.sleep(0.1)
        assert (places[VICTIM][0], ([places[VICTIM][0]], 0)) == (store.hole, await scrubbed(store))


# --- sealed records


@pytest.mark.parametrize("vector", SEALED, ids=[vector["name"] for vector in SEALED])
def test_a_seal_is_byte_for_byte_that_of_the_reference(vector: dict[str, Any]) -> None:
    record = bytes.fromhex(vector["expected"]["recordHex"])
    at = record.rindex(NAME)
    assert seal(record[:at]) == record[at:]
    assert is_as_sealed(memoryview(record), record[at - 3 :])
    assert not is_as_sealed(memoryview(change(record, 17, 1)), record[at - 3 :])


SEALING = small_config(enabled_append_prop_crc=True)
LARGE = small_config(enabled_append_prop_crc=True, mapped_file_size_commit_log=1 << 17)


@pytest.mark.parametrize("seed", range(12))
async def test_any_byte_of_a_sealed_record_that_rots_is_noticed(seed: int, autojump_clock: object) -> None:
    chance = random.Random(seed)
    world = simulated_world(seed)
    places = await filled(world, SEALING)
    for _ in range(8):
        physical, size = places[VICTIM]
        at = physical + chance.randrange(size)
        bit = 1 << chance.randrange(8)
        rot(world, at, bit)
        async with running_store(world) as store:
            found = everything(store)
            assert [number for number in range(COUNT) if number != VICTIM] == [each.queue_offset for each in found]
            assert ([physical], 0) == await scrubbed(store)
        rot(world, at, bit)


async def test_a_batch_is_sealed_too_and_former_seals_are_taken_off(autojump_clock: object) -> None:
    world = simulated_world()
    former = b"A\x01b\x02" + seal(b"of a former life")
    items = [(0, b"one", b"A\x01b\x02"), (0, b"two", b"A\x01b"), (0, b"three", former), (0, b"four", b"")]
    body = encode_batch(items)
    async with running_store(world, LARGE) as store:
        store.append_batch(TOPIC, 0, body, 1, PRODUCER)
        store.append(TOPIC, 0, b"five", former, 1, PRODUCER)
        store.change_settings(small_config())
        store.append_batch(TOPIC, 0, body, 1, PRODUCER)
        store.append(TOPIC, 0, b"six", former, 1, PRODUCER)
        store.change_settings(LARGE)
        long = b"A\x01" + b"b" * 32_750
        with pytest.raises(PutRejected, match="properties have 32773 bytes"):
            store.append_batch(TOPIC, 0, encode_batch([(0, b"", long)]), 1, PRODUCER)
        with pytest.raises(PutRejected, match="properties have 32773 bytes"):
            store.append(TOPIC, 0, b"", long, 1, PRODUCER)
    async with running_store(world, LARGE) as store:
        records = records_of(store.get(TOPIC, 0, 0, 32, 1 << 20))
        assert [b"one", b"two", b"three", b"four", b"five", b"one", b"two", b"three", b"four", b"six"] == [
            each.body for each in records
        ]
        texts = [each.properties_text.encode() for each in records]
        assert [True] * 5 + [False] * 5 == [NAME in text for text in texts]
        assert [b"A\x01b\x02"] * 3 + [b"", b"A\x01b\x02"] == [unsealed(text) for text in texts[:5]]
        report = store.start_scrub()
        await until(lambda: not report.running, 10)
        assert (len(records), []) == (report.records, report.damaged)


async def test_what_was_begun_and_not_sealed_is_cut_off(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, SEALING) as store:
        whole = put(store, TOPIC, b"whole", KEYS="a")
        torn = put(store, TOPIC, b"torn", KEYS="a")
    disk_of(world).remove("/store/recovery.mark")
    rot(world, torn.physical_offset + torn.size_bytes - 2, 1)
    async with running_store(world, SEALING) as store:
        assert whole.physical_offset + whole.size_bytes == store.max_physical_offset
        assert format_properties({"KEYS": "a"}).encode() == unsealed(everything(store)[0].properties_text.encode())
