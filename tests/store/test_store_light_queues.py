"""Messages that stand in light queues beside their own one: numbers, entries, refusals, copies and accidents."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from golden_stores import manifest, opened, read_queue, unpack
from hypothesis import example, given, settings
from hypothesis import strategies as st
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

from understudy.format.batch import encode_batch
from understudy.format.light_queues import NAMES_MAX
from understudy.format.properties import format_properties
from understudy.format.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    decode_record,
)
from understudy.runtime.world import World
from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus, PutRejected, PutStatus

PARENT = "LiteParent"
A, B = "%LMQ%a", "%LMQ%b"
NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def light(**changes: object) -> StoreConfig:
    return small_config(**{"enable_lmq": True, "enable_multi_dispatch": True} | changes)


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    return [decode_record(raw).body for raw in read_queue(store, topic, queue_id)]


def queue_files(root: Path) -> dict[str, bytes]:
    """Return the used part of every queue file below a store's folder."""
    folder = root / "consumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0") for path in folder.rglob("*") if path.is_file()
    }


async def test_a_message_stands_in_its_own_queue_and_in_each_light_queue(autojump_clock: object) -> None:
    async with running_store(simulated_world(), light()) as store:
        told: list[tuple[str, int, int]] = []
        store.arrived.append(lambda topic, queue_id, offset, *_: told.append((topic, queue_id, offset)))

        # When messages of two queues of a topic name light queues, or none
        put(store, PARENT, b"1", 0, **{NAMES: A, "TAGS": "t"})
        put(store, PARENT, b"2", 1, **{NAMES: f"{A},{B}"})
        put(store, PARENT, b"3", 1)
        put(store, PARENT, b"4", 0, **{NAMES: f"{B},{A},{B}"})

        # Then each light queue has them in the order they were stored, from 0 on without a gap
        assert bodies(store, A) == [b"1", b"2", b"4"]
        assert bodies(store, B) == [b"2", b"4"]
        assert (bodies(store, PARENT, 0), bodies(store, PARENT, 1)) == ([b"1", b"4"], [b"2", b"3"])
        assert (store.min_queue_offset(A, 0), store.max_queue_offset(A, 0), store.max_queue_offset(B, 0)) == (0, 3, 2)
        # and each record says where it stands
        own = [record.properties.get(OFFSETS) for record in records_of(store.get(A, 0, 0, 32, 1 << 20))]
        assert own == ["0", "1,0", "1,2,1"]
        # and who waits for a queue is told of each
        assert told == [
            *((PARENT, 0, 1), (A, 0, 1)),
            *((PARENT, 1, 1), (A, 0, 2), (B, 0, 1)),
            (PARENT, 1, 2),
            *((PARENT, 0, 2), (B, 0, 2), (A, 0, 3)),
        ]
        # and a filter by tags, a time and a part of the queue find them
        tag = store.get(A, 0, 0, 32, 1 << 20, lambda code: code == ord("t"))
        assert (bodies_of(tag), tag.next_begin_offset) == ([b"1"], 3)
        assert store.offset_by_time(A, 0, store.store_time_of(A, 0, 2)) <= 2
        assert bodies_of(store.get(A, 0, 1, 1, 1 << 20)) == [b"2"]


@pytest.mark.parametrize("config", [small_config(), light(enable_lmq=False), light(enable_multi_dispatch=False)])
async def test_the_property_means_nothing_unless_both_settings_are_on(
    config: StoreConfig, autojump_clock: object
) -> None:
    async with running_store(simulated_world(), config) as store:
        put(store, PARENT, b"1", 0, **{NAMES: f"{A}/not,at all"})
        assert list(store.queues()) == [(PARENT, 0)]
        (record,) = records_of(store.get(PARENT, 0, 0, 32, 1 << 20))
        assert record.properties == {NAMES: f"{A}/not,at all"}


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
async def test_what_waits_or_was_given_up_takes_no_number(topic: str, autojump_clock: object) -> None:
    async with running_store(simulated_world(), light()) as store:
        # Given a message that stood in a light queue and is stored once more elsewhere
        put(store, PARENT, b"1", 0, **{NAMES: A})
        put(store, topic, b"1", 0, **{NAMES: A, OFFSETS: "0", "KEYS": "k"})
        # When it comes back to its topic, then it has its own number there
        put(store, PARENT, b"2", 0, **{NAMES: A, OFFSETS: "0"})
        assert bodies(store, A) == [b"1", b"2"]
        (record,) = records_of(store.get(topic, 0, 0, 32, 1 << 20))
        assert record.properties == {NAMES: A, "KEYS": "k"}
        assert [each.properties[OFFSETS] for each in records_of(store.get(A, 0, 0, 32, 1 << 20))] == ["0", "1"]


