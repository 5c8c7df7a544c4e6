"""Random work, then power loss or a killed process: acknowledged messages are there, damaged ones are not served."""

from __future__ import annotations

import random
from functools import partial

import attrs
import pytest
import trio
import trio.testing
from golden_stores import read_queue
from store_accidents import befall, with_accidents

from understudy.format.batch import encode_batch
from understudy.format.properties import format_properties
from understudy.format.record import decode_record, encode_host
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import ASYNC_FLUSH, StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import PowerCut, SimDisk

PRODUCER = encode_host("10.1.2.3", 40000)
HOST = ("127.0.0.1", 10911)


@attrs.define
class Model:
    """What producers know: every message they sent, by its place, and which of them are acknowledged."""

    sent: dict[tuple[str, int, int], tuple[bytes, str]] = attrs.field(factory=dict)
    ends: dict[tuple[str, int, int], int] = attrs.field(factory=dict)
    acknowledged: set[tuple[str, int, int]] = attrs.field(factory=set)
    number: int = 0


def config(flush: str) -> StoreConfig:
    return StoreConfig(
        folder="/store",
        mapped_file_size_commit_log=16_384,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=7,
        max_index_num=40,
        flush_disk_type=flush,
        memory_bytes=1 << 30,
        flush_commit_log_thorough_interval_ms=2_000,
    )


def send(store: MessageStore, model: Model, chance: random.Random) -> None:
    """Send one message or one batch."""
    topic, queue_id = chance.choice(["Orders", "Payments"]), chance.randrange(2)
    if chance.random() < 0.2:
        items = []
        for _ in range(chance.randint(1, 4)):
            body, properties = content(model, chance)
            items.append((0, body, properties))
        batch = store.append_batch(topic, queue_id, encode_batch(items), 1, PRODUCER)
        for index, (_, body, properties) in enumerate(items):
            place = (topic, queue_id, batch.first_queue_offset + index)
            model.sent[place] = (body, properties.decode())
            model.ends[place] = batch.end_offset
    else:
        body, properties = content(model, chance)
        appended = store.append(topic, queue_id, body, properties, 1, PRODUCER)
        place = (topic, queue_id, appended.queue_offset)
        model.sent[place] = (body, properties.decode())
        model.ends[place] = appended.physical_offset + appended.size_bytes


def content(model: Model, chance: random.Random) -> tuple[bytes, bytes]:
    model.number += 1
    body = chance.randbytes(chance.choice([0, 1, 30, 500, 2_500]))
    properties = format_properties({"UNIQ_KEY": f"key-{model.number}", "TAGS": chance.choice(["a", "bb"])})
    return body, properties.encode()


async def work(store: MessageStore, model: Model, chance: random.Random, steps: int) -> None:
    for _ in range(steps):
        for _ in range(chance.randint(1, 4)):
            send(store, model, chance)
        if chance.random() < 0.5:
            await store.wait_flushed(store.max_physical_offset, 5_000)
        elif chance.random() < 0.5:
            await trio.sleep(chance.choice([0.1, 0.7, 3.0]))
        for place, end in model.ends.items():
            if end <= store.flushed_offset:
                model.acknowledged.add(place)


def check(store: MessageStore, model: Model, lost_power: bool) -> None:
    """Compare what the store serves with what producers know; then only what it serves is known."""
    served: dict[tuple[str, int, int], tuple[bytes, str]] = {}
    for topic, queue_id in store.queues():
        previous = -1
        for raw in read_queue(store, topic, queue_id):
            record = decode_record(raw)
            assert (record.topic, record.queue_id) == (topic, queue_id)
            assert record.queue_offset > previous
            previous = record.queue_offset
            served[topic, queue_id, record.queue_offset] = (record.body, record.properties_text)
    for place, message in served.items():
        assert model.sent[place] == message
    assert model.acknowledged <= served.keys()
    if not lost_power:
        assert served == model.sent
    for (topic, queue_id, offset), (_, properties) in served.items():
        key = properties.split("\x01")[1].split("\x02")[0]
        found = [decode_record(record) for record in store.query(topic, key, 10, 0, 1 << 62).records]
        exact = [record for record in found if record.properties["UNIQ_KEY"] == key]
        assert [(record.queue_id, record.queue_offset) for record in exact] == [(queue_id, offset)]
    model.sent = served
    model.ends = {place: end for place, end in model.ends.items() if place in served}


async def check_lives(seed: int, flush: str, accidents: list[str]) -> None:
    chance = random.Random(seed)
    clock = VirtualClock()
    disk = SimDisk(random.Random(seed + 1), now_ms=clock.wall_ms)
    world = World(clock, TcpNetwork(), disk, random.Random(seed + 2))
    model = Model()
    for accident in accidents:
        lost_power = accident != "kill"
        try:
            if accident == "cut":
                disk.syncs_left = chance.randint(0, 12)
            store = await MessageStore.open(world, config(flush), HOST)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.run)
                await trio.testing.wait_all_tasks_blocked()
                await work(store, model, chance, chance.randint(1, 12))
                nursery.cancel_scope.cancel()
            if accident == "close":
                await store.close()
                lost_power = False
        except* PowerCut:
            pass
        befall(disk, accident)
        reopened = await MessageStore.open(world, config(ASYNC_FLUSH), HOST)
        check(reopened, model, lost_power)
        if chance.random() < 0.5:
            await reopened.close()
        else:
            disk.kill_process()


@pytest.mark.covers("R101")
@with_accidents
def test_acknowledged_messages_survive_and_damage_is_never_served(seed: int, flush: str, accidents: list[str]) -> None:
    trio.run(partial(check_lives, seed, flush, accidents), clock=trio.testing.MockClock(autojump_threshold=0))
