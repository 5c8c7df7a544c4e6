"""A cluster on real sockets for asyncio programs and their tests.

async with local_cluster() as cluster:
    ...                             # any RocketMQ client against cluster.namesrv_address
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from understudy.runtime.portal import Portal
from understudy.runtime.portal_asyncio import LoopCalls, opened
from understudy.testkit.local_cluster import LocalCluster

__all__ = ["AsyncioCluster", "local_cluster"]


class AsyncioCluster:
    """A running cluster; make it with :func:`local_cluster`.

    Attributes:
        namesrv_address: the name server, ``host:port``: all a client needs to know.
    """

    def __init__(self, calls: LoopCalls, inner: LocalCluster) -> None:
        self._call = calls.call
        self._inner = inner
        self.namesrv_address = inner.namesrv_address

    @property
    def proxy_address(self) -> str:
        """The proxy for gRPC clients, ``host:port``. Raises ``ValueError`` without one."""
        return self._inner.proxy_address

    async def broker_addresses(self) -> dict[str, str]:
        """Return ``host:port`` of each broker by its name."""
        return await self._call(_addresses, self._inner)

    async def make_topic(self, topic: str, queues: int = 4, kind: str = "NORMAL") -> None:
        """Create *topic* and wait until it is known, see :meth:`LocalCluster.make_topic`."""
        await self._call(self._inner.make_topic, topic, queues, kind)

    async def add_broker(self, name: str, config: Mapping[str, str] | None = None) -> str:
        """Start one more broker and return its address, see :meth:`LocalCluster.add_broker`."""
        return (await self._call(self._inner.add_broker, name, config)).identity.address


async def _addresses(cluster: LocalCluster) -> dict[str, str]:
    return {name: broker.identity.address for name, broker in cluster.brokers.items()}


@asynccontextmanager
async def local_cluster(
    brokers: int = 1,
    *,
    broker_config: Mapping[str, str] | None = None,
    folder: str | None = None,
    proxy: bool = False,
) -> AsyncIterator[AsyncioCluster]:
    """Run a cluster in a thread of its own as long as the block lasts, see :class:`LocalCluster`.

    Args:
        brokers: how many masters to start, named ``broker-a``, ``broker-b`` ...
        broker_config: keys given to every broker beside the small file sizes.
        folder: where stores live; a temporary folder, removed at the end, when ``None``.
        proxy: also run a proxy, for clients that speak gRPC; it needs ``understudy[grpc]``.
    """
    make = partial(LocalCluster, brokers, broker_config=broker_config, folder=folder, proxy=proxy)
    async with opened(Portal(), make) as (calls, inner):
        yield AsyncioCluster(calls, inner)
