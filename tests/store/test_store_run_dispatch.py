"""A log that comes in large pieces leaves the files that its master has: log, queues and index, byte for byte."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fixtures import PRODUCER, running_store, simulated_world, small_config
from trio.testing import MockClock

from understudy.format.batch import encode_batch
from understudy.format.record import encode_host
from understudy.ha import wire
from understudy.runtime.world import World
from understudy.store.config import SYNC_FLUSH
from understudy.store.consume_queue import SCHEDULE_TOPIC
from understudy.store.message_store import MessageStore

SETTINGS = {"mapped_file_size_commit_log": 1 << 18, "max_index_num": 150, "mapped_file_size_consume_queue": 1 << 13}
KEY = "FD000000000000000000000000000000024C8D5FFD2B276A7CB0B6"


def fill(store: MessageStore, chance: random.Random) -> None:
    """Store messages of every kind that a log may hold."""
    now_ms = 1_700_000_000_000
    for number in range(chance.randint(20, 250)):
        now_ms += chance.choice([0, 0, 0, 1, 700])
        host = chance.choice([PRODUCER, PRODUCER, encode_host("2001:db8::7", 1)])
        tail = chance.choice(["", "WAIT\x01true\x02", "TAGS\x01red\x02", "KEYS\x01k x\x02", "DELAY\x012\x02"])
        text = chance.choice(["", f"UNIQ_KEY\x01{KEY}{number:04X}\x02"]) + tail
        topic = chance.choice(["A", "A", "B", SCHEDULE_TOPIC, "long" * 40])
        if topic.startswith("long"):
            topic = "%RETRY%" + topic
        body = chance.randbytes(chance.choice([0, 10, 2_000]))
        if topic == "A" and chance.random() < 0.2:
            items = [(0, b"i", f"UNIQ_KEY\x01{KEY}{each:04X}\x02".encode()) for each in range(chance.randint(1, 20))]
            store.append_batch(topic, 1, encode_batch(items), 1, PRODUCER, now_ms=now_ms)
        else:
            flag = chance.choice([0, 0, 0, 4, 8, 12])
            store.append(topic, chance.randint(0, 1), body, text.encode(), 1, host, sys_flag=flag, now_ms=now_ms)


def files_of(world: World) -> dict[str, bytes]:
    """Return the content of log, queues and index; files of the index, named by the time, by their number."""
    disk, found = world.disk, {}
    folders = ["/store/commitlog", "/store/index"]
    for topic in disk.listdir("/store/consumequeue"):
        folders += [f"/store/consumequeue/{topic}/{queue}" for queue in disk.listdir(f"/store/consumequeue/{topic}")]
    for folder in folders:
        for number, name in enumerate(disk.listdir(folder)):
            found[f"{folder} {number}"] = disk.read(f"{folder}/{name}")
    return found


@pytest.mark.parametrize("held", [False, True], ids=["shown at once", "held back until flushed"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_slave_has_the_bytes_of_its_master(held: bool, seed: int) -> None:
    master_world, slave_world = simulated_world(1), simulated_world(2)

    async def run() -> None:
        chance = random.Random(seed)
        config = small_config(**SETTINGS)
        theirs = attrs.evolve(config, flush_disk_type=SYNC_FLUSH) if held else config
        async with running_store(master_world, config) as master, running_store(slave_world, theirs) as slave:
            fill(master, chance)
            reader, stream, at, end = wire.TransferReader(), b"", 0, master.max_physical_offset
            while at < end:
                body = bytes(master.slice(at, 32_768))
                stream += wire.header(at, len(body)) + body
                at += len(body)
            # when the log comes in pieces as the network brings them
            while stream:
                size = chance.choice([100, 5_000, 70_000, 300_000])
                for transfer in wire.joined(reader.feed(stream[:size])):
                    slave.append_raw(transfer.offset, transfer.body)
                stream = stream[size:]
            assert slave.max_physical_offset == end
            if held:
                assert all(slave.max_queue_offset(topic, queue) == 0 for topic, queue in slave.queues())
                await trio.sleep(1)
            # then readers see the same
            for topic, queue in master.queues():
                assert master.max_queue_offset(topic, queue) == slave.max_queue_offset(topic, queue)

    trio.run(run, clock=MockClock(autojump_threshold=0))
    expected, actual = files_of(master_world), files_of(slave_world)
    assert list(expected) == list(actual)
    for name, content in expected.items():
        assert content == actual[name], name
