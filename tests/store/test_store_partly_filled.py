"""Holes of a log that get back a part of what they lack: the other log ends there, or lacks the rest as well."""

from __future__ import annotations

import pytest
from store_fixtures import disk_of, put, running_store, simulated_world
from test_store_holes import content, readable

from understudy.runtime.world import World


def damage_second(world: World, starts: list[int], length: int) -> None:
    """Take *length* bytes out of the log on the disk, from within the second message on."""
    disk, at = disk_of(world), starts[1] + 100
    path = "/store/commitlog/00000000000000000000"
    disk.damage(path, lambda data: data[:at] + bytes(length) + data[at + length :])
    disk.remove("/store/recovery.mark")


@pytest.mark.parametrize("past", [0, 60])
async def test_what_a_shorter_log_has_comes_back_and_the_rest_stays_a_hole(autojump_clock: object, past: int) -> None:
    # given damage over two messages that follow each other
    world = simulated_world()
    async with running_store(world) as store:
        starts = [put(store, "Orders", b"%d" % number * 300).physical_offset for number in range(6)]
        whole = content(store)
    damage_second(world, starts, starts[2] - starts[1])
    async with running_store(world) as store:
        assert (starts[1], 4) == (store.hole, len(readable(store)))
        # when bytes come up to the second of them, or into it
        repair, end = store.repair(starts[1]), starts[2] + past
        await repair.write(starts[1], whole[starts[1] : end])
        await repair.finish(end)
        # then the first is there, and the second a hole
        assert store.hole == starts[2]
        assert store.read(starts[1]) == whole[starts[1] : starts[2]]
    disk_of(world).lose_power()
    async with running_store(world) as store:
        assert (starts[2], 5) == (store.hole, len(readable(store)))
        # when the same comes once more, nothing changes; when all comes, all is there
        for end, hole in ((starts[2], starts[2]), (len(whole), None)):
            repair = store.repair(starts[1])
            await repair.write(starts[1], whole[starts[1] : end])
            await repair.finish(end)
            assert store.hole == hole
        assert content(store) == whole


async def test_the_middle_of_what_another_log_lacks_fills_no_hole(autojump_clock: object) -> None:
    # given damage in a message, and a log that has lost the one before as well: a longer void record stands there
    world = simulated_world()
    async with running_store(world) as store:
        starts = [put(store, "Orders", b"%d" % number * 300).physical_offset for number in range(6)]
        whole = content(store)
    damage_second(world, starts, 60)
    disk_of(world).damage(
        "/store/commitlog/00000000000000000000",
        lambda data: data[: starts[2] + 100] + bytes(60) + data[starts[2] + 160 :],
    )
    async with running_store(world) as store:
        void = content(store)
        theirs = void[: starts[2]] + bytes(starts[3] - starts[2]) + void[starts[3] :]
        # when a slave had its first message back, and the other log comes
        repair = store.repair(starts[1])
        await repair.write(starts[1], whole[starts[1] : starts[2]])
        await repair.finish(starts[2])
        before = content(store)
        repair = store.repair(starts[2])
        await repair.write(starts[2], theirs[starts[2] :])
        await repair.finish(len(theirs))
        # then nothing of ours is another one: zeros end no log, and bytes of a void record's middle are no message
        assert (starts[2], before) == (store.hole, content(store))
        # when all comes, all is there
        repair = store.repair(starts[2])
        await repair.write(starts[2], whole[starts[2] :])
        await repair.finish(len(whole))
        assert (None, whole) == (store.hole, content(store))


async def test_what_its_master_lacks_as_well_is_no_hole_of_a_slave(autojump_clock: object) -> None:
    # given a slave that lacks two messages, and a master that lacks the second of them
    world, other = simulated_world(), simulated_world()
    for each in (world, other):
        async with running_store(each) as store:
            starts = [put(store, "Orders", b"%d" % number * 300).physical_offset for number in range(6)]
    damage_second(world, starts, starts[2] - starts[1])
    disk_of(other).damage(
        "/store/commitlog/00000000000000000000",
        lambda data: data[: starts[2] + 100] + bytes(60) + data[starts[2] + 160 :],
    )
    disk_of(other).remove("/store/recovery.mark")
    async with running_store(other) as store:
        theirs = content(store)
    async with running_store(world) as store:
        # when it takes what its master has there
        repair = store.repair(starts[1], copy=True)
        await repair.write(starts[1], theirs[starts[1] :])
        await repair.finish(len(theirs))
        # then it has the same, and knows that its master may get the other message back
        assert (None, starts[2], theirs) == (store.hole, store.stand_in, content(store))
        assert len(readable(store)) == 5


async def test_a_slave_knows_what_its_master_was_writing_when_it_copied_that(autojump_clock: object) -> None:
    # given a slave that copied what stands in for two messages
    world = simulated_world()
    async with running_store(world) as store:
        starts = [put(store, "Orders", b"%d" % number * 600).physical_offset for number in range(7)]
        whole = content(store)
    disk = disk_of(world)
    for lost in (starts[1], starts[4]):
        disk.damage(
            "/store/commitlog/00000000000000000000",
            lambda data, at=lost + 100: data[:at] + bytes(450) + data[at + 450 :],
        )
    disk.remove("/store/recovery.mark")
    async with running_store(world) as store:
        void = content(store)
    disk.remove("/store/recovery.hole")
    disk.remove("/store/recovery.mark")
    async with running_store(world) as store:
        assert (store.hole, store.stand_in) == (None, starts[1])
        # when it takes what its master has, which is in the middle of writing the second one
        theirs = bytearray(whole)
        theirs[starts[4] : starts[4] + 128] = void[starts[4] : starts[4] + 128]
        theirs[starts[4] + 500 : starts[5]] = void[starts[4] + 500 : starts[5]]
        repair = store.repair(starts[1], copy=True)
        await repair.write(starts[1], theirs[starts[1] :])
        await repair.finish(len(theirs))
        # then it looks there again
        assert (store.hole, store.stand_in) == (None, starts[4])
        repair = store.repair(starts[4], copy=True)
        await repair.write(starts[4], whole[starts[4] :])
        await repair.finish(len(whole))
        assert (store.hole, store.stand_in, content(store)) == (None, None, whole)
