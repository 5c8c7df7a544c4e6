"""Ordered consumers while their master is down: locks that are given back at once, and locks that are renewed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest
import trio
from container_ring import TOPIC, acting, open_ring, run

from understudy.broker.broker import Broker
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.push_consumer import PushConsumer, open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.drills.ring import GROUPS, broker_of
from understudy.testkit.waiting import until

ORDERED = PushConsumerOptions(ordered=True, consume_from=ConsumeFrom.FIRST_OFFSET)
QUEUES = {MessageQueue(TOPIC, group, number) for group in GROUPS for number in (0, 1)}
CLIENT_LOCK_SECONDS = 30
BROKER_LOCK_SECONDS = 60


def locked(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queue, held in consumer.held.items() if held.locked_at is not None and queue.topic == TOPIC}


def owner(broker: Broker, queue: MessageQueue) -> str | None:
    key = (queue.topic, queue.broker_name, queue.queue_id)
    return broker.locks.owner("ordered", key, broker.world.clock.wall_ms())


async def ignore(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
    pass


@pytest.mark.covers("R13")
@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("shared", [False, True], ids=["it had all queues", "it had half of them"])
def test_what_an_ordered_consumer_held_is_free_as_soon_as_it_stops(strict: str, shared: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"lockInStrictMode": strict}) as ring:
            # given a group whose master is down
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 5)
            servers = ring.cluster.name_servers
            first_world, second_world = ring.cluster.client_world("reader-1"), ring.cluster.client_world("reader-2")
            async with trio.open_nursery() as nursery:
                second_runs = trio.Event()
                second: list[PushConsumer] = []

                async def run_second() -> None:
                    async with open_push_consumer(
                        second_world, servers, "ordered", {TOPIC: "*"}, ignore, ORDERED
                    ) as consumer:
                        second.append(consumer)
                        second_runs.set()
                        await trio.sleep_forever()

                # and a consumer that holds the locks of all queues, or shares them with another one
                async with open_push_consumer(first_world, servers, "ordered", {TOPIC: "*"}, ignore, ORDERED) as first:
                    await until(lambda: locked(first) == QUEUES, 30)
                    if shared:
                        nursery.start_soon(run_second)
                        await second_runs.wait()
                        await until(lambda: len(locked(first)) == len(locked(second[0])) == 3, 60)
                    held = locked(first)
                    serving = {"g0": slave, "g1": ring.broker("g1", 0), "g2": ring.broker("g2", 0)}
                    assert {owner(serving[queue.broker_name], queue) for queue in held} == {first.session.client_id}
                # when it stops, each of its locks is gone at every broker that had granted it
                brokers = [broker_of(ring.cluster, group, number) for group in GROUPS for number in (0, 1, 2)]
                for broker in filter(None, brokers):
                    assert first.session.client_id not in {owner(broker, queue) for queue in held}
                # and another one has all of them, long before a lock would have ended by itself
                stopped = trio.current_time()
                if not shared:
                    nursery.start_soon(run_second)
                    await second_runs.wait()
                await until(lambda: locked(second[0]) == QUEUES, 60)
                assert trio.current_time() - stopped < 5
                nursery.cancel_scope.cancel()

    run(scenario)


@pytest.mark.covers("R14")
@pytest.mark.parametrize("strict", ["true", "false"])
def test_ordered_consumption_outlives_the_locks_of_a_dead_master(strict: str) -> None:
    async def scenario(source: random.Random) -> None:
        received: dict[MessageQueue, list[tuple[float, int]]] = defaultdict(list)

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for each in batch:
                received[context.queue].append((trio.current_time(), int(each.body)))
            await trio.sleep(2)

        async with open_ring(source, {"lockInStrictMode": strict}) as ring:
            # given more than two minutes' work in the two queues of a group
            for number in range(140):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", number % 2))
            world, servers = ring.cluster.client_world("reader"), ring.cluster.name_servers
            async with open_push_consumer(world, servers, "ordered", {TOPIC: "*"}, listen, ORDERED):
                await until(lambda: all(len(received[MessageQueue(TOPIC, "g0", each)]) > 5 for each in (0, 1)), 60)
                # when the master dies, and stays away for much longer than any lock lives
                killed = trio.current_time()
                await ring.cluster.kill("c1")
                await trio.sleep(1.5 * BROKER_LOCK_SECONDS)
                # then consumption goes on all the time, in order, each message once
                for queue_id in (0, 1):
                    rows = received[MessageQueue(TOPIC, "g0", queue_id)]
                    assert [number for _, number in rows] == list(range(queue_id, rows[-1][1] + 1, 2))
                    moments = [at for at, _ in rows if at > killed]
                    assert moments[-1] - killed > 1.4 * BROKER_LOCK_SECONDS > CLIENT_LOCK_SECONDS
                    gaps = [later - earlier for earlier, later in zip([killed, *moments], moments, strict=False)]
                    assert max(gaps) < 5, max(gaps)
                # and also over the return of the master
                await ring.cluster.restart("c1")
                await until(lambda: sum(map(len, received.values())) >= 140, 300, 1)
                for queue_id in (0, 1):
                    numbers = [number for _, number in received[MessageQueue(TOPIC, "g0", queue_id)]]
                    assert numbers == list(range(queue_id, 140, 2))

    run(scenario)
