"""What producers send, and what they do when brokers refuse, stall or are gone."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake, stored

from understudy.format.properties import parse_properties
from understudy.mqclient.errors import (
    BrokerError,
    InvalidMessageError,
    NotConnectedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.message import message
from understudy.mqclient.producer import ProducerOptions, SendStatus, open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import open_session
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.runtime.world import real_world

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data/mqclient/recorded.json").read_text())


def refuse(code: int, remark: str = "no") -> Any:
    return lambda command: response(command, code, remark)


@pytest.mark.parametrize("recorded", RECORDED["sends"])
async def test_a_send_has_the_fields_of_the_real_client(recorded: dict[str, Any]) -> None:
    # Given a message as the real client sent it
    header = recorded["header"]
    properties = parse_properties(header["i"])
    broker = FakeBroker("broker-a")
    async with (
        open_fake(broker, topics=(header["b"],)) as cluster,
        open_producer(real_world(), cluster.name_server, header["a"]) as producer,
    ):
        # When ours sends it to the same queue
        wanted = message(header["b"], recorded["body"].encode(), properties=properties, flag=int(header["h"]))
        wanted.properties["WAIT"] = properties["WAIT"]
        queue = MessageQueue(header["b"], "broker-a", int(header["e"]))
        result = await producer.send(wanted, queue=queue)
    # Then header and body are the same, but for the time and the order of properties
    sent = dict(broker.sends[0].ext or {})
    assert parse_properties(sent.pop("i")) == properties
    assert {**sent, "g": header["g"]} == {name: text for name, text in header.items() if name != "i"}
    assert broker.sends[0].body == recorded["body"].encode()
    assert (result.status, result.queue, result.queue_offset) == (SendStatus.OK, queue, 9)
    assert result.message_id == properties["UNIQ_KEY"]


async def test_long_bodies_are_compressed() -> None:
    broker = FakeBroker("a")
    body = b"long " * 2000
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.send(message("T", body))
        await producer.send(message("T", b"short"))
    long, short = broker.sends
    assert ((long.ext or {})["f"], zlib.decompress(long.body)) == ("769", body)
    assert ((short.ext or {})["f"], short.body) == ("0", b"short")


async def test_batches_travel_as_one_request() -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        result = await producer.send_batch([message("T", b"one"), message("T", b"two")])
    (sent,) = broker.sends
    assert (sent.code, (sent.ext or {})["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")
    assert b"one" in sent.body and b"two" in sent.body
    assert len(result.message_id.split(",")) == 2


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "empty"),
        ([message("T", b"x"), message("U", b"x")], "one topic"),
        ([message("T", b"x", delay_level=1)], "neither be delayed"),
        ([message("T", b"x"), message("T", b"x", wait_stored=False)], "must agree"),
        ([message("T", b"")], "at least one byte"),
    ],
)
async def test_illegal_batches_are_refused_before_sending(messages: list[Any], why: str) -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with pytest.raises(InvalidMessageError, match=why):
            await producer.send_batch(messages)
    assert broker.sends == []


@pytest.mark.parametrize(
    ("topic", "body", "why"),
    [("bad topic", b"x", "illegal"), ("T", b"", "at least one byte"), ("T", b"x" * 5000, "4096 are allowed")],
)
async def test_illegal_messages_are_refused_before_sending(topic: str, body: bytes, why: str) -> None:
    broker = FakeBroker("a")
    options = ProducerOptions(max_message_bytes=4096)
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "p", options) as producer:
        with pytest.raises(InvalidMessageError, match=why):
            await producer.send(message(topic, body))
    assert broker.sends == []


async def test_oneway_sends_ask_for_no_answer() -> None:
    arrived = trio.Event()

    def note(command: Command) -> Command:
        arrived.set()
        return stored(command)

    broker = FakeBroker("a", note)
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.send_oneway(message("T", b"x"))
        with trio.fail_after(30):
            await arrived.wait()
    assert broker.sends[0].flag & ONEWAY_BIT


async def test_the_selector_chooses_the_queue() -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        result = await producer.send(message("T", b"x"), select=lambda queues, wanted: queues[5])
        with pytest.raises(InvalidMessageError, match="no queue of topic"):
            await producer.send(message("T", b"x"), select=lambda queues, wanted: MessageQueue("T", "a", 99))
    assert (result.queue.queue_id, (broker.sends[0].ext or {})["e"]) == (5, "5")


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17])
async def test_another_broker_takes_what_one_refuses(code: int) -> None:
    refusing, willing = FakeBroker("a", refuse(code)), FakeBroker("b")
    async with (
        open_fake(refusing, willing) as cluster,
        open_producer(real_world(), cluster.name_server, "pg") as producer,
    ):
        results = [await producer.send(message("T", b"x")) for _ in range(6)]
    # Every send succeeds, and after its first refusal the broker is left alone.
    assert {result.queue.broker_name for result in results} == {"b"}
    assert len(refusing.sends) <= 1


async def test_an_illegal_message_is_not_tried_elsewhere() -> None:
    brokers = FakeBroker("a", refuse(13, "too large")), FakeBroker("b", refuse(13, "too large"))
    async with open_fake(*brokers) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with pytest.raises(BrokerError, match="answered 13: too large"):
            await producer.send(message("T", b"x"))
    assert sum(len(broker.sends) for broker in brokers) == 1


async def test_attempts_are_bounded() -> None:
    brokers = FakeBroker("a", refuse(2)), FakeBroker("b", refuse(2))
    async with open_fake(*brokers) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with pytest.raises(SendFailedError, match="answered 2: no") as caught:
            await producer.send(message("T", b"x"))
    assert isinstance(caught.value.__cause__, BrokerError)
    assert sum(len(broker.sends) for broker in brokers) == 3


async def test_a_given_queue_is_tried_once() -> None:
    brokers = FakeBroker("a", refuse(2)), FakeBroker("b")
    async with open_fake(*brokers) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with pytest.raises(BrokerError, match="answered 2"):
            await producer.send(message("T", b"x"), queue=MessageQueue("T", "a", 0))
    assert [len(broker.sends) for broker in brokers] == [1, 0]


async def test_silence_ends_with_the_timeout() -> None:
    broker = FakeBroker("a", lambda command: None)
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with trio.fail_after(30), pytest.raises(SendFailedError, match="no answer"):
            await producer.send(message("T", b"x"), timeout_ms=150)


async def test_a_broker_that_is_gone_is_replaced() -> None:
    gone, alive = FakeBroker("a"), FakeBroker("b")
    async with open_fake(gone, alive) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        gone.address = "127.0.0.1:1"
        results = [await producer.send(message("T", b"x")) for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"b"}


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE), (12, SendStatus.FLUSH_SLAVE_TIMEOUT)],
)
@pytest.mark.parametrize("again", [False, True])
async def test_stored_but_not_as_asked(code: int, status: SendStatus, again: bool) -> None:
    def weak(command: Command) -> Command:
        answer = stored(command)
        answer.code = code
        return answer

    weak_broker, good = FakeBroker("a", weak), FakeBroker("b", weak)
    options = ProducerOptions(retry_when_not_ok=again)
    async with (
        open_fake(weak_broker, good) as cluster,
        open_producer(real_world(), cluster.name_server, "pg", options) as producer,
    ):
        result = await producer.send(message("T", b"x"))
    assert result.status is status
    assert len(weak_broker.sends) + len(good.sends) == (3 if again else 1)


async def test_a_missing_topic_is_created_like_the_template() -> None:
    broker = FakeBroker("a")
    async with (
        open_fake(broker, topics=("TBW102",)) as cluster,
        open_producer(real_world(), cluster.name_server, "pg") as producer,
    ):
        queues = await producer.queues("New")
        result = await producer.send(message("New", b"x"))
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
    assert (result.queue.topic, (broker.sends[0].ext or {})["c"]) == ("New", "TBW102")


async def test_a_missing_topic_without_template_says_so() -> None:
    async with (
        open_fake(FakeBroker("a"), topics=()) as cluster,
        open_producer(real_world(), cluster.name_server, "pg") as producer,
    ):
        with pytest.raises(RouteNotFoundError, match="no broker has the topic New"):
            await producer.send(message("New", b"x"))


async def test_no_name_server_says_so() -> None:
    async with open_producer(real_world(), "127.0.0.1:1", "pg") as producer:
        with pytest.raises(NotConnectedError, match="no name server answers"):
            await producer.send(message("T", b"x"))


async def test_brokers_hear_of_the_producer_and_of_its_end() -> None:

    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.send(message("T", b"x"))
        with trio.fail_after(30):
            while not any(command.code == RequestCode.HEART_BEAT for command in broker.requests):
                await trio.lowlevel.checkpoint()
    heartbeat = next(command for command in broker.requests if command.code == RequestCode.HEART_BEAT)
    body = json.loads(heartbeat.body)
    assert (body["producerDataSet"], body["consumerDataSet"]) == ([{"groupName": "pg"}], [])
    goodbye = broker.requests[-1]
    assert (goodbye.code, (goodbye.ext or {})["producerGroup"]) == (RequestCode.UNREGISTER_CLIENT, "pg")
    assert (goodbye.ext or {})["clientID"] == body["clientID"]


async def test_errors_of_the_block_leave_as_themselves() -> None:
    async with open_fake(FakeBroker("a")) as cluster:
        with pytest.raises(ZeroDivisionError):
            async with open_producer(real_world(), cluster.name_server, "pg"):
                raise ZeroDivisionError


async def test_a_client_that_asks_for_ever_new_topics_forgets_the_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.mqclient.session._TOPICS_MAX", 3)
    async with open_fake() as cluster, open_session(real_world(), cluster.name_server) as session:
        for number in range(10):
            with pytest.raises(RouteNotFoundError):
                await session.route(f"Missing{number}")
            assert max(len(session._asked_at), len(session._missing)) <= 3