async def test_of_a_transaction_only_what_was_committed_takes_a_number(autojump_clock: object) -> None:
    properties = format_properties({NAMES: A}).encode()
    async with running_store(simulated_world(), light()) as store:
        for flag in (FLAG_TRANSACTION_PREPARED, FLAG_TRANSACTION_ROLLBACK, FLAG_TRANSACTION_COMMIT):
            store.append(PARENT, 0, b"%d" % flag, properties, 1, PRODUCER, sys_flag=flag)
        assert bodies(store, A) == [b"%d" % FLAG_TRANSACTION_COMMIT]


@pytest.mark.parametrize(
    ("names", "body", "status"),
    [
        ("plain", b"x", PutStatus.MESSAGE_ILLEGAL),
        (f"{A},%LMQ%c/../d", b"x", PutStatus.MESSAGE_ILLEGAL),
        (",".join(f"%LMQ%{number}" for number in range(NAMES_MAX + 1)), b"x", PutStatus.MESSAGE_ILLEGAL),
        (f"{A},%LMQ%c", b"x" * 4_000, PutStatus.MESSAGE_ILLEGAL),  # the record is larger than maxMessageSize
        (f"{A},%LMQ%" + "c" * 200, b"x" * 5_000, PutStatus.MESSAGE_ILLEGAL),
        ("%LMQ%c,%LMQ%d", b"x", PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED),
    ],
)
async def test_a_message_that_cannot_stand_everywhere_is_stored_nowhere(
    names: str, body: bytes, status: PutStatus, autojump_clock: object
) -> None:
    world = simulated_world()
    config = light(max_message_size=4_000, max_lmq_consume_queue_num=3)
    async with running_store(world, config) as store:
        put(store, PARENT, b"1", 0, **{NAMES: f"{A},{B}"})
        before = store.max_physical_offset, set(store.queues()), set(disk_of(world).listdir("/store/consumequeue"))
        with pytest.raises(PutRejected) as refused:
            put(store, PARENT, body, 0, **{NAMES: names})
        assert refused.value.status is status
        after = store.max_physical_offset, set(store.queues()), set(disk_of(world).listdir("/store/consumequeue"))
        assert after == before
        # and the next one goes on where it would have
        put(store, PARENT, b"2", 0, **{NAMES: f"{A},%LMQ%c"})
        assert (bodies(store, A), bodies(store, "%LMQ%c")) == ([b"1", b"2"], [b"2"])


async def test_queues_that_are_there_take_messages_beyond_the_limit(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, light(max_lmq_consume_queue_num=2)) as store:
        put(store, PARENT, b"1", 0, **{NAMES: f"{A},{B}"})
        store.change_settings(light(max_lmq_consume_queue_num=1))
        put(store, PARENT, b"2", 0, **{NAMES: A})
        assert bodies(store, A) == [b"1", b"2"]
        # and one that is deleted makes room for another
        store.delete_topic(A)
        store.delete_topic(B)
        put(store, PARENT, b"3", 0, **{NAMES: "%LMQ%c"})
        assert bodies(store, "%LMQ%c") == [b"3"]


