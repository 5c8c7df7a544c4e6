"""A popped message that is handed on to the retry topic of another broker: there it gets a handle of that broker."""

from __future__ import annotations

import attrs
import pytest
import trio
from mqclient_rig import TOPIC

from understudy.format import names
from understudy.format.receipts import RECEIPT
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.runtime.world import World
from understudy.testkit.local_cluster import LocalCluster

GROUP = "forwarders"
RETRY = names.pop_retry_topic(GROUP, TOPIC)


async def pop_one(producer: Producer, broker_name: str) -> PoppedMessage:
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), broker_name, hold_ms=1_000)
    with trio.fail_after(20):
        while not (popped := await pop(producer.session, wanted)):
            pass
    (found,) = popped
    return found


@pytest.mark.covers("PP-24")
@pytest.mark.parametrize("kept_handle", [False, True])
async def test_the_handle_names_the_broker_that_handed_it_out_last(kept_handle: bool, world: World) -> None:
    """Also where who hands it on leaves the first broker's handle among its properties."""
    async with LocalCluster(2) as cluster, open_producer(world, cluster.namesrv_address, "pg") as producer:
        await cluster.make_topic(TOPIC, 1)
        await cluster.make_topic(RETRY, 1)
        await producer.send(Message(TOPIC, b"handed on", {"TAGS": "A"}), queue=MessageQueue(TOPIC, "broker-a", 0))
        # given a message whose acknowledgement its broker refuses
        first = await pop_one(producer, "broker-a")
        wrong = attrs.evolve(first, receipt=attrs.evolve(first.receipt, offset=first.receipt.offset + 5))
        with pytest.raises(BrokerError):
            await ack(producer.session, wrong)
        # when it is sent on to the retry topic of its group at another broker
        pairs = dict(first.message.properties) | ({RECEIPT: first.receipt.text} if kept_handle else {})
        await producer.send(Message(RETRY, first.message.body, pairs), queue=MessageQueue(RETRY, "broker-b", 0))
        second = await pop_one(producer, "broker-b")
        # then it is the same message with another handle, of the broker that it now comes from
        assert second.message.message_id == first.message.message_id
        assert (second.message.body, second.message.tags) == (b"handed on", "A")
        assert second.receipt != first.receipt
        assert [each.receipt.broker_name for each in (first, second)] == ["broker-a", "broker-b"]
        assert second.message.properties[RECEIPT] == second.receipt.text
        # and either broker takes its own
        for each in (first, second):
            await ack(producer.session, each)
