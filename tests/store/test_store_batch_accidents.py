"""Random sends to batch queues, then power loss or a killed process: acknowledged messages are there."""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from store_accidents import befall, with_accidents
from store_fixtures import HOST, PRODUCER, disk_of, put, running_store, simulated_world, small_config
from test_store_batch_queues import LIVING, TOPIC, put_inner, read

from understudy.format.batch import encode_batch
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.batch_queue import UNIT_BYTES
from understudy.store.config import ASYNC_FLUSH
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import PowerCut, SimDisk


@attrs.define
class Model:
    """What producers know: every message by queue and queue offset, where it ends, and what is acknowledged."""

    sent: dict[tuple[int, int], bytes] = attrs.field(factory=dict)
    ends: dict[tuple[int, int], int] = attrs.field(factory=dict)
    acknowledged: set[tuple[int, int]] = attrs.field(factory=set)
    number: int = 0

    def send(self, store: MessageStore, chance: random.Random) -> None:
        queue_id, count = chance.randrange(2), chance.choice([0, 0, 1, 4])
        bodies = [
            b"%d:" % (self.number + each) + chance.randbytes(chance.choice([0, 30, 900])) for each in range(count)
        ]
        self.number += count + 1
        if chance.random() < 0.2:
            put(store, "Simple", b"other")
        if bodies and chance.random() < 0.3:
            batch = store.append_batch(TOPIC, queue_id, encode_batch([(0, body, b"") for body in bodies]), 1, PRODUCER)
            first, end = batch.first_queue_offset, batch.end_offset
        else:
            stored = put_inner(store, bodies, queue_id) if bodies else put(store, TOPIC, b"%d" % self.number, queue_id)
            bodies = bodies or [b"%d" % self.number]
            first, end = stored.queue_offset, stored.physical_offset + stored.size_bytes
        for offset, body in enumerate(bodies, first):
            self.sent[queue_id, offset] = body
            self.ends[queue_id, offset] = end

    def check(self, store: MessageStore, lost_power: bool) -> None:
        served = {(queue_id, offset): body for queue_id in (0, 1) for offset, body in read(store, queue_id).items()}
        assert served.items() <= self.sent.items()
        assert self.acknowledged <= served.keys()
        if not lost_power:
            assert served == self.sent
        self.sent = served
        self.ends = {place: end for place, end in self.ends.items() if place in served}


async def check_lives(seed: int, flush: str, accidents: list[str]) -> None:
    chance, clock = random.Random(seed), VirtualClock()
    disk = SimDisk(random.Random(seed + 1), now_ms=clock.wall_ms)
    world = World(clock, TcpNetwork(), disk, random.Random(seed + 2))
    model = Model()
    config = partial(small_config, mapped_file_size_batch_consume_queue=4 * UNIT_BYTES)
    for accident in accidents:
        lost_power = accident in ("power", "cut")
        try:
            if accident == "cut":
                disk.syncs_left = chance.randint(0, 12)
            store = await MessageStore.open(world, config(flush_disk_type=flush), HOST, LIVING)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.run)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(chance.randint(1, 12)):
                    for _ in range(chance.randint(1, 4)):
                        model.send(store, chance)
                    if chance.random() < 0.5:
                        await store.wait_flushed(store.max_physical_offset, 5_000)
                    else:
                        await trio.sleep(chance.choice([0.1, 0.7, 3.0]))
                    flushed = store.flushed_offset
                    model.acknowledged.update(place for place, end in model.ends.items() if end <= flushed)
                nursery.cancel_scope.cancel()
            if accident == "close":
                await store.close()
        except* PowerCut:
            pass
        befall(disk, accident)
        reopened = await MessageStore.open(world, config(flush_disk_type=ASYNC_FLUSH), HOST, LIVING)
        model.check(reopened, lost_power)
        if chance.random() < 0.5:
            await reopened.close()
        else:
            disk.kill_process()


@pytest.mark.covers("R101")
@with_accidents
def test_acknowledged_batches_survive(seed: int, flush: str, accidents: list[str]) -> None:
    trio.run(partial(check_lives, seed, flush, accidents), clock=trio.testing.MockClock(autojump_threshold=0))


class Killed(Exception):
    """The process ends."""


class DyingView:
    """The view of the log of a process that ends before it has written so many pieces more."""

    def __init__(self, view: memoryview, pieces: int) -> None:
        self._view = view
        self._pieces = pieces

    def __setitem__(self, place: slice, content: bytes) -> None:
        if not self._pieces:
            raise Killed
        self._pieces -= 1
        self._view[place] = content


@pytest.mark.parametrize("pieces", range(7))
async def test_a_batch_is_there_as_a_whole_or_not_at_all_when_the_process_is_killed(
    pieces: int, autojump_clock: object
) -> None:
    world = simulated_world()
    store = await MessageStore.open(world, small_config(), HOST, LIVING)
    put(store, TOPIC, b"before")
    store._core.log.view = DyingView(store._core.log.view, pieces)  # type: ignore[assignment]
    bodies = [b"one", b"two", b"three"]
    with nullcontext() if pieces == 6 else pytest.raises(Killed):
        store.append_batch(TOPIC, 0, encode_batch([(0, body, b"") for body in bodies]), 1, PRODUCER)
    disk_of(world).kill_process()
    store = await MessageStore.open(world, small_config(), HOST, LIVING)
    assert ([b"before", *bodies] if pieces == 6 else [b"before"]) == list(read(store).values())
    assert put(store, TOPIC, b"after").queue_offset == store.max_queue_offset(TOPIC, 0) - 1
    assert b"after" == list(read(store).values())[-1]
    await store.close()


@pytest.mark.parametrize("batch", [False, True])
async def test_a_message_for_whose_unit_there_is_no_space_is_refused_before_it_is_written(
    batch: bool, autojump_clock: object
) -> None:
    world = simulated_world()
    disk = disk_of(world)
    async with running_store(world, small_config(mapped_file_size_batch_consume_queue=4 * UNIT_BYTES)) as store:
        store.declare_kinds([TOPIC])
        for _ in range(4):
            put(store, TOPIC, b"before")
        # given a full queue file, and no space for another one
        disk.used_bytes, end = disk.total_bytes, store.max_physical_offset
        with pytest.raises(PutRejected, match="the disk of /store is full"):
            if batch:
                store.append_batch(TOPIC, 0, encode_batch([(0, b"b", b"")] * 3), 1, PRODUCER)
            else:
                put(store, TOPIC, b"b")
        assert (end, 4) == (store.max_physical_offset, store.max_queue_offset(TOPIC, 0))
        disk.used_bytes = None
        assert 4 == put(store, TOPIC, b"after").queue_offset
        assert [b"before"] * 4 + [b"after"] == list(read(store).values())
