"""Long work in pieces: others have their turn between them, and the result is the same."""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.format.json_dialect import ObjectKey, Rows, dump_pieces, dumps
from understudy.runtime.pace import PIECE_SECONDS, Pace, run_beside
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk


def a_world() -> World:
    clock = VirtualClock()
    return World(clock, TcpNetwork(), SimDisk(random.Random(1), now_ms=clock.wall_ms), random.Random(1))


def steps(clock: MockClock, count: int) -> Generator[None, None, str]:
    for _ in range(count):
        clock.jump(PIECE_SECONDS / 4)
        yield
    return "done"


@pytest.mark.parametrize("asked_for", [True, False])
async def test_others_have_their_turn_between_pieces(asked_for: bool, mock_clock: MockClock) -> None:
    world, turns = a_world(), list[float]()

    async def other() -> None:
        while True:
            turns.append(trio.current_time())
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        if asked_for:
            async with Pace(world) as pace:
                assert "done" == await pace.run(steps(mock_clock, 400))
        else:
            assert "done" == await run_beside(world.clock, steps(mock_clock, 400))
        nursery.cancel_scope.cancel()
    gaps = [later - sooner for sooner, later in pairwise(turns)]
    assert len(gaps) >= 90 and max(gaps) <= 2.1 * PIECE_SECONDS


async def test_two_long_works_never_work_in_one_turn(mock_clock: MockClock) -> None:
    world, ended = a_world(), list[float]()

    async def work() -> None:
        async with Pace(world) as pace:
            await pace.run(steps(mock_clock, 400))
        ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        nursery.start_soon(work)
    # side by side: the first ends near the end of the second
    assert ended[0] > 0.9 * ended[1]


async def test_work_that_is_cancelled_gives_its_turn_back(mock_clock: MockClock) -> None:
    world = a_world()
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            async with Pace(world) as pace:
                await pace.run(steps(mock_clock, 10**9))

        nursery.start_soon(work)
        nursery.start_soon(work)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert not world.load.turn.locked()


keys = st.one_of(st.text(max_size=3), st.integers(0, 99), st.builds(lambda n: ObjectKey({"q": n}), st.integers(0, 9)))
values = st.recursive(
    st.one_of(st.integers(-9, 9), st.text(max_size=3), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=50), st.lists(values, max_size=50), st.booleans())
def test_pieces_are_what_is_written_at_once(table: dict[object, object], rows: list[object], bare: bool) -> None:
    whole = {"table": table, "list": rows, "tables": [{"inner": table}, 1], "after": 1}
    inner = iter([Rows([("inner", Rows(iter(table.items())))]), 1])
    lazy = {"table": Rows(iter(table.items())), "list": iter(rows), "tables": inner, "after": 1}
    expected = dumps(whole, bare_keys=bare)
    assert expected == b"".join(dump_pieces(lazy, bare_keys=bare)) == b"".join(dump_pieces(whole, bare_keys=bare))
    if not bare:
        json.loads(expected)
