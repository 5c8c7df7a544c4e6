"""Deferred messages that rot before they are due are got from a slave, wherever in a batch they stand."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import FILE_BYTES, KEYS, TOPIC, Pair, open_filled_pair
from test_container_put_again_once import copied, delayed, half, open_pair_beside_h

from understudy.broker.broker import Broker
from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.waiting import until

COUNT = 8
BODY = b"D" * 900
KEYS_OF_HALVES = {f"k{number}" for number in range(COUNT)}


KINDS = {"delayed": lambda key: delayed(key, 6), "timer": lambda key: f"UNIQ_KEY\x01{key}\x02TIMER_DELAY_SEC\x0190\x02"}

WAIT_SECONDS = {"delayed": 120, "timer": 90}


def rot(pair: Pair, host: str, store: str, place: int, within: int = 300) -> None:
    """Have three bytes of the body of the message at *place* rot on the disk of *host*, *within* bytes behind it."""
    start = place - place % FILE_BYTES
    at, path = place - start + within, f"/data/{store}/commitlog/{start:020d}"
    pair.cluster.host(host).disk.damage(path, lambda data: data[:at] + b"rot" + data[at + 3 :])


async def send_deferred(pair: Pair, kind: str, source: random.Random) -> list[int]:
    """Send :data:`COUNT` messages that wait, and others behind them; return where each of the first ones lies."""
    places = []
    for number in range(COUNT):
        places.append(pair.master.store.max_physical_offset)
        assert await send_raw(pair, pair.master, b"%d" % number * 900, KINDS[kind](f"k{number}")) == 0
    for _ in range(8):
        await pair.producer.send(Message(TOPIC, source.randbytes(12_000)))
    await copied(pair)
    return places


def counts(*brokers: Broker) -> list[int]:
    bodies = [each.body for broker in brokers for each in records(broker)]
    return [bodies.count(b"%d" % number * 900) for number in range(COUNT)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("acting", ["true", "false"])
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("rotten", [(0,), (3,), (3, 4), (0, 2, 4)], ids=str)
def test_deferred_messages_that_rot_in_a_batch_come_from_a_slave(
    rotten: tuple[int, ...], runs: bool, acting: str, kind: str
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster=acting) as pair:
            places = await send_deferred(pair, kind, source)
            if not runs:
                await pair.cluster.stop("c1")
            for each in rotten:
                rot(pair, "c1", "g-0", places[each])
            if not runs:
                await pair.cluster.restart("c1")
                await pair.online()
            await trio.sleep(240)
            await until(lambda: pair.master.store.hole is None, 60)
            assert counts(pair.master) == [1] * COUNT

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rotten", [(0, 2, 5), (0, 1, 2, 3, 4, 5, 6)], ids=str)
def test_damage_that_nobody_can_mend_holds_up_the_others_for_a_moment_only(rotten: tuple[int, ...], kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false") as pair:
            began = trio.current_time()
            places = await send_deferred(pair, kind, source)
            await pair.cluster.kill("c2")
            for each in rotten:
                rot(pair, "c1", "g-0", places[each])
            others = [int(each not in rotten) for each in range(COUNT)]
            await until(lambda: counts(pair.master) == others, 200)
            assert trio.current_time() - began < WAIT_SECONDS[kind] + 9
            assert pair.master.store.hole == places[0]

    run(scenario)


async def send_halves(pair: Pair, source: random.Random) -> list[int]:
    """Send :data:`COUNT` half messages, and others behind them; return where each of the first ones lies."""
    places = []
    for number in range(COUNT):
        places.append(pair.master.store.max_physical_offset)
        born_ms, text = str(pair.master.world.clock.wall_ms()), half(f"k{number}")
        fields = ("writers", TOPIC, "TBW102", "4", "0", "4", born_ms, "0", text, "0", "false", "false")
        body = b"%d" % number * 900
        sent = request(RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghijkm", fields, strict=True)), body)
        assert (await pair.client.invoke(pair.master.identity.address, sent, 10_000)).code == 0
    for _ in range(8):
        await pair.producer.send(Message(TOPIC, source.randbytes(12_000)))
    await copied(pair)
    return places


def left_to_check(pair: Pair) -> set[str]:
    done = pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0)
    found = [each for each in records(pair.master, names.HALF_TOPIC) if each.queue_offset >= done]
    return {each.properties["UNIQ_KEY"] for each in found}


@pytest.mark.parametrize("rotten", [(0,), (3,), (3, 4), (0, 2, 4)], ids=str)
def test_half_messages_that_rot_among_others_are_checked_when_a_slave_has_given_them(rotten: tuple[int, ...]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, transactionCheckInterval="60000") as pair:
            places = await send_halves(pair, source)
            for each in rotten:
                rot(pair, "c1", "g-0", places[each])
            await trio.sleep(200)
            assert pair.master.store.hole is None
            assert pair.master.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) >= COUNT
            assert left_to_check(pair) == KEYS_OF_HALVES

    run(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deferred_message_that_the_slave_that_acts_finds_rotten_is_left_to_its_master(kind: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair_beside_h(source) as pair:
            cluster = pair.cluster
            places = await send_deferred(pair, kind, source)
            # given a slave on whose disk one rots before it acts
            await cluster.stop("c2")
            rot(pair, "c2", "g-1", places[3])
            await cluster.restart("c2")
            await trio.sleep(10)
            assert pair.slave.store.hole is None
            await cluster.kill("c1")
            await trio.sleep(150)
            other = cluster.brokers("c2")["h"]
            await cluster.restart("c1")
            await pair.online()
            await trio.sleep(150)
            assert counts(pair.master, other) == [1] * COUNT

    run(scenario)


def test_a_half_message_that_the_slave_that_acts_finds_rotten_is_left_to_its_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KEYS, "transactionCheckInterval", "600000")

    async def scenario(source: random.Random) -> None:
        async with open_pair_beside_h(source) as pair:
            places = await send_halves(pair, source)
            await pair.cluster.stop("c2")
            rot(pair, "c2", "g-1", places[0])
            await pair.cluster.restart("c2")
            await trio.sleep(10)
            pair.cluster.host("c2").disk.sync_seconds = 2.0  # so that it takes a while to note what is found
            await pair.cluster.kill("c1")
            await trio.sleep(150)
            other = pair.cluster.brokers("c2")["h"]
            await pair.cluster.restart("c1")
            await pair.online()
            await trio.sleep(5)
            escaped = {each.properties["UNIQ_KEY"] for each in records(other, names.HALF_TOPIC)}
            assert left_to_check(pair) | escaped == KEYS_OF_HALVES

    run(scenario)


def test_a_popped_message_that_rots_comes_back_when_a_slave_has_given_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            (queue,) = (await pair.producer.queues(TOPIC))[:1]
            wish = PopRequest("poppers", subscription(TOPIC, "*", 1), "g", invisible_ms=30_000, hold_ms=0)
            for _ in range(20):
                for each in await pop(pair.producer.session, wish):
                    await ack(pair.producer.session, each)
            place = pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, BODY), queue=queue)
            await copied(pair)
            # given a message that was popped, and rots then
            assert [each for _ in range(8) for each in await pop(pair.producer.session, wish)]
            rot(pair, "c1", "g-0", place)
            retry = names.pop_retry_topic("poppers", TOPIC)
            await until(lambda: [each.body for each in records(pair.master, retry)] == [BODY], 200)
            assert pair.master.store.hole is None

    run(scenario)


def test_a_check_point_that_the_slave_that_acts_finds_rotten_is_left_to_its_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair_beside_h(source) as pair:
            cluster, log_topic = pair.cluster, pair.master.pops.log.topic
            queue = next(each for each in await pair.producer.queues(TOPIC) if each.broker_name == "g")
            wish = PopRequest("poppers", subscription(TOPIC, "*", 1), "g", invisible_ms=30_000, hold_ms=0)
            done = len(records(pair.master, log_topic))
            await pair.producer.send(Message(TOPIC, BODY), queue=queue)
            assert [each for _ in range(8) for each in await pop(pair.producer.session, wish)]
            # given the check point of a popped message that rots at the slave before it acts
            await until(lambda: len(records(pair.slave, log_topic)) > done, 60, 0.05)
            place = records(pair.slave, log_topic)[-1].physical_offset
            await cluster.kill("c1")
            await cluster.stop("c2")
            rot(pair, "c2", "g-1", place, 100)
            await cluster.restart("c2")
            await trio.sleep(120)
            assert pair.slave.store.hole == place
            # then its master brings the message back
            await cluster.restart("c1")
            await pair.online()
            await trio.sleep(60)
            retry, other = names.pop_retry_topic("poppers", TOPIC), cluster.brokers("c2")["h"]
            assert [each.body for broker in (pair.master, other) for each in records(broker, retry)] == [BODY]

    run(scenario)
