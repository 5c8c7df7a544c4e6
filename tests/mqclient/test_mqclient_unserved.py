"""Topics that nobody serves, brokers that are gone, clients that are closed: each says so."""

from __future__ import annotations

from typing import Any

import pytest
from mqclient_fake import FakeBroker, open_fake

from understudy.mqclient import blocking
from understudy.mqclient.errors import (
    BrokerError,
    ClientError,
    InvalidOptionError,
    NotConnectedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumerOptions, open_pop_consumer
from understudy.mqclient.producer import open_producer
from understudy.mqclient.pull_consumer import open_pull_consumer
from understudy.mqclient.session import SessionOptions
from understudy.mqclient.transactions import TransactionState, open_transaction_producer
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.runtime.world import real_world
from understudy.testkit.blocking import local_cluster

NOBODY = "127.0.0.1:1"


async def commits(half: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


async def test_a_half_message_that_was_never_sent_goes_to_another_broker() -> None:
    gone, takes = FakeBroker("broker-a"), FakeBroker("broker-b")
    async with (
        open_fake(gone, takes) as fake,
        open_transaction_producer(real_world(), fake.name_server, "tg", commits) as opened,
    ):
        gone.address = NOBODY
        brokers = [(await opened.prepare(message("T", b"x"))).queue.broker_name for _ in range(4)]
        assert brokers == ["broker-b"] * 4
        assert (len(gone.sends), len(takes.sends)) == (0, 4)


class Drops(FakeBroker):
    """A broker that ends before it answers a send; heartbeats, which may come at any time, it answers."""

    def __call__(self, connection: Connection, command: Command) -> Command | None:
        if command.code != RequestCode.SEND_MESSAGE_V2:
            return super().__call__(connection, command)
        self.requests.append(command)
        connection.close("the broker ends")
        return None


async def test_a_half_message_that_left_goes_to_no_other_broker_when_its_connection_is_lost() -> None:
    drops = Drops("broker-a")
    async with (
        open_fake(drops) as fake,
        open_transaction_producer(real_world(), fake.name_server, "tg", commits) as opened,
    ):
        with pytest.raises(SendFailedError):
            await opened.prepare(message("T", b"x"))
        assert len(drops.sends) == 1


@pytest.mark.parametrize(
    ("broker_id", "permission", "says"),
    [
        (1, 6, "topic T takes no messages now: broker-a has no master at the moment; try again"),
        (0, 4, "topic T has no writable queue; check its permission, and whether a slave acts for its master"),
    ],
    ids=["no master", "not writable"],
)
async def test_a_topic_that_takes_nothing_says_why(broker_id: int, permission: int, says: str) -> None:
    broker = FakeBroker("broker-a", broker_id=broker_id, permission=permission)
    async with open_fake(broker) as fake, open_producer(real_world(), fake.name_server, "pg") as producer:
        with pytest.raises(RouteNotFoundError) as caught:
            await producer.send(message("T", b"x"))
        assert str(caught.value) == says


async def test_a_topic_that_gives_nothing_says_why() -> None:
    broker = FakeBroker("broker-a", permission=2)
    async with (
        open_fake(broker) as fake,
        open_pop_consumer(real_world(), fake.name_server, "pops", {"T": "*"}) as consumer,
    ):
        with pytest.raises(RouteNotFoundError, match="topic T has no readable queue; check its permission"):
            await consumer.pop("T")


async def test_the_pop_after_one_that_failed_goes_where_the_queues_are_by_then() -> None:
    moves = FakeBroker("broker-a")
    moves.answers[RequestCode.POP_MESSAGE] = lambda command: response(command, ResponseCode.POLLING_TIMEOUT)
    options = PopConsumerOptions(session=SessionOptions(route_retry_ms=0))
    async with open_fake(moves) as fake:
        there, moves.address = moves.address, NOBODY
        async with open_pop_consumer(real_world(), fake.name_server, "pops", {"T": "*"}, options) as consumer:
            assert await consumer.brokers("T") == ["broker-a"]
            moves.address = there
            with pytest.raises(NotConnectedError, match=NOBODY):
                await consumer.pop("T")
            assert await consumer.pop("T") == []


async def test_the_pop_after_one_that_was_refused_goes_to_the_master_that_is_back() -> None:
    acted, back = FakeBroker("broker-a"), FakeBroker("broker-a")
    acted.answers[RequestCode.POP_MESSAGE] = lambda command: response(command, ResponseCode.SYSTEM_BUSY, "acts no more")
    back.answers[RequestCode.POP_MESSAGE] = lambda command: response(command, ResponseCode.POLLING_TIMEOUT)
    options = PopConsumerOptions(session=SessionOptions(route_retry_ms=0))
    async with open_fake(acted, back) as fake:
        fake.brokers = [acted]
        async with open_pop_consumer(real_world(), fake.name_server, "pops", {"T": "*"}, options) as consumer:
            assert await consumer.brokers("T") == ["broker-a"]
            fake.brokers = [back]
            with pytest.raises(BrokerError, match="acts no more"):
                await consumer.pop("T")
            assert await consumer.pop("T") == []


async def test_a_subscription_that_names_no_topics_is_refused() -> None:
    wrong: Any = "T"
    async with (
        open_fake(FakeBroker("broker-a")) as fake,
        open_pull_consumer(real_world(), fake.name_server, "g") as one,
    ):
        with pytest.raises(InvalidOptionError, match=r"like .*'Orders': .*, not 'T'"):
            await one.subscribe(wrong)


async def test_a_client_whose_block_was_left_says_so() -> None:
    broker = FakeBroker("broker-a")
    async with open_fake(broker) as fake:
        async with open_producer(real_world(), fake.name_server, "pg") as producer:
            await producer.send(message("T", b"x"))
        with pytest.raises(ClientError, match="the client is closed: its block was left"):
            await producer.send(message("T", b"y"))
        assert len(broker.sends) == 1


def test_a_closed_blocking_client_says_so_while_others_are_open() -> None:
    with local_cluster() as cluster, blocking.open_producer(cluster.namesrv_address, "other") as other:
        with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
            producer.send(message("Closed", b"x"))
        with pytest.raises(ClientError, match="the client is closed: its block was left"):
            producer.send(message("Closed", b"y"))
        assert other.send(message("Closed", b"z")).queue.topic == "Closed"
