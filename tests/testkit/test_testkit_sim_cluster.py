"""A whole cluster in virtual time: what was acknowledged survives every crash, and a seed replays its run."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.remoting.codes import RequestCode
from understudy.testkit.history import History, Verdict
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

MESSAGES = 60
BROKER = {"flushDiskType": "SYNC_FLUSH", "brokerName": "broker-a"}


async def crash_under_traffic(source: random.Random, *, power: bool) -> tuple[Verdict, str, int]:
    """One producer, one consumer, a broker that dies and comes back; returns verdict, digest and sent bytes."""
    async with SimCluster(source) as cluster:
        history = History()
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [BROKER])

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            for message in messages:
                key = message.properties["KEYS"]
                place = (message.topic, message.broker_name, message.queue_id)
                history.delivered(key, "readers", place, message.queue_offset)
                cluster.trace.record("delivered", key, *place, message.queue_offset)

        async def produce() -> None:
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                for number in range(MESSAGES):
                    key = f"m{number}"
                    try:
                        result = await producer.send(Message("orders", key.encode(), {"KEYS": key}))
                    except ClientError as error:
                        history.sent(key, "one", None, acknowledged=False)
                        cluster.trace.record("failed", key, type(error).__name__)
                        await trio.sleep(0.5)
                        continue
                    queue = (result.queue.topic, result.queue.broker_name, result.queue.queue_id)
                    history.sent(key, "one", queue, acknowledged=True)
                    cluster.trace.record("sent", key, *queue, result.queue_offset)
                    await trio.sleep(source.uniform(0, 0.2))

        options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, consume_tasks=1)
        async with (
            open_push_consumer(
                cluster.client_world("reader"), cluster.name_servers, "readers", {"orders": "*"}, listen, options
            ),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(produce)
            await trio.sleep(source.uniform(1, 4))
            await cluster.kill("c1", power=power)
            await trio.sleep(source.uniform(0, 3))
            await cluster.restart("c1")
            await trio.sleep(120)
        return history.check(["readers"], ordered=False), cluster.trace.digest(), cluster.network.sent_bytes


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.covers("R101")
def test_acknowledged_messages_survive_a_crash(seed: int, power: bool) -> None:
    verdict, _, _ = run_seed(lambda source: crash_under_traffic(source, power=power), seed)
    assert verdict.ok, verdict
    assert verdict.sent >= MESSAGES // 2
    assert verdict.delivered >= verdict.sent


def test_one_seed_replays_one_run() -> None:
    first = run_seed(lambda source: crash_under_traffic(source, power=True), 7)
    again = run_seed(lambda source: crash_under_traffic(source, power=True), 7)
    other = run_seed(lambda source: crash_under_traffic(source, power=True), 8)
    assert first == again
    assert first[1] != other[1]


async def two_masters_and_a_partition(source: random.Random) -> tuple[set[str], set[str], set[str]]:
    """Cut one of two masters off from the name server; return who is in the cluster before, during and after."""
    from understudy.format.json_dialect import loads
    from understudy.remoting.client import open_client
    from understudy.remoting.command import request

    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{"brokerName": "broker-a", "enableSlaveActingMaster": "true"}])
        await cluster.start_container("c2", [{"brokerName": "broker-b", "enableSlaveActingMaster": "true"}])

        async with open_client(cluster.client_world()) as client:

            async def members() -> set[str]:
                answer = await client.invoke(cluster.name_servers, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3000)
                return set(loads(answer.body)["brokerAddrTable"])

            await trio.sleep(1)  # a master that could have been acted for asks before it registers
            before = await members()
            cluster.partition(["c1"], ["n1"])
            await trio.sleep(20)
            during = await members()
            cluster.heal()
            await trio.sleep(40)
            return before, during, await members()


def test_a_broker_behind_a_partition_leaves_the_route_and_comes_back() -> None:
    before, during, after = run_seed(two_masters_and_a_partition, 3)
    assert {"broker-a", "broker-b"} == before == after
    assert {"broker-b"} == during


def test_a_blocked_port_is_dead_while_the_rest_of_its_host_answers() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_name_server("n2")
            network, near = cluster.network, cluster.host("client").network
            for name in ("n1", "n2"):
                await near.connect(name, 9876, 1)
            network.block(cluster.address("n1"), 9876)
            with pytest.raises(TimeoutError):
                await near.connect("n1", 9876, 1)
            await near.connect("n2", 9876, 1)
            network.unblock(cluster.address("n1"), 9876)
            await near.connect("n1", 9876, 1)

    run_seed(scenario, 1)
