"""A store with one compaction topic, and what is to be left of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing
from store_fixtures import put, records_of, running_store, simulated_world, small_config

from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore

TOPIC = "Compacted"
LOG_FOLDER, QUEUE_FOLDER = f"/store/compaction/compactionLog/{TOPIC}/0", f"/store/compaction/compactionCq/{TOPIC}/0"


def config(**changes: object) -> StoreConfig:
    """Return settings with files for ten records of a compaction log."""
    values = {"compaction_queue_file_bytes": 10 * 46, "compaction_file_bytes": 2300, "compaction_interval_ms": 1 << 40}
    return small_config(**(values | changes))


@asynccontextmanager
async def compacting(world: World, settings: StoreConfig | None = None) -> AsyncIterator[MessageStore]:
    async with running_store(world, settings or config()) as store:
        store.declare_compacted([TOPIC], [])
        yield store


async def copied(store: MessageStore) -> None:
    """Have everything durable and copied."""
    await store.flush()
    await store._compaction.copy()


async def compacted(store: MessageStore) -> None:
    await copied(store)
    await store._compaction.compact()


def read(store: MessageStore, offset: int | None = None, topic: str = TOPIC, most: int = 5) -> dict[int, bytes]:
    """Return what a consumer gets, by queue offset; they rise."""
    at = store.min_queue_offset(topic, 0) if offset is None else offset
    found: dict[int, bytes] = {}
    while (got := store.get(topic, 0, at, most, 1 << 20)).next_begin_offset > at or got.count:
        for record in records_of(got):
            assert record.queue_offset >= at
            assert not found or record.queue_offset > max(found)
            found[record.queue_offset] = record.body
        at = got.next_begin_offset
    assert at == store.max_queue_offset(topic, 0)
    return found


def end_of(store: MessageStore) -> int:
    """Return the queue offset that a consumer comes to now."""
    at = 0
    while (got := store.get(TOPIC, 0, at, 32, 1 << 20)).next_begin_offset > at:
        at = got.next_begin_offset
    return at


def key_of(number: int) -> str:
    """Return one of four keys that come again and again, or one that comes once."""
    return f"k{number % 4}" if number % 5 else f"once{number}"


class Model:
    """What is to be left: the last body of each key."""

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}
        self.bodies: dict[int, bytes] = {}

    def put(self, store: MessageStore, key: str, body: bytes) -> None:
        offset = put(store, TOPIC, body, KEYS=key).queue_offset
        self.newest[key] = offset
        self.bodies[offset] = body

    def check(self, found: dict[int, bytes]) -> None:
        """Nothing is invented, and of every key the newest message is there."""
        assert found.items() <= self.bodies.items()
        assert set(self.newest.values()) <= set(found)


def run(scenario: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    trio.run(scenario, simulated_world(seed), clock=trio.testing.MockClock(autojump_threshold=0))
