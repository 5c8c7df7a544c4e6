"""Half messages of a group that lost its master: each is decided once, wherever it has gone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from container_ring import TOPIC, Ring, delivered, open_ring, records, run

from understudy.broker.broker import Broker
from understudy.format import names
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.sending import SendResult
from understudy.mqclient.transactions import TransactionProducer, TransactionState
from understudy.testkit.waiting import until

# A producer greets a master that has come back within 30 s; by default that is one check of fifteen.
KEYS = {"transactionCheckInterval": "2000", "transactionTimeOut": "3000", "transactionCheckMax": "1000"}
COUNT = 24
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Books:
    """A producer that remembers what it decided, and is asked about it."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.states: dict[str, TransactionState] = {}
        self.halves: dict[str, tuple[Message, SendResult]] = {}
        self.checks: Counter[str] = Counter()
        self.producer = TransactionProducer(ring.producer, self.check)

    async def check(self, half: ReceivedMessage) -> TransactionState:
        key = half.properties["UNIQ_KEY"]
        self.checks[key] += 1
        return self.states.get(key, UNKNOWN)

    async def prepare(self, count: int = COUNT) -> None:
        for number in range(count):
            message = Message(TOPIC, b"%d" % number, {})
            sent = await self.producer.prepare(message)
            self.halves[sent.message_id] = message, sent

    def decide_half_of_them(self) -> None:
        """Remember commits and rollbacks, in turn; tell nobody."""
        self.states = {key: (COMMIT, ROLLBACK)[number % 2] for number, key in enumerate(self.halves)}

    def committed(self) -> dict[str, int]:
        return {key: 1 for key, state in self.states.items() if state is COMMIT}

    async def all_committed(self, seconds: float = 60) -> None:
        await until(lambda: delivered(self.ring).keys() >= self.committed().keys(), seconds)


@asynccontextmanager
async def halves_of_a_ring(source: random.Random, extra: dict[str, str] | None = None) -> AsyncIterator[Books]:
    async with open_ring(source, KEYS | (extra or {})) as ring:
        books = Books(ring)
        await books.prepare()
        await trio.sleep(1.5)  # slaves have them, and know how far they are done
        yield books


async def without_a_master_beside(ring: Ring) -> None:
    """Take the master out of the container of the slave that will act, so that what escapes goes elsewhere."""
    beside = ring.cluster.host("c2").container
    assert beside is not None
    assert await beside.remove_broker(next(each.identity for each in beside.brokers() if each.is_master))


def play(scenario: Callable[[Books], Awaitable[None]], seed: int = 1, extra: dict[str, str] | None = None) -> None:
    async def run_it(source: random.Random) -> None:
        async with halves_of_a_ring(source, extra) as books:
            await scenario(books)

    run(run_it, seed)


@pytest.mark.covers("CT-22", "R18", "R46")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
def test_each_is_checked_where_it_went_and_delivered_once(elsewhere: bool) -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        if elsewhere:
            await without_a_master_beside(ring)
        # when the master dies and its producer knows by then what it decided
        await ring.cluster.kill("c1")
        books.decide_half_of_them()
        await books.all_committed()
        # and when the master comes back
        await ring.cluster.restart("c1")
        await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
        await trio.sleep(15)
        # then what was committed is there once, and nothing else
        assert delivered(ring) == books.committed()
        checks = books.checks.total()
        await trio.sleep(15)
        assert books.checks.total() == checks, "nothing is open any more"

    play(scenario)


@pytest.mark.covers("R9", "R15")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
def test_a_producer_may_decide_at_the_slave_that_acts(elsewhere: bool) -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        if elsewhere:
            await without_a_master_beside(ring)
        await ring.cluster.kill("c1")
        slave = ring.broker("g0", 1)
        await until(lambda: "transactions" in slave.services.running(), 30)
        await ring.producer.session.renew_route(TOPIC)
        # when the producer decides twice, and the second time otherwise, without having been asked
        books.decide_half_of_them()
        wrong = {COMMIT: ROLLBACK, ROLLBACK: COMMIT}
        of_group = [key for key, (_, sent) in books.halves.items() if sent.queue.broker_name == "g0"]
        assert len(of_group) > 3
        for key in of_group:
            message, sent = books.halves[key]
            assert (await books.producer.decide(message, sent, books.states[key])).told
            assert (await books.producer.decide(message, sent, wrong[books.states[key]])).told
        # then its first decisions are carried out at once
        assert delivered(ring).keys() >= books.committed().keys() & set(of_group)
        await books.all_committed()
        await ring.cluster.restart("c1")
        await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
        await trio.sleep(15)
        assert delivered(ring) == books.committed()

    play(scenario)


def test_what_the_master_gave_up_is_not_said_to_be_committed_by_the_slave_that_acts() -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        of_group = [key for key, (_, sent) in books.halves.items() if sent.queue.broker_name == "g0"]
        slave = ring.broker("g0", 1)
        await until(lambda: len(records(slave, names.CHECK_TIMES_TOPIC)) == len(of_group) > 3, 60)
        await trio.sleep(15)  # its progress is copied
        await ring.cluster.kill("c1")
        await until(lambda: "transactions" in slave.services.running(), 30)
        await ring.producer.session.renew_route(TOPIC)
        # when the producer decides after all
        rolled_back, *others = of_group
        message, sent = books.halves[rolled_back]
        assert (await books.producer.decide(message, sent, ROLLBACK)).told
        for key in others:
            message, sent = books.halves[key]
            assert not (await books.producer.decide(message, sent, COMMIT)).told
        # then its master takes it when it is back, and only that
        await ring.cluster.restart("c1")
        await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
        await trio.sleep(15)
        await ring.producer.session.renew_route(TOPIC)
        assert not delivered(ring).keys() & set(of_group)
        for key in others:
            message, sent = books.halves[key]
            assert (await books.producer.decide(message, sent, COMMIT)).told
        await trio.sleep(5)
        assert {key: number for key, number in delivered(ring).items() if key in of_group} == dict.fromkeys(others, 1)

    play(scenario, extra={"transactionCheckMax": "1"})


