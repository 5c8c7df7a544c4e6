"""Batch queues: single messages and inner batches in one queue, through every kind of stop."""

from __future__ import annotations

import random
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from golden_stores import config_for, manifest, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fixtures import HOST, LOG_FILE_BYTES, PRODUCER, disk_of, put, running_store, simulated_world, small_config
from test_store_replication import copy

from understudy.format.batch import encode_batch, iter_batch
from understudy.format.properties import format_properties
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, Record, decode_record, decode_records
from understudy.runtime.world import real_world
from understudy.store.batch_queue import UNIT_BYTES, BatchQueue, BatchUnit, Changes
from understudy.store.config import SYNC_FLUSH
from understudy.store.deletions import LivingTopics
from understudy.store.mapped_files import MappedFiles
from understudy.store.message_store import MessageStore
from understudy.store.seals import SEAL_BYTES, seal
from understudy.store.status import UNKNOWN_TAGS, Appended, GetStatus, PutRejected, PutStatus
from understudy.testkit.sim.disk import SimDisk

TOPIC = "Batches"
INNER = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
FOLDER = f"/store/batchconsumequeue/{TOPIC}/0"
LIVING = LivingTopics(frozenset({TOPIC, "Simple"}), 0, frozenset({TOPIC}))


def put_inner(
    store: MessageStore, bodies: list[bytes], queue_id: int = 0, sys_flag: int = INNER, **pairs: str
) -> Appended:
    """Append an inner batch as the broker does; *pairs* go over its properties."""
    body = encode_batch([(0, each, b"TAGS\x01t\x02") for each in bodies])
    properties = {"UNIQ_KEY": f"batch-{bodies[0].hex()}", "INNER_NUM": str(len(bodies)), **pairs}
    text = format_properties(properties).encode()
    return store.append(TOPIC, queue_id, body, text, 1, PRODUCER, sys_flag=sys_flag)


def unwrapped(record: Record) -> list[tuple[int, bytes]]:
    """Return queue offset and body of every message of a record, as a client does."""
    if not record.sys_flag & FLAG_INNER_BATCH:
        return [(record.queue_offset, record.body)]
    items = [record.body[at : at + length] for _, at, length, _ in iter_batch(record.body)]
    assert record.properties["INNER_NUM"] == str(len(items))
    assert record.properties["INNER_BASE"] == str(record.queue_offset)
    return [(record.queue_offset + number, body) for number, body in enumerate(items)]


def read(store: MessageStore, queue_id: int = 0, topic: str = TOPIC) -> dict[int, bytes]:
    """Return every message of a queue by its queue offset."""
    found: dict[int, bytes] = {}
    offset = store.min_queue_offset(topic, queue_id)
    while offset < store.max_queue_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset, 32, 1 << 20)
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
        for part in result.parts:
            for record in decode_records(part):
                found.update(unwrapped(record))
    return found


# --- one queue -------------------------------------------------------------------------------------------------------


@attrs.define
class Kept:
    """What a batch queue should hold."""

    units: list[BatchUnit] = attrs.field(factory=list)

    def compare(self, queue: BatchQueue, chance: random.Random) -> None:
        end = self.units[-1].next_offset if self.units else 0
        assert queue.next_offset == end
        assert queue.last_unit() == (self.units[-1] if self.units else None)
        for offset in [0, end, *(chance.randrange(end + 1) for _ in range(5))]:
            holding = [unit for unit in self.units if unit.first <= offset < unit.next_offset]
            assert queue.find(offset) == (holding[0] if holding else None)
            assert queue.units_from(offset) == [unit for unit in self.units if unit.next_offset > offset]
        physical = chance.randrange(self.units[-1].end + 1) if self.units else 0
        assert queue.min_offset(physical) == next((each.first for each in self.units if each.physical >= physical), end)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_a_batch_queue_is_a_list_that_can_be_cut_and_found_again(seed: int) -> None:
    chance, disk, kept = random.Random(seed), SimDisk(random.Random(seed)), Kept()

    def opened() -> BatchQueue:
        return BatchQueue(disk, TOPIC, 0, FOLDER, 5 * UNIT_BYTES, MappedFiles(disk, 2), Changes())

    queue = opened()
    for _ in range(40):
        last = kept.units[-1] if kept.units else BatchUnit(0, 0, 0, 0, 0, 0)
        kind = chance.choice(["append"] * 6 + ["cut", "forget", "again", "expire"])
        if kind == "append":
            gap = chance.choice([0, 0, 0, 7])
            unit = BatchUnit(
                last.end + chance.choice([0, 90]),
                chance.randint(100, 900),
                chance.randint(-(1 << 63), (1 << 63) - 1),
                chance.randint(0, 1 << 45),
                last.next_offset + gap,
                chance.choice([1, 1, 3, 0x7FFF]),
            )
            queue.append(unit)
            kept.units.append(unit)
        elif kind == "cut":
            physical = chance.randrange(last.end + 1)
            queue.cut(physical)
            kept.units = [unit for unit in kept.units if unit.physical < physical]
        elif kind == "forget":
            offset = chance.randrange(last.next_offset + 1)
            queue.forget_from(offset)
            kept.units = [unit for unit in kept.units if unit.first < offset]
        elif kind == "expire":
            limit = chance.randrange(last.end + 1)
            queue.delete_before(limit)
            while kept.units and queue.units_from(0) != kept.units:
                assert kept.units.pop(0).physical < limit
        else:
            queue = opened()
            if chance.random() < 0.5:
                queue.recover(last.end)
            else:
                queue.recover_all(last.end, lambda unit: unit in kept.units)
                assert not queue.torn
        kept.compare(queue, chance)


