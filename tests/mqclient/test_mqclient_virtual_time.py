"""Long stretches of a consumer's life in virtual time: nothing spins, nobody is forgotten, order survives a crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import trio

from understudy.mqclient import pulls as pulls_room
from understudy.mqclient.errors import BrokerError, ClientError, InvalidMessageError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.pull import PullRequest, pull_command
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.command import Command
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

TEN_MINUTES = 600


def test_an_idle_consumer_polls_long_and_stays_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls: Counter[MessageQueue] = Counter()
    got: list[bytes] = []
    arrived = trio.Event()

    def counted(wanted: PullRequest) -> Command:
        pulls[wanted.queue] += 1
        return pull_command(wanted)

    monkeypatch.setattr(pulls_room, "pull_command", counted)

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        got.extend(each.body for each in batch)
        if b"second" in got:
            arrived.set()

    async def idle(source: random.Random) -> bool:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            servers = cluster.name_servers
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            async with (
                open_producer(cluster.client_world("writer"), servers, "writers") as producer,
                open_push_consumer(
                    cluster.client_world("reader"), servers, "readers", {"T": "*"}, listen, options
                ) as consumer,
            ):
                await producer.send(message("T", b"first"))
                await trio.sleep(60)
                pulls.clear()
                # When nothing happens for ten minutes
                await trio.sleep(TEN_MINUTES)
                held = {queue for queue in consumer.queues if queue.topic == "T"}
                calm = all(30 <= pulls[queue] <= 50 for queue in held)
                # Then a new message still arrives at once
                began = trio.current_time()
                await producer.send(message("T", b"second"))
                with trio.move_on_after(5):
                    await arrived.wait()
                return calm and len(held) == 4 and trio.current_time() - began < 1

    # Then each queue was asked every fifteen seconds, as long polls are, and no more
    assert run_seed(idle, 1), pulls
    assert got == [b"first", b"second"]


@pytest.mark.parametrize("seed", range(3))
def test_order_within_a_queue_survives_a_crash_of_the_broker(seed: int) -> None:
    async def crash(source: random.Random) -> list[int]:
        consumed: list[int] = []

        async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            consumed.extend(int(each.body) for each in batch)

        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"flushDiskType": "SYNC_FLUSH", "brokerName": "broker-a"}])
            servers = cluster.name_servers
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, ordered=True)
            async with (
                open_producer(cluster.client_world("writer"), servers, "writers") as producer,
                open_push_consumer(cluster.client_world("reader"), servers, "readers", {"T": "*"}, listen, options),
                trio.open_nursery() as nursery,
            ):

                async def produce() -> None:
                    number = 0
                    while number < 30:
                        try:
                            queue = (await producer.queues("T"))[0]
                            await producer.send(message("T", str(number).encode()), queue=queue)
                        except ClientError:
                            await trio.sleep(0.5)
                            continue
                        number += 1
                        await trio.sleep(source.uniform(0, 0.3))

                nursery.start_soon(produce)
                await trio.sleep(source.uniform(1, 5))
                await cluster.kill("c1")
                await trio.sleep(source.uniform(0, 5))
                await cluster.restart("c1")
                await trio.sleep(180)
        return consumed

    consumed = run_seed(crash, seed)
    # Repeats are allowed after a crash; going on beyond a gap is not, and nothing may be missing at the end.
    highest = -1
    for number in consumed:
        assert number <= highest + 1, consumed
        highest = max(highest, number)
    assert highest == 29


def test_timer_messages_come_in_their_second_and_can_be_taken_back() -> None:
    got: dict[bytes, float] = {}

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        got.update({each.body: trio.current_time() for each in batch})

    async def kept(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a", "recallMessageEnable": "true"}])
            servers, world = cluster.name_servers, cluster.client_world("writer")
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            async with (
                open_producer(world, servers, "writers") as producer,
                open_push_consumer(cluster.client_world("reader"), servers, "readers", {"T": "*"}, listen, options),
            ):
                # Given messages that wait, one of which is taken back
                began = trio.current_time()
                await producer.send(message("T", b"delay", delay_ms=5_000))
                await producer.send(message("T", b"at", deliver_at_ms=world.clock.wall_ms() + 7_000))
                gone = await producer.send(message("T", b"gone", delay_ms=6_000))
                assert gone.recall_handle is not None
                assert await producer.recall("T", gone.recall_handle) == gone.message_id
                # When what is no handle of the topic is handed in, nothing is asked
                for topic, handle in (("U", gone.recall_handle), ("T", "nonsense")):
                    with pytest.raises(InvalidMessageError, match="recall handle"):
                        await producer.recall(topic, handle)
                await trio.sleep(20)
                # Then the others came in their seconds
                assert got.keys() == {b"delay", b"at"}
                assert [0 <= got[body] - began - wait < 1.5 for body, wait in ((b"delay", 5), (b"at", 7))] == [True] * 2
                with pytest.raises(BrokerError, match="timestamp invalid"):
                    await producer.recall("T", gone.recall_handle)

    run_seed(kept, 1)
