"""Bytes that rot after a clean stop: no reader gets such a message, the others go on, and the damage is noted."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
import trio
from store_fixtures import LOG_FILE_BYTES, disk_of, put, records_of, running_store, simulated_world, small_config
from test_store_replication import TOPIC

from understudy.format.properties import format_properties
from understudy.format.record import Record
from understudy.runtime.world import World
from understudy.store import holes, integrity
from understudy.store.integrity import SETTLE_SECONDS, Integrity
from understudy.store.message_store import MessageStore
from understudy.testkit.waiting import until

COUNT = 60


async def filled(world: World, chance: random.Random) -> list[int]:
    """Store messages, stop cleanly, and return where each begins."""
    async with running_store(world) as store:
        return [
            put(
                store, TOPIC, chance.randbytes(chance.randint(1, 1_500)), 0, KEYS=f"k{number}", TAGS="t"
            ).physical_offset
            for number in range(COUNT)
        ]


def rot(world: World, physical: int, change: int) -> None:
    """Change one byte of the log."""
    begin = physical - physical % LOG_FILE_BYTES
    at = physical - begin

    def changed(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]

    disk_of(world).damage(f"/store/commitlog/{begin:020d}", changed)


def everything(
    store: MessageStore,
    at_once: int = 32,
    accept: Callable[[int], bool] | None = None,
    by_properties: Callable[[bytes], bool] | None = None,
) -> list[Record]:
    found: list[Record] = []
    offset = 0
    while offset < store.max_queue_offset(TOPIC, 0):
        read = store.get(TOPIC, 0, offset, at_once, 1 << 20, accept, by_properties)
        assert read.next_begin_offset > offset
        found += records_of(read)
        offset = read.next_begin_offset
    return found


@pytest.mark.parametrize("way", ["many at once", "one by one", "filtered", "by properties"])
@pytest.mark.parametrize("seed", range(20))
async def test_a_message_that_rots_is_left_out_and_noted(seed: int, way: str, autojump_clock: object) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    starts = await filled(world, chance)
    # given a flipped bit in a part of a record that something can be compared with
    victim = chance.randrange(COUNT - 1)  # the last one is cut off by the start, as a torn one
    head = [*range(16), *range(20, 36)]
    at = chance.choice([*head, *range(88, 88 + 1)])
    rot(world, starts[victim] + at, 1 << chance.randrange(7))
    async with running_store(world) as store:
        accept = (lambda code: True) if way == "filtered" else None
        by_properties = (lambda properties: True) if way == "by properties" else None
        for _ in range(2):
            found = everything(store, 1 if way == "one by one" else 32, accept, by_properties)
            # then everybody gets all the others
            assert [number for number in range(COUNT) if number != victim] == [each.queue_offset for each in found]
        assert store.max_queue_offset(TOPIC, 0) == COUNT
        # and the hole is noted, for a slave that can be healed
        await trio.sleep(0.1)
        assert store.hole == starts[victim]
    async with running_store(world) as store:
        assert store.hole == starts[victim]
        assert COUNT - 1 == len(everything(store))


async def test_what_is_whole_is_compared_once(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulated_world()
    await filled(world, random.Random(1))
    compared = 0

    def counting(*arguments: object) -> object:
        nonlocal compared
        compared += 1
        return usual(*arguments)  # type: ignore[arg-type]

    from understudy.store import integrity

    usual = integrity._usual_properties
    async with running_store(world) as store:
        monkeypatch.setattr(integrity, "_usual_properties", counting)
        for _ in range(3):
            assert COUNT == len(everything(store))
        assert compared == COUNT
        # and what this process writes is not compared at all
        put(store, TOPIC, b"new")
        assert COUNT + 1 == len(everything(store))
        assert compared == COUNT


@pytest.mark.parametrize("seed", range(6))
async def test_a_scrub_finds_all_damage_and_is_the_last_comparison(seed: int, autojump_clock: object) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    starts = await filled(world, chance)
    victims = sorted(chance.sample(range(COUNT), 3)) if seed else []
    for victim in victims:
        rot(world, starts[victim] + 88, 1)
    async with running_store(world) as store:
        assert store.scrub_report is None
        report = store.start_scrub()
        assert store.start_scrub() is report
        await until(lambda: not report.running, 10)
        assert [starts[victim] for victim in victims] == [first for first, _ in report.damaged]
        assert (COUNT - len(victims), report.end) == (report.records, store.max_physical_offset)
        assert report.position == report.end
        await trio.sleep(0.1)
        assert store.hole == (starts[victims[0]] if victims else None)
        if not victims:
            assert store._core.trusted_from == 0
        assert COUNT - len(victims) == len(everything(store))


async def test_what_is_old_is_compared_slowly_when_clients_have_settled(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    world = simulated_world(1)
    await filled(world, random.Random(1))
    async with running_store(world, small_config(scrub_bytes_per_second=1_000)) as store:
        await trio.sleep(SETTLE_SECONDS - 1)
        assert store.scrub_report is None
        await trio.sleep(2)
        # then it takes its time, and nothing is trusted before the end of it
        report = store.scrub_report
        assert report is not None
        length = report.end - report.begin
        await trio.sleep(length / 1_000 - 3)
        assert report.running
        assert store._core.trusted_from == report.end
        await trio.sleep(3)
        assert (False, COUNT) == (report.running, report.records)
        # and readers compare nothing any more
        monkeypatch.setattr(Integrity, "all_whole", lambda *_: pytest.fail("it was compared once more"))
        assert len(everything(store)) == COUNT


async def test_a_store_may_leave_what_is_old_to_its_readers(autojump_clock: object) -> None:
    world = simulated_world(1)
    await filled(world, random.Random(1))
    async with running_store(world, small_config(scrub_bytes_per_second=0)) as store:
        await trio.sleep(2 * SETTLE_SECONDS)
        assert store.scrub_report is None
        # and compares it when it is asked to
        assert store._core.trusted_from > 0
        report = store.start_scrub()
        await until(lambda: not report.running, 10)
        assert report.records == COUNT


async def test_who_asks_for_a_scrub_does_not_wait_for_a_slow_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(integrity, "_STEP_BYTES", 1_000)
    world = simulated_world(1)
    await filled(world, random.Random(1))
    async with running_store(world, small_config(scrub_bytes_per_second=100)) as store:
        await trio.sleep(SETTLE_SECONDS + 60)
        slow = store.scrub_report
        assert slow is not None
        assert slow.begin < slow.position < slow.end
        assert store.start_scrub() is slow
        await until(lambda: not slow.running, 30)
        assert slow.records == COUNT


async def test_a_slow_scrub_ends_when_it_is_not_wanted_any_more(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    monkeypatch.setattr(integrity, "_STEP_BYTES", 1_000)
    world = simulated_world(1)
    await filled(world, random.Random(1))
    async with running_store(world, small_config(scrub_bytes_per_second=100)) as store:
        await trio.sleep(SETTLE_SECONDS + 60)
        store.change_settings(small_config(scrub_bytes_per_second=0))
        report = store.scrub_report
        assert report is not None
        await until(lambda: not report.running, 60)
        assert report.position < report.end
        assert store._core.trusted_from == report.end


async def test_a_disk_that_fails_ends_a_scrub_and_not_the_store(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    world = simulated_world(1)
    await filled(world, random.Random(1))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with running_store(world) as store:
        with monkeypatch.context() as patched:
            patched.setattr(Integrity, "_read_ahead", fail)
            report = store.start_scrub()
            await until(lambda: not report.running, 10)
        assert report.position == report.begin
        assert store._core.trusted_from == report.end
        again = store.start_scrub()
        await until(lambda: not again.running, 10)
        assert again.records == COUNT


async def test_what_is_due_does_not_wait_for_a_note_that_the_disk_refuses(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    world = simulated_world(1)
    starts = await filled(world, random.Random(1))
    rot(world, starts[3] + 20, 1)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running_store(world) as store:
        with monkeypatch.context() as patched:
            patched.setattr(holes, "write_durably", fail)
            assert len(everything(store)) == COUNT - 1
            assert store.holes.behind
            await until(lambda: not store.holes.behind, 1)
            assert store.hole is None
        # and it is noted once there is room
        await until(lambda: store.hole == starts[3], 10)


async def test_properties_that_lost_their_length_cost_their_message(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        placed = [put(store, TOPIC, b"body", 0, KEYS=f"k{number}") for number in range(3)]
    length = len(format_properties({"KEYS": "k1"}))
    rot(world, placed[1].physical_offset + placed[1].size_bytes - length - 1, 4)
    async with running_store(world) as store:
        assert [0, 2] == [each.queue_offset for each in everything(store)]


@pytest.mark.parametrize("accept", [None, lambda code: True], ids=["all", "filtered"])
async def test_what_this_process_wrote_is_not_compared(
    accept: Callable[[int], bool] | None, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    def compare(*arguments: object) -> bool:
        raise AssertionError("a read compared what was written since the start")

    monkeypatch.setattr(Integrity, "all_whole", compare)
    async with running_store(simulated_world(1)) as store:
        for number in range(COUNT):
            put(store, TOPIC, b"%d" % number, 0)
        assert len(everything(store, accept=accept)) == COUNT
