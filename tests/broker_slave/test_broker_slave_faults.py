"""A replica group under random crashes and partitions: what is acknowledged is kept twice, and logs never part."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

GROUP = {"brokerName": "broker-a", "flushDiskType": "SYNC_FLUSH"}
MASTER = {**GROUP, "brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2", "slaveTimeout": "1000"}
SLAVE = {**GROUP, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
# A broken connection is noticed in seconds, as it must be when a host loses its power.
FAST = {"haSendHeartbeatInterval": "1000", "haHousekeepingInterval": "3000"}
FAULTS = 6


def raw_log(broker: Broker) -> bytes:
    store, parts = broker.store, []
    at = 0
    while part := bytes(store.slice(at, 1 << 20)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


async def group_under_faults(source: random.Random) -> tuple[set[str], str]:
    """Returns what was acknowledged and is not in both logs, and what is wrong with the logs."""
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{**MASTER, **FAST}])
        await cluster.start_container("c2", [{**SLAVE, **FAST}])
        acknowledged: set[str] = set()
        over = False

        async def write(name: str) -> None:
            number = 0
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                while not over:
                    key = f"{name}-{number:06}"
                    number += 1
                    try:
                        result = await producer.send(Message("orders", b"[" + key.encode() + b"]"), timeout_ms=5_000)
                    except ClientError:
                        await trio.sleep(0.2)
                        continue
                    if result.status.value == "SEND_OK":
                        acknowledged.add(key)
                    await trio.sleep(source.uniform(0, 0.1))

        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(write, name)
            await trio.sleep(3)
            for _ in range(FAULTS):
                victim = source.choice(["c1", "c2"])
                if source.random() < 0.3:
                    cluster.partition(["c1"], ["c2"])
                    await trio.sleep(source.uniform(0.1, 6))
                    cluster.heal()
                else:
                    await cluster.kill(victim, power=source.random() < 0.5)
                    await trio.sleep(source.uniform(0, 5))
                    await cluster.restart(victim)
                await trio.sleep(source.uniform(0, 8))
            over = True
        await trio.sleep(60)
        master, slave = (raw_log(cluster.brokers(name)["broker-a"]) for name in ("c1", "c2"))
        wrong = "" if master == slave else f"the logs differ: {len(master)} and {len(slave)} bytes"
        lost = {key for key in acknowledged if f"[{key}]".encode() not in master or f"[{key}]".encode() not in slave}
        assert len(acknowledged) > 50
        return lost, wrong


@pytest.mark.slow
@pytest.mark.covers("R106", "R107")
@pytest.mark.parametrize("seed", range(4))
def test_both_logs_are_equal_in_the_end_and_hold_everything_acknowledged(seed: int) -> None:
    assert (set(), "") == run_seed(group_under_faults, seed)
