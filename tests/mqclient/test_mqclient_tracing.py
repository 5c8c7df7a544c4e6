"""What clients write into the trace topic about their messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from mqclient_rig import FIRST, Basket

from understudy.format import message_traces as traces
from understudy.format.message_traces import CONSUMED, DECIDED, PUBLISHED, ConsumeCode, MessageKind, TraceStep, steps_of
from understudy.format.names import TRACE_TOPIC
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeResult,
    Message,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
    ReceivedMessage,
    SendResult,
    TransactionState,
    message,
    open_producer,
    open_pull_consumer,
    open_push_consumer,
    open_transaction_producer,
    real_world,
)
from understudy.mqclient.tracing import MOST_WAITING
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

TRACED = ProducerOptions(enable_message_trace=True)
# What the Java client 5.4.0 wrote about one message.
SENT = (
    "Pub\x011795422759128\x01DefaultRegion\x01gp\x01t\x01FD757D4E0E2F2A732140D70000\x01tag\x01thekey\x01"
    "127.0.0.1:44331\x016\x011182\x010\x017F0000010000AD2B0000000000000000\x01true\x02"
)
GOT = (
    "SubBefore\x011795422760565\x01DefaultRegion\x01gc\x01FD2A732146750002\x01FD757D4E0E2F2A732140D70000"
    "\x010\x01thekey\x02"
)
DONE = (
    "SubAfter\x01FD2A732146750002\x01FD757D4E0E2F2A732140D70000\x011\x01true\x01thekey\x010\x011795422760566\x01gc\x02"
)


def test_steps_are_written_as_the_java_client_writes_them() -> None:
    unique, request = "FD757D4E0E2F2A732140D70000", "FD2A732146750002"
    assert SENT == traces.published(
        time_ms=1795422759128, region="DefaultRegion", group="gp", topic="t", message_id=unique, tags="tag",
        keys="thekey", store_host="127.0.0.1:44331", body_bytes=6, cost_ms=1182, kind=MessageKind.NORMAL,
        offset_message_id="7F0000010000AD2B0000000000000000", success=True,
    )  # fmt: skip
    assert GOT == traces.consuming(
        time_ms=1795422760565, region="DefaultRegion", group="gc", request_id=request, message_id=unique, retries=0,
        keys="thekey",
    )  # fmt: skip
    assert DONE == traces.consumed(
        request_id=request, message_id=unique, cost_ms=1, success=True, keys="thekey", code=ConsumeCode.SUCCESS,
        time_ms=1795422760566, group="gc",
    )  # fmt: skip


@pytest.fixture
async def traced() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(broker_config={"traceTopicEnable": "true"}) as cluster:
        yield cluster


async def read(cluster: LocalCluster, enough: int) -> list[tuple[ReceivedMessage, list[TraceStep]]]:
    """Return the trace messages with their steps once there are so many steps."""
    found: list[tuple[ReceivedMessage, list[TraceStep]]] = []
    options = PullConsumerOptions(consume_from=FIRST)
    async with open_pull_consumer(real_world(), cluster.namesrv_address, "trace_readers", options) as reader:
        await reader.subscribe({TRACE_TOPIC: "*"})
        with trio.fail_after(20):
            while sum(len(steps) for _, steps in found) < enough:
                found += [(each, steps_of(each.body.decode())) for each in await reader.poll()]
    return found


async def test_a_producer_traces_what_it_sent_alone_in_a_batch_and_in_transactions(traced: LocalCluster) -> None:
    names = traced.namesrv_address

    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def execute(_: Message, sent: SendResult) -> TransactionState:
        return TransactionState.COMMIT

    alone, late = message("Orders", b"alone", tag="new", keys="k1 k2"), message("Orders", b"late", delay_level=1)
    batch, half = [message("Orders", b"%d" % number) for number in range(3)], message("Orders", b"half")
    async with open_producer(real_world(), names, "senders", TRACED) as producer:
        result = await producer.send(alone)
        await producer.send(late)
        await producer.send_batch(batch)
    async with open_transaction_producer(real_world(), names, "deciders", check, TRACED) as transactions:
        await transactions.send(half, execute)
    found = await read(traced, 7)
    steps = {(step.kind, step.message_id): step for _, told in found for step in told}
    wanted = {(PUBLISHED, each.message_id) for each in (alone, late, *batch, half)}
    assert set(steps) == wanted | {(DECIDED, half.message_id)}
    first = steps[PUBLISHED, alone.message_id or ""]
    assert (first.group, first.topic, first.keys, first.success) == ("senders", "Orders", "k1 k2", True)
    assert steps[DECIDED, half.message_id or ""].success
    # and it is found by the message's own keys
    (trace,) = [each for each, told in found if any(step.message_id == alone.message_id for step in told)]
    assert {"k1", "k2", alone.message_id} <= set((trace.keys or "").split())
    assert result.offset_message_id in trace.body.decode()


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_consumer_traces_what_its_listener_made_of_a_message(traced: LocalCluster, ordered: bool) -> None:
    names, tries = traced.namesrv_address, list[str]()
    done = trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        context.delay_level, context.suspend_ms = 1, 10
        tries.append(batch[0].message_id)
        if len(tries) == 1:
            await trio.sleep(5)  # it is cancelled
        if len(tries) == 2:
            return ConsumeResult.LATER
        done.set()
        return ConsumeResult.SUCCESS

    sent = message("Orders", b"x", keys="k1")
    async with open_producer(real_world(), names, "senders") as producer:
        await producer.send(sent)
    options = PushConsumerOptions(
        consume_from=FIRST, ordered=ordered, enable_message_trace=True, consume_timeout_ms=100
    )
    async with open_push_consumer(real_world(), names, "readers", {"Orders": "*"}, listen, options):
        with trio.fail_after(20):
            await done.wait()
    found = await read(traced, 3)
    assert [step.success for _, told in found for step in told if step.kind == CONSUMED] == [False, False, True]
    assert {step.message_id for _, told in found for step in told} == {sent.message_id}
    codes = [step.split("\x01")[6] for each, _ in found for step in each.body.decode().split("\x02") if "After" in step]
    assert codes == [str(int(code)) for code in (ConsumeCode.TIME_OUT, ConsumeCode.FAILED, ConsumeCode.SUCCESS)]


async def test_what_cannot_be_written_hinders_nobody_and_what_waits_is_bounded() -> None:
    # no broker has the topic, and none makes it
    async with LocalCluster(broker_config={"autoCreateTopicEnable": "false"}) as cluster:
        names, basket = cluster.namesrv_address, Basket()
        options = PushConsumerOptions(consume_from=FIRST, enable_message_trace=True)
        async with (
            open_producer(real_world(), names, "senders", TRACED) as producer,
            open_push_consumer(real_world(), names, "readers", {"BenchmarkTest": "*"}, basket, options) as consumer,
        ):
            for number in range(3):
                await producer.send(message("BenchmarkTest", b"%d" % number))
            await basket.wait(3)
            assert producer.tracer is not None and consumer.tracer is not None
            ours, theirs = producer.tracer, consumer.tracer
            await until(lambda: ours.left_out >= 3 and theirs.left_out >= 6)
            # what waits is bounded
            left_out = producer.tracer.left_out
            (queue, *_) = await producer.queues("BenchmarkTest")
            many = [message("BenchmarkTest", b"x", properties={"UNIQ_KEY": f"{number:032X}"}) for number in range(100)]
            result = await producer.send(message("BenchmarkTest", b"x"), queue=queue)
            for _ in range(MOST_WAITING // 100 + 2):
                producer.tracer.sent(many, result, 0)
            assert producer.tracer.left_out > left_out
