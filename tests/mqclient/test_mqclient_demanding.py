"""What demanding users do: they cancel, answer wrongly, pass nonsense, meet damage and servers that hang."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from mqclient_fake import FakeBroker, open_fake
from mqclient_rig import FIRST, QUEUE, TOPIC, Basket, send_numbered, send_undecodable

from understudy.format.names import dead_letter_topic
from understudy.mqclient.admin import topics
from understudy.mqclient.concurrently import end_of_part
from understudy.mqclient.errors import (
    InvalidMessageError,
    InvalidOptionError,
)
from understudy.mqclient.heartbeat import MessageModel
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer, ProducerOptions, open_producer
from understudy.mqclient.pull_consumer import PullConsumerOptions, open_pull_consumer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import LZ4, ZSTD
from understudy.mqclient.session import SessionOptions
from understudy.runtime.background import open_shielded
from understudy.runtime.world import World, real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually, until

# --- leaving -----------------------------------------------------------------------------------------------------


async def test_what_runs_shielded_outlives_a_cancelled_block_until_its_clean_up_is_done() -> None:
    told: list[str] = []

    async def serve(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            told.append(f"{name} ended")

    with trio.CancelScope() as scope:
        async with open_shielded() as tasks:
            tasks.start_soon(serve, "task")
            await trio.testing.wait_all_tasks_blocked()
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.01)
                told.append("cleaned up")
    assert told == ["cleaned up", "task ended"]


async def test_a_cancelled_consumer_stores_its_progress_lets_its_listener_finish_and_signs_off(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 3, queue_id=0)
    busy, finished = trio.Event(), trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        if batch[0].body == b"m2":
            busy.set()
            await trio.sleep(0.1)
            finished.set()

    async def consume(scope: trio.CancelScope) -> None:
        options = PushConsumerOptions(consume_from=FIRST, ordered=True)
        with scope:
            async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
                await trio.sleep_forever()

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume, scope)
        await busy.wait()
        scope.cancel()
    assert finished.is_set()
    broker = cluster.brokers["broker-a"]
    assert broker.offsets.query("cg", TOPIC, 0) == 3
    # its locks are free: the next ordered member begins at once
    basket = Basket()
    await producer.send(message(TOPIC, b"next"), queue=MessageQueue(TOPIC, "broker-a", 0))
    async with open_push_consumer(
        world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, PushConsumerOptions(ordered=True)
    ):
        await basket.wait(1, 10)
    assert basket.bodies == ["next"]


# --- listeners ---------------------------------------------------------------------------------------------------


class Wrong:
    async def __call__(self, batch: object) -> None: ...


@pytest.mark.parametrize(
    ("listener", "says"),
    [
        (lambda batch, context: None, "async def"),
        (print, "async def"),
        (Wrong(), "two arguments"),
        (None, "cannot be called"),
        (Wrong, "is a class"),
    ],
)
async def test_a_listener_that_cannot_work_is_refused_before_anything_is_opened(listener: Any, says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        async with open_push_consumer(real_world(), "127.0.0.1:1", "cg", {"T": "*"}, listener):
            pass


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("wrong", [False, 0, "SUCCESS"])
async def test_an_answer_that_a_listener_may_not_give_means_later_and_is_told(
    cluster: LocalCluster, producer: Producer, world: World, ordered: bool, wrong: Any
) -> None:
    await send_numbered(producer, 1, queue_id=0)
    answers, told = [wrong], list[tuple[Exception, bytes]]()
    done = trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> Any:
        context.delay_level, context.suspend_ms = 1, 10
        if answers:
            return answers.pop()
        done.set()
        return ConsumeResult.SUCCESS

    options = PushConsumerOptions(
        consume_from=FIRST, ordered=ordered, on_error=lambda error, first: told.append((error, first.body))
    )
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
        with trio.fail_after(20):
            await done.wait()
    ((error, body),) = told
    assert isinstance(error, InvalidOptionError)
    assert repr(wrong) in str(error)
    assert body == b"m0"


# --- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_body_that_cannot_be_read_does_not_hold_up_its_neighbours_and_is_kept(
    cluster: LocalCluster, producer: Producer, world: World, ordered: bool
) -> None:
    await producer.send(message(TOPIC, b"before"), queue=QUEUE)
    await send_undecodable(producer)
    await producer.send(message(TOPIC, b"after"), queue=QUEUE)
    basket, told = Basket(), list[str]()
    options = PushConsumerOptions(
        consume_from=FIRST, ordered=ordered, consume_batch=8, max_reconsume_times=0,
        on_error=lambda error, first: told.append(f"{first.body.decode()}: {error}"),
    )  # fmt: skip
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options) as consumer:
        await basket.wait(2)
        await eventually(lambda: topics.exists(consumer.session, dead_letter_topic("cg")))
        await until(lambda: consumer.offsets.known(QUEUE) == 3)
    assert basket.bodies == ["before", "after"]
    assert len(told) == 1
    assert told[0].startswith("no zlib at all: ")
    assert "cannot be inflated" in told[0]


async def test_who_wants_damaged_messages_gets_their_raw_bytes(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_undecodable(producer)
    basket = Basket()
    options = PushConsumerOptions(consume_from=FIRST, take_damaged=True)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, basket, options):
        await basket.wait(1)
    assert (basket.got[0].body, basket.got[0].topic) == (b"no zlib at all", TOPIC)
    assert "cannot be inflated" in basket.got[0].damage
    async with open_pull_consumer(
        world, cluster.namesrv_address, "polls", PullConsumerOptions(consume_from=FIRST)
    ) as reader:
        await reader.assign([QUEUE])
        (polled,) = await reader.poll()
    assert (polled.body, bool(polled.damage)) == (b"no zlib at all", True)


@pytest.mark.parametrize(
    ("pattern", "most", "cut"),
    [
        ("ggggg", 2, ["gg", "gg", "g"]),
        ("gdgg", 2, ["g", "d", "gg"]),
        ("dd", 4, ["d", "d"]),
        ("ggd", 9, ["gg", "d"]),
        ("", 3, []),
    ],
)
def test_a_damaged_message_is_alone_in_its_batch(pattern: str, most: int, cut: list[str]) -> None:
    good = ReceivedMessage("T", b"", {}, 0, "b", 0, 0, 0, 0, 0, "", 0, "", 0, 0, 0, 0, "T")
    bad = ReceivedMessage("T", b"", {}, 0, "b", 0, 0, 0, 0, 0, "", 0, "", 0, 0, 0, 0, "T", "damaged")
    messages = [good if letter == "g" else bad for letter in pattern]
    begin, batches = 0, list[list[ReceivedMessage]]()
    while begin < len(messages):
        end = end_of_part(messages, begin, most)
        batches.append(messages[begin:end])
        begin = end
    assert cut == ["".join("d" if each.damage else "g" for each in batch) for batch in batches]


# --- options and arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        partial(PushConsumerOptions, consume_tasks=0),
        partial(PushConsumerOptions, consume_batch=0),
        partial(PushConsumerOptions, pull_batch=-1),
        partial(PushConsumerOptions, persist_ms=float("nan")),
        partial(PushConsumerOptions, max_reconsume_times=-2),
        partial(PullConsumerOptions, ahead=0),
        partial(PullConsumerOptions, commit_ms="1"),
        partial(ProducerOptions, attempts=0),
        partial(ProducerOptions, compression=7),
        partial(ProducerOptions, send_timeout_ms=0),
        partial(SessionOptions, heartbeat_ms=0),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_it_is_given(make: Any) -> None:
    (name,) = make.keywords
    with pytest.raises(InvalidOptionError, match=f"{name}=.*expected"):
        make()


@pytest.mark.parametrize("name", [None, "", "a/b", ".."])
def test_a_broadcasting_consumer_needs_a_name_by_which_its_progress_is_found(name: str | None) -> None:
    with pytest.raises(InvalidOptionError, match="client_id="):
        PushConsumerOptions(model=MessageModel.BROADCASTING, session=SessionOptions(client_id=name))


def test_options_that_work_are_taken() -> None:
    assert [ProducerOptions(compression=kind).compression for kind in (LZ4, ZSTD)] == [LZ4, ZSTD]
    assert attrs.evolve(PushConsumerOptions(), max_reconsume_times=-1, hold_ms=0).hold_ms == 0


async def test_arguments_that_contradict_the_message_are_refused_and_nothing_is_sent() -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        with pytest.raises(InvalidMessageError, match="the body is a str"):
            await producer.send(message("T", "text"))  # type: ignore[arg-type]  # the point of the test
        with pytest.raises(InvalidOptionError, match="of topic Other"):
            await producer.send(message("T", b"x"), queue=MessageQueue("Other", "a", 0))
        with pytest.raises(InvalidOptionError, match="select= at once"):
            await producer.send(message("T", b"x"), queue=MessageQueue("T", "a", 0), select=lambda queues, _: queues[0])
    assert broker.sends == []


# --- polling -----------------------------------------------------------------------------------------------------


async def test_what_poll_returned_counts_with_the_next_poll_and_not_when_the_block_fails(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await send_numbered(producer, 4, queue_id=0)
    options = PullConsumerOptions(consume_from=FIRST, pull_batch=2)

    async def read(polls: int, fails: bool) -> list[bytes]:
        got: list[bytes] = []
        try:
            async with open_pull_consumer(world, cluster.namesrv_address, "cg", options) as reader:
                await reader.assign([QUEUE])
                for _ in range(polls):
                    got += [each.body for each in await reader.poll()]
                if fails:
                    raise RuntimeError("the user's own")
        except RuntimeError:
            got.append(b"failed")
        return got

    assert await read(2, fails=True) == [b"m0", b"m1", b"m2", b"m3", b"failed"]
    assert await read(1, fails=True) == [b"m2", b"m3", b"failed"], "the last poll was not finished"
    assert await read(1, fails=False) == [b"m2", b"m3"]
    assert cluster.brokers["broker-a"].offsets.query("cg", TOPIC, 0) == 4


async def test_a_pull_consumer_can_be_iterated(cluster: LocalCluster, producer: Producer, world: World) -> None:
    await send_numbered(producer, 5, queue_id=0)
    got: list[bytes] = []
    async with open_pull_consumer(
        world, cluster.namesrv_address, "cg", PullConsumerOptions(consume_from=FIRST, pull_batch=2)
    ) as reader:
        await reader.assign([QUEUE])
        with trio.fail_after(30):
            async for each in reader:
                got.append(each.body)
                if len(got) == 5:
                    break
    assert got == [b"m0", b"m1", b"m2", b"m3", b"m4"]
