"""Raw bytes out of one log and into another, logs that lose their end, and messages held back until confirmed."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fixtures import LOG_FILE_BYTES, bodies_of, disk_of, lose_end, put, running_store, simulated_world

from understudy.ha.overlap import end_of
from understudy.ha.wire import Transfer
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

TOPIC = "Orders"


def copy(source: MessageStore, target: MessageStore, chance: random.Random) -> None:
    """Copy all bytes in pieces that cut messages anywhere."""
    at = target.max_physical_offset
    while at < source.max_physical_offset:
        piece = bytes(source.slice(at, chance.randint(1, 3_000)))
        assert piece
        target.append_raw(at, piece)
        at += len(piece)


def queue_bodies(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_id in store.queues():
        bodies: list[bytes] = []
        offset = store.min_queue_offset(topic, queue_id)
        while offset < store.max_queue_offset(topic, queue_id):
            result = store.get(topic, queue_id, offset, 32, 1 << 20)
            bodies += bodies_of(result)
            offset = result.next_begin_offset
        found[topic, queue_id] = bodies
    return found


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_a_copied_log_is_the_same_log(seed: int) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        master_world, slave_world = simulated_world(1), simulated_world(2)
        async with running_store(master_world) as master, running_store(slave_world) as slave:
            for number in range(40):
                put(
                    master, chance.choice(["A", "B"]), chance.randbytes(chance.randint(0, 3_000)), UNIQ_KEY=f"k{number}"
                )
                if chance.random() < 0.3:
                    copy(master, slave, chance)
            copy(master, slave, chance)
            assert queue_bodies(slave) == queue_bodies(master)
            assert slave.max_physical_offset == master.max_physical_offset
            for number in range(40):
                assert [
                    bytes(raw) for topic in "AB" for raw in slave.query(topic, f"k{number}", 5, 0, 1 << 60).records
                ] == [bytes(raw) for topic in "AB" for raw in master.query(topic, f"k{number}", 5, 0, 1 << 60).records]
        for name in master_world.disk.listdir("/store/commitlog"):
            path = f"/store/commitlog/{name}"
            assert slave_world.disk.read(path) == master_world.disk.read(path)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_copy_that_ends_with_a_file_ends_there_after_a_start_and_goes_on(autojump_clock: object) -> None:
    master_world, slave_world = simulated_world(1), simulated_world(2)
    async with running_store(master_world) as master:
        while master.max_physical_offset <= LOG_FILE_BYTES:
            put(master, TOPIC, b"x" * 3_000)
        for _ in range(2):  # a life that copies the first file, another one that finds it
            async with running_store(slave_world) as slave:
                while slave.max_physical_offset < LOG_FILE_BYTES:
                    slave.append_raw(slave.max_physical_offset, bytes(master.slice(slave.max_physical_offset, 4_096)))
                # what stands at its end can be compared with the master's
                overlap = end_of(slave, LOG_FILE_BYTES)
                assert overlap is not None
                start, end = overlap.position, overlap.end
                assert end == LOG_FILE_BYTES
                assert overlap.take([Transfer(start, bytes(master.slice(start, end - start)))], 0) == [
                    Transfer(end, b"")
                ]
        async with running_store(slave_world) as slave:
            copy(master, slave, random.Random(1))
            assert queue_bodies(slave) == queue_bodies(master)


@pytest.mark.parametrize("first", [1, 3])
async def test_a_copy_that_becomes_a_master_writes_behind_its_last_whole_message(
    autojump_clock: object, first: int
) -> None:
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as copied:
        # given a log whose last message has come half, in the first file or in a later one
        for number in range(first * 4):
            put(master, TOPIC, bytes([65 + number]) * (LOG_FILE_BYTES // 5))
        whole = master.max_physical_offset
        put(master, TOPIC, b"not whole")
        half = (master.max_physical_offset - whole) // 2
        at = 0
        while at < whole + half:
            piece = bytes(master.slice(at, whole + half - at))
            copied.append_raw(at, piece)
            at += len(piece)
        # when it is to write by itself
        assert copied.drop_incomplete() == half
        put(copied, TOPIC, b"own")
        # then what came whole and what is its own can be read, here and in a copy of it
        expected = [*queue_bodies(master)[TOPIC, 0][:-1], b"own"]
        assert queue_bodies(copied)[TOPIC, 0] == expected
        async with running_store(simulated_world(3)) as third:
            copy(copied, third, random.Random(1))
            assert queue_bodies(third)[TOPIC, 0] == expected
        assert copied.drop_incomplete() == 0


async def test_bytes_that_do_not_continue_the_log_are_refused(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        put(store, TOPIC, b"a")
        with pytest.raises(ValueError, match="do not continue our log"):
            store.append_raw(store.max_physical_offset + 1, b"x")


async def test_an_empty_log_may_begin_in_a_later_file(autojump_clock: object) -> None:
    # given a master whose first files are not sent
    async with running_store(simulated_world(1)) as master, running_store(simulated_world(2)) as slave:
        for number in range(12):
            put(master, TOPIC, bytes([number]) * 3_000)
        last = master.max_physical_offset // LOG_FILE_BYTES * LOG_FILE_BYTES
        # when only the last one is copied
        slave.append_raw(last, bytes(master.slice(last, 1 << 20)))
        # then its messages have the master's offsets
        first = slave.min_queue_offset(TOPIC, 0)
        assert first > 0
        assert slave.max_queue_offset(TOPIC, 0) == 12
        assert bodies_of(slave.get(TOPIC, 0, first, 1, 1 << 20)) == [bytes([first]) * 3_000]
        assert slave.get(TOPIC, 0, 0, 1, 1 << 20).status is GetStatus.OFFSET_TOO_SMALL


@pytest.mark.parametrize("accident", ["none", "killed", "power lost"])
async def test_a_cut_log_ends_there_for_good(accident: str, autojump_clock: object) -> None:
    # given a log of several files whose bytes are lost from somewhere in the first on
    world = simulated_world()
    async with running_store(world) as store:
        places = [put(store, TOPIC, bytes([number]) * 3_000, UNIQ_KEY=f"key-{number}") for number in range(12)]
        await trio.sleep(30)
    lose_end(world, places[3].physical_offset)
    async with running_store(world) as store:
        # then messages after it are gone from queue and index, and new ones take their places
        assert store.max_physical_offset == places[3].physical_offset
        assert store.max_queue_offset(TOPIC, 0) == 3
        assert store.query(TOPIC, "key-3", 5, 0, 1 << 60).records == []
        assert put(store, TOPIC, b"new").queue_offset == 3
        await trio.sleep(1)
        if accident == "killed":
            disk_of(world).kill_process()
        elif accident == "power lost":
            disk_of(world).lose_power()
    # and nothing of what was cut off comes back, whatever happens next
    if accident != "none":
        disk_of(world).kill_process()
    async with running_store(world) as store:
        bodies = queue_bodies(store)[TOPIC, 0]
        expected = [bytes([number]) * 3_000 for number in range(3)]
        assert bodies in (expected, [*expected, b"new"])
        assert accident == "power lost" or bodies[-1] == b"new"
