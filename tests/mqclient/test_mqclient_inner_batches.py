"""Batches that the broker stores as one record: a consumer gets their messages, one by one."""

from __future__ import annotations

from collections import Counter

import pytest
from mqclient_rig import FIRST, Basket, master

from understudy.format.batch import encode_batch
from understudy.format.properties import format_properties
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, encode_host, encode_record
from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.errors import RecordDamagedError
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer
from understudy.mqclient.pull import PullRequest, pull
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import decode_records
from understudy.mqclient.subscription import subscription
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually

TOPIC = "Batches"
INNER = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def make_topic(producer: Producer) -> str:
    address = await master(producer)
    attributes = {"+queue.type": "BatchCQ"}
    await topics.save_topic(producer.session, address, TopicSettings(TOPIC, 1, 1, attributes=attributes))
    await eventually(lambda: topics.exists(producer.session, TOPIC))
    return address


async def test_batches_are_consumed_message_by_message(cluster: LocalCluster, producer: Producer, world: World) -> None:
    address = await make_topic(producer)
    # when batches and a single message are sent
    sent = [message(TOPIC, b"m%d" % number, tag="even" if number % 2 == 0 else "odd") for number in range(6)]
    first = await producer.send_batch(sent[:3], queue=QUEUE)
    await producer.send(sent[3], queue=QUEUE)
    await producer.send_batch(sent[4:], queue=QUEUE)
    # then a batch is one record
    assert first.message_id.count(",") == 2
    assert first.offset_message_id.count(",") == 0
    # and a pull gives messages from where it begins on, with their own properties, tags and offsets
    wanted = PullRequest("cg", QUEUE, 1, subscription(TOPIC, "*", 0), hold_ms=0, send_subscription=True)
    got = (await pull(producer.session, address, wanted)).messages
    assert [(each.queue_offset, each.body.decode()) for each in got] == [
        (number, f"m{number}") for number in range(1, 6)
    ]
    assert [each.message_id for each in got] == [each.properties["UNIQ_KEY"] for each in sent[1:]]
    even = PullRequest("cg", QUEUE, 1, subscription(TOPIC, "even", 0), hold_ms=0, send_subscription=True)
    got = (await pull(producer.session, address, even)).messages
    assert [each.body for each in got] == [b"m2", b"m4"]

    # and a consumer that fails one of them gets that one again
    refused = Counter[bytes]()

    def verdict(got: ReceivedMessage, context: ConsumeContext) -> ConsumeResult | None:
        refused[got.body] += 1
        context.delay_level = 1
        return ConsumeResult.LATER if got.body == b"m1" and refused[b"m1"] == 1 else None

    basket = Basket(verdict)
    options = PushConsumerOptions(consume_from=FIRST, consume_batch=1)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(6)
    assert sorted(basket.bodies) == [f"m{number}" for number in range(6)]
    (again,) = [each for each in basket.got if each.body == b"m1"]
    assert (again.topic, again.reconsume_times, again.tags) == (TOPIC, 1, "odd")


def stored(body: bytes, sys_flag: int) -> bytes:
    """Return a record at queue offset 7."""
    host = encode_host("127.0.0.1", 10911)
    properties = format_properties({"UNIQ_KEY": "U", "INNER_NUM": "2", "INNER_BASE": "7"}).encode()
    return encode_record(TOPIC, 0, 7, 4096, body, properties, sys_flag=sys_flag, born_host=host, store_host=host)


def test_only_who_asks_for_them_gets_messages_of_a_batch() -> None:
    body = encode_batch([(5, b"a", b"TAGS\x01x\x02"), (6, b"b", b"")])
    record = stored(body, INNER)
    whole = decode_records(record + record)
    assert [each.body for each in whole] == [body, body]
    found = decode_records(record, "broker-a", unpack=True)
    seen = [(each.queue_offset, each.body, each.flag, each.tags, each.stored_topic, each.broker_name) for each in found]
    assert seen == [(7, b"a", 5, "x", TOPIC, "broker-a"), (8, b"b", 6, None, TOPIC, "broker-a")]
    assert {(each.commit_log_offset, each.store_host) for each in found} == {(4096, "127.0.0.1:10911")}
    # and without the second flag nobody shall look into it
    assert decode_records(stored(body, FLAG_INNER_BATCH), unpack=True)[0].body == body


def test_a_broken_batch_is_one_damaged_message_and_its_neighbours_are_there() -> None:
    good, broken = encode_batch([(0, b"a", b"")]), encode_batch([(0, b"a", b"")])[:-1]
    records = stored(good, INNER) + stored(broken, INNER) + stored(b"plain", 0)
    found = decode_records(records, keep_damaged=True, unpack=True)
    assert [(each.body, bool(each.damage)) for each in found] == [(b"a", False), (broken, True), (b"plain", False)]
    with pytest.raises(RecordDamagedError, match="the batch at log offset 4096 is broken: batch item at byte 0"):
        decode_records(records, unpack=True)
