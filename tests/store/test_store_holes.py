"""Where the first hole of a log lies: decided, kept over starts, forgotten when the log is cut there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_fixtures import disk_of, put, running_store, simulated_world

from understudy.runtime.world import World
from understudy.store.holes import first_hole

NOTE = "/store/recovery.hole"


@given(
    st.none() | st.integers(0, 1000),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=4),
    st.integers(0, 500),
    st.integers(500, 1000),
)
def test_the_first_hole_is_the_lowest_that_is_still_in_the_log(
    noted: int | None, found: list[tuple[int, int]], low: int, end: int
) -> None:
    starts = [start for start, _ in found if low <= start < end]
    assert min(starts, default=None) == first_hole(noted, found, low, end, filled=True)
    if noted is not None and low <= noted < end:
        starts.append(noted)
    assert min(starts, default=None) == first_hole(noted, found, low, end, filled=False)


async def damaged(world: World, count: int = 6) -> tuple[list[int], list[bytes]]:
    """Write *count* messages, damage the second on the disk; return where each begins and all bytes of the log."""
    async with running_store(world) as store:
        starts = [put(store, "Orders", b"%d" % number * 300).physical_offset for number in range(count)]
        content = bytes(store.slice(0, store.max_physical_offset))
    disk = disk_of(world)
    path = "/store/commitlog/00000000000000000000"
    disk.damage(path, lambda data: data[: starts[1] + 100] + bytes(150) + data[starts[1] + 250 :])
    disk.remove("/store/recovery.mark")
    return starts, [content]


async def test_a_hole_is_remembered_until_the_log_is_cut_there(autojump_clock: object) -> None:
    world = simulated_world()
    starts, (content,) = await damaged(world)
    # when the store starts, and starts again after a power loss and a clean end
    for _ in range(2):
        async with running_store(world) as store:
            assert starts[1] == store.hole
            assert len(content) == store.max_physical_offset
        disk_of(world).lose_power()
    async with running_store(world) as store:
        assert starts[1] == store.hole
        # when the log is cut behind it, and then at it
        store.truncate_to(starts[3])
        assert starts[1] == store.hole
        store.truncate_to(starts[1])
        assert store.hole is None
        assert not disk_of(world).exists(NOTE)
        store.append_raw(starts[1], content[starts[1] :])
        assert content == bytes(store.slice(0, len(content)))
    async with running_store(world) as store:
        assert store.hole is None


async def test_a_note_that_is_left_over_means_nothing(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        first = put(store, "Orders", b"a")
        put(store, "Orders", b"b")
    for text in (b"%d\n" % first.physical_offset, b"900000\n", b"\xff\n", b""):
        file = disk_of(world).open(NOTE)
        file.truncate(0)
        file.write_at(0, text)
        file.close()
        async with running_store(world) as store:
            assert store.hole is None


@pytest.mark.parametrize("seed", range(3))
async def test_a_hole_at_the_tail_is_a_shorter_log(seed: int, autojump_clock: object) -> None:
    world = simulated_world(seed)
    async with running_store(world) as store:
        for number in range(5):
            last = put(store, "Orders", b"%d" % number * 300).physical_offset
    path = "/store/commitlog/00000000000000000000"
    disk_of(world).damage(path, lambda data: data[: last + 100] + bytes(len(data) - last - 100))
    disk_of(world).remove("/store/recovery.mark")
    async with running_store(world) as store:
        assert (None, last) == (store.hole, store.max_physical_offset)
