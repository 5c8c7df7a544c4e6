"""A log in memory, and a master and a slave of it over an in-memory network; the test may play the master itself."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs

from understudy.ha import wire
from understudy.ha.master import HaMaster
from understudy.ha.slave import HaSlave
from understudy.runtime.background import open_background
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.network import SimListener, SimNetwork

FILE = 4096


@attrs.define
class HaSettings:
    """Settings of a test: :class:`HaParameters` with the defaults of a broker."""

    heartbeat_ms: int = 5000
    housekeeping_ms: int = 20000
    batch_bytes: int = 32768
    max_gap_bytes: int = 256 * 1024 * 1024
    file_bytes: int = 1024 * 1024 * 1024
    whole_log: bool = False
    bytes_per_second: int | None = None
    retry_ms: int = 5000
    connect_timeout_ms: int = 3000


class Log:
    """A commit log in memory: files of 4 KiB, the first one at *base*."""

    def __init__(self, data: bytes = b"", base: int = 0) -> None:
        self.base = base
        self.data = bytearray(data)
        self.hole: int | None = None
        self.stand_in: int | None = None
        self.missing: set[int] = set()
        self.grown: list[Callable[[], None]] = []

    @property
    def max_physical_offset(self) -> int:
        return self.base + len(self.data) if self.data or self.base else 0

    @property
    def min_physical_offset(self) -> int:
        return self.base if self.data else -1

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        at = physical_offset - self.base
        to_file_end = FILE - physical_offset % FILE
        return memoryview(bytes(self.data[at : at + min(max_bytes, to_file_end)]))

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        if not self.data:
            self.base = physical_offset
        assert physical_offset == self.max_physical_offset
        self.data += data

    def drop_incomplete(self) -> int:
        return 0

    def intact_from(self) -> int:
        return max(self.missing, default=self.base - 1) + 1

    def repair(self, start: int) -> Log:
        return self

    def differs_at(self, physical_offset: int, data: bytes | memoryview) -> int | None:
        places = enumerate(data, physical_offset)
        return next((at for at, byte in places if at not in self.missing and self.data[at - self.base] != byte), None)

    async def write(self, physical_offset: int, data: bytes | memoryview) -> None:
        at = physical_offset - self.base
        assert at + len(data) <= len(self.data)
        if self.differs_at(physical_offset, data) is not None:
            raise ValueError("our log has other bytes")
        self.data[at : at + len(data)] = data

    async def finish(self, end: int) -> None:
        self.hole = self.stand_in = None

    async def finish_truncation(self) -> None: ...

    async def truncate(self, offset: int) -> int:
        gone = max(self.max_physical_offset - offset, 0)
        del self.data[offset - self.base :]
        return gone

    def append(self, data: bytes) -> None:
        self.data += data
        for callback in self.grown:
            callback()


class EmptyFile(Log):
    """A log without a byte whose only file begins at *base*: what a power loss can leave."""

    def __init__(self, base: int) -> None:
        super().__init__(b"", base)

    @property
    def min_physical_offset(self) -> int:
        return self.base

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        assert not self.data or physical_offset == self.max_physical_offset
        super().append_raw(physical_offset, data)


def world_of(network: SimNetwork, host: str) -> World:
    return World(VirtualClock(), network.host(host), RealDisk(), random.Random(2))


@asynccontextmanager
async def master_of(network: SimNetwork, log: Log, settings: HaSettings | None = None) -> AsyncIterator[HaMaster]:
    master = HaMaster(world_of(network, "m"), log, settings or HaSettings(file_bytes=FILE), "0.0.0.0", 10912)
    log.grown.append(master.log_grew)
    async with open_background() as nursery:
        await master.bind()
        nursery.start_soon(master.run)
        yield master


@asynccontextmanager
async def slave_of(network: SimNetwork, log: Log, settings: HaSettings | None = None) -> AsyncIterator[HaSlave]:
    slave = HaSlave(world_of(network, "s"), log, settings or HaSettings(file_bytes=FILE))
    slave.set_master("m:10912")
    async with open_background() as nursery:
        nursery.start_soon(slave.run)
        yield slave


async def played_master(network: SimNetwork) -> SimListener:
    """Listen where the slave looks for its master; what it hears there is up to the test."""
    return await network.host("m").listen("0.0.0.0", 10912)


def frame_of(data: bytes, start: int, end: int) -> bytes:
    """Return a master's frame with the bytes from *start* to *end* of a log that has *data*."""
    return wire.header(start, end - start) + data[start:end]
