"""A store on a simulated disk under virtual time, and shorthands for its calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from understudy.format.properties import format_properties
from understudy.format.record import Record, decode_records, encode_host
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, GetResult
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

PRODUCER = encode_host("10.1.2.3", 40000)
HOST = ("127.0.0.1", 10911)
LOG_FILE_BYTES = 16_384
QUEUE_FILE_UNITS = 20


def small_config(**changes: object) -> StoreConfig:
    """Return settings with small files."""
    values: dict[str, object] = {
        "folder": "/store",
        "mapped_file_size_commit_log": LOG_FILE_BYTES,
        "mapped_file_size_consume_queue": QUEUE_FILE_UNITS * 20,
        "max_hash_slot_num": 50,
        "max_index_num": 100,
        "memory_bytes": 1 << 30,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


def simulated_world(seed: int = 1) -> World:
    """Return a world with a simulated disk and virtual time."""
    clock = VirtualClock()
    disk = SimDisk(random.Random(seed), now_ms=clock.wall_ms)
    return World(clock, TcpNetwork(), disk, random.Random(seed))


def disk_of(world: World) -> SimDisk:
    """Return the simulated disk of a world."""
    assert isinstance(world.disk, SimDisk)
    return world.disk


class CountingDisk:
    """A simulated disk that tells what the event loop asked of it, and what each call in a thread did."""

    def __init__(self, disk: SimDisk) -> None:
        self.sim = disk
        self.on_loop: Counter[str] = Counter()
        self.in_threads: list[Counter[str]] = []
        self._current: Counter[str] | None = None

    @property
    def is_in_thread(self) -> bool:
        """Whether a call in a thread is at work."""
        return self._current is not None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.sim, name)

        def counted(*args: Any, **more: Any) -> Any:
            (self.on_loop if self._current is None else self._current)[name] += 1
            return found(*args, **more)

        return counted if callable(found) else found

    async def in_thread(self, function: Callable[[], Any], *, abandon: bool = False) -> Any:
        def counted() -> Any:
            self._current = Counter()
            self.in_threads.append(self._current)
            try:
                return function()
            finally:
                self._current = None

        return await self.sim.in_thread(counted, abandon=abandon)


def counting_world() -> tuple[World, CountingDisk]:
    """Return a simulated world whose disk counts, and that disk."""
    world = simulated_world()
    disk = CountingDisk(disk_of(world))
    return attrs.evolve(world, disk=disk), disk


@asynccontextmanager
async def running_store(world: World, config: StoreConfig | None = None) -> AsyncIterator[MessageStore]:
    """Open a store, run its services, and close it in the end."""
    store = await MessageStore.open(world, config or small_config(), HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        try:
            yield store
        finally:
            nursery.cancel_scope.cancel()
    await store.close()


def put(store: MessageStore, topic: str, body: bytes, queue_id: int = 0, **pairs: str) -> Appended:
    """Append one message with these properties."""
    return store.append(topic, queue_id, body, format_properties(pairs).encode(), 1, PRODUCER)


def lose_end(world: World, offset: int) -> None:
    """Take the bytes of the log from *offset* on from the disk, and with them the mark: a start cuts the log there."""
    disk, folder = disk_of(world), "/store/commitlog"
    for name in disk.listdir(folder):
        disk.damage(f"{folder}/{name}", partial(_zeroed_from, max(0, offset - int(name))))
    disk.remove("/store/recovery.mark")


def _zeroed_from(keep: int, data: bytes) -> bytes:
    return data[:keep] + bytes(len(data[keep:]))


def records_of(result: GetResult) -> list[Record]:
    """Return the decoded records of a read."""
    return [record for part in result.parts for record in decode_records(part)]


def bodies_of(result: GetResult) -> list[bytes]:
    """Return the bodies of a read."""
    return [record.body for record in records_of(result)]
