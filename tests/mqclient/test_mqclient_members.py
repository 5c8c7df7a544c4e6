"""Members of a group that die, leave and come late: who gets what, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio

from understudy.broker.topics import TopicConfig
from understudy.mqclient.heartbeat import ConsumeFrom, MessageModel
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import PushConsumer, open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import SessionOptions
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until


class Member:
    """One consumer on a machine of its own."""

    def __init__(self, cluster: SimCluster, name: str, model: MessageModel, consume_from: ConsumeFrom) -> None:
        self.bodies: list[bytes] = []
        self.consumer: PushConsumer
        self._cluster = cluster
        self._name = name
        self._options = PushConsumerOptions(
            model=model,
            consume_from=consume_from,
            offset_folder=f"/offsets/{name}",
            session=SessionOptions(client_id=name),
        )
        self._scope = trio.CancelScope()
        self._gone = trio.Event()

    async def _listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        self.bodies.extend(each.body for each in batch)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        cluster = self._cluster
        with self._scope:
            async with open_push_consumer(
                cluster.client_world(self._name),
                cluster.name_servers,
                "readers",
                {"T": "*"},
                self._listen,
                self._options,
            ) as self.consumer:
                task_status.started()
                await trio.sleep_forever()
        self._gone.set()

    @property
    def queues(self) -> set[MessageQueue]:
        return {queue for queue in self.consumer.queues if queue.topic == "T"}

    async def leave(self) -> None:
        self._scope.cancel()
        await self._gone.wait()

    async def crash(self) -> None:
        """Die as a process does: connections end, nobody says goodbye."""
        self._cluster.network.kill(self._cluster.address(self._name))
        await self.leave()


async def send(producer: Producer, name: str, count: int) -> set[bytes]:
    queues = await producer.queues("T")
    bodies = [f"{name} {number}".encode() for number in range(count)]
    for number, body in enumerate(bodies):
        await producer.send(message("T", body), queue=queues[number % len(queues)])
    return set(bodies)


async def eight_queues_each(cluster: SimCluster) -> None:
    """Create T with eight queues on each of two brokers; returns when the name server knows."""
    for broker in (cluster.brokers("c1")["a"], cluster.brokers("c2")["b"]):
        broker.topics.update([TopicConfig("T", 8, 8)])
        await broker.registration.settled()


@pytest.mark.covers("IT-03")
def test_queues_are_spread_evenly_again_after_a_crash_and_after_a_farewell() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            await cluster.start_container("c2", [{"brokerName": "b"}])
            async with (
                open_producer(cluster.client_world("writer"), cluster.name_servers, "writers") as producer,
                trio.open_nursery() as nursery,
            ):
                await eight_queues_each(cluster)
                names = ("m1", "m2", "m3", "m4")
                members = [Member(cluster, name, MessageModel.CLUSTERING, ConsumeFrom.FIRST_OFFSET) for name in names]
                for member in members:
                    await nursery.start(member.run)

                async def spread(living: list[Member], shares: list[int], seconds: float) -> None:
                    """Wait until every queue has exactly one of *living*, who have so many each."""

                    def is_spread() -> bool:
                        held = [queue for member in living for queue in member.queues]
                        found = sorted(len(member.queues) for member in living)
                        return len(held) == len(set(held)) == 16 and found == shares

                    await until(is_spread, seconds)

                # given four members: four queues each, and every message is consumed once
                await spread(members, [4, 4, 4, 4], 30)
                for member in members:
                    member.bodies.clear()
                sent = await send(producer, "calm", 160)
                await trio.sleep(2)
                assert sorted(body for member in members for body in member.bodies) == sorted(sent)
                assert [len(member.bodies) for member in members] == [40, 40, 40, 40]
                # when one dies, the rest has its queues within half a minute, and nothing is lost
                await members[1].crash()
                living = [members[0], members[2], members[3]]
                sent = await send(producer, "after the crash", 160)
                await spread(living, [5, 5, 6], 30)
                await trio.sleep(5)
                assert sent <= {body for member in living for body in member.bodies}
                # when one says farewell, the two others have eight each, at once
                await members[2].leave()
                await spread([members[0], members[3]], [8, 8], 5)
                sent = await send(producer, "after the farewell", 160)
                await trio.sleep(2)
                assert sent <= set(members[0].bodies) | set(members[3].bodies)
                nursery.cancel_scope.cancel()

    run_seed(scenario, 1)


@pytest.mark.covers("IT-04")
def test_a_broadcasting_member_that_dies_or_comes_late_changes_nothing_for_the_others() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            async with (
                open_producer(cluster.client_world("writer"), cluster.name_servers, "writers") as producer,
                trio.open_nursery() as nursery,
            ):
                await producer.send(message("T", b"makes the topic"))
                early = [
                    Member(cluster, name, MessageModel.BROADCASTING, ConsumeFrom.LAST_OFFSET) for name in ("m1", "m2")
                ]
                for member in early:
                    await nursery.start(member.run)
                await trio.sleep(5)
                # given two members: each gets everything, in the order of its queue
                first = await send(producer, "first", 40)
                await trio.sleep(2)
                for member in early:
                    assert sorted(member.bodies) == sorted(first)
                    for queue in range(4):
                        of_queue = [int(body.split()[1]) for body in member.bodies if int(body.split()[1]) % 4 == queue]
                        assert of_queue == sorted(of_queue)
                # when one dies, the other one gets everything
                await early[1].crash()
                second = await send(producer, "second", 40)
                await trio.sleep(2)
                assert sorted(early[0].bodies) == sorted(first | second)
                # and one that comes late gets only what is new
                late = Member(cluster, "m3", MessageModel.BROADCASTING, ConsumeFrom.LAST_OFFSET)
                await nursery.start(late.run)
                await trio.sleep(5)
                third = await send(producer, "third", 40)
                await trio.sleep(2)
                assert sorted(late.bodies) == sorted(third)
                assert sorted(early[0].bodies) == sorted(first | second | third)
                # and the one that died goes on where it was, for its progress is its own
                cluster.network.power_on(cluster.address("m2"))
                again = Member(cluster, "m2", MessageModel.BROADCASTING, ConsumeFrom.LAST_OFFSET)
                await nursery.start(again.run)
                await trio.sleep(5)
                assert second | third <= set(again.bodies)
                nursery.cancel_scope.cancel()

    run_seed(scenario, 1)
