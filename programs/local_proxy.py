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

Brokers = Callable[[], Iterable[Broker]]
"""Returns the brokers that run in this process now."""


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

    for broker in brokers():
        security = broker.options.security
        config = attrs.evolve(config, rocketmq_cluster_name=broker.options.broker.broker_cluster_name)
        if security.authenticates and not config.security.authenticates:  # a proxy is no way around a broker's gate
            config = attrs.evolve(config, security=security)
        if security.authenticates and config.security.inner is None:
            raise ConfigError(
                f"{broker.identity.name} asks for signatures and a proxy beside it has nothing to sign with: "
                "set innerClientAuthenticationCredentials"
            )
    async with trio.open_nursery() as nursery:
        network = InsideNetwork(world.network, find, nursery.start_soon)
        proxy = Proxy(attrs.evolve(world, network=network), config, host, own_brokers=own)
        await nursery.start(proxy.run)
        host, port = proxy.address
        command_line.boot_line(f"rocketmq-proxy startup successfully. gRPC address {host}:{port}")
        task_status.started(proxy)