def test_a_unit_is_46_bytes_of_the_reference() -> None:
    unit = BatchUnit(1497, 957, -902265784, 1795246309479, 3, 5)
    disk = SimDisk(random.Random(1))
    BatchQueue(disk, TOPIC, 0, FOLDER, UNIT_BYTES, MappedFiles(disk, 1), Changes()).append(unit)
    written = disk.read(f"{FOLDER}/{0:020d}")
    expected = "00000000000005d9 000003bd ffffffffca388448 000001a1fd04c067 0000000000000003 0005 ffffffff 00000000"
    assert written == bytes.fromhex(expected)
    assert len(written) == UNIT_BYTES == 46
    assert BatchQueue(disk, TOPIC, 0, FOLDER, UNIT_BYTES, MappedFiles(disk, 1), Changes()).unit(0) == unit


async def test_what_we_store_is_what_the_reference_stored(tmp_path: Path) -> None:
    # given the messages of a captured store of the reference
    content, root = manifest("batchcq"), unpack("batchcq", tmp_path)
    theirs = await MessageStore.open(real_world(), config_for("batchcq", root, content), HOST)
    ours = await MessageStore.open(real_world(), config_for("batchcq", tmp_path / "ours", content), HOST)
    ours.declare_kinds(["BcqTopic"])
    # when ours stores the same
    for expected in content["messages"]:
        raw = theirs.read(expected["physicalOffset"])
        assert raw is not None
        record = decode_record(raw)
        pairs = {name: value for name, value in record.properties.items() if name != "INNER_BASE"}
        stored = ours.append(
            record.topic,
            record.queue_id,
            record.body,
            format_properties(pairs).encode(),
            record.born_ms,
            record.born_host,
            sys_flag=record.sys_flag,
            now_ms=record.store_ms,
        )
        # then each message gets the offsets and the properties that it has there
        assert stored == (record.physical_offset, record.size_bytes, record.queue_offset)
        mine = ours.read(stored.physical_offset)
        assert mine is not None
        assert decode_record(mine).properties == record.properties
    await theirs.close()
    await ours.close()
    # and the queues are byte for byte theirs
    for path in (root / "batchconsumequeue").rglob("*"):
        if path.is_file():
            assert (tmp_path / "ours" / path.relative_to(root)).read_bytes() == path.read_bytes()


# --- a store ---------------------------------------------------------------------------------------------------------


async def test_messages_and_batches_stand_in_one_queue(autojump_clock: object) -> None:
    world, told = simulated_world(), list[tuple[int, int]]()
    async with running_store(world) as store:
        store.declare_kinds([TOPIC])
        store.arrived.append(lambda topic, queue_id, offset, code, ms, properties: told.append((offset, code)))
        # when single messages, batches of old clients and inner batches come
        assert put(store, TOPIC, b"m0").queue_offset == 0
        assert put_inner(store, [b"m1", b"m2", b"m3"]).queue_offset == 1
        batch = store.append_batch(TOPIC, 0, encode_batch([(0, b"m4", b""), (7, b"m5", b"TAGS\x01a\x02")]), 1, PRODUCER)
        await trio.sleep(1)
        assert put_inner(store, [b"m6", b"m7"]).queue_offset == 6
        # then each message has its offset, and every waiting reader hears of them
        assert (batch.first_queue_offset, len(batch.physical_offsets)) == (4, 2)
        assert read(store) == {number: b"m%d" % number for number in range(8)}
        assert told == [(1, 0), (4, UNKNOWN_TAGS), (5, 0), (6, 97), (8, UNKNOWN_TAGS)]
        # and a read that begins inside of a batch gets the batch
        inside = store.get(TOPIC, 0, 2, 32, 1 << 20)
        assert [offset for part in inside.parts for offset, _ in unwrapped(decode_record(part))] == list(range(1, 8))
        assert (inside.next_begin_offset, inside.count, inside.max_offset) == (8, 7, 8)
        one = store.get(TOPIC, 0, 1, 1, 1)
        assert (one.next_begin_offset, one.count) == (4, 3)  # never less than one record
        # and a filter by tags keeps from single messages only
        some = store.get(TOPIC, 0, 4, 32, 1 << 20, {97}.__contains__)
        assert [record.queue_offset for part in some.parts for record in decode_records(part)] == [5, 6]
        none = store.get(TOPIC, 0, 4, 1, 1 << 20, lambda code: False, lambda record: False)
        assert (none.status, none.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 8)
        # and it is found by time and by key
        stored_ms = store.store_time_of(TOPIC, 0, 7)
        assert store.offset_by_time(TOPIC, 0, stored_ms) == 6
        assert store.offset_by_time(TOPIC, 0, stored_ms - 1, "upper") == 5
        assert store.query(TOPIC, "batch-6d31", 10, 0, 1 << 62).records
        assert disk_of(world).listdir("/store/consumequeue") == []


