"""What clients write into the trace topic about their messages."""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake, stored
from mqclient_rig import FIRST, Basket

from understudy.format import message_traces as traces
from understudy.format.message_traces import (
    CONSUMED,
    DECIDED,
    PUBLISHED,
    RECALLED,
    ConsumeCode,
    MessageKind,
    TraceStep,
    steps_of,
)
from understudy.format.names import TRACE_TOPIC
from understudy.format.recall_handle import Handle, encode_handle
from understudy.mqclient import tracing
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeResult,
    Message,
    Producer,
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
from understudy.mqclient.errors import BrokerError, InvalidOptionError
from understudy.mqclient.tracing import MOST_STEPS, MOST_WAITING
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

TRACED = ProducerOptions(enable_message_trace=True, send_timeout_ms=20_000)
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
    assert f"Recall\x011795422760000\x01DefaultRegion\x01gp\x01t\x01{unique}\x01true\x02" == traces.recalled(
        time_ms=1795422760000, region="DefaultRegion", group="gp", topic="t", message_id=unique, success=True
    )
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


@pytest.mark.covers("SC-07")
async def test_a_producer_traces_what_it_called_back_and_what_it_could_not() -> None:
    keys = {"traceTopicEnable": "true", "recallMessageEnable": "true"}
    async with LocalCluster(broker_config=keys) as cluster:
        names = cluster.namesrv_address
        async with open_producer(real_world(), names, "senders", TRACED) as producer:
            timer = message("Orders", b"later", deliver_at_ms=real_world().clock.wall_ms() + 60_000)
            handle = (await producer.send(timer)).recall_handle or ""
            assert await producer.recall("Orders", handle) == timer.message_id
            over = encode_handle(Handle("Orders", "broker-a", 1, "0" * 32))
            with pytest.raises(BrokerError):
                await producer.recall("Orders", over)
        found = await read(cluster, 3)
        steps = {(step.kind, step.message_id): step for _, told in found for step in told}
        assert set(steps) == {(PUBLISHED, timer.message_id), (RECALLED, timer.message_id), (RECALLED, "0" * 32)}
        taken, refused = steps[RECALLED, timer.message_id or ""], steps[RECALLED, "0" * 32]
        assert ("senders", "Orders", True) == (taken.group, taken.topic, taken.success)
        assert not refused.success


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


# --- what must not end or hinder the client ----------------------------------------------------------------------


async def test_keys_of_many_bytes_end_no_client_and_those_without_room_are_left_out(traced: LocalCluster) -> None:
    names, basket = traced.namesrv_address, Basket()
    # Six that wait together: two of them are fewer characters than bytes that properties may have, and more bytes.
    large = [message("Orders", b"%d" % number, keys=f"{number}" + "\U0001f600" * 4_900) for number in range(6)]
    larger = message("Orders", b"6", keys=["short", "\U0001f600" * 7_700])
    options = PushConsumerOptions(consume_from=FIRST, enable_message_trace=True)
    async with (
        open_producer(real_world(), names, "senders", TRACED) as producer,
        open_push_consumer(real_world(), names, "readers", {"Orders": "*"}, basket, options) as consumer,
    ):
        async with trio.open_nursery() as nursery:
            for each in (*large, larger):
                nursery.start_soon(producer.send, each)
        await basket.wait(7)
        assert producer.tracer is not None and consumer.tracer is not None
        ours, theirs = producer.tracer, consumer.tracer
    assert (ours.left_out, theirs.left_out) == (0, 0)
    found = await read(traced, 14)  # sent and consumed
    sent = [(set((trace.keys or "").split()), {step.message_id for step in told}) for trace, told in found]
    for each in large:
        assert all({each.keys, each.message_id} <= keys for keys, ids in sent if each.message_id in ids)
    for keys, ids in sent:
        if larger.message_id in ids:
            assert {"short", larger.message_id} <= keys and not any(len(key) == 7_700 for key in keys)


@pytest.mark.parametrize("name", ["", "no topic", "x" * 128, None])
def test_a_trace_topic_that_cannot_be_is_refused_before_anything_is_opened(name: str) -> None:
    for options in (ProducerOptions, PushConsumerOptions):
        with pytest.raises(InvalidOptionError, match="trace_topic="):
            options(enable_message_trace=True, trace_topic=name)


def traces_of(broker: FakeBroker) -> list[Command]:
    return [each for each in broker.sends if (each.ext or {})["b"] == TRACE_TOPIC]


def refusing(times: float = float("inf")) -> FakeBroker:
    """Return a broker that refuses so many trace messages and takes everything else."""

    def answer(command: Command) -> Command:
        is_trace = (command.ext or {})["b"] == TRACE_TOPIC
        return response(command, 16, "not yours") if is_trace and len(traces_of(broker)) <= times else stored(command)

    broker = FakeBroker("broker-a", answer)
    return broker


