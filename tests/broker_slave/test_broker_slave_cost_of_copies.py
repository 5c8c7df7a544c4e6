"""How long a send waits for a slave: not at all if it copies later, one way there and back if it copies first.

Virtual time, in which work takes none: what it is that senders wait for, not how much work there is.
"""

from __future__ import annotations

import random
import statistics

import pytest
import trio
from slave_rig import GROUP, SLAVE, bodies, run

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.network import LinkQuality
from understudy.testkit.waiting import until

CLIENT_SECONDS = 0.050
"""One way between client and master."""
NEAR_SECONDS, FAR_SECONDS = 0.005, 0.300
"""One way between master and slave."""
COUNT = 200


async def send_many(source: random.Random, role: str, slave_seconds: float | None) -> tuple[float, float, float]:
    """Send one message after the other, then as many as a second takes with 32 senders.

    Args:
        source: of the cluster.
        role: of the master.
        slave_seconds: one way between master and slave, ``None``: no slave.

    Returns:
        Median seconds of a send; messages a second of one sender; messages a second of 32 senders.
    """
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        master = {**GROUP, "brokerRole": role}
        if slave_seconds is not None and role == "SYNC_MASTER":
            master |= {"inSyncReplicas": "2", "totalReplicas": "2"}
        await cluster.start_container("c1", [master])
        broker = cluster.brokers("c1")["broker-a"]

        def link(one: str, two: str, seconds: float) -> None:
            for pair in ((one, two), (two, one)):
                cluster.network.set_link(
                    cluster.address(pair[0]), cluster.address(pair[1]), LinkQuality(delay_seconds=(seconds, seconds))
                )

        link("client", "c1", CLIENT_SECONDS)
        if slave_seconds is not None:
            link("c1", "c2", slave_seconds)
            await cluster.start_container("c2", [SLAVE])
            slave = cluster.brokers("c2")["broker-a"]
        async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
            await producer.send(Message("orders", b"first"))
            if slave_seconds is not None:
                await until(lambda: broker.replication.copied(2) == broker.store.max_physical_offset, 30)
            took = []
            began = trio.current_time()
            for number in range(COUNT):
                before = trio.current_time()
                await producer.send(Message("orders", b"alone %d" % number))
                took.append(trio.current_time() - before)
            alone = COUNT / (trio.current_time() - began)
            sent = 0

            async def sender(number: int) -> None:
                nonlocal sent
                for turn in range(COUNT // 8):
                    await producer.send(Message("orders", b"%d of %d" % (turn, number)))
                    sent += 1

            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for number in range(32):
                    nursery.start_soon(sender, number)
            together = sent / (trio.current_time() - began)
        if slave_seconds is not None:
            await until(lambda: bodies(slave) == bodies(broker), 30)
            assert len(bodies(slave)) == 1 + COUNT + sent
        return statistics.median(took), alone, together


@pytest.mark.covers("R105")
@pytest.mark.parametrize("slave_seconds", [NEAR_SECONDS, FAR_SECONDS])
def test_nobody_waits_for_a_slave_that_copies_later_however_far_it_is(slave_seconds: float) -> None:
    # given the same traffic at a master without a slave, and at one whose slave is near or far
    without = run(lambda source: send_many(source, "ASYNC_MASTER", None))
    copied = run(lambda source: send_many(source, "ASYNC_MASTER", slave_seconds))
    # then a send takes as long, and as many are sent
    assert copied[0] == pytest.approx(without[0], rel=0.01)
    assert copied[1:] == pytest.approx(without[1:], rel=0.01)


@pytest.mark.covers("R108")
def test_a_send_waits_one_way_there_and_back_for_a_slave_that_copies_first() -> None:
    without = run(lambda source: send_many(source, "ASYNC_MASTER", None))
    for seconds, tolerance in ((NEAR_SECONDS, 0.25), (FAR_SECONDS, 0.1)):
        copied = run(lambda source: send_many(source, "SYNC_MASTER", seconds))  # noqa: B023
        # then the way there and back is what is added to a send
        assert copied[0] - without[0] == pytest.approx(2 * seconds, rel=tolerance)
        # and many wait for it at the same time, not one after the other
        assert copied[2] / copied[1] == pytest.approx(32, rel=0.1)
