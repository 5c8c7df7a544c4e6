"""The blocking and the asyncio client: the trio client's results, errors and cancellation, in other programs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trio

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.errors import InvalidMessageError, InvalidOptionError, RouteNotFoundError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage, message
from understudy.mqclient.pop_consumer import PopConsumerOptions
from understudy.mqclient.producer import SendResult, SendStatus
from understudy.mqclient.pull_consumer import PullConsumerOptions
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.transactions import TransactionState
from understudy.testkit.blocking import BlockingCluster, local_cluster

FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
LISTEN = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with local_cluster() as running:
        yield running


def test_blocking_sends_polls_and_errors(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        sent = [producer.send(message("Blocking", b"%d" % number)) for number in range(5)]
        assert len({each.message_id for each in sent}) == 5
        with pytest.raises(InvalidMessageError, match="at least one byte"):
            producer.send(message("Blocking", b""))
        producer.send_batch([message("Blocking", b"5"), message("Blocking", b"6")])
        producer.send_oneway(message("Blocking", b"7"))
    got: set[bytes] = set()
    with blocking.open_pull_consumer(cluster.namesrv_address, "cg", FIRST) as consumer:
        with pytest.raises(RouteNotFoundError):
            consumer.topic_queues("Missing")
        consumer.subscribe({"Blocking": "*"})
        for each in consumer:
            got.add(each.body)
            if len(got) == 8:
                break
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in consumer.queues) == 8
    assert got == {b"%d" % number for number in range(8)}


def test_a_plain_listener_runs_in_threads_and_its_answers_count(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        for number in range(6):
            producer.send(message("Listened", b"%d" % number))
    got: list[tuple[bytes, str]] = []
    all_there = threading.Event()
    failed = [b"3"]

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        context.delay_level = 1
        body = messages[0].body
        if body in failed:
            failed.remove(body)
            return ConsumeResult.LATER
        got.append((body, threading.current_thread().name))
        if len(got) == 6:
            all_there.set()
        return None

    with blocking.open_push_consumer(cluster.namesrv_address, "lg", {"Listened": "*"}, listen, LISTEN):
        assert all_there.wait(20)
    assert sorted(body for body, _ in got) == [b"%d" % number for number in range(6)]
    assert all("understudy-portal" != name for _, name in got)
    one_argument: Any = lambda messages: None  # noqa: E731  # the point of the test
    opened = blocking.open_push_consumer(cluster.namesrv_address, "lg", {"Listened": "*"}, one_argument)
    with pytest.raises(InvalidOptionError, match="two arguments"), opened:
        pass


async def routed(consumer: aio.PullConsumer, topic: str) -> tuple[MessageQueue, ...]:
    """Return the queues of a topic that a send has just made, once the name server knows it."""
    for _ in range(400):
        try:
            return await consumer.topic_queues(topic)
        except RouteNotFoundError:
            await asyncio.sleep(0.05)
    raise AssertionError(f"{topic} is not known within 20 s")


# --- asyncio -----------------------------------------------------------------------------------------------------


def test_asyncio_sends_listens_and_polls(cluster: BlockingCluster) -> None:
    async def main() -> None:
        got: list[bytes] = []
        all_there = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop
            got.append(messages[0].body)
            if len(got) == 64:
                all_there.set()

        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            await asyncio.gather(*(producer.send(message("Aio", b"%d" % number)) for number in range(64)))
        async with aio.open_push_consumer(cluster.namesrv_address, "ag", {"Aio": "*"}, listen, LISTEN):
            await asyncio.wait_for(all_there.wait(), 20)
        assert sorted(got) == sorted(b"%d" % number for number in range(64))
        async with aio.open_pull_consumer(cluster.namesrv_address, "bg", FIRST) as consumer:
            await consumer.assign(await routed(consumer, "Aio"))
            polled = 0
            while polled < 64:
                polled += len(await consumer.poll())
            with pytest.raises(RouteNotFoundError):
                await consumer.topic_queues("Missing")

    asyncio.run(main())


def test_a_cancelled_asyncio_task_cancels_its_call_and_the_consumer_goes_on(cluster: BlockingCluster) -> None:
    async def main() -> None:
        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            sent = await producer.send(message("Cancelled", b"first"))
            async with aio.open_pull_consumer(cluster.namesrv_address, "cc", FIRST) as consumer:
                await routed(consumer, "Cancelled")
                await consumer.assign([sent.queue])
                assert [each.body for each in await consumer.poll()] == [b"first"]
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(consumer.poll(60_000), 0.1)
                await producer.send(message("Cancelled", b"second"), queue=sent.queue)
                assert [each.body for each in await consumer.poll(20_000)] == [b"second"]

    asyncio.run(main())


@pytest.mark.parametrize("committed", [False, True])
def test_what_a_cancelled_poll_had_taken_comes_with_the_next(cluster: BlockingCluster, *, committed: bool) -> None:
    async def main() -> None:
        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            topic = f"Taken{committed}"
            sent = await producer.send(message(topic, b"m0"))
            async with aio.open_pull_consumer(cluster.namesrv_address, f"tg{committed}", FIRST) as consumer:
                await routed(consumer, topic)
                await consumer.assign([sent.queue])
                polled = threading.Event()
                poll = consumer._inner.poll

                async def noted(timeout_ms: float = 5_000) -> list[ReceivedMessage]:
                    messages = await poll(timeout_ms)
                    if committed:  # as another task may, before the cancel is heard of
                        await consumer._inner.commit()
                    polled.set()
                    return messages

                consumer._inner.poll = noted  # type: ignore[method-assign]
                task = asyncio.create_task(consumer.poll(20_000))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert polled.wait(20)  # this loop stands still: it does not hear of the end before the cancel
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await consumer.commit()
                assert not await consumer.committed(sent.queue)
                assert [each.body for each in await consumer.poll(20_000)] == [b"m0"]
                await consumer.commit()
                assert await consumer.committed(sent.queue) == sent.queue_offset + 1

    asyncio.run(main())


# --- pops and transactions ---------------------------------------------------------------------------------------

QUICK = {"transactionCheckInterval": "300", "transactionTimeOut": "300", "recallMessageEnable": "true"}


@pytest.fixture(scope="module")
def asking_cluster() -> Iterator[BlockingCluster]:
    """One whose broker soon asks about half messages, and takes timer messages back."""
    with local_cluster(broker_config=QUICK) as running:
        yield running


def polled(cluster: BlockingCluster, topic: str, count: int) -> list[bytes]:
    """Return the bodies of so many messages of *topic*, sorted."""
    got: list[bytes] = []
    with blocking.open_pull_consumer(cluster.namesrv_address, f"{topic}_readers", FIRST) as consumer:
        consumer.subscribe({topic: "*"})
        while len(got) < count:
            polled = consumer.poll(20_000)
            assert polled, got
            got += [each.body for each in polled]
    return sorted(got)


def test_blocking_pops_until_it_is_acknowledged(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        for number in range(4):
            producer.send(message("Popped", b"%d" % number))
        assert len(producer.queues("Popped")) == 4
    options = PopConsumerOptions(invisible_ms=2_000, max_messages=1)
    with blocking.open_pop_consumer(cluster.namesrv_address, "pops", {"Popped": "*"}, options) as consumer:
        assert consumer.brokers("Popped") == ["broker-a"]
        with pytest.raises(InvalidMessageError, match="not subscribed"):
            consumer.pop("Other")
        tries = Counter[bytes]()
        while len(tries) < 4 or max(tries.values()) < 2:
            for each in consumer.pop("Popped", hold_ms=1_000):
                tries[each.message.body] += 1
                if each.message.body != b"2" or tries[b"2"] == 2:
                    consumer.ack(each)
                elif tries[b"2"] == 1:
                    consumer.change_invisible(each, 500)
        assert tries == {b"0": 1, b"1": 1, b"2": 2, b"3": 1}


def test_a_pop_listener_runs_in_the_loop_and_ends_with_its_task(cluster: BlockingCluster) -> None:
    async def main() -> None:
        got: list[bytes] = []
        all_there = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def listen(received: ReceivedMessage) -> None:
            assert asyncio.get_running_loop() is loop
            got.append(received.body)
            if len(got) == 8:
                all_there.set()

        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            await asyncio.gather(*(producer.send(message("PopAio", b"%d" % number)) for number in range(8)))
            assert len(await producer.queues("PopAio")) == 4
        async with aio.open_pop_consumer(cluster.namesrv_address, "popa", {"PopAio": "*"}) as consumer:
            running = asyncio.create_task(consumer.run_listener(listen))
            await asyncio.wait_for(all_there.wait(), 20)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert sorted(got) == [b"%d" % number for number in range(8)]

    asyncio.run(main())


def test_a_plain_pop_listener_runs_in_threads(cluster: BlockingCluster) -> None:
    with blocking.open_producer(cluster.namesrv_address, "pg") as producer:
        producer.send(message("PopThread", b"x"))
    got: list[tuple[bytes, str]] = []
    there = threading.Event()

    def listen(received: ReceivedMessage) -> None:
        got.append((received.body, threading.current_thread().name))
        there.set()

    with blocking.open_pop_consumer(cluster.namesrv_address, "popt", {"PopThread": "*"}) as consumer:
        waiting = consumer._portal.submit(consumer._run, listen)  # what run_listener waits for until it is interrupted
        assert there.wait(20)
        waiting.cancel()
    assert [body for body, _ in got] == [b"x"] and got[0][1] != "understudy-portal"


def test_blocking_transactions_are_decided_at_once_or_when_the_broker_asks(asking_cluster: BlockingCluster) -> None:
    asked: list[str] = []

    def check(half: ReceivedMessage) -> TransactionState:
        asked.append(threading.current_thread().name)
        return TransactionState.COMMIT

    def execute(half: Message, sent: SendResult) -> TransactionState:
        assert threading.current_thread() is threading.main_thread() and sent.status is SendStatus.OK
        if half.body == b"raise":
            raise KeyError("not now")
        return {b"commit": TransactionState.COMMIT, b"rollback": TransactionState.ROLLBACK}[half.body]

    opened = blocking.open_transaction_producer(asking_cluster.namesrv_address, "tb", check)
    with opened as transactions:
        transactions.producer.send(message("Decided", b"plain"))
        assert transactions.send(message("Decided", b"commit"), execute).told
        assert transactions.send(message("Decided", b"rollback"), execute).state is TransactionState.ROLLBACK
        with pytest.raises(KeyError):
            transactions.send(message("Decided", b"raise"), execute)
        assert polled(asking_cluster, "Decided", 3) == [b"commit", b"plain", b"raise"]
    assert asked and "understudy-portal" not in asked and "MainThread" not in asked


def test_a_check_that_hangs_keeps_nobody_from_leaving_and_needs_no_thread_of_others(
    asking_cluster: BlockingCluster,
) -> None:
    asked, release, ended = threading.Event(), threading.Event(), threading.Event()

    def check(_: ReceivedMessage) -> TransactionState:
        asked.set()
        release.wait(30)
        ended.set()
        return TransactionState.COMMIT

    async def take_all() -> None:
        limiter = trio.to_thread.current_default_thread_limiter()
        while limiter.available_tokens:
            limiter.acquire_on_behalf_of_nowait(object())

    try:
        with blocking.open_transaction_producer(asking_cluster.namesrv_address, "th", check) as transactions:
            transactions._portal.call(take_all)  # as others may who use threads in this process
            transactions.prepare(message("Hanging", b"half"))
            assert asked.wait(20)
        assert not ended.is_set()
    finally:
        release.set()


def test_asyncio_transactions_are_decided_at_once_or_when_the_broker_asks(asking_cluster: BlockingCluster) -> None:
    async def main() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        async def check(half: ReceivedMessage) -> TransactionState:
            assert asyncio.get_running_loop() is loop
            asked.set()
            return TransactionState.COMMIT

        async def execute(half: Message, sent: SendResult) -> TransactionState:
            await asyncio.sleep(0)
            return TransactionState.COMMIT if half.body == b"commit" else TransactionState.UNKNOWN

        async with aio.open_transaction_producer(asking_cluster.namesrv_address, "ta", check) as transactions:
            await transactions.producer.send(message("DecidedAio", b"plain"))
            assert (await transactions.send(message("DecidedAio", b"commit"), execute)).told
            assert not (await transactions.send(message("DecidedAio", b"later"), execute)).told
            await asyncio.wait_for(asked.wait(), 20)
            wanted = [b"commit", b"later", b"plain"]
            assert await asyncio.to_thread(polled, asking_cluster, "DecidedAio", 3) == wanted

    asyncio.run(main())


def test_a_timer_message_is_recalled_and_a_paused_queue_is_not_read(asking_cluster: BlockingCluster) -> None:
    with blocking.open_producer(asking_cluster.namesrv_address, "pg") as producer:
        sent = producer.send(message("Recalled", b"now"))
        timer = producer.send(message("Recalled", b"never", delay_ms=60_000))
        assert producer.recall("Recalled", timer.recall_handle or "") == timer.message_id
        with pytest.raises(InvalidMessageError, match="recall handle"):
            producer.recall("Recalled", "no handle")
        with blocking.open_pull_consumer(asking_cluster.namesrv_address, "paused", FIRST) as consumer:
            consumer.assign([sent.queue])
            consumer.pause([sent.queue])
            found = consumer.pull(sent.queue, 0)
            assert [each.body for each in found.messages] == [b"now"]
            consumer.resume([sent.queue])
            assert [each.body for each in consumer.poll(20_000)] == [b"now"]
