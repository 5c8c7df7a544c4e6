"""Check points of another group's broker that a slave of the reference has put into a living master's revive topic."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from container_ring import TOPIC, records, run

from understudy.broker.broker import Broker
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint, Entry
from understudy.format import names
from understudy.format.properties import format_properties
from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

GROUP = "poppers"
RETRY = names.pop_retry_topic(GROUP, TOPIC)
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
INVISIBLE_MS = 5_000


@asynccontextmanager
async def open_shape(source: random.Random, shape: Ring) -> AsyncIterator[tuple[SimCluster, RemotingClient, Producer]]:
    async with SimCluster(source) as cluster:
        await shape.start(cluster)
        async with (
            open_client(cluster.client_world()) as client,
            open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
        ):
            await until(RingWatch(cluster, shape).complete, 60)
            await shape.make_topic(cluster, client, TOPIC)
            await trio.sleep(4)  # slaves look at topics every three seconds
            yield cluster, client, producer


async def put(client: RemotingClient, broker: Broker, entry: Entry, due_ms: int) -> None:
    """Send an entry of the revive topic as the escape bridge of the reference does."""
    tag = "ck" if isinstance(entry, CheckPoint) else entry.tag
    pairs = {"TAGS": tag, "UNIQ_KEY": entry.unique_key, "TIMER_DELIVER_MS": str(due_ms)}
    values = ("InnerProducerGroup_g0_1", REVIVE, "TBW102", "8", "0", "0", "1", "0", format_properties(pairs), "0")
    ext = dict(zip("abcdefghij", values, strict=True)) | {"k": "false", "m": "false"}
    answer = await client.invoke(broker.identity.address, request(RequestCode.SEND_MESSAGE_V2, ext, entry.body), 5_000)
    assert answer.code == 0, answer.remark


@pytest.mark.covers("R49", "R51", "R52")
@pytest.mark.parametrize("apart", [False, True])
def test_what_was_acknowledged_is_cancelled_and_the_rest_is_read_at_the_slave_that_acts(apart: bool) -> None:
    """Whether that slave lives in the same process as the master that got the check point, or elsewhere."""
    shape = Ring(3, apart=apart)

    async def scenario(source: random.Random) -> None:
        async with open_shape(source, shape) as (cluster, client, producer):
            # given messages of a group that lost its master, and a check point of theirs at another group's master
            for number in range(5):
                await producer.send(Message(TOPIC, b"%d" % number, {"TAGS": "A"}), queue=MessageQueue(TOPIC, "g0", 0))
            await trio.sleep(1)
            await cluster.kill("c1")
            slave = shape.broker_of(cluster, "g0", 1)
            assert slave is not None
            await until(lambda: "pop revive" in slave.services.running(), 20)
            receiver = shape.broker_of(cluster, "g1", 0)
            assert receiver is not None
            now_ms = cluster.host("c2").clock.wall_ms()
            point = CheckPoint(TOPIC, GROUP, 0, 0, now_ms, INVISIBLE_MS, "g0", (0, 1, 2, 3, 4))
            await put(client, receiver, point, point.revive_ms - AHEAD_MS)
            # and acknowledgements of some, one by one and together
            await put(client, receiver, Ack(point.key, (1,)), point.revive_ms)
            await put(client, receiver, Ack(point.key, (2, 4), True), point.revive_ms)
            # when its time is over, then the others stand in the retry topic of the master that got it, each once
            await until(lambda: len(records(receiver, RETRY)) >= 2, 60)
            await trio.sleep(30)
            found = records(receiver, RETRY)
            assert sorted(each.body for each in found) == [b"0", b"3"]
            assert {(each.properties["TAGS"], each.reconsume_times) for each in found} == {("A", 1)}
            others = [shape.broker_of(cluster, "g2", 0), slave]
            assert [records(each, RETRY) for each in others if each is not None] == [[], []]

    run(scenario)
