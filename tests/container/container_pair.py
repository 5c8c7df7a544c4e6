"""A master and a slave with default settings but for one key; for tests of failovers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from container_ring import TOPIC

from understudy.broker.broker import Broker
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

ELSEWHERE = "10.9.9.9"
"""Another address of the slave's host."""
DEFAULTS = {"enableSlaveActingMaster": "true"}


class Pair:
    """A master and a slave with default settings but for one key, each on a host of its own."""

    def __init__(self, cluster: SimCluster, client: RemotingClient) -> None:
        self.cluster = cluster
        self.client = client

    def broker(self, host: str) -> Broker:
        return self.cluster.brokers(host)["a"]

    async def ask(self, broker: Broker, code: int, ext: dict[str, str]) -> Command:
        answer = await self.client.invoke(broker.identity.address, request(code, ext), 5_000)
        assert answer.code == 0, answer.remark
        return answer

    async def set(self, broker: Broker, key: str, value: str) -> None:
        """Change a key of *broker* while it runs."""
        address, body = broker.identity.address, f"{key}={value}\n".encode()
        answer = await self.client.invoke(address, request(RequestCode.UPDATE_BROKER_CONFIG, None, body), 5_000)
        assert answer.code == 0, answer.remark

    async def commit(self, broker: Broker, offset: int) -> None:
        broker.groups.get("readers")
        if not broker.role.is_slave and offset > broker.store.max_queue_offset(TOPIC, 0):
            broker.offsets.commit("readers", TOPIC, 0, offset)  # as if messages had been there
            return
        ext = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def other_group(self) -> Broker:
        """Start the master of another group on a host of its own; it has the topic."""
        await self.cluster.start_container("o", [{"brokerName": "b", **DEFAULTS}])
        other = self.cluster.brokers("o")["b"]
        await until(lambda: not other.registration.isolated, 30)
        await self.ask(other, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
        await trio.sleep(5)  # the slave copies topics every three seconds
        return other

    def acts(self, host: str = "s") -> bool:
        return "schedule" in self.broker(host).services.running()


@asynccontextmanager
async def open_pair(
    source: random.Random,
    master: dict[str, str] | None = None,
    slave: dict[str, str] | None = None,
    name_servers: tuple[str, ...] = ("n1",),
) -> AsyncIterator[Pair]:
    async with SimCluster(source) as cluster:
        for name in name_servers:
            await cluster.start_name_server(name, scan_not_active_broker_interval=1_000)
        await cluster.start_container("m", [{"brokerName": "a", **DEFAULTS, **(master or {})}])
        cluster.network.alias(ELSEWHERE, cluster.address("s"))
        keys = {"brokerName": "a", "brokerRole": "SLAVE", "brokerId": "1", **DEFAULTS, **(slave or {})}
        await cluster.start_container("s", [keys])
        async with open_client(cluster.client_world()) as client:
            pair = Pair(cluster, client)
            await pair.ask(pair.broker("m"), RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
            sync = pair.broker("s").slave_sync
            await until(lambda: sync.synced, 30)
            await trio.sleep(5)
            yield pair
