"""What extends units of queues: it never hides a message that is wanted, whatever happened to disk or process."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import attrs
import trio
import trio.testing
from golden_stores import manifest, opened, read_queue, unpack
from store_accidents import befall, with_accidents

from understudy.format.java_hash import java_hash
from understudy.format.properties import find_property, format_properties, parse_properties
from understudy.format.record import decode_record, decode_records, encode_host
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import ASYNC_FLUSH, StoreConfig
from understudy.store.extensions import WantedBits
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import PowerCut, SimDisk

PRODUCER = encode_host("10.1.2.3", 40000)
HOST = ("127.0.0.1", 10911)
POSITIONS = (3, 9, 14)
WANTED = WantedBits(POSITIONS, 16, 0)
SET = sum(1 << position for position in POSITIONS).to_bytes(2, "little")


def config(flush: str = ASYNC_FLUSH) -> StoreConfig:
    return StoreConfig(
        folder="/store",
        mapped_file_size_commit_log=16_384,
        mapped_file_size_consume_queue=400,
        mapped_file_size_consume_queue_ext=340,
        enable_consume_queue_ext=True,
        max_hash_slot_num=7,
        max_index_num=40,
        flush_disk_type=flush,
        memory_bytes=1 << 30,
        flush_commit_log_thorough_interval_ms=2_000,
    )


def world_of(disk: SimDisk) -> World:
    return World(VirtualClock(), TcpNetwork(), disk, random.Random(0))


def is_wanted(properties: bytes) -> bool:
    return find_property(properties, b"want\x01") == b"1"


async def open_store(disk: SimDisk, flush: str = ASYNC_FLUSH) -> MessageStore:
    store = await MessageStore.open(world_of(disk), config(flush), HOST)
    store.extensions.bits = lambda topic, properties: SET if is_wanted(properties) else b"\0\0"
    return store


def send(store: MessageStore, number: int, want: bool, topic: str = "T") -> int:
    properties = format_properties({"want": "1" if want else "0", "TAGS": f"Tag{number % 3}"}).encode()
    return store.append(topic, 0, b"%d" % number, properties, 1, PRODUCER).queue_offset


def wanted_of(store: MessageStore, topic: str = "T") -> tuple[list[bytes], int]:
    """Return the bodies of the wanted messages of a queue, and how many records were looked at for them."""
    bodies: list[bytes] = []
    looked = 0

    def accept(properties: bytes) -> bool:
        nonlocal looked
        looked += 1
        return is_wanted(properties)

    offset = max(store.min_queue_offset(topic, 0), 0)
    while offset < store.max_queue_offset(topic, 0):
        found = store.get(topic, 0, offset, 32, 1 << 20, None, accept, 1 << 20, WANTED)
        bodies += [record.body for record in decode_records(b"".join(found.parts))]
        assert found.next_begin_offset > offset
        offset = found.next_begin_offset
    return bodies, looked


def all_wanted(store: MessageStore, topic: str = "T") -> list[bytes]:
    records = [decode_record(raw) for raw in read_queue(store, topic, 0)]
    return [record.body for record in records if record.properties.get("want") == "1"]


async def test_what_is_not_wanted_is_not_looked_at_also_after_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimDisk(random.Random(0))
    store = await open_store(disk)
    for number in range(60):
        send(store, number, number % 10 == 0)
    expected = [b"%d" % number for number in range(0, 60, 10)]
    assert (expected, 6) == wanted_of(store)
    await store.close()

    store = await open_store(disk)
    assert (expected, 6) == wanted_of(store)
    for number in range(60, 80):
        send(store, number, number % 10 == 0)
    assert ([*expected, b"60", b"70"], 8) == wanted_of(store)
    # and who asks for a tag is given that one only
    tagged = store.get("T", 0, 0, 32, 1 << 20, {java_hash("Tag1")}.__contains__)
    assert {record.properties["TAGS"] for record in decode_records(b"".join(tagged.parts))} == {"Tag1"}
    await store.close()


async def test_files_of_a_run_in_two_parts_are_those_of_one_run(autojump_clock: trio.testing.MockClock) -> None:
    once, twice = SimDisk(random.Random(0)), SimDisk(random.Random(0))
    for disk, parts in ((once, [range(30)]), (twice, [range(17), range(17, 30)])):
        for part in parts:
            store = await open_store(disk)
            for number in part:
                send(store, number, number % 3 == 0)
            await store.close()
    for start in (0, 340):
        path = f"/store/consumequeue_ext/T/0/{start:020d}"
        assert 340 == once.size(path)
        codes = [b"".join(disk.read(path)[at + 2 : at + 10] for at in range(0, 330, 22)) for disk in (once, twice)]
        assert codes[0] == codes[1]


async def test_a_message_stored_before_the_condition_came_or_with_other_bits_is_looked_at(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = await open_store(SimDisk(random.Random(0)))
    send(store, 0, want=False)
    stored_ms = store.store_time_of("T", 0, 0)

    def looked_at(wanted: WantedBits | None) -> int:
        asked = 0

        def accept(properties: bytes) -> bool:
            nonlocal asked
            asked += 1
            return True

        store.get("T", 0, 0, 32, 1 << 20, None, accept, 1 << 20, wanted)
        return asked

    assert [0, 1, 1, 1] == [
        looked_at(WantedBits(POSITIONS, 16, stored_ms - 1)),
        looked_at(WantedBits(POSITIONS, 16, stored_ms)),
        looked_at(WantedBits(POSITIONS, 24, 0)),
        looked_at(None),
    ]
    await store.close()


async def test_a_queue_that_was_cut_is_extended_from_there(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimDisk(random.Random(0))
    store = await open_store(disk)
    for number in range(40):
        send(store, number, want=False)
    await store.truncate(decode_record(store.get("T", 0, 25, 1, 1 << 20).parts[0]).physical_offset)
    assert 25 == store.max_queue_offset("T", 0)
    for number in range(40, 60):
        send(store, number, want=number % 2 == 0)
    expected = [b"%d" % number for number in range(40, 60, 2)]
    assert (expected, 10) == wanted_of(store)
    # and the space of what was cut is used again: 45 units, 15 in a file
    assert [f"{start:020}" for start in (0, 340, 680)] == disk.listdir("/store/consumequeue_ext/T/0")
    await store.close()


async def test_a_topic_that_is_deleted_takes_them_along_and_begins_anew(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimDisk(random.Random(0))
    store = await open_store(disk)
    for number in range(20):
        send(store, number, want=False)
    store.delete_topic("T")
    assert [] == disk.listdir("/store/consumequeue_ext")
    send(store, 20, want=True)
    assert ([b"20"], 1) == wanted_of(store)
    await store.close()


async def test_files_go_with_the_messages_that_they_are_about(autojump_clock: trio.testing.MockClock) -> None:
    # given a log of several files, the first of which have expired
    clock = VirtualClock()
    disk = SimDisk(random.Random(0), now_ms=clock.wall_ms)
    world = World(clock, TcpNetwork(), disk, random.Random(0))
    keys = attrs.evolve(config(), file_reserved_time_hours=1, delete_when="", clean_resource_interval_ms=60_000)
    store = await MessageStore.open(world, keys, HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        for number in range(400):
            send(store, number, want=False)
        assert 0 == store.min_queue_offset("T", 0)
        await trio.sleep(2 * 3600)
        store.delete_expired_files()
        await trio.sleep(300)
        first = store.min_queue_offset("T", 0)
        assert first > 200
        # when the next file is made
        for number in range(400, 420):
            send(store, number, want=False)
        nursery.cancel_scope.cancel()
    # then the files of what is gone are gone: 16 units, without bit maps, in each
    expected = [f"{file * 340:020}" for file in range(first // 16, 27)]
    assert expected == disk.listdir("/store/consumequeue_ext/T/0")
    await store.close()


async def test_a_store_that_does_not_extend_makes_no_folder_and_plain_units(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = SimDisk(random.Random(0))
    plain = StoreConfig(folder="/store", memory_bytes=1 << 30, mapped_file_size_commit_log=16_384)
    store = await MessageStore.open(world_of(disk), plain, HOST)
    send(store, 0, want=False)
    assert not disk.exists("/store/consumequeue_ext")
    assert [] == store.arrived
    await store.close()


async def test_what_a_loss_of_power_may_have_torn_is_not_believed(autojump_clock: trio.testing.MockClock) -> None:
    # given units that reached the disk, and extensions of which the second half did not
    disk = SimDisk(random.Random(0))
    store = await open_store(disk)
    for number in range(10):
        send(store, number, want=True)
    await store.checkpoint()
    disk.lose_power()
    disk.remove("/store/recovery.mark")  # so the start compares what is there and makes nothing anew

    def torn(content: bytes) -> bytes:
        assert SET == content[20:22]
        return b"".join(content[at : at + 20] + bytes(2) for at in range(0, 220, 22)) + content[220:]

    disk.damage(f"/store/consumequeue_ext/T/0/{0:020}", torn)
    # then every message is looked at
    store = await open_store(disk)
    assert ([b"%d" % number for number in range(10)], 10) == wanted_of(store)
    await store.close()


async def work(store: MessageStore, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 30)):
        send(store, chance.randrange(1 << 30), chance.random() < 0.4)
        if chance.random() < 0.2:
            await trio.sleep(chance.choice([0.05, 0.6, 3]))
        if chance.random() < 0.1:
            await store.checkpoint()


async def check_lives(seed: int, flush: str, accidents: list[str]) -> None:
    chance = random.Random(seed)
    clock = VirtualClock()
    disk = SimDisk(random.Random(seed + 1), now_ms=clock.wall_ms)
    for accident in accidents:
        try:
            if accident == "cut":
                disk.syncs_left = chance.randint(0, 12)
            store = await open_store(disk, flush)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.run)
                await trio.testing.wait_all_tasks_blocked()
                await work(store, chance)
                nursery.cancel_scope.cancel()
            if accident == "close":
                await store.close()
        except* PowerCut:
            pass
        befall(disk, accident)
        reopened = await open_store(disk)
        assert all_wanted(reopened) == wanted_of(reopened)[0]
        await work(reopened, chance)
        assert all_wanted(reopened) == wanted_of(reopened)[0]
        if chance.random() < 0.5:
            await reopened.close()
        else:
            disk.kill_process()


@with_accidents
def test_no_wanted_message_is_left_out_after_any_accident(seed: int, flush: str, accidents: list[str]) -> None:
    trio.run(partial(check_lives, seed, flush, accidents), clock=trio.testing.MockClock(autojump_threshold=0))


async def test_units_of_the_reference_are_read_with_their_tags_and_bits(tmp_path: Path) -> None:
    root = unpack("cqext", tmp_path)
    async with opened("cqext", root, manifest("cqext")) as store:
        wanted = WantedBits((44, 82, 97), 112, 0)
        for queue_id in range(2):
            looked: list[int] = []

            def accept(properties: bytes, looked: list[int] = looked) -> bool:
                looked.append(int(parse_properties(properties)["idx"]))
                return True

            found = store.get("OrderTopic", queue_id, 0, 64, 1 << 20, None, accept, 1 << 20, wanted)
            every = decode_records(b"".join(store.get("OrderTopic", queue_id, 0, 64, 1 << 20).parts))
            assert [] != looked == [index for record in every if (index := int(record.properties["idx"])) > 5]
            assert found.count == len(looked)