@pytest.mark.parametrize(
    ("sys_flag", "pairs", "why"),
    [
        (0, {"INNER_NUM": "2"}, "INNER_NUM is a property of batches"),
        (INNER, {"INNER_NUM": "3"}, "INNER_NUM of the batch is not 2"),
        (INNER | 1, {}, "neither transactional nor compressed"),
        (INNER | 8, {}, "neither transactional nor compressed"),
    ],
)
async def test_what_would_number_other_messages_wrongly_is_refused(
    sys_flag: int, pairs: dict[str, str], why: str, autojump_clock: object
) -> None:
    async with running_store(simulated_world()) as store:
        store.declare_kinds([TOPIC])
        with pytest.raises(PutRejected, match=why) as refused:
            put_inner(store, [b"a", b"b"], sys_flag=sys_flag, **pairs)
        assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
        with pytest.raises(PutRejected, match="INNER_NUM"):
            store.append_batch(TOPIC, 0, encode_batch([(0, b"a", b"INNER_NUM\x019\x02")]), 1, PRODUCER)
        assert store.max_physical_offset == 0
        # and what a client says of the beginning does not count
        assert put_inner(store, [b"a", b"b"], INNER_BASE="77").queue_offset == 0
        assert read(store) == {0: b"a", 1: b"b"}


