"""When a server looks for garbage, and what such a look may go through."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from time import perf_counter

import pytest
import trio

from understudy.runtime import garbage
from understudy.runtime.garbage import (
    GROWTH_BYTES,
    MANY,
    QUIET_SECONDS,
    QUIET_SLEEPS,
    WORK_SECONDS,
    GarbageKeeper,
    Looks,
)


@pytest.fixture(autouse=True)
def usual_collector() -> Iterator[None]:
    """Leave Python's collector as it was."""
    threshold, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.freeze()  # as the whole run of tests has it


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_no_look_while_serving_goes_through_a_large_table() -> None:
    """A full look of Python's own goes through all rows; here each look is short whatever has been kept."""
    generations: set[int] = set()

    def note(phase: str, facts: dict[str, int]) -> None:
        generations.add(facts["generation"])

    async def serve() -> None:
        gc.callbacks.append(note)
        table = [{"name": [number], "queues": {"read": [4], "write": [4]}} for number in range(200_000)]
        gc.callbacks.remove(note)
        assert gc.get_count()[2] <= MANY * 4
        assert len(gc.get_objects()) < 100_000 < gc.get_freeze_count()
        assert len(table) == 200_000

    trio.run(serve, instruments=[GarbageKeeper()])
    assert generations == {0, 1}


async def turns(count: int, sleep_s: float) -> None:
    for _ in range(count):
        await trio.sleep(sleep_s)


def test_young_objects_are_looked_at_in_time_while_old_ones_are_freed() -> None:
    """What is freed counts against what is made: Python's own looks would not come, and the last one would be long."""
    most = 0

    async def serve() -> None:
        nonlocal most
        old: list[object] = [[] for _ in range(50_000)]
        gc.freeze()
        kept: list[object] = []
        for _ in range(60):
            until = perf_counter() + WORK_SECONDS / 10
            for _ in range(500):
                kept.append([])
                old.pop()
            while perf_counter() < until:
                pass
            most = max(most, len(gc.get_objects(0)))
            await trio.lowlevel.checkpoint()

    trio.run(serve, instruments=[GarbageKeeper()])
    assert 500 <= most < 10_000


def test_circles_that_were_kept_for_long_are_found_when_nothing_happens() -> None:
    keeper = GarbageKeeper()

    async def serve() -> None:
        before = sum(type(each) is Circle for each in gc.get_objects())
        circles: list[object] = [Circle() for _ in range(10)]
        for _ in range(MANY):
            gc.collect(1)  # they have outlived it
        circles.clear()
        gc.collect()
        await turns(20, 0.001)  # busy
        assert keeper.full_looks == 0
        await turns(QUIET_SLEEPS + 1, QUIET_SECONDS * 1.2)
        assert keeper.full_looks == 1
        gc.unfreeze()
        assert sum(type(each) is Circle for each in gc.get_objects()) == before

    trio.run(serve, instruments=[keeper])


def test_a_full_look_is_due_at_once_when_the_memory_has_grown_much(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, used = GarbageKeeper(), [100 << 20]
    monkeypatch.setattr(garbage, "used_bytes", lambda: used[0])

    async def serve() -> None:
        gc.collect(1)
        await turns(3, 0.001)
        assert keeper.full_looks == 0
        used[0] = (150 << 20) + GROWTH_BYTES + 1
        await turns(3, 0.001)
        assert keeper.full_looks == 0  # nothing was kept since it was measured
        gc.collect(1)
        await turns(3, 0.001)
        assert keeper.full_looks == 1
        gc.collect(1)
        await turns(3, 0.001)
        assert keeper.full_looks == 1  # what it left is the new measure

    trio.run(serve, instruments=[keeper])


def test_a_busy_loop_never_has_the_moment_and_a_quiet_one_only_when_a_look_is_due() -> None:
    looks = Looks(settled=MANY)
    assert not any(looks.sleeps(number * QUIET_SECONDS / 2) for number in range(1_000))
    assert [looks.sleeps(1_000 + number) for number in range(QUIET_SLEEPS)] == [False] * (QUIET_SLEEPS - 1) + [True]
    looks.looked(7)
    assert not any(looks.sleeps(2_000 + number) for number in range(1_000))


def test_the_memory_of_this_process_is_known() -> None:
    before = garbage.used_bytes()
    kept = bytearray(b"x" * (64 << 20))
    assert garbage.used_bytes() - before > 32 << 20
    del kept
