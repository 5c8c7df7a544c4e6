"""A proxy beside the brokers of its process (local mode): it speaks to them over connections in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.programs import command_line
from understudy.proxy.config import ProxyConfig
from understudy.proxy.server import Proxy
from understudy.remoting.server import RemotingServer
from understudy.runtime.memory_stream import InsideNetwork
from understudy.runtime.properties import ConfigError
from understudy.runtime.world import World
from understudy.security.settings import SecuritySettings

Brokers = Callable[[], Iterable[Broker]]
"""Returns the brokers that run in this process now."""


def _gate(own: SecuritySettings, brokers: Iterable[Broker]) -> SecuritySettings:
    """Return who may ask a proxy with *own* settings beside *brokers*: it is no way around the gate of one of them."""
    for broker in brokers:
        theirs = broker.options.security
        if (theirs.authenticates and not own.authenticates) or (theirs.authorizes and not own.authorizes):
            own = attrs.evolve(theirs, inner=theirs.inner or own.inner)
    return own


async def run_local_proxy(
    world: World,
    config: ProxyConfig,
    brokers: Brokers,
    host: str = "0.0.0.0",
    *,
    task_status: trio.TaskStatus[Proxy] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a proxy for the brokers of this process until cancelled.

    Args:
        world: clock, network, disk and randomness.
        config: of the proxy, with the name servers of the brokers.
        brokers: its brokers; others are reached by their own proxies.
        host: address to listen on.
        task_status: reports the proxy when calls are answered.

    Raises:
        ListenError, UnknownClusterError, ConfigError: see :meth:`~understudy.proxy.server.Proxy.run`.
    """

    def find(host: str, port: int) -> RemotingServer | None:
        return next((each.server for each in brokers() if each.identity.address == f"{host}:{port}"), None)

    def own() -> frozenset[str]:
        return frozenset(each.identity.name for each in brokers())

    config = attrs.evolve(config, security=_gate(config.security, brokers()))
    for broker in brokers():
        config = attrs.evolve(config, rocketmq_cluster_name=broker.options.broker.broker_cluster_name)
        if broker.options.security.authenticates and config.security.inner is None:
            raise ConfigError(
                f"{broker.identity.name} asks for signatures and a proxy beside it has nothing to sign with: "
                "set innerClientAuthenticationCredentials"
            )
    async with trio.open_nursery() as nursery:
        network = InsideNetwork(world.network, find, nursery.start_soon)
        proxy = Proxy(
            attrs.evolve(world, network=network),
            config,
            host,
            own_brokers=own,
            security=lambda: _gate(config.security, brokers()),
        )
        await nursery.start(proxy.run)
        host, port = proxy.address
        command_line.boot_line(f"rocketmq-proxy startup successfully. gRPC address {host}:{port}")
        task_status.started(proxy)
