"""Containers that stand in for each other: each hosts one master and one slave of every other group.

A ring of three is the usual one: three containers, three groups, a master and two slaves each.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.topic_fields import topic_fields

REPLICATED = {
    "inSyncReplicas": "2",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "true",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "lockInStrictMode": "true",
}
"""What every broker of a ring is told, beside the number of replicas."""


@attrs.frozen
class Ring:
    """The shape of a ring.

    Args:
        replicas: brokers of each group, the master among them; there are as many groups, and as many containers.
        name_servers: how many there are.
        apart: slaves live in as many further containers, which have no master: what escapes leaves the machine.
    """

    replicas: int = 3
    name_servers: int = 1
    apart: bool = False

    @property
    def masters(self) -> tuple[str, ...]:
        """Hosts of the containers that have a master, ``c1`` and on."""
        return tuple(f"c{number + 1}" for number in range(self.replicas))

    @property
    def containers(self) -> tuple[str, ...]:
        """Hosts of all containers, those without a master behind the others: ``s1`` and on."""
        return (*self.masters, *(f"s{number + 1}" for number in range(self.replicas) if self.apart))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, ``g0`` and on."""
        return tuple(f"g{number}" for number in range(self.replicas))

    @property
    def servers(self) -> tuple[str, ...]:
        """Hosts of the name servers, ``n1`` and on."""
        return tuple(f"n{number + 1}" for number in range(self.name_servers))

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts."""
        return (*self.containers, *self.servers)

    def container_of(self, group: str, broker_id: int) -> str:
        """Return the container that hosts *broker_id* of *group*: the master's own, then one further for each id."""
        number = self.groups.index(group) + broker_id
        if self.apart and broker_id:
            return self.containers[self.replicas + (number - 1) % self.replicas]
        return self.containers[number % self.replicas]

    def members_of(self, group: str | None) -> frozenset[str]:
        """Return the containers that host a member of *group*; of any group (``None``)."""
        if group is None:
            return frozenset(self.containers)
        return frozenset(self.container_of(group, number) for number in range(self.replicas))

    def brokers_of(self, container: str, extra: dict[str, str] | None = None) -> list[dict[str, str]]:
        """Return the keys of the brokers of *container*, the master first."""
        brokers = []
        for number in range(self.replicas):
            role = {"brokerId": str(number), "brokerRole": "SLAVE" if number else "SYNC_MASTER"}
            for group in self.groups:
                if self.container_of(group, number) == container:
                    keys = {"totalReplicas": str(self.replicas), **REPLICATED, "brokerName": group, **role}
                    brokers.append(keys | (extra or {}))
        return brokers

    async def start(
        self, cluster: SimCluster, extra: dict[str, str] | None = None, *, pause_seconds: float = 0.0
    ) -> None:
        """Start the name servers and the containers, one after the other.

        Args:
            cluster: where.
            extra: further keys of every broker.
            pause_seconds: virtual time between two containers.
        """
        for name in self.servers:
            await cluster.start_name_server(name, scan_not_active_broker_interval=1_000)
        for name in self.containers:
            if pause_seconds and name != self.containers[0]:
                await trio.sleep(pause_seconds)
            await cluster.start_container(name, self.brokers_of(name, extra))

    def broker_of(self, cluster: SimCluster, group: str, broker_id: int) -> Broker | None:
        """Return the running broker of *group* with *broker_id*, ``None`` while its container is down."""
        host = cluster.host(self.container_of(group, broker_id))
        if host.process is None or host.container is None:
            return None
        for hosted in host.container.brokers():
            if hosted.identity.name == group and hosted.identity.broker_id == broker_id and hosted.serves:
                return hosted.broker
        return None

    async def make_topic(self, cluster: SimCluster, client: RemotingClient, topic: str) -> None:
        """Make *topic* at the master of each group.

        Args:
            cluster: where the ring runs.
            client: asks them.
            topic: its name.
        """
        for group in self.groups:
            master = self.broker_of(cluster, group, 0)
            assert master is not None
            command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
            await client.invoke(master.identity.address, command, 5_000)


THREE = Ring()
CONTAINERS = THREE.containers
GROUPS = THREE.groups


def brokers_of(container: str, extra: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Return the keys of the brokers of *container* in a ring of three, the master first."""
    return THREE.brokers_of(container, extra)


def broker_of(cluster: SimCluster, group: str, broker_id: int) -> Broker | None:
    """Return a running broker of a ring of three, ``None`` while its container is down."""
    return THREE.broker_of(cluster, group, broker_id)


def container_of(group: str, broker_id: int) -> str:
    """Return the container of a ring of three that hosts *broker_id* of *group*."""
    return THREE.container_of(group, broker_id)


async def start_ring(
    cluster: SimCluster, extra: dict[str, str] | None = None, *, name_servers: Sequence[str] = ("n1",)
) -> None:
    """Start a ring of three; the name servers must be ``n1`` and on."""
    await Ring(name_servers=len(name_servers)).start(cluster, extra)
