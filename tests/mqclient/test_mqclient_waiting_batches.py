"""Batches that wait for tasks, who takes them, and the one who watches how long listeners take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
import trio.testing
from mqclient_rig import FIRST, TOPIC, send_numbered

from understudy.mqclient.api import (
    ConsumeContext,
    Producer,
    PushConsumerOptions,
    ReceivedMessage,
    World,
    message,
    open_push_consumer,
)
from understudy.mqclient.assigned import AssignedQueue, Batch
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.waiting_batches import WaitingBatches, Watchdog
from understudy.runtime.clock import SystemClock
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

ASSIGNED = AssignedQueue(MessageQueue(TOPIC, "broker-a", 0))


def a_message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(TOPIC, b"", {}, 0, "broker-a", 0, offset, 0, 0, 0, "", 0, "", 0, 0, 0, 0, TOPIC)


def some(count: int) -> list[Batch]:
    return [Batch(ASSIGNED, ASSIGNED.window, [a_message(offset)]) for offset in range(count)]


@asynccontextmanager
async def takers(count: int, batches: WaitingBatches, took: list[tuple[int, Batch]]) -> AsyncIterator[None]:
    async def take_all(number: int) -> None:
        while True:
            took.append((number, await batches.take()))
            batches.give_back(Batch(ASSIGNED, ASSIGNED.window, []))  # as one who waits now
            await trio.testing.wait_all_tasks_blocked(0.01 * (number + 1))  # others have their turn

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(take_all, number)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_waiting_batches_are_taken_in_order_by_as_many_tasks_as_there_are() -> None:
    batches, took, wanted = WaitingBatches(), list[tuple[int, Batch]](), some(6)
    async with takers(3, batches, took):
        for each in wanted[:3]:
            batches.put(each)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(number for number, _ in took) == [0, 1, 2]
        for each in wanted[3:]:
            batches.put(each)
        await trio.testing.wait_all_tasks_blocked(0.2)
    assert [batch for _, batch in took] == wanted
    assert batches.take_now() is None


async def test_what_is_given_back_is_taken_next() -> None:
    batches, messages = WaitingBatches(), [a_message(offset) for offset in range(3)]
    batches.put(Batch(ASSIGNED, ASSIGNED.window, messages))
    (other,) = some(1)
    batches.put(other)
    assert (await batches.take()).messages == messages
    batches.give_back(Batch(ASSIGNED, ASSIGNED.window, messages[1:]))
    assert len(batches) == 3
    assert [(await batches.take()).messages, (await batches.take()).messages] == [messages[1:], other.messages]
    assert len(batches) == 0


async def test_one_task_that_never_waits_takes_what_is_there_and_wakes_no_other() -> None:
    batches, woken = WaitingBatches(), list[int]()

    async def drain() -> None:
        while True:
            await batches.take()
            taken = 1
            while batches.take_now() is not None:
                taken += 1
            woken.append(taken)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(drain)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            for each in some(32):
                batches.put(each)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert woken == [32, 32, 32]


async def test_each_listener_has_a_limit_of_its_own_although_one_watches(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = SystemClock()
    dog = Watchdog(clock, 10)
    ended: dict[str, float] = {}

    async def listen(name: str, begin: float, takes: float) -> None:
        await trio.sleep(begin)
        with trio.CancelScope() as scope:
            dog.begin(scope, clock.monotonic())
            try:
                await trio.sleep(takes)
            finally:
                dog.end(scope)
        ended[f"{name}{' late' if scope.cancelled_caught else ''}"] = trio.current_time() - start

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dog.run)
        async with trio.open_nursery() as listeners:
            for name, begin, takes in (("a", 1, 99), ("b", 2, 9), ("c", 4.5, 99), ("d", 13, 99), ("e", 60, 99)):
                listeners.start_soon(listen, name, begin, takes)
        nursery.cancel_scope.cancel()
    assert {name: round(at, 2) for name, at in ended.items()} == {
        "a late": 11, "b": 11, "c late": 14.5, "d late": 23, "e late": 70,
    }  # fmt: skip


async def test_a_listener_that_never_waits_leaves_others_their_turn(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await producer.send_batches([message(TOPIC, b"x") for _ in range(2_000)], queue=ASSIGNED.queue)
    seen, turns, done = 0, list[int](), trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal seen
        seen += len(batch)
        if seen == 2_000:
            done.set()

    async def beside() -> None:
        while not done.is_set():
            turns.append(seen)
            await trio.lowlevel.checkpoint()

    options = PushConsumerOptions(consume_from=FIRST, pull_batch=1_000)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options):
        with trio.fail_after(30):
            await beside()
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 512  # of 2,000


# --- queues that are given back ------------------------------------------------------------------------------------


async def test_what_was_pulled_of_a_queue_that_was_given_back_does_not_wait_any_longer(
    cluster: LocalCluster, producer: Producer, world: World
) -> None:
    await producer.send_batches([message(TOPIC, b"x") for _ in range(2_000)], queue=ASSIGNED.queue)

    async def hang(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        await trio.sleep_forever()

    options = PushConsumerOptions(consume_from=FIRST, consume_tasks=1, close_timeout_ms=0)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, hang, options) as consumer:
        held = ASSIGNED

        def full_again() -> bool:
            nonlocal held
            last, held = held, consumer.held.get(ASSIGNED.queue, ASSIGNED)
            return held is last and not held.dropped and held.window.full(options.limits, ordered=False) is not None

        for _ in range(3):
            await until(full_again)
            assert 1_000 <= len(held.waiting) <= len(held.window)
            await consumer.revoke(ASSIGNED.queue)
            assert len(held.waiting) == 0


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_queue_that_was_set_to_another_offset_has_nothing_from_before_consumed(
    cluster: LocalCluster, producer: Producer, world: World, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    if not at_once:  # what is not worth a look through all is skipped when its turn comes
        monkeypatch.setattr(WaitingBatches, "forget", lambda self, most: None)
    bodies = await send_numbered(producer, 10, queue_id=0)
    seen, goes_on, done = list[str](), trio.Event(), trio.Event()

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        seen.append(batch[0].body.decode())
        if seen[-1] == "after":
            done.set()
        await goes_on.wait()

    options = PushConsumerOptions(consume_from=FIRST, consume_tasks=1)
    async with open_push_consumer(world, cluster.namesrv_address, "cg", {TOPIC: "*"}, listen, options) as consumer:
        await until(lambda: ASSIGNED.queue in consumer.held and len(consumer.held[ASSIGNED.queue].window) == 10)
        await until(lambda: bool(seen))
        held = consumer.held[ASSIGNED.queue]
        held.restart(10)
        assert len(held.waiting) == (0 if at_once else 9)
        goes_on.set()
        await producer.send(message(TOPIC, b"after"), queue=ASSIGNED.queue)
        with trio.fail_after(20):
            await done.wait()
    assert seen == [bodies[0], "after"]


def test_many_queues_given_back_at_once_are_not_looked_for_one_by_one() -> None:
    looks = 0

    class Looked(Batch):
        @property
        def wanted(self) -> bool:
            nonlocal looks
            looks += 1
            return super().wanted

    line = WaitingBatches()
    queues = [AssignedQueue(MessageQueue(TOPIC, "broker-a", number), waiting=line) for number in range(256)]
    for each in queues:
        pulled = [a_message(offset) for offset in range(8)]
        each.window.add(pulled)
        line.put(Looked(each, each.window, pulled))
    for each in queues[1:]:
        each.drop()
        wanted = 8 * sum(not queue.dropped for queue in queues)
        assert wanted <= len(line) <= 2 * wanted
    assert looks < 3 * 256