async def test_a_full_disk_refuses_before_anything_is_written(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, light()) as store:
        put(store, PARENT, b"1", 0, **{NAMES: A})
        end, disk = store.max_physical_offset, disk_of(world)
        disk.used_bytes = disk.total_bytes
        with pytest.raises(PutRejected) as refused:
            put(store, PARENT, b"2", 0, **{NAMES: f"{A},{B}"})
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (store.max_physical_offset, store.has_queue(B, 0)) == (end, False)
        disk.used_bytes = None
        put(store, PARENT, b"3", 0, **{NAMES: f"{A},{B}"})
        assert (bodies(store, A), bodies(store, B)) == ([b"1", b"3"], [b"3"])


async def test_a_batch_cannot_name_light_queues(autojump_clock: object) -> None:
    body = encode_batch([(0, b"1", b"K\x01v\x02"), (0, b"2", format_properties({NAMES: A}).encode())])
    async with running_store(simulated_world(), light()) as store:
        with pytest.raises(PutRejected, match="one by one"):
            store.append_batch(PARENT, 0, body, 1, PRODUCER)
        assert store.max_physical_offset == 0
    async with running_store(simulated_world()) as store:
        assert store.append_batch(PARENT, 0, body, 1, PRODUCER).first_queue_offset == 0


async def test_with_synchronous_flush_a_light_queue_shows_what_is_durable(autojump_clock: object) -> None:
    world = simulated_world()
    store = await MessageStore.open(world, light(flush_disk_type=SYNC_FLUSH), HOST)
    put(store, PARENT, b"1", 0, **{NAMES: A})
    assert store.get(A, 0, 0, 32, 1 << 20).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert await store.flush()
    assert bodies(store, A) == [b"1"]
    await store.close()


# What the reference wrote, and would write


def unit_bytes(content: dict[str, Any]) -> dict[str, bytes]:
    return {
        f"{queue['topic']}/{queue['queueId']}/{0:020}": bytes.fromhex(queue["unitsHex"]).rstrip(b"\0")
        for queue in content["queues"]
    }


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/%LMQ%dev1", None])
async def test_light_queues_of_the_reference_are_read_and_made_anew_from_its_log(
    lost: str | None, tmp_path: Path
) -> None:
    # Given a folder of the reference with light queues, with or without its queue files
    content = manifest("lmq")
    root = unpack("lmq", tmp_path)
    if lost is not None:
        shutil.rmtree(root / lost)
    # When it is opened and a message is added
    async with opened("lmq", root, content) as store:
        assert (store.max_queue_offset("%LMQ%dev1", 0), store.max_queue_offset("%LMQ%dev2", 0)) == (8, 4)
        before = queue_files(root)
        put(store, "LiteParent", b"ours", 0, **{NAMES: "%LMQ%dev2,%LMQ%dev1,%LMQ%dev3"})
        # Then its numbers follow those of the reference
        (record,) = records_of(store.get("%LMQ%dev2", 0, 4, 32, 1 << 20))
        assert (record.body, record.properties[OFFSETS]) == (b"ours", "4,8,0")
        assert bodies(store, "%LMQ%dev1") == [*(f"multi dispatch {each}".encode() for each in range(8)), b"ours"]
    # and the queue files were the reference's, byte for byte
    assert before == unit_bytes(content)


async def test_what_the_reference_took_gives_the_same_queues_here(tmp_path: Path) -> None:
    # Given the messages that the reference stored in a folder
    content = manifest("lmq")
    async with opened("lmq", tmp_path, content) as store:
        # When they are stored by us, without the numbers that it gave
        for message in content["messages"]:
            pairs = {name: value for name, value in message["properties"].items() if name != OFFSETS}
            put(store, message["topic"], message["bodyText"].encode(), message["queueId"], **pairs)
        assert store.max_physical_offset == content["commitLogMaxOffset"]
        numbers = [decode_record(raw).properties.get(OFFSETS) for raw in read_queue(store, "LiteParent", 0)]
    # Then numbers and queue files are the same
    assert numbers == [each["properties"][OFFSETS] for each in content["messages"] if each["topic"] == "LiteParent"]
    assert queue_files(tmp_path) == unit_bytes(content)


# Copies and accidents


