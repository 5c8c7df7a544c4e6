"""The blocking and the asyncio client have the calls of the trio client, with the same parameters."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from understudy.mqclient import api, blocking
from understudy.mqclient import asyncio as aio
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeFrom,
    NoReplyError,
    PullConsumerOptions,
    PushConsumerOptions,
    ReceivedMessage,
    WindowLimits,
    message,
)
from understudy.testkit.blocking import BlockingCluster, local_cluster

DOORS = [blocking, aio]
KINDS = ["Producer", "TransactionProducer", "PullConsumer", "PopConsumer", "PushConsumer"]
OF_ITS_OWN_ROOM = {
    "Producer.send_half": "TransactionProducer.prepare is the way to it",
    "PopConsumer.close": "its block is left",
    "PopConsumer.listen": "run_listener is the way to it",
    "Producer.sent": "what the send of these clients is made of",
    "PullConsumer.close": "its block is left",
    "PullConsumer.commit_for_ever": "what the open block runs",
    "PullConsumer.give_back": "what a cancelled poll of these clients does",
    "PushConsumer.close": "its block is left",
    "PushConsumer.held": "what its parts share",
    "PushConsumer.reset": "what a broker asks for",
    "PushConsumer.revoke": "what the members of a group decide",
    "PushConsumer.start": "its block is entered",
    "PushConsumer.take": "what the members of a group decide",
}
"""What the trio client needs of itself, or its blocks do."""
FIRST = ConsumeFrom.FIRST_OFFSET
LIMIT_S = 30


def parameters(call: Callable[..., object], *left_out: str) -> list[tuple[str, object, object]]:
    """Return name, kind and default of each parameter but those that are left out."""
    found = inspect.signature(call).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name not in ("self", *left_out)]


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_is_there_with_its_parameters(door: Any, kind: str) -> None:
    wanted, found = public(getattr(api, kind)), public(getattr(door, kind))
    wanted = {name: member for name, member in wanted.items() if f"{kind}.{name}" not in OF_ITS_OWN_ROOM}
    more = {"run_listener"} if kind == "PopConsumer" else set()
    assert found.keys() == wanted.keys() | more
    assert [] == [
        f"{name}: {parameters(member)} became {parameters(found[name])}"
        for name, member in wanted.items()
        if callable(member) and parameters(member) != parameters(found[name])
    ]


@pytest.mark.parametrize("door", DOORS)
def test_everything_is_opened_with_the_same_parameters(door: Any) -> None:
    openers = [name for name in api.__all__ if name.startswith("open_")]
    assert len(openers) == len(KINDS)
    for name in openers:
        assert parameters(getattr(api, name), "world") == parameters(getattr(door, name)), name
    listened = parameters(api.run_pop_listener, "consumer")
    assert listened == parameters(door.PopConsumer.run_listener)


def until(condition: Callable[[], bool]) -> bool:
    """Wait for *condition*, in a thread of its own."""
    end = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


# --- what the calls do with what they are given ------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with local_cluster() as running:
        for topic in ("Pressed", "Late", "Asked", "Nobody", "Read"):
            running.make_topic(topic, queues=1)
        yield running


def test_a_slow_asyncio_listener_bounds_what_is_pulled_and_how_many_run(cluster: BlockingCluster) -> None:
    async def main() -> tuple[int, int]:
        busy, most, begun, goes_on = 0, 0, 0, asyncio.Event()

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            nonlocal busy, most, begun
            busy, begun = busy + 1, begun + 1
            most = max(most, busy)
            await goes_on.wait()
            busy -= 1

        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:
            await producer.send_batches([message("Pressed", b"x") for _ in range(200)])
        options = PushConsumerOptions(
            consume_from=FIRST, consume_tasks=3, pull_batch=4, limits=WindowLimits(messages=8)
        )
        opened = aio.open_push_consumer(cluster.namesrv_address, "pressed", {"Pressed": "*"}, listen, options)
        async with opened as consumer:
            assert await asyncio.to_thread(until, lambda: begun == 3)
            (held,) = [held for queue, held in consumer._inner.held.items() if queue.topic == "Pressed"]
            assert await asyncio.to_thread(until, lambda: len(held.window) > 8)
            pulled = len(held.window)
            goes_on.set()
            assert await asyncio.to_thread(until, lambda: begun == 200)
        return most, pulled

    most, pulled = asyncio.run(main())
    assert (most, pulled <= 12) == (3, True)


def test_an_asyncio_listener_that_takes_too_long_is_cancelled_and_told_of(cluster: BlockingCluster) -> None:
    async def main() -> tuple[list[str], list[bytes]]:
        ended: asyncio.Queue[str] = asyncio.Queue()
        told: list[bytes] = []

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            try:
                await asyncio.sleep(LIMIT_S * 2)
                ended.put_nowait("slept")
            except asyncio.CancelledError:
                ended.put_nowait("cancelled")
                raise

        options = PushConsumerOptions(
            consume_from=FIRST, consume_timeout_ms=100, on_error=lambda error, first: told.append(first.body)
        )
        async with (
            aio.open_producer(cluster.namesrv_address, "pg") as producer,
            aio.open_push_consumer(cluster.namesrv_address, "late", {"Late": "*"}, listen, options),
        ):
            await producer.send(message("Late", b"too long"))
            found = [await asyncio.wait_for(ended.get(), LIMIT_S)]
            assert await asyncio.to_thread(until, lambda: bool(told))
        return found, told

    assert asyncio.run(main()) == (["cancelled"], [b"too long"])


def test_an_asyncio_request_gets_its_reply_or_ends_after_its_own_time(cluster: BlockingCluster) -> None:
    async def main() -> tuple[bytes, float]:
        async with aio.open_producer(cluster.namesrv_address, "pg") as producer:

            async def answer(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
                for each in messages:
                    await producer.reply(each, b"reply to " + each.body, timeout_ms=10_000)

            options = PushConsumerOptions(consume_from=FIRST)
            opened = aio.open_push_consumer(cluster.namesrv_address, "asked", {"Asked": "*"}, answer, options)
            async with opened:
                reply = await producer.request(message("Asked", b"question"), timeout_ms=LIMIT_S * 1000)
            began = time.monotonic()
            with pytest.raises(NoReplyError, match="within 700 ms"):
                await producer.request(message("Nobody", b"question"), timeout_ms=700)
            return reply.body, time.monotonic() - began

    body, waited = asyncio.run(main())
    assert body == b"reply to question"
    assert waited >= 0.7


def test_a_poll_of_asyncio_ends_after_its_own_time_and_its_consumer_is_read_with_async_for(
    cluster: BlockingCluster,
) -> None:
    async def main() -> list[bytes]:
        got: list[bytes] = []
        options = PullConsumerOptions(consume_from=FIRST)
        async with (
            aio.open_producer(cluster.namesrv_address, "pg") as producer,
            aio.open_pull_consumer(cluster.namesrv_address, "read", options) as consumer,
        ):
            await consumer.subscribe({"Read": "*"})
            began = time.monotonic()
            assert await consumer.poll(timeout_ms=300) == []
            assert time.monotonic() - began >= 0.3
            for number in range(5):
                await producer.send(message("Read", b"%d" % number))
            async with aclosing(cast(AsyncGenerator[ReceivedMessage, None], aiter(consumer))) as messages:
                async for each in messages:
                    got.append(each.body)
                    if len(got) == 5:
                        break
        return got

    assert asyncio.run(main()) == [b"%d" % number for number in range(5)]