def test_what_the_master_had_decided_is_not_decided_again() -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        books.decide_half_of_them()
        # given decisions that no op message tells of yet
        for key, (message, sent) in books.halves.items():
            assert (await books.producer.decide(message, sent, books.states[key])).told
        await trio.sleep(0.5)
        await ring.cluster.kill("c1")
        await trio.sleep(40)
        assert books.checks.total() == 0
        await ring.cluster.restart("c1")
        await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
        await trio.sleep(15)
        assert delivered(ring) == books.committed()

    play(scenario)


def test_what_the_master_had_decided_is_known_to_a_slave_whose_clock_is_behind() -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        # given decisions that no op message tells of yet, all but the last one, and a slave with an older clock
        ring.cluster.jump("c2", -60_000)
        books.decide_half_of_them()
        of_group = [key for key, (_, sent) in books.halves.items() if sent.queue.broker_name == "g0"]
        for key in of_group[:-1]:
            message, sent = books.halves[key]
            assert (await books.producer.decide(message, sent, books.states[key])).told
        await trio.sleep(0.5)
        await ring.cluster.kill("c1")
        slave = ring.broker("g0", 1)
        await until(lambda: "transactions" in slave.services.running(), 30)
        await ring.producer.session.renew_route(TOPIC)
        # when that one is decided there, for which all before it must leave that are open
        message, sent = books.halves[of_group[-1]]
        assert (await books.producer.decide(message, sent, books.states[of_group[-1]])).told
        await trio.sleep(10)
        # then nothing comes twice
        came = delivered(ring) + Counter(record.properties["UNIQ_KEY"] for record in records(slave))
        wanted = books.committed().keys() & set(of_group)
        assert {key: count for key, count in came.items() if key in of_group} == dict.fromkeys(wanted, 1)

    play(scenario)


def known_only_by(slave: Broker, other: Broker) -> set[str]:
    """Return the half messages that *slave* has taken out, or is taking out, without *other* knowing."""
    told, done = (each.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) for each in (other, slave))
    return {each.properties["UNIQ_KEY"] for each in records(slave, HALF) if told <= each.queue_offset <= done}


@pytest.mark.covers("R46", "R70")
@pytest.mark.parametrize("seed", range(4))
def test_masters_and_slaves_may_die_and_return_at_any_moment(seed: int) -> None:
    async def scenario(books: Books) -> None:
        ring, draw = books.ring, random.Random(seed)
        # given a slave that takes half messages out, some to a slow master
        if seed % 2:
            await without_a_master_beside(ring)
            ring.cluster.host("c3").disk.sync_seconds = draw.choice((0.001, 0.2))
        await ring.cluster.kill("c1", power=draw.random() < 0.5)
        books.decide_half_of_them()
        slave = ring.broker("g0", 1)
        end = slave.store.max_queue_offset(HALF, 0)
        await until(lambda: slave.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) > draw.randrange(end), 60)
        # when in the middle of it one of them dies, is cut off, or stands still, and the master comes back
        accident = draw.choice(("kill", "freeze", "return"))
        alone: set[str] = set()
        if accident == "kill":
            alone = known_only_by(slave, ring.broker("g0", 2))
            await ring.cluster.kill("c2")
            await trio.sleep(draw.choice((0.1, 3.0)))
            await ring.cluster.restart("c2")
        elif accident == "freeze":
            ring.cluster.host("c2").clock.stop()
        await ring.cluster.restart("c1")
        await trio.sleep(20)
        if accident == "freeze":
            ring.cluster.host("c2").clock.go_on(counted=True)
        await until(lambda: not ring.broker("g0", 0).registration.isolated, 90)
        await books.all_committed(120)
        await trio.sleep(20)
        # then each committed one is there, and no other; twice only what nobody but the dead slave knew of
        found = delivered(ring)
        assert found.keys() == books.committed().keys()
        assert {key for key, number in found.items() if number > 1} <= alone

    play(scenario, seed + 10, {"flushDiskType": "SYNC_FLUSH"})


def test_a_half_message_that_comes_again_is_stored_once() -> None:
    async def scenario(books: Books) -> None:
        ring = books.ring
        await without_a_master_beside(ring)
        await ring.cluster.kill("c1")
        target = ring.broker("g2", 0)
        known = {each.properties["UNIQ_KEY"] for each in records(target, HALF)}
        slave = ring.broker("g0", 1)
        await until(lambda: "transactions" in slave.services.running(), 30)
        await until(lambda: slave.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) > 3, 30)
        # when the slave has forgotten how far it was
        slave.offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 0)
        await slave.services.stop("transactions")
        slave.session.look()
        await trio.sleep(10)
        # then the other master has each of them once, and the checks that it made
        escaped = [each for each in records(target, HALF) if "ESCAPED_FROM" in each.properties]
        first = Counter(
            each.properties["UNIQ_KEY"] for each in escaped if "TRANSACTION_CHECK_TIMES" not in each.properties
        )
        assert first and not first.keys() & known
        assert set(first.values()) == {1}

    play(scenario)
