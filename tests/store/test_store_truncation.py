"""A log that is cut back to where it is the same as another one, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
import trio
import trio.testing
from golden_stores import read_queue
from hypothesis import example, given, settings
from hypothesis import strategies as st
from store_fixtures import PRODUCER, disk_of, put, running_store, simulated_world, small_config

from understudy.format.properties import format_properties
from understudy.format.record import decode_record
from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected
from understudy.store.truncation import TruncationError
from understudy.testkit.sim.disk import PowerCut

HOST = ("127.0.0.1", 10911)
Written = list[tuple[int, str, int, int, bytes, str]]
"""End of the record, topic, queue, queue offset, body, key; in the order of the log."""


def settings_of(flush: str) -> StoreConfig:
    return small_config(flush_disk_type=flush, max_hash_slot_num=7, max_index_num=40)


def write(store: MessageStore, written: Written, chance: random.Random, count: int, mark: str) -> None:
    for number in range(count):
        topic, queue_id, key = chance.choice(["Orders", "Payments"]), chance.randrange(2), f"{mark}{number}"
        body = chance.randbytes(chance.choice([0, 30, 500, 2_500]))
        properties = format_properties({"UNIQ_KEY": key, "TAGS": "a"}).encode()
        done = store.append(topic, queue_id, body, properties, 1, PRODUCER)
        written.append((done.physical_offset + done.size_bytes, topic, queue_id, done.queue_offset, body, key))


def served(store: MessageStore) -> Written:
    found: Written = []
    for topic, queue_id in store.queues():
        for raw in read_queue(store, topic, queue_id):
            record = decode_record(raw)
            end = record.physical_offset + len(raw)
            found.append((end, topic, queue_id, record.queue_offset, record.body, record.properties["UNIQ_KEY"]))
    return sorted(found, key=itemgetter(0))


def keys_found(store: MessageStore, written: Written) -> set[str]:
    found = set()
    for _, topic, _, _, _, key in written:
        records = [decode_record(raw) for raw in store.query(topic, key, 10, 0, 1 << 62).records]
        found |= {record.properties["UNIQ_KEY"] for record in records}
    return found


async def check_lives(seed: int, flush: str, accident: str) -> None:
    chance = random.Random(seed)
    world = simulated_world(seed)
    disk = disk_of(world)
    async with running_store(world, settings_of(flush)) as store:
        written: Written = []
        write(store, written, chance, chance.randint(1, 60), "old")
        if chance.random() < 0.5:
            await trio.sleep(chance.choice([0.3, 12.0]))
        await store.flush()
    keep = chance.randint(0, len(written))
    offset = written[keep - 1][0] if keep else 0
    try:
        if accident == "power":
            disk.syncs_left = chance.randint(0, 14)
        store = await MessageStore.open(world, settings_of(flush), HOST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            await store.truncate(offset)
            assert offset == store.max_physical_offset
            assert written[:keep] == served(store)
            assert keys_found(store, written) == {row[5] for row in written[:keep]}
            nursery.cancel_scope.cancel()
        disk.syncs_left = None
        if accident == "close":
            await store.close()
        elif accident == "kill":
            disk.kill_process()
        else:
            disk.lose_power()
        done = True
    except* PowerCut:
        disk.lose_power()
        done = False
    async with running_store(world, settings_of(flush)) as store:
        found = served(store)
        assert found in ([written[:keep]] if done else [written[:keep], written]), "half a cut"
        await store.truncate(offset)
        assert written[:keep] == served(store)
        written = written[:keep]
        write(store, written, chance, 20, "new")
        await store.flush()
        assert written == served(store)
        assert keys_found(store, written) == {row[5] for row in written}
    async with running_store(world, settings_of(flush)) as store:
        assert written == served(store)


@pytest.mark.covers("R217")
@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    flush=st.sampled_from([SYNC_FLUSH, ASYNC_FLUSH]),
    accident=st.sampled_from(["close", "kill", "power"]),
)
@example(seed=1, flush=ASYNC_FLUSH, accident="kill")
def test_what_is_cut_is_gone_and_the_rest_is_whole_whatever_happens(seed: int, flush: str, accident: str) -> None:
    trio.run(partial(check_lives, seed, flush, accident), clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_place_inside_of_a_message_is_refused_and_nothing_is_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running_store(simulated_world()) as store:
        first = put(store, "Orders", b"one")
        put(store, "Orders", b"two")
        end = store.max_physical_offset
        with pytest.raises(TruncationError, match="no message begins at"):
            await store.truncate(first.size_bytes - 1)
        assert 0 == await store.truncate(end)
        assert 0 == await store.truncate(end + 100)
        assert end == store.max_physical_offset
        assert 2 == store.max_queue_offset("Orders", 0)


@pytest.mark.covers("R217")
@pytest.mark.parametrize("calls", range(8))
@pytest.mark.parametrize("stop", ["cancelled", "refused", "refused late"])
async def test_a_cut_that_was_stopped_is_ended_before_anything_follows_it(
    stop: str, calls: int, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, chance = simulated_world(), random.Random(3)
    disk, left, written = disk_of(world), [calls], Written()
    in_thread = disk.in_thread
    store = await MessageStore.open(world, settings_of(ASYNC_FLUSH), HOST)
    write(store, written, chance, 30, "old")
    offset = written[9][0]
    scope = trio.CancelScope()

    async def stopped(function: Callable[[], Any], *, abandon: bool = False) -> Any:
        left[0] -= 1
        if left[0] == -1 and stop == "refused late":
            await in_thread(function, abandon=abandon)
        if left[0] == -1 and stop != "cancelled":
            raise OSError(errno.EMFILE, "no file can be opened")
        if left[0] == -1:
            scope.cancel()
            await trio.lowlevel.checkpoint()
        return await in_thread(function, abandon=abandon)

    # given a cut that its disk, or whoever asked for it, stops
    with monkeypatch.context() as changed, scope, contextlib.suppress(OSError):
        changed.setattr(disk, "in_thread", stopped)
        await store.truncate(offset)
    # then nothing is appended as long as a start would cut there
    if disk.exists("/store/log.truncate"):
        with pytest.raises(PutRejected, match="cut"):
            put(store, "Orders", b"too early")
        with pytest.raises(OSError, match="cut"):
            store.append_raw(store.max_physical_offset, b"too early")
    # when it is asked for again, and more follows
    await store.truncate(offset)
    written = written[:10]
    write(store, written, chance, 20, "new")
    assert written == served(store)
    # then a start keeps that
    disk.kill_process()
    async with running_store(world, settings_of(ASYNC_FLUSH)) as store:
        assert written == served(store)


async def test_a_slave_goes_on_with_the_bytes_of_another_master(autojump_clock: trio.testing.MockClock) -> None:
    one, other, chance = simulated_world(1), simulated_world(2), random.Random(5)
    async with running_store(one) as master, running_store(other) as slave:
        written: Written = []
        write(master, written, chance, 30, "common")
        for at in range(0, master.max_physical_offset, 16_384):
            slave.append_raw(at, master.slice(at, 16_384))
        common = master.max_physical_offset
        lost: Written = []
        write(slave, lost, chance, 40, "lost")
        write(master, written, chance, 40, "kept")
        await slave.truncate(common)
        while slave.max_physical_offset < master.max_physical_offset:
            at = slave.max_physical_offset
            slave.append_raw(at, master.slice(at, 1_000))
        assert written == served(slave)
        assert keys_found(slave, lost) == set()
    async with running_store(other) as slave:
        assert written == served(slave)


@pytest.mark.covers("R233")
@pytest.mark.parametrize("flush", [SYNC_FLUSH, ASYNC_FLUSH])
async def test_readers_see_what_is_confirmed(flush: str, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(simulated_world(), settings_of(flush)) as store:
        told: list[int] = []
        store.arrived.append(lambda topic, queue_id, offset, code, ms, properties: told.append(offset))
        store.set_confirmed(0)
        first, second = put(store, "Orders", b"one"), put(store, "Orders", b"two")
        await store.flush()
        assert (0, []) == (store.max_queue_offset("Orders", 0), told)
        store.set_confirmed(second.physical_offset + second.size_bytes - 1)
        assert (1, [1]) == (store.max_queue_offset("Orders", 0), told)
        assert first.size_bytes <= store.confirm_offset < store.max_physical_offset
        store.set_confirmed(None)
        assert (2, [1, 2]) == (store.max_queue_offset("Orders", 0), told)
