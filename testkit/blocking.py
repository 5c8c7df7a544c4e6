"""A cluster on real sockets for tests that do not run trio: plain ones, and those of other event loops.

with local_cluster() as cluster:
    ...                             # any RocketMQ client against cluster.namesrv_address
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from understudy.runtime.portal import Portal
from understudy.runtime.portal_held import Held
from understudy.testkit.local_cluster import LocalCluster

__all__ = ["BlockingCluster", "local_cluster"]


class BlockingCluster:
    """A running cluster; make it with :func:`local_cluster`.

    Attributes:
        namesrv_address: the name server, ``host:port``: all a client needs to know.
    """

    def __init__(self, portal: Portal, inner: LocalCluster) -> None:
        self._portal = portal
        self._inner = inner
        self.namesrv_address = inner.namesrv_address

    @property
    def proxy_address(self) -> str:
        """The proxy for gRPC clients, ``host:port``. Raises ``ValueError`` without one."""
        return self._inner.proxy_address

    @property
    def broker_addresses(self) -> dict[str, str]:
        """``host:port`` of each broker by its name."""

        async def asked() -> dict[str, str]:
            return {name: broker.identity.address for name, broker in self._inner.brokers.items()}

        return self._portal.call(asked)

    def make_topic(self, topic: str, queues: int = 4, kind: str = "NORMAL") -> None:
        """Create *topic* and wait until it is known, see :meth:`LocalCluster.make_topic`."""
        self._portal.call(self._inner.make_topic, topic, queues, kind)

    def add_broker(self, name: str, config: Mapping[str, str] | None = None) -> str:
        """Start one more broker and return its address, see :meth:`LocalCluster.add_broker`."""

        async def add() -> str:
            return (await self._inner.add_broker(name, config)).identity.address

        return self._portal.call(add)


@contextmanager
def local_cluster(
    brokers: int = 1,
    *,
    broker_config: Mapping[str, str] | None = None,
    folder: str | None = None,
    proxy: bool = False,
) -> Iterator[BlockingCluster]:
    """Run a cluster in a thread of its own as long as the block lasts, see :class:`LocalCluster`.

    Args:
        brokers: how many masters to start, named ``broker-a``, ``broker-b`` ...
        broker_config: keys given to every broker beside the small file sizes.
        folder: where stores live; a temporary folder, removed at the end, when ``None``.
        proxy: also run a proxy, for clients that speak gRPC; it needs ``understudy[grpc]``.
    """
    with Portal() as portal:
        held = Held(portal, LocalCluster(brokers, broker_config=broker_config, folder=folder, proxy=proxy))
        inner = held.open().result()
        try:
            yield BlockingCluster(portal, inner)
        finally:
            held.close().result()
