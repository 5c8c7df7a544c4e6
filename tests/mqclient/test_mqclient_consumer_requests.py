"""What consumers ask brokers, where it depends on what brokers answer."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake

from understudy.format.json_dialect import dumps
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until


async def nothing(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
    raise AssertionError("no message was sent")


class ConsumedBroker(FakeBroker):
    """A broker with one member per group, empty queues and no stored progress; pulls are held for ever."""

    def __init__(self, stored_offset: int | None = None) -> None:
        super().__init__("broker-a")
        self.client_id = ""
        self.pulls: list[Command] = []
        self.pulled = trio.Event()
        self.answers = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda command: response(
                command, body=dumps({"consumerIdList": [self.client_id]})
            ),
            RequestCode.QUERY_CONSUMER_OFFSET: lambda command: (
                response(command, 22, "not found")
                if stored_offset is None
                else response(command, ext={"offset": str(stored_offset)})
            ),
            RequestCode.GET_MAX_OFFSET: lambda command: response(command, ext={"offset": "500"}),
            RequestCode.GET_MIN_OFFSET: lambda command: response(command, ext={"offset": "100"}),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda command: response(command, ext={"offset": "300"}),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LOCK_BATCH_MQ: lambda command: response(
                command, body=dumps({"lockOKMQSet": json.loads(command.body)["mqSet"]})
            ),
        }

    def _heartbeat(self, command: Command) -> Command:
        self.client_id = json.loads(command.body)["clientID"]
        return response(command)

    def _pull(self, command: Command) -> None:
        self.pulls.append(command)
        self.pulled.set()


@pytest.mark.parametrize(
    ("consume_from", "stored", "first"),
    [
        (ConsumeFrom.LAST_OFFSET, None, "500"),
        (ConsumeFrom.FIRST_OFFSET, None, "100"),
        (ConsumeFrom.TIMESTAMP, None, "300"),
        (ConsumeFrom.LAST_OFFSET, 77, "77"),
        (ConsumeFrom.FIRST_OFFSET, 77, "77"),
    ],
)
async def test_the_first_pull_starts_where_it_should(consume_from: ConsumeFrom, stored: int | None, first: str) -> None:
    broker = ConsumedBroker(stored)
    options = PushConsumerOptions(consume_from=consume_from)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "cg", {"T": "TagA"}, nothing, options),
    ):
        with trio.fail_after(30):
            await broker.pulled.wait()
    ext = broker.pulls[0].ext or {}
    assert ext["queueOffset"] == first
    # Fields as captured from 5.4.0: held 15 s, subscription left to the heartbeat, stored progress sent along.
    assert (ext["suspendTimeoutMillis"], ext["maxMsgNums"], ext["expressionType"]) == ("15000", "32", "TAG")
    assert (ext["sysFlag"], ext["commitOffset"]) == (("2", "0") if stored else ("3", first))
    assert "subscription" not in ext


async def test_the_heartbeat_says_what_is_consumed() -> None:
    broker = ConsumedBroker(1)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "cg", {"T": "TagA || TagB"}, nothing),
    ):
        with trio.fail_after(30):
            await broker.pulled.wait()
    heartbeat = next(command for command in broker.requests if command.code == RequestCode.HEART_BEAT)
    (entry,) = json.loads(heartbeat.body)["consumerDataSet"]
    topics = {each["topic"]: each for each in entry["subscriptionDataSet"]}
    assert (entry["groupName"], entry["consumeType"], entry["messageModel"]) == (
        "cg",
        "CONSUME_PASSIVELY",
        "CLUSTERING",
    )
    assert topics["T"]["codeSet"] == [2598919, 2598920]
    assert topics["%RETRY%cg"]["subString"] == "*"


async def test_a_broker_that_forgot_the_group_gets_a_heartbeat() -> None:
    broker = ConsumedBroker(1)
    answered: list[int] = []

    def forgotten(command: Command) -> Command | None:
        answered.append(len([each for each in broker.requests if each.code == RequestCode.HEART_BEAT]))
        if len(answered) == 1:
            return response(command, 24, "the consumer's group info not exist")
        broker.pulled.set()
        return None

    broker.answers[RequestCode.PULL_MESSAGE] = forgotten
    options = PushConsumerOptions(pull_retry_ms=10)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "cg", {"T": "*"}, nothing, options),
    ):
        with trio.fail_after(30):
            await broker.pulled.wait()
        await until(lambda: answered[-1] > answered[0])
    assert answered[-1] > answered[0]


async def test_ordered_consumers_lock_before_they_pull() -> None:
    broker = ConsumedBroker(1)
    options = PushConsumerOptions(ordered=True)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "cg", {"T": "*"}, nothing, options),
    ):
        with trio.fail_after(30):
            await broker.pulled.wait()
    codes = [command.code for command in broker.requests]
    assert codes.index(RequestCode.LOCK_BATCH_MQ) < codes.index(RequestCode.PULL_MESSAGE)
    locked = json.loads(broker.requests[codes.index(RequestCode.LOCK_BATCH_MQ)].body)
    assert (locked["consumerGroup"], locked["onlyThisBroker"]) == ("cg", False)
    # Leaving gives every lock back before the goodbye.
    assert codes.index(RequestCode.UNLOCK_BATCH_MQ) < codes.index(RequestCode.UNREGISTER_CLIENT)


async def test_a_lost_lock_stops_the_queue() -> None:
    broker = ConsumedBroker(1)
    options = PushConsumerOptions(ordered=True, lock_ms=20)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "cg", {"T": "*"}, nothing, options) as consumer,
    ):
        with trio.fail_after(30):
            await broker.pulled.wait()
            broker.answers[RequestCode.LOCK_BATCH_MQ] = lambda command: response(
                command, body=dumps({"lockOKMQSet": []})
            )
            await until(lambda: all(held.locked_at is None for held in consumer.held.values()))
        assert all(held.locked_at is None for held in consumer.held.values())


async def test_a_condition_is_checked_by_a_broker_before_it_counts() -> None:
    broker = ConsumedBroker()
    refusal = "Invalid MessageSelector. a value must follow (at line 1, column 4)"
    broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = lambda command: response(command, 23, refusal)
    async with (
        open_fake(broker) as cluster,
        open_push_consumer(real_world(), cluster.name_server, "g", {"T": "*"}, nothing) as consumer,
    ):
        with pytest.raises(BrokerError, match=r"23: .* line 1, column 4"):
            await consumer.subscribe("T", "a >", "SQL92")
        assert consumer.membership.subscriptions["T"].expression == "*"
        (asked,) = [command for command in broker.requests if command.code == RequestCode.CHECK_CLIENT_CONFIG]
        body = json.loads(asked.body)
        assert body["group"] == "g"
        wanted = body["subscriptionData"]
        assert (wanted["subString"], wanted["expressionType"]) == ("a >", "SQL92")
        broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = lambda command: response(command)
        await consumer.subscribe("T", "a > 1", "SQL92")
        assert consumer.membership.subscriptions["T"].expression == "a > 1"
        await consumer.subscribe("T", "TagA")
        assert len([command for command in broker.requests if command.code == RequestCode.CHECK_CLIENT_CONFIG]) == 2