def send_some(store: MessageStore, chance: random.Random, count: int) -> None:
    for _ in range(count):
        names = [f"%LMQ%{chance.randrange(6)}" for _ in range(chance.randrange(4))]
        pairs = {"UNIQ_KEY": f"{chance.randrange(1 << 60):032X}"} | ({NAMES: ",".join(names)} if names else {})
        put(store, chance.choice(["P", "Q"]), chance.randbytes(chance.choice([1, 40, 900])), **pairs)


def said(store: MessageStore) -> dict[str, dict[int, int]]:
    """Return what the records of plain queues say: light queue, queue offset, physical offset."""
    found: dict[str, dict[int, int]] = {}
    for topic, queue_id in store.queues():
        if not topic.startswith("%LMQ%"):
            for record in map(decode_record, read_queue(store, topic, queue_id)):
                names, offsets = record.properties.get(NAMES, ""), record.properties.get(OFFSETS, "")
                for name, offset in zip(names.split(","), offsets.split(","), strict=True):
                    if name:
                        found.setdefault(name, {})[int(offset)] = record.physical_offset
    return found


def shown(store: MessageStore) -> dict[str, list[int]]:
    """Return the physical offsets of what light queues give."""
    return {
        topic: [decode_record(raw).physical_offset for raw in read_queue(store, topic, queue_id)]
        for topic, queue_id in store.queues()
        if topic.startswith("%LMQ%") and store.max_queue_offset(topic, queue_id)
    }


def in_order(said: dict[str, dict[int, int]]) -> dict[str, list[int]]:
    return {name: [physical for _, physical in sorted(places.items())] for name, places in said.items()}


def copy(source: MessageStore, target: MessageStore, chance: random.Random) -> None:
    at = target.max_physical_offset
    while at < source.max_physical_offset:
        piece = bytes(source.slice(at, chance.randint(1, 3_000)))
        target.append_raw(at, piece)
        at += len(piece)


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32))
def test_a_copy_has_the_light_queues_of_its_source_and_numbers_on(seed: int) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        async with (
            running_store(simulated_world(1), light()) as master,
            running_store(simulated_world(2), light()) as slave,
        ):
            for _ in range(4):
                send_some(master, chance, chance.randint(0, 20))
                copy(master, slave, chance)
            assert shown(slave) == shown(master) == in_order(said(master))
            # When the copy is written to, then it goes on in the same place
            send_some(slave, random.Random(seed + 1), 10)
            send_some(master, random.Random(seed + 1), 10)
            assert said(slave) == said(master)
            assert shown(slave) == shown(master)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def check_lives(seed: int, flush: str, accidents: list[str]) -> None:
    chance, world = random.Random(seed), simulated_world(seed)
    disk = disk_of(world)
    for accident in accidents:
        store = await MessageStore.open(world, light(flush_disk_type=flush), HOST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            for _ in range(chance.randint(1, 4)):
                send_some(store, chance, chance.randint(1, 30))
                await trio.sleep(chance.choice([0, 0.2, 3]))
            before = said(store) if flush == ASYNC_FLUSH else None
            nursery.cancel_scope.cancel()
        if accident == "close":
            await store.close()
        elif accident == "kill":
            disk.kill_process()
        else:
            disk.lose_power()
        await check_start(world, before if accident != "power" else None)


async def check_start(world: World, expected: dict[str, dict[int, int]] | None) -> None:
    store = await MessageStore.open(world, light(), HOST)
    assert shown(store) == in_order(said(store))
    if expected is not None:
        assert said(store) == expected
    await store.close()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 32),
    flush=st.sampled_from([SYNC_FLUSH, ASYNC_FLUSH]),
    accidents=st.lists(st.sampled_from(["power", "kill", "close"]), min_size=1, max_size=3),
)
# A lost message whose place the next one took, which had the same number in its own queue.
@example(seed=253, flush=ASYNC_FLUSH, accidents=["power"])
def test_after_an_accident_light_queues_have_what_the_log_says(seed: int, flush: str, accidents: list[str]) -> None:
    trio.run(partial(check_lives, seed, flush, accidents), clock=trio.testing.MockClock(autojump_threshold=0))
