"""Transactions of our client: decided at once, by a check, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake
from mqclient_rig import FIRST, TOPIC, Basket, master

from understudy.format.properties import parse_properties
from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.errors import BrokerError, InvalidMessageError, InvalidOptionError, SendFailedError
from understudy.mqclient.listener import PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage, message
from understudy.mqclient.producer import ProducerOptions
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.sending import SendResult
from understudy.mqclient.transactions import TransactionProducer, TransactionState, open_transaction_producer
from understudy.remoting.command import response
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually, until

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
QUICK = {"transactionCheckInterval": "200", "transactionTimeOut": "100"}


class Books:
    """What an application remembers of its transactions."""

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self.checks: list[ReceivedMessage] = []

    async def check(self, half: ReceivedMessage) -> TransactionState:
        self.checks.append(half)
        if half.body == b"error":
            raise RuntimeError("books are closed")
        return self.states.get(half.body.decode(), UNKNOWN)


def decides(state: TransactionState) -> Any:
    async def execute(half: Message, sent: SendResult) -> TransactionState:
        return state

    return execute


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(broker_config=QUICK) as running:
        yield running


async def make_topic(opened: TransactionProducer) -> None:
    session = opened.producer.session
    await topics.save_topic(session, await master(opened.producer), TopicSettings(TOPIC, 4, 4))
    await eventually(lambda: topics.exists(session, TOPIC))


@pytest.mark.covers("CT-21", "TX-12")
async def test_exactly_what_is_committed_is_seen(cluster: LocalCluster) -> None:
    world, books, basket = real_world(), Books(), Basket()
    names = cluster.namesrv_address
    async with open_transaction_producer(world, names, "tg", books.check) as opened:
        await make_topic(opened)
        options = PushConsumerOptions(consume_from=FIRST)
        async with open_push_consumer(world, names, "cg", {TOPIC: "*"}, basket, options):
            # When transactions end in every way
            committed = await opened.send(message(TOPIC, b"at once", keys="k"), decides(COMMIT))
            rolled_back = await opened.send(message(TOPIC, b"never"), decides(ROLLBACK))
            for body in ("later", "error", "given up"):
                assert (await opened.send(message(TOPIC, body.encode()), decides(UNKNOWN))).told is False

            async def fails(half: Message, sent: SendResult) -> TransactionState:
                raise KeyError("my own")

            with pytest.raises(KeyError):
                await opened.send(message(TOPIC, b"failed"), fails)
            await until(lambda: {each.body for each in books.checks} >= {b"later", b"error", b"failed"})
            books.states |= {"later": COMMIT, "failed": ROLLBACK}
            await basket.wait(2)
            # Then
            assert (committed.told, rolled_back.told) == (True, True)
            assert sorted(basket.bodies) == ["at once", "later"]
            first = basket.got[0]
            assert (first.keys, first.properties["UNIQ_KEY"]) == ("k", committed.sent.message_id)
            count = len(books.checks)
            await until(lambda: len(books.checks) > count + 2)
            assert sorted(basket.bodies) == ["at once", "later"]
            assert {each.topic for each in books.checks} == {TOPIC}


async def test_what_cannot_be_a_transaction(cluster: LocalCluster) -> None:
    async with open_transaction_producer(real_world(), cluster.namesrv_address, "tg", Books().check) as opened:
        with pytest.raises(InvalidMessageError, match="cannot be delayed"):
            await opened.send(message(TOPIC, b"x", delay_level=1), decides(COMMIT))


async def test_a_half_message_goes_to_another_broker_only_when_one_refused_it() -> None:
    refuses, takes, silent = FakeBroker("broker-a"), FakeBroker("broker-b"), FakeBroker("broker-c")
    refuses.answer = lambda command: response(command, 14, "no")
    async with (
        open_fake(refuses, takes, topics=(TOPIC,)) as fake,
        open_transaction_producer(real_world(), fake.name_server, "tg", Books().check) as opened,
    ):
        for _ in range(4):
            sent = await opened.prepare(message(TOPIC, b"x"))
            assert sent.queue.broker_name == "broker-b"
        header = takes.sends[0].ext or {}
        assert header["f"] == "4"
        assert parse_properties(header["i"]).items() >= {"TRAN_MSG": "true", "PGROUP": "tg"}.items()
        takes.answer = refuses.answer
        with pytest.raises(BrokerError):
            await opened.prepare(message(TOPIC, b"x"))
    silent.answer = lambda command: None
    async with (
        open_fake(silent, topics=(TOPIC,)) as fake,
        open_transaction_producer(
            real_world(), fake.name_server, "tg", Books().check, ProducerOptions(send_timeout_ms=1_000)
        ) as opened,
    ):
        with pytest.raises(SendFailedError):
            await opened.prepare(message(TOPIC, b"x"))
        await trio.sleep(0.1)
        assert len(silent.sends) == 1


async def test_a_check_that_cannot_work_is_refused_before_anything_is_opened() -> None:
    async def takes_none() -> TransactionState:
        return COMMIT

    wrong: Any
    for wrong, says in ((lambda half: COMMIT, "async def"), (takes_none, "one argument"), (None, "cannot be called")):
        with pytest.raises(InvalidOptionError, match=f"the check .*{says}"):
            async with open_transaction_producer(real_world(), "127.0.0.1:1", "tg", wrong):
                pass


async def test_what_is_no_decision_decides_nothing(cluster: LocalCluster) -> None:
    world, basket, names = real_world(), Basket(), cluster.namesrv_address
    answers: list[Any] = [True, "COMMIT", None]

    async def check(half: ReceivedMessage) -> Any:
        return answers.pop() if answers else COMMIT

    async with open_transaction_producer(world, names, "tg", check) as opened:
        await make_topic(opened)
        with pytest.raises(InvalidOptionError, match="True"):
            await opened.send(message(TOPIC, b"asked"), decides(True))  # type: ignore[arg-type]  # the point of the test
        async with open_push_consumer(
            world, names, "cg", {TOPIC: "*"}, basket, PushConsumerOptions(consume_from=FIRST)
        ):
            await basket.wait(1)
    assert not answers and basket.bodies == ["asked"]