async def test_batches_are_seen_when_they_are_durable(autojump_clock: object) -> None:
    store = await MessageStore.open(simulated_world(), small_config(flush_disk_type=SYNC_FLUSH), HOST)
    store.declare_kinds([TOPIC])
    put_inner(store, [b"a", b"b"])
    assert (store.max_queue_offset(TOPIC, 0), store.written_queue_offset(TOPIC, 0)) == (0, 2)
    assert store.get(TOPIC, 0, 0, 32, 1 << 20).status is GetStatus.NO_MESSAGE_IN_QUEUE
    await store.flush()
    assert read(store) == {0: b"a", 1: b"b"}
    put(store, TOPIC, b"c")
    assert store.get(TOPIC, 0, 2, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE
    await store.flush()
    assert read(store)[2] == b"c"
    # and when enough replicas have them, where that counts
    at = store.max_physical_offset
    put_inner(store, [b"d", b"e"])
    await store.flush()
    assert store.hide_after(at) == 1
    assert store.max_queue_offset(TOPIC, 0) == 3
    store.set_confirmed(None)
    assert store.max_queue_offset(TOPIC, 0) == 5
    await store.close()


async def test_records_are_sealed_where_that_is_wanted(autojump_clock: object) -> None:
    store = await MessageStore.open(simulated_world(), small_config(enabled_append_prop_crc=True), HOST)
    store.declare_kinds([TOPIC])
    put(store, TOPIC, b"a", TAGS="t")
    put_inner(store, [b"b", b"c"])
    batch = encode_batch([(0, b"d", b"TAGS\x01t"), (0, b"e", b"")])
    store.append_batch(TOPIC, 0, batch, 1, PRODUCER)
    records = [bytes(part) for part in store.get(TOPIC, 0, 0, 32, 1 << 20).parts]
    assert len(records) == 4
    for record in records:
        assert record[-SEAL_BYTES:] == seal(record[:-SEAL_BYTES])
    assert read(store) == dict(enumerate([b"a", b"b", b"c", b"d", b"e"]))
    await store.close()


async def test_old_files_go_with_the_log(autojump_clock: object) -> None:
    world = simulated_world()
    config = small_config(
        delete_when="", mapped_file_size_batch_consume_queue=3 * UNIT_BYTES, clean_resource_interval_ms=60_000
    )
    async with running_store(world, config) as store:
        store.declare_kinds([TOPIC])
        for number in range(16):
            put_inner(store, [b"%d" % number * 1_500, b"x"])
        before = read(store)
        assert len(disk_of(world).listdir(FOLDER)) == 6
        store.delete_expired_files()
        await trio.sleep(80 * 3_600)
        store.delete_expired_files()
        await trio.sleep(600)
        first = store.min_physical_offset
        assert first >= 2 * LOG_FILE_BYTES
        # then what is left is what the log has, and only its files
        left = read(store)
        assert left == {offset: before[offset] for offset in range(store.min_queue_offset(TOPIC, 0), 32)}
        assert 0 < len(left) < 32
        assert len(disk_of(world).listdir(FOLDER)) < 6
    async with running_store(world, config) as store:
        assert read(store) == left
        assert put(store, TOPIC, b"next").queue_offset == 32


async def test_a_queue_that_lost_units_is_made_anew_from_the_log(autojump_clock: object) -> None:
    world = simulated_world()
    config = small_config(mapped_file_size_batch_consume_queue=3 * UNIT_BYTES)
    store = await MessageStore.open(world, config, HOST, LIVING)
    for number in range(60):
        put_inner(store, [b"%d" % number * 700, b"x"])
    before = read(store)
    await store.close()
    disk = disk_of(world)
    for damaged in ("unit", "file", "folder"):
        # given zeros in the middle of a queue, a file that is gone, or the whole queue
        if damaged == "unit":
            disk.damage(f"{FOLDER}/{3 * UNIT_BYTES:020d}", lambda data: data[:UNIT_BYTES] + bytes(2 * UNIT_BYTES))
        elif damaged == "file":
            disk.remove(f"{FOLDER}/{6 * UNIT_BYTES:020d}")
        else:
            disk.remove_tree("/store/batchconsumequeue")
            disk.remove_tree("/store/consumequeue")
        # when the store is opened
        store = await MessageStore.open(world, config, HOST, LIVING)
        # then nothing is missing, and the next message comes behind it
        assert read(store) == before, damaged
        before[len(before)] = damaged.encode()
        put(store, TOPIC, damaged.encode())
        assert read(store) == before
        await store.close()


async def test_a_copy_has_the_same_queues_and_goes_on(autojump_clock: object) -> None:
    chance = random.Random(3)
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as slave:
        for store in (master, slave):
            store.declare_kinds([TOPIC])
        for number in range(30):
            put(master, "Simple", b"s%d" % number)
            put_inner(master, [b"%d-%d" % (number, each) for each in range(chance.randint(1, 9))], number % 2)
            put(master, TOPIC, b"single", number % 2)
            if chance.random() < 0.3:
                copy(master, slave, chance)
        copy(master, slave, chance)
        for queue_id in (0, 1):
            assert read(slave, queue_id) == read(master, queue_id)
        assert slave.max_queue_offset("Simple", 0) == 30
        # when it is cut, and becomes master
        (part,) = slave.get(TOPIC, 0, 20, 1, 1 << 20).parts
        await slave.truncate(decode_record(part).physical_offset)
        left = {number: body for number, body in read(master).items() if number < slave.max_queue_offset(TOPIC, 0)}
        assert read(slave) == left
        assert put_inner(slave, [b"new", b"life"]).queue_offset == len(left)


async def test_a_replica_that_learns_late_has_the_same_queue(autojump_clock: object) -> None:
    chance = random.Random(4)
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as slave:
        master.declare_kinds([TOPIC])
        for number in range(20):
            put_inner(master, [b"%d-%d" % (number, each) for each in range(1 + number % 5)])
            put(master, TOPIC, b"single")
        copy(master, slave, chance)
        slave.declare_kinds([TOPIC])
        assert read(slave) == read(master)
        put_inner(master, [b"later", b"still"])
        copy(master, slave, chance)
        assert read(slave) == read(master)


async def test_a_topic_changes_its_kind_with_its_next_life_only(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        store.declare_kinds([TOPIC])
        put_inner(store, [b"a", b"b"])
        store.delete_topic(TOPIC)
        put(store, TOPIC, b"simple")
        assert disk_of(world).listdir("/store/consumequeue") == [TOPIC]
        assert (store.min_queue_offset(TOPIC, 0), store.max_queue_offset(TOPIC, 0)) == (0, 1)
        # and a replica that learns late of the new life makes its queues anew
        store.declare_kinds([TOPIC])
        assert read(store) == {0: b"simple"}
        store.declare_kinds([], [TOPIC])
        assert read(store) == {0: b"simple"}
        assert disk_of(world).listdir("/store/batchconsumequeue") == []
    async with running_store(world) as store:
        assert read(store) == {0: b"simple"}