async def send_some(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send(message("T", b"%d" % number))


async def test_steps_wait_a_little_for_others_and_go_as_soon_as_there_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 3_600)
    broker = FakeBroker("broker-a")
    async with open_fake(broker, topics=("T", TRACE_TOPIC)) as fake:
        async with open_producer(real_world(), fake.name_server, "senders", TRACED) as producer:
            await send_some(producer, MOST_STEPS - 1)
            assert not traces_of(broker)
            await send_some(producer, 51)
            await until(lambda: traces_of(broker))
        # closing waits for no others
        assert [steps(each) for each in traces_of(broker)] == [MOST_STEPS, 50]


def steps(trace: Command) -> int:
    body = trace.body if int((trace.ext or {})["f"]) == 0 else zlib.decompress(trace.body)
    return body.count(b"Pub\x01")


async def test_a_step_that_stays_alone_is_written_soon(traced: LocalCluster) -> None:
    async with open_producer(real_world(), traced.namesrv_address, "senders", TRACED) as producer:
        await producer.send(message("Orders", b"x"))
        assert len(await read(traced, 1)) == 1


async def test_a_refused_trace_topic_is_tried_once_a_pause_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.001)
    monkeypatch.setattr(tracing, "FIRST_PAUSE_S", 3_600)
    broker = refusing()
    caplog.set_level(logging.WARNING)
    async with open_fake(broker, topics=("T", TRACE_TOPIC)) as fake:
        async with open_producer(real_world(), fake.name_server, "senders", TRACED) as producer:
            tracer = producer.tracer
            assert tracer is not None
            await send_some(producer, 1)
            await until(lambda: tracer.left_out == 1)
            await send_some(producer, 3 * MOST_STEPS)
            assert len(traces_of(broker)) == 1
        # one more attempt at the end, and everything is counted
        assert len(traces_of(broker)) == 2
        assert tracer.left_out == 3 * MOST_STEPS + 1
        (left,) = [each for each in broker.requests if each.code == RequestCode.UNREGISTER_CLIENT]
        assert (left.ext or {})["producerGroup"] == "senders"
    told = [each.getMessage() for each in caplog.records if "traced" in each.getMessage()]
    assert len(told) == 2
    assert "steps=1 " in told[0] + " " and "not yours" in told[0]
    assert f"steps={3 * MOST_STEPS}" in told[1]


async def test_traces_go_on_when_their_topic_is_served_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.001)
    monkeypatch.setattr(tracing, "FIRST_PAUSE_S", 0.01)
    broker = refusing(times=3)
    caplog.set_level(logging.WARNING)
    async with open_fake(broker, topics=("T", TRACE_TOPIC)) as fake:
        async with open_producer(real_world(), fake.name_server, "senders", TRACED) as producer:
            tracer = producer.tracer
            assert tracer is not None
            for number in range(1, 4):
                await send_some(producer, 1)
                await until(lambda number=number: tracer.left_out == number)  # type: ignore[misc]  # bound at once
            await send_some(producer, 1)
            await until(lambda: len(traces_of(broker)) == 4)
        assert tracer.left_out == 3
    told = [each.getMessage() for each in caplog.records if "traced" in each.getMessage()]
    assert ["steps=1" in told[0], "again" in told[1] and "steps=2" in told[1], len(told)] == [True, True, 2]


async def test_a_trace_that_cannot_be_made_does_not_end_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINGER_S", 0.001)
    broker = FakeBroker("broker-a")
    async with open_fake(broker, topics=("T", TRACE_TOPIC)) as fake:
        async with open_producer(real_world(), fake.name_server, "senders", TRACED) as producer:
            tracer = producer.tracer
            assert tracer is not None
            monkeypatch.setattr(tracer._delivery, "send", None)  # as a defect of ours would
            await send_some(producer, 1)
            await until(lambda: tracer.left_out == 1)
            await send_some(producer, 1)
        assert tracer.left_out == 2
        assert [each for each in broker.requests if each.code == RequestCode.UNREGISTER_CLIENT]


async def test_a_broker_that_is_silent_about_traces_does_not_keep_a_client_from_signing_off() -> None:
    def answer(command: Command) -> Command | None:
        return None if (command.ext or {})["b"] == TRACE_TOPIC else stored(command)

    broker = FakeBroker("broker-a", answer)
    async with open_fake(broker, topics=("T", TRACE_TOPIC)) as fake:
        async with open_producer(real_world(), fake.name_server, "senders", TRACED) as producer:
            await send_some(producer, 1)
            await until(lambda: traces_of(broker))
        assert [each for each in broker.requests if each.code == RequestCode.UNREGISTER_CLIENT]
        assert producer.tracer is not None and producer.tracer.left_out == 1
