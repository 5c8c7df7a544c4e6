"""A process that may open no more files: flushes wait and go on by themselves; the disk is not blamed."""

from __future__ import annotations

import errno
import os
import random

import pytest
from store_fixtures import bodies_of, disk_of, put, running_store, simulated_world, small_config

from understudy.runtime.disk import File, Mapping
from understudy.store.mapped_files import MappedFiles
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.disk import SimDisk


class FewFiles:
    """Fails every call that needs a descriptor while it is :attr:`on`."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.on = False
        self.refused = 0
        for name in ("open", "sync_folder", "sync_everything"):
            patch.setattr(SimDisk, name, self._unless_on(getattr(SimDisk, name), number))

    def _unless_on(self, real: object, number: int) -> object:
        def call(disk: SimDisk, path: str, **more: object) -> object:
            if self.on:
                self.refused += 1
                raise OSError(number, os.strerror(number), path)
            return real(disk, path, **more)  # type: ignore[operator]

        return call


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("sync", [False, True])
async def test_a_flush_without_descriptors_is_tried_again_and_nothing_is_refused(
    number: int, sync: bool, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, few = simulated_world(), FewFiles(monkeypatch, number)
    config = small_config(flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH")
    async with running_store(world, config) as store:
        # given a process without descriptors for half a minute, in which flushes and checkpoints fall due
        few.on = True
        for each in range(300):
            put(store, "Orders", b"%d" % each, each % 3)
        end = store.max_physical_offset
        assert not await store.wait_flushed(end, 30_000)
        assert few.refused > 0 and store.writable
        # when there are some again
        few.on = False
        # then the same store goes on, and everything survives a loss of power, names of files included
        assert await store.wait_flushed(end, 60_000)
        assert await store.checkpoint()
        disk_of(world).lose_power()
    again = await MessageStore.open(world, config, ("127.0.0.1", 10911))
    assert [100, 100, 100] == [again.max_queue_offset("Orders", queue) for queue in range(3)]
    assert bodies_of(again.get("Orders", 0, 99, 1, 1 << 20)) == [b"297"]


async def test_a_disk_that_fails_is_still_blamed(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    few = FewFiles(monkeypatch, errno.EIO)
    async with running_store(simulated_world()) as store:
        put(store, "Orders", b"a")
        few.on = True
        assert not await store.wait_flushed(store.max_physical_offset, 5_000)
        assert not store.writable
        few.on = False


class Owner:
    def unmapped(self, start: int) -> None:
        return None


class Shrunk(SimDisk):
    """Maps only so many files at a time."""

    mapped = 0
    most = 3

    def map(self, path: str, size: int, *, create: bool = True) -> Mapping:
        if self.mapped >= self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        mapping, self.mapped = super().map(path, size, create=create), self.mapped + 1
        close = mapping.close

        def closed() -> None:
            self.mapped -= 1
            close()

        mapping.close = closed  # type: ignore[method-assign]
        return mapping

    def open(self, path: str, *, create: bool = True) -> File:
        raise AssertionError("files are only mapped here")


def test_mapped_files_make_room_for_one_more_when_the_process_may_map_no_more() -> None:
    disk = Shrunk(random.Random(1), now_ms=lambda: 0)
    files = MappedFiles(disk, 100)
    for number in range(10):
        files.view(f"/{number}", 10, Owner(), number)[0] = number
    assert 3 == len(files)
    assert [number for number in range(10)] == [
        files.view(f"/{number}", 10, Owner(), number)[0] for number in range(10)
    ]
    disk.most = 0
    files.close()
    with pytest.raises(OSError, match="Too many open files"):
        files.view("/0", 10, Owner(), 0)
