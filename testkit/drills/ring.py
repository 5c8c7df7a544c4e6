"""Three containers that stand in for each other: each hosts one master and one slave of both other groups."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.broker.broker import Broker
from understudy.testkit.sim.cluster import SimCluster

CONTAINERS = ("c1", "c2", "c3")
GROUPS = ("g0", "g1", "g2")
REPLICATED = {
    "totalReplicas": "3",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "1",
    "enableAutoInSyncReplicas": "true",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "lockInStrictMode": "true",
}
# The smallest id of each group is on the container after the master's, the next one on the container after that.
_SLAVES = {"c1": (("g2", 1), ("g1", 2)), "c2": (("g0", 1), ("g2", 2)), "c3": (("g1", 1), ("g0", 2))}


def brokers_of(container: str, extra: dict[str, str] | None = None) -> list[dict[str, str]]:
    """Return the keys of the brokers of *container*, the master first."""
    own = GROUPS[CONTAINERS.index(container)]
    master = {"brokerName": own, "brokerId": "0", "brokerRole": "SYNC_MASTER"}
    slaves = [
        {"brokerName": name, "brokerId": str(number), "brokerRole": "SLAVE"} for name, number in _SLAVES[container]
    ]
    return [{**REPLICATED, **keys, **(extra or {})} for keys in (master, *slaves)]


async def start_ring(
    cluster: SimCluster, extra: dict[str, str] | None = None, *, name_servers: Sequence[str] = ("n1",)
) -> None:
    """Start a name server on each of *name_servers*, and the three containers."""
    for name in name_servers:
        await cluster.start_name_server(name, scan_not_active_broker_interval=1_000)
    for name in CONTAINERS:
        await cluster.start_container(name, brokers_of(name, extra))


def broker_of(cluster: SimCluster, group: str, broker_id: int) -> Broker | None:
    """Return the running broker of *group* with *broker_id*, ``None`` while its container is down."""
    for name in CONTAINERS:
        container = cluster.host(name).container
        if cluster.host(name).process is None or container is None:
            continue
        for hosted in container.brokers():
            if hosted.identity.name == group and hosted.identity.broker_id == broker_id and hosted.serves:
                return hosted.broker
    return None


def container_of(group: str, broker_id: int) -> str:
    """Return the container that hosts *broker_id* of *group*."""
    if broker_id == 0:
        return CONTAINERS[GROUPS.index(group)]
    return next(name for name, slaves in _SLAVES.items() if (group, broker_id) in slaves)
