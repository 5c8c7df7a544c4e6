"""What came back is entered into queues and index again: stopped, killed or refused in the middle, it is done later."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from store_fixtures import HOST, CountingDisk, disk_of, put, simulated_world, small_config
from test_store_batch_queues import LIVING, TOPIC, read
from test_store_holes import Broken, content, lose_at

from understudy.runtime.pace import run_steps
from understudy.runtime.world import World
from understudy.store import repair
from understudy.store.index import Index
from understudy.store.index_file import ENTRIES_IN_A_STEP
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus
from understudy.testkit.sim.disk import SimDisk

SENT = {number: b"batch %d" % number for number in range(8)}


async def broken_log(seed: int = 3) -> tuple[Broken, int]:
    """Return a log with messages of a batch queue behind a hole, and where the hole is."""
    broken = Broken(simulated_world(seed), random.Random(seed))
    async with opened(broken.world) as store:
        for number in range(40):
            body = broken.source.randbytes(1000)
            broken.starts.append(put(store, "Orders", body, KEYS=f"k{number}").physical_offset)
            if number % 5 == 4:
                put(store, TOPIC, SENT[number // 5])
        broken.content = content(store)
    lose_at(broken, broken.starts[3])
    return broken, broken.starts[3]


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[MessageStore]:
    store = await MessageStore.open(world, small_config(), HOST, LIVING)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


def entered(store: MessageStore) -> tuple[dict[int, bytes], int]:
    """Return what the batch queue has, and how many messages are found by their key."""
    found = [store.query("Orders", f"k{number}", 8, 0, 1 << 60).records for number in range(40)]
    return read(store), sum(len(each) for each in found)


async def stopped(store: MessageStore, broken: Broken, hole: int) -> None:
    """Bring back everything, and be cancelled when a part of it is entered."""
    work = store.repair(hole)
    await work.write(hole, broken.content[hole:])
    with trio.CancelScope() as scope:
        steps, dispatch = 0, work._dispatch

        def counted(start: int, limit: int, holes: list[int]) -> int:
            nonlocal steps
            steps += 1
            if steps == 3:
                scope.cancel()
            return dispatch(start, limit, holes)

        work._dispatch = counted  # type: ignore[method-assign]
        await work.finish(len(broken.content))
    assert scope.cancelled_caught


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MENDED_AT_ONCE_BYTES", 1_000)
    monkeypatch.setattr(repair, "_DISPATCH_BYTES", 2_000)


async def test_a_cancelled_repair_goes_on_and_nothing_is_appended_meanwhile(autojump_clock: object) -> None:
    broken, hole = await broken_log()
    async with opened(broken.world) as store:
        await stopped(store, broken, hole)
        # given a repair whose caller is cancelled in the middle
        assert not store.writable
        with pytest.raises(OSError, match="are entered"):
            store.append_raw(store.max_physical_offset, broken.content[:100])
        # then it goes on by itself, and what is sent then follows what was there
        await trio.sleep(1)
        assert (store.writable, store.hole) == (True, None)
        assert entered(store) == (SENT, 40)
        assert put(store, TOPIC, b"new").queue_offset == len(SENT)
    async with opened(broken.world) as store:
        assert entered(store) == (SENT | {len(SENT): b"new"}, 40)


async def test_who_has_read_what_is_entered_again_waits_and_is_not_sent_back(autojump_clock: object) -> None:
    broken, hole = await broken_log()
    async with opened(broken.world) as store:
        end = len(SENT)
        before_ms = store.store_time_of(TOPIC, 0, 2)
        # given a repair that stops when the queue was cut, and a part of it is entered
        await stopped(store, broken, hole)
        entered_end = store.queue_offset_at(TOPIC, 0, store.max_physical_offset)
        assert 0 < entered_end < end
        assert store.offset_by_time(TOPIC, 0, before_ms) <= 2
        assert store.get(TOPIC, 0, 0, 32, 1 << 20).next_begin_offset == entered_end
        # then the queue ends where it did for those who ask, and who has come further than is entered waits
        assert (store.max_queue_offset(TOPIC, 0), store.written_queue_offset(TOPIC, 0)) == (end, end)
        for offset in range(entered_end, end + 1):
            waits = store.get(TOPIC, 0, offset, 32, 1 << 20)
            assert (waits.status, waits.next_begin_offset, waits.max_offset) == (
                GetStatus.OFFSET_OVERFLOW_ONE,
                offset,
                end,
            )
        beyond = store.get(TOPIC, 0, end + 1, 32, 1 << 20)
        assert (beyond.status, beyond.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, end)
        # and reads on when all of it is
        await trio.sleep(1)
        assert read(store) == SENT
        assert store.max_queue_offset(TOPIC, 0) == store.written_queue_offset(TOPIC, 0) == end
        assert put(store, TOPIC, b"new").queue_offset == end


@pytest.mark.parametrize("power_lost", [False, True])
async def test_a_start_enters_what_a_process_that_died_was_entering(autojump_clock: object, power_lost: bool) -> None:
    broken, hole = await broken_log()
    for _ in range(2):
        store = await MessageStore.open(broken.world, small_config(), HOST, LIVING)
        await stopped(store, broken, hole)
        await store.checkpoint()  # a mark that says less than it seems to
        if power_lost:
            broken.disk.lose_power()
        else:
            broken.disk.kill_process()
    async with opened(broken.world) as store:
        assert entered(store) == (SENT, 40)
        assert put(store, TOPIC, b"new").queue_offset == len(SENT)
        await trio.sleep(1)
    async with opened(broken.world) as store:
        assert entered(store) == (SENT | {len(SENT): b"new"}, 40)


async def test_a_disk_that_refuses_for_a_while_delays_it(autojump_clock: object) -> None:
    broken, hole = await broken_log()
    async with opened(broken.world) as store:
        work = store.repair(hole)
        await work.write(hole, broken.content[hole:])
        broken.disk.used_bytes = broken.disk.total_bytes
        with pytest.raises(OSError):
            await work.finish(len(broken.content))
        assert store.hole == hole
        broken.disk.used_bytes = None
        await trio.sleep(20)
        assert (store.writable, store.hole) == (True, None)
        assert entered(store) == (SENT, 40)


async def test_nothing_of_it_waits_for_the_disk_on_the_event_loop(autojump_clock: object) -> None:
    broken, hole = await broken_log()
    disk = CountingDisk(broken.disk)
    async with opened(attrs.evolve(broken.world, disk=disk)) as store:
        work = store.repair(hole)
        await work.write(hole, broken.content[hole:])
        disk.on_loop.clear()
        await work.finish(len(broken.content))
        assert store.hole is None
        assert not disk.on_loop.keys() & {"sync_folder", "remove", "replace"}


def test_an_index_is_cut_in_small_steps() -> None:
    # given some files of entries
    disk = SimDisk(random.Random(1))
    index = Index(disk, "/index", 500, 1_000, lambda: 1)
    index.load()
    for number in range(3_500):
        index.put_one(number * 7919 & 0x7FFFFFFF, number * 100, number)
    # when it is cut in the first of them
    left = 3_500
    for remove in index.cut_in_steps(20_000, 200):
        if remove is not None:
            remove()
        # then each step takes few of them
        now = sum(file.count - 1 for file in index.files)
        assert now >= left - ENTRIES_IN_A_STEP
        left = now
    assert left == 200
    assert disk.listdir("/index") == [file.name for file in index.files]
    # and what is left is found, as what follows is
    index.put_one(1, 20_000, 200)
    for number, hashed in [*((number, number * 7919 & 0x7FFFFFFF) for number in range(200)), (200, 1)]:
        assert number * 100 in run_steps(index.offsets(hashed, 100, 0, 1 << 60))
    assert run_steps(index.offsets(201 * 7919, 100, 0, 1 << 60)) == []


@pytest.mark.parametrize("hidden", [False, True])
async def test_what_has_no_place_in_its_queue_is_not_shown_there(hidden: bool, autojump_clock: object) -> None:
    world = simulated_world()
    async with opened(world) as store:
        put(store, "Orders", b"first" * 60)
        lost = [put(store, "Orders", b"lost %d" % number * 60, 1) for number in range(4)]
        put(store, "Orders", b"kept" * 60)
        whole = content(store)
    # given the end of a queue that is lost, and a message that has got the place of the first lost one
    first, after = lost[0].physical_offset, lost[-1].physical_offset + 300
    disk_of(world).damage(f"/store/commitlog/{0:020d}", lambda data: data[:first] + bytes(after - first) + data[after:])
    disk_of(world).remove("/store/recovery.mark")
    async with opened(world) as store:
        if hidden:
            store.set_confirmed(store.max_physical_offset)
        new = put(store, "Orders", b"new", 1)
        assert new.queue_offset == 0
        # when what is lost comes back
        work = store.repair(first)
        await work.write(first, whole[first:])
        await work.finish(len(whole))
        # then readers do not wait at the place of any, and who has its place is known though nobody may see it
        assert store.written_queue_offset("Orders", 1) == 1
        assert store.max_queue_offset("Orders", 1) == int(not hidden)
        assert store.is_in_place("Orders", 1, 0, new.physical_offset)
        assert not any(store.is_in_place("Orders", 1, each.queue_offset, each.physical_offset) for each in lost)
