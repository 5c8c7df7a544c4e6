"""Delayed and timer messages, and check points, that were done before they were lost are not done again."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import TOPIC, Pair, open_filled_pair
from test_container_put_again_once import SERVING, back, copied, delayed

from understudy.broker.pop.evidence import what_is_open_in_steps
from understudy.broker.pop.revive_log import CheckPoint, read_entry
from understudy.format import names
from understudy.format.record import Record
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.producer import open_producer
from understudy.mqclient.subscription import subscription
from understudy.remoting.client import open_client
from understudy.runtime.pace import run_steps
from understudy.testkit.waiting import until

GROUP = "poppers"
RETRY = names.pop_retry_topic(GROUP, TOPIC)
BODY = b"D" * 900


def deferred(kind: str, key: str) -> str:
    return delayed(key, 1) if kind == "delayed" else f"UNIQ_KEY\x01{key}\x02TIMER_DELAY_SEC\x012\x02"


def delivered(pair: Pair) -> int:
    return [each.body for each in records(pair.master)].count(BODY)


async def lose(pair: Pair, hole: int, after: int) -> None:
    """Have the master serve without what it had from *hole* to *after*, which its slave has that is away."""
    await copied(pair)
    await pair.serve_without(hole, after)
    assert pair.master.store.hole == hole
    await trio.sleep(5)


async def deliver_and_lose(pair: Pair, kind: str) -> None:
    hole = pair.master.store.max_physical_offset
    assert await send_raw(pair, pair.master, BODY, deferred(kind, "k1")) == 0
    after = pair.master.store.max_physical_offset
    await pair.producer.send(Message(TOPIC, b"kept"))
    await until(lambda: delivered(pair) == 1, 20)
    await lose(pair, hole, after)


def test_a_timer_message_that_was_delivered_is_not_put_again_behind_what_took_its_place() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            await deliver_and_lose(pair, "timer")
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, b"new", deferred("timer", "k2")) == 0
            await trio.sleep(10)
            await pair.cluster.restart("c2")
            await back(pair)
            await trio.sleep(30)
            assert delivered(pair) == 1
            assert [each.body for each in records(pair.master, names.TIMER_TOPIC)] == [b"new"]

    run(scenario)


def points_of_pops(pair: Pair) -> list[Record]:
    topic = pair.master.pops.log.topic
    return [each for each in records(pair.master, topic) if each.properties.get("TAGS") == "ck"]


def test_a_check_point_whose_message_came_back_is_not_put_again_behind_what_took_its_place() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            # given a message that was popped, and came back, and then its check point is lost
            first, second = (await pair.producer.queues(TOPIC))[:2]
            wish = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g", invisible_ms=15_000, hold_ms=0)
            for _ in range(20):
                for each in await pop(pair.producer.session, wish):
                    await ack(pair.producer.session, each)
            await trio.sleep(60)
            await pair.producer.send(Message(TOPIC, BODY), queue=second)
            assert [each for _ in range(8) for each in await pop(pair.producer.session, wish)]
            await until(lambda: len(records(pair.master, RETRY)) == 1, 120)
            await pair.producer.send(Message(TOPIC, b"kept"), queue=first)
            await trio.sleep(20)
            lost = points_of_pops(pair)[-1]
            await lose(pair, lost.physical_offset, lost.physical_offset + lost.size_bytes)
            # when another one gets its place
            world = pair.cluster.client_world("later")
            async with open_client(world) as pair.client, open_producer(world, pair.cluster.name_servers, "w") as other:
                await other.queues(TOPIC)
                for number in range(16):
                    key = f"UNIQ_KEY\x01x{number}\x02"
                    assert await send_raw(pair, pair.master, b"x", key, queue_id=second.queue_id) == 0
                    for _ in range(4):
                        await pop(other.session, wish)
            await trio.sleep(60)
            queue = pair.master.pops.log.topic, lost.queue_id
            assert pair.master.store.max_queue_offset(*queue) > lost.queue_offset
            before = [each.body for each in records(pair.master, RETRY)].count(BODY)
            await pair.cluster.restart("c2")
            await back(pair)
            await trio.sleep(150)
            assert [each.body for each in records(pair.master, RETRY)].count(BODY) == before

    run(scenario)


def test_of_a_check_point_is_open_what_was_neither_acknowledged_nor_came_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING, enablePopBufferMerge="false") as pair:
            (queue,) = (await pair.producer.queues(TOPIC))[:1]
            wish = PopRequest(GROUP, subscription(TOPIC, "*", 3), "g", invisible_ms=30_000, hold_ms=0)
            for _ in range(20):
                for each in await pop(pair.producer.session, wish):
                    await ack(pair.producer.session, each)
            for number in range(3):
                await pair.producer.send(Message(TOPIC, b"%d" % number), queue=queue)
            popped = [each for _ in range(8) for each in await pop(pair.producer.session, wish)]
            offsets = [each.receipt.offset for each in popped]
            entries = [
                read_entry("ck", each.body, "g")
                for each in records(pair.master, names.TIMER_TOPIC)
                if each.properties.get("TAGS") == "ck"
            ]
            (point,) = [each for each in entries if isinstance(each, CheckPoint) and list(each.offsets) == offsets]

            def still_open() -> list[int]:
                topic = pair.master.pops.log.topic
                return run_steps(what_is_open_in_steps(pair.master.store, point, topic, RETRY, "g")).open_offsets

            assert still_open() == offsets
            await ack(pair.producer.session, popped[1])
            await trio.sleep(3)
            assert still_open() == [offsets[0], offsets[2]]
            await until(lambda: len(records(pair.master, RETRY)) == 2, 60)
            await trio.sleep(3)
            assert still_open() == []

    run(scenario)


@pytest.mark.parametrize("kind", ["delayed", "timer"])
def test_what_was_delivered_before_it_was_lost_at_the_end_of_its_queue_is_not_when_it_is_back(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **SERVING) as pair:
            await deliver_and_lose(pair, kind)
            await trio.sleep(10)
            await pair.cluster.restart("c2")
            await back(pair)
            await trio.sleep(30)
            assert delivered(pair) == 1
            # when others come then, they are delivered
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, b"new", deferred(kind, "k2")) == 0
            await until(lambda: [each.body for each in records(pair.master)].count(b"new") == 1, 20)
            assert delivered(pair) == 1

    run(scenario)


@pytest.mark.parametrize("acting", ["true", "false"])
def test_a_delayed_message_that_its_level_finds_rotten_comes_from_a_slave(acting: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster=acting) as pair:
            place = pair.master.store.max_physical_offset
            for number in range(2):
                assert await send_raw(pair, pair.master, b"%d" % number * 900, delayed(f"k{number}", 6)) == 0
            for _ in range(8):
                await pair.producer.send(Message(TOPIC, source.randbytes(12_000)))
            await copied(pair)
            # given damage that the start does not see
            await pair.cluster.stop("c1")
            start = place - place % (1 << 16)
            at, path = place - start + 300, f"/data/g-0/commitlog/{start:020d}"
            pair.cluster.host("c1").disk.damage(path, lambda data: data[:at] + b"rot" + data[at + 3 :])
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.hole is None

            def counts() -> list[int]:
                bodies = [each.body for each in records(pair.master)]
                return [bodies.count(b"%d" % number * 900) for number in range(2)]

            await until(lambda: counts() == [1, 1], 200)
            assert pair.master.store.hole is None
            await trio.sleep(60)
            assert counts() == [1, 1]

    run(scenario)
