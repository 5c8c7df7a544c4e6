"""A group that a controller leads, on real sockets: its three brokers in one container, and a broker beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import trio

from understudy.broker.config import BrokerOptions
from understudy.container.hosted import BrokerIdentity, host_broker
from understudy.controller.configuration import ControllerConfig
from understudy.controller.server import Controller
from understudy.mqclient.api import real_world
from understudy.runtime.background import open_background
from understudy.runtime.portal import Portal
from understudy.runtime.portal_held import opened
from understudy.testkit.local_cluster import SMALL_FILES, LocalCluster

GROUP, ALONE = "led", "alone"
REPLICAS = 3
_KEYS = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "brokerHeartbeatInterval": "500",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "haMaxTimeSlaveNotCatchup": "3000",
}


@attrs.frozen
class LedCluster:
    """A running cluster; make it with :func:`led_cluster`.

    Attributes:
        namesrv_address, container, controller: ``host:port``.
        alone: of the broker in a process of its own.
    """

    portal: Portal
    inner: LocalCluster
    controller: str
    alone: str

    @property
    def namesrv_address(self) -> str:
        return self.inner.namesrv_address

    @property
    def container(self) -> str:
        return self.inner.container.address

    def remove_slave(self) -> str:
        """Stop one of the slaves and return its address."""

        async def remove() -> str:
            hosted = next(each for each in self.inner.container.brokers() if not each.is_master)
            assert await self.inner.container.remove_broker(hosted.identity)
            return hosted.broker.identity.address

        return self.portal.call(remove)


@asynccontextmanager
async def _open(folder: Path, port: int) -> AsyncIterator[tuple[LocalCluster, str, str]]:
    world = real_world()
    config = ControllerConfig(
        controller_d_leger_group="console",
        controller_d_leger_peers=f"n0-127.0.0.1:{port}",
        controller_raft_peers=f"n0-127.0.0.1:{port + 1}",
        controller_d_leger_self_id="n0",
        controller_store_path=str(folder / "controller"),
        config_store_path=str(folder / "controller.properties"),
        bind_address="127.0.0.1",
        scan_inactive_master_interval=500,
        scan_not_active_broker_interval=500,
    )
    async with LocalCluster(0, folder=str(folder)) as cluster, open_background() as nursery:
        controller: str = await nursery.start(Controller(world, config).run)
        for number in range(REPLICAS):
            store = f"{folder}/{GROUP}-{number}"
            keys = {"brokerId": str(number), "storePathRootDir": store, "storePathCommitLog": f"{store}/commitlog"}
            await cluster.add_broker(GROUP, {**_KEYS, **keys, "controllerAddr": controller})
        options, _ = BrokerOptions.from_properties(
            {
                "brokerName": ALONE,
                "brokerIP1": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "namesrvAddr": cluster.namesrv_address,
                "storePathRootDir": f"{folder}/{ALONE}",
                **SMALL_FILES,
            }
        )
        alone = await nursery.start(host_broker, world, options)
        yield cluster, controller, alone.identity.address
        with trio.CancelScope(shield=True):
            for number in range(REPLICAS):  # while there is a controller to hear of it
                await cluster.container.remove_broker(BrokerIdentity("DefaultCluster", GROUP, number))


@contextmanager
def led_cluster(folder: Path, port: int) -> Iterator[LedCluster]:
    """Run the cluster in a thread of its own as long as the block lasts.

    Args:
        folder: where its files lie.
        port: of the controller; it listens at the next one, too.
    """
    with opened(Portal(), lambda: _open(folder, port)) as (portal, (inner, controller, alone)):
        yield LedCluster(portal, inner, controller, alone)
