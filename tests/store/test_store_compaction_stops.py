"""Compaction topics: readers in the middle of a swap, and every kind of stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
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
    end_of,
    key_of,
    read,
    run,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from store_fixtures import HOST, disk_of, put, records_of, simulated_world

from understudy.runtime.world import World
from understudy.store.compaction import service
from understudy.store.compaction.swaps import carry_out
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.disk import PowerCut


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_in_the_middle_of_a_swap_sees_each_surviving_key_once(seed: int) -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        disk._spread_seconds = 0.02
        async with compacting(world) as store:
            model, rounds = Model(), 0
            for number in range(80):
                model.put(store, key_of(number), b"v%d" % number)
            await copied(store)
            busy = True

            async def reader() -> None:
                nonlocal rounds
                while busy:
                    at, seen, held = 0, list[int](), list[tuple[bytes, memoryview]]()
                    while at < 80:
                        got = store.get(TOPIC, 0, at, 3, 1 << 20)
                        seen += [record.queue_offset for record in records_of(got)]
                        held += [(bytes(part), part) for part in got.parts]
                        at = got.next_begin_offset
                        await trio.sleep(0.0003)
                    assert seen == sorted(set(seen))
                    assert set(model.newest.values()) <= set(seen)
                    assert all(bytes(part) == then for then, part in held)  # slices stay what they were
                    rounds += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader)
                await store._compaction.compact()
                busy = False
            assert rounds > 1
            model.check(read(store))
            assert len(read(store)) < 40

    run(scenario, seed)


def test_new_files_are_read_while_their_names_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other files may have taken the place of theirs among the mapped ones: they are kept mapped until it is over."""
    names_changed = False

    async def scenario(world: World) -> None:
        async with compacting(world) as store:
            model = Model()
            for number in range(80):
                model.put(store, key_of(number), b"v%d" % number)
            await copied(store)

            def carrying_out(*arguments: Any) -> None:
                nonlocal names_changed
                carry_out(*arguments)
                names_changed = True
                store._core.compacted._mapped.close()  # as many other files are read
                model.check(read(store))

            monkeypatch.setattr(service, "carry_out", carrying_out)
            await store._compaction.compact()
            assert names_changed
            model.check(read(store))

    run(scenario)


def cut_off(scenario: Callable[[], Awaitable[None]]) -> bool:
    """Run *scenario* under virtual time; tell whether the power went before its end."""
    try:
        trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))
    except PowerCut:
        return True
    except BaseExceptionGroup as group:
        if group.split(PowerCut)[1] is not None:
            raise
        return True
    return False


class Lives:
    """Lives of one store, each ended by a loss of power: random sends, copies, rounds and deletions of log files."""

    def __init__(self, seed: int) -> None:
        self.world = simulated_world(seed)
        #: By queue offset; None: lost before it was durable.
        self._sent: list[tuple[str, bytes] | None] = []
        self._durable = 0

    def model(self) -> Model:
        model = Model()
        for offset, sent in enumerate(self._sent):
            if sent is not None:
                model.newest[sent[0]] = offset
                model.bodies[offset] = sent[1]
        return model

    async def begin(self, store: MessageStore) -> None:
        """Forget what was not durable and is lost."""
        high = store.max_queue_offset(TOPIC, 0)
        for _ in range(100):
            if end_of(store) == high:
                break
            await trio.testing.wait_all_tasks_blocked()  # units that are lost are entered again
        found = read(store, 0)
        assert high >= self._durable
        del self._sent[high:]
        for offset in range(self._durable, high):
            if offset not in found:
                self._sent[offset] = None
        self.model().check(found)

    async def live(self, steps: list[str]) -> None:
        store = await MessageStore.open(self.world, config(mapped_file_size_commit_log=8192), HOST)
        store.declare_compacted([TOPIC], [])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            await self.begin(store)
            for step in steps:
                await self._step(store, step)
                self.model().check(read(store, 0))
            nursery.cancel_scope.cancel()

    async def _step(self, store: MessageStore, step: str) -> None:
        if step.startswith("k"):
            for letter in step:
                key = f"once{len(self._sent)}" if letter == "u" else letter
                body = b"v%d" % len(self._sent)
                put(store, TOPIC, body, KEYS=key)
                self._sent.append((key, body))
        elif step == "d":
            await store._retention.delete_files(1 << 60, True)
        elif step == "n":  # now, whatever is durable
            await store._compaction.copy()
            await store._compaction.compact()
        else:
            await {"f": store.checkpoint, "c": partial(copied, store), "r": partial(compacted, store)}[step]()
            self._durable = len(self._sent)

    async def last(self) -> None:
        async with compacting(self.world, config(mapped_file_size_commit_log=8192)) as store:
            await self.begin(store)
            await compacted(store)
            self.model().check(read(store, 0))
        folders = [disk_of(self.world).listdir(folder) for folder in (LOG_FOLDER, QUEUE_FOLDER)]
        assert folders[0] == folders[1]
        assert all(len(name) == 20 for name in folders[0])


