"""Requests and their replies, batches cut by size, and what a send tells of tracing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake
from mqclient_rig import FIRST, TOPIC

from understudy.mqclient.errors import (
    InvalidMessageError,
    NoReplyError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.outgoing import Outgoing
from understudy.mqclient.producer import Producer, ProducerOptions, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.replies import ARRIVE_TIME, CORRELATION_ID, REPLY_TO_CLIENT, TTL, pushed_message
from understudy.mqclient.sending import BatchesFailedError
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster

OPTIONS = PushConsumerOptions(consume_from=FIRST)


# --- request and reply -------------------------------------------------------------------------------------------


async def test_a_request_gets_the_reply_of_a_consumer(cluster: LocalCluster, producer: Producer, world: World) -> None:
    asked: list[ReceivedMessage] = []

    async def answer(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for each in messages:
            asked.append(each)
            await answering.reply(each, b"reply to " + each.body)

    async with (
        open_producer(world, cluster.namesrv_address, "answering") as answering,
        open_push_consumer(world, cluster.namesrv_address, "answering", {TOPIC: "*"}, answer, OPTIONS),
    ):
        replies: dict[int, ReceivedMessage] = {}

        async def ask(number: int) -> None:
            replies[number] = await producer.request(message(TOPIC, b"%d" % number), timeout_ms=20_000)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(ask, number)
    assert {number: reply.body for number, reply in replies.items()} == {
        number: b"reply to %d" % number for number in range(8)
    }
    first = asked[0].properties
    assert (first[TTL], first[REPLY_TO_CLIENT]) == ("20000", producer.session.client_id)
    assert replies[0].properties["MSG_TYPE"] == "reply"
    assert replies[0].topic == "DefaultCluster_REPLY_TOPIC"
    assert replies[0].properties[ARRIVE_TIME]


async def test_a_request_that_nobody_answers_says_that_it_was_stored(producer: Producer) -> None:
    with pytest.raises(NoReplyError, match=f"nobody replied to the request for {TOPIC} within 2000 ms"):
        await producer.request(message(TOPIC, b"x"), timeout_ms=2_000)  # (the send alone may take a part of it)


async def test_a_request_that_no_broker_takes_says_that_it_was_not_sent(
    cluster: LocalCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer.delivery, "send", never)
    with pytest.raises(SendFailedError, match=f"request for {TOPIC} not sent: no answer within 50 ms"):
        await producer.request(message(TOPIC, b"x"), timeout_ms=50)
    monkeypatch.undo()
    await cluster.container.remove_broker(cluster.container.brokers()[0].identity)
    with pytest.raises(RouteNotFoundError):
        await producer.request(message("Other", b"x"), timeout_ms=20_000)


async def test_a_request_finds_its_way_beside_a_silent_broker(world: World) -> None:
    silent, alive = FakeBroker("silent"), FakeBroker("alive")
    silent.answers[RequestCode.HEART_BEAT] = lambda _: None
    async with (
        open_fake(silent, alive, topics=("T", "Old")) as cluster,
        open_producer(world, cluster.name_server, "pg") as producer,
    ):
        await producer.queues("Old")
        with pytest.raises(NoReplyError):  # it was sent and stored, and the fake passes nothing on
            await producer.request(message("T", b"x"), timeout_ms=1_500)
        cluster.brokers.remove(silent)
        await producer.session.fresh_route("T")
        with trio.fail_after(2):  # an answer is waited for 3 s
            await producer.session.greet("T")


async def never(*_: object, **__: object) -> None:
    await trio.sleep_forever()


async def test_only_a_request_can_be_replied_to(producer: Producer) -> None:
    received = pushed_message(PUSHED, 1)
    del received.properties[CORRELATION_ID]
    with pytest.raises(InvalidMessageError, match="asks for no reply: it has no property CORRELATION_ID"):
        await producer.reply(received, b"x")


PUSHED = request(
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    {
        "producerGroup": "g",
        "topic": "DefaultCluster_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "5",
        "flag": "7",
        "properties": f"{CORRELATION_ID}\x01c1\x02CLUSTER\x01DefaultCluster\x02{REPLY_TO_CLIENT}\x01me\x02",
        "bornHost": "/10.0.0.1:4711",
        "storeHost": "/10.0.0.2:10911",
        "storeTimestamp": "6",
    },
    b"the reply",
)


def test_a_pushed_reply_is_read_as_java_brokers_write_it() -> None:
    reply = pushed_message(PUSHED, 8)
    assert (reply.body, reply.flag, reply.born_host, reply.store_host) == (
        b"the reply", 7, "10.0.0.1:4711", "10.0.0.2:10911",
    )  # fmt: skip
    assert (reply.properties[CORRELATION_ID], reply.properties[ARRIVE_TIME]) == ("c1", "8")


# --- batches -----------------------------------------------------------------------------------------------------


async def test_many_messages_go_in_as_few_batches_as_their_size_allows(producer: Producer) -> None:
    wanted = [message(TOPIC, b"x" * 300_000, keys=f"k{number}") for number in range(40)]
    results = await producer.send_batches(wanted)
    ids = [each for result in results for each in result.message_id.split(",")]
    assert ids == [each.message_id for each in wanted]
    assert [result.message_id.count(",") + 1 for result in results] == [13, 13, 13, 1]  # four million bytes each


async def test_a_batch_that_fails_says_what_was_stored_before_it(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, sent = producer.send_batch, 0

    async def fail_third(*args: object, **kwargs: object) -> object:
        nonlocal sent
        sent += 1
        if sent == 3:
            raise SendFailedError("no broker")
        return await send(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(producer, "send_batch", fail_third)
    with pytest.raises(BatchesFailedError, match="batch 3 failed after 2 were stored: no broker") as failed:
        await producer.send_batches([message(TOPIC, b"x" * 3_000_000) for _ in range(5)])
    assert len(failed.value.results) == 2


async def test_a_message_that_fits_no_batch_is_named_before_anything_is_sent(producer: Producer) -> None:
    with pytest.raises(InvalidMessageError, match="message 1 of the batch takes 5000"):
        await producer.send_batches([message(TOPIC, b"x"), message(TOPIC, b"x" * 5_000_000)])
    with pytest.raises(InvalidMessageError, match="send_batches cuts it"):
        await producer.send_batch([message(TOPIC, b"x" * 3_000_000)] * 2)


async def test_properties_that_fit_no_record_are_found_before_anything_is_sent(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "send_batch", never)
    wanted = [message(TOPIC, b"x" * 3_000_000), message(TOPIC, b"x" * 3_000_000)]
    wanted[1].properties["long"] = "y" * 40_000
    with pytest.raises(InvalidMessageError, match=r"the properties take \d+ bytes"), trio.fail_after(5):
        await producer.send_batches(wanted)


async def test_ids_of_a_long_batch_differ(producer: Producer) -> None:
    outgoing: Outgoing = producer.outgoing
    wanted = [message(TOPIC, b"x") for _ in range(70_000)]
    outgoing.split(wanted, 1_000_000_000_000)
    assert len({each.message_id for each in wanted}) == len(wanted)


# --- tracing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["true", "false"])
async def test_a_send_tells_whether_its_broker_wants_traces(world: World, on: str) -> None:
    async with (
        LocalCluster(broker_config={"traceOn": on, "regionId": "north"}) as cluster,
        open_producer(world, cluster.namesrv_address, "pg", ProducerOptions()) as producer,
    ):
        result = await producer.send(message("Traced", b"x"))
        assert (result.trace_on, result.region_id) == (on == "true", "north")