STEPS = st.lists(
    st.one_of(st.text("0123u", min_size=1, max_size=25).map("k".__add__), st.sampled_from("fcrrdnn")), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 150), STEPS), min_size=3, max_size=3))
@example(1, [(43, ["k0", "k0000000000", "f", "k0", "f", "k000000", f"k{16 * '0'}"]), (0, []), (0, [])])  # a file's gap
def test_no_loss_of_power_costs_a_key(seed: int, ended: list[tuple[int, list[str]]]) -> None:
    lives = Lives(seed)
    disk = disk_of(lives.world)
    for syncs, steps in ended:
        disk.syncs_left = syncs
        cut_off(partial(lives.live, steps))
        disk.lose_power()
    assert not cut_off(lives.last)


def power_goes_in_a_round(left: int, seed: int) -> bool:
    """Let the power go after so many syncs of a round, start again, and see; tell whether it went before the end."""
    world, model = simulated_world(left + 1000 * seed), Model()
    disk = disk_of(world)

    async def before() -> None:
        async with compacting(world) as store:
            for number in range(60):
                model.put(store, key_of(number), b"v%d" % number)
            await copied(store)

    async def during() -> None:
        store = await MessageStore.open(world, config(), HOST)
        store.declare_compacted([TOPIC], [])
        disk.syncs_left = left
        await store._compaction.compact()

    async def after() -> None:
        async with compacting(world) as store:
            model.check(read(store, 0))
            await store._compaction.compact()
            model.check(read(store, 0))
            assert len(read(store)) < 30
            assert disk.listdir(LOG_FOLDER) == disk.listdir(QUEUE_FOLDER)
            assert not disk.exists("/store/compaction/swap")

    assert not cut_off(before)
    went = cut_off(during)
    disk.lose_power()
    assert not cut_off(after)
    return went


def test_the_power_may_go_at_every_sync_of_a_round() -> None:
    for seed in range(4):
        went = [power_goes_in_a_round(left, seed) for left in range(30)]
        assert 10 < went.count(True) < 30
        assert went == sorted(went, reverse=True)


def test_a_killed_process_leaves_a_whole_generation() -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        store = await MessageStore.open(world, config(), HOST)
        store.declare_compacted([TOPIC], [])
        model = Model()
        for number in range(60):
            model.put(store, f"k{number % 4}", b"v%d" % number)
        await copied(store)
        for name in disk.listdir(LOG_FOLDER)[:1]:
            disk.open(f"{LOG_FOLDER}/{name}.compacting").write_at(0, b"left")
        disk.kill_process()
        async with compacting(world) as store:
            assert read(store) == model.bodies
            assert not [name for name in disk.listdir(LOG_FOLDER) if name.endswith("compacting")]

    run(scenario)


def test_units_that_are_missing_are_made_again() -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        async with compacting(world) as store:
            model = Model()
            for number in range(45):
                model.put(store, f"k{number}", b"v%d" % number)
            await copied(store)
        before = {name: disk.read(f"{QUEUE_FOLDER}/{name}") for name in disk.listdir(QUEUE_FOLDER)}
        assert len(before) > 2
        for name in before:
            disk.remove(f"{QUEUE_FOLDER}/{name}")
        async with compacting(world) as store:
            assert read(store) == model.bodies
        assert disk.listdir(QUEUE_FOLDER) == sorted(before)

    run(scenario)


def test_a_damaged_record_is_left_out_and_the_others_are_read() -> None:
    async def scenario(world: World) -> None:
        disk = disk_of(world)
        async with compacting(world) as store:
            for number in range(60):
                put(store, TOPIC, b"value %d" % number, KEYS=f"k{number}")
            await copied(store)
        path = f"{LOG_FOLDER}/{0:020d}"
        disk.damage(path, lambda data: data.replace(b"value 3", b"valve 3", 1))
        async with compacting(world) as store:
            assert sorted(read(store, 0)) == [number for number in range(60) if number != 3]
            await compacted(store)
            assert sorted(read(store, 0)) == [number for number in range(60) if number != 3]

    run(scenario)
