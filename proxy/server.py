"""A proxy: its port, its calls and its clients, in one nursery."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.mqclient.session import SessionOptions, open_session
from understudy.proxy.access import Access
from understudy.proxy.brokers import Brokers
from understudy.proxy.clients import EXPIRES_SECONDS, Clients
from understudy.proxy.config import ProxyConfig
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.forward.port import RemotingPort
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.server import GrpcServer
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.metrics import Numbers, collect
from understudy.proxy.posts import Posts
from understudy.proxy.rpcs.health import Health
from understudy.proxy.rpcs.parts import Parts
from understudy.proxy.rpcs.receipts import Receipts
from understudy.proxy.rpcs.receives import Receives
from understudy.proxy.rpcs.routes import Routes
from understudy.proxy.rpcs.sends import Sends
from understudy.proxy.rpcs.telemetry import Telemetry
from understudy.proxy.rpcs.transactions import Transactions
from understudy.proxy.self_signed import SelfSigned
from understudy.proxy.tls_keys import OWN_PATHS, PATHS
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Family
from understudy.runtime.network import outgoing_address
from understudy.runtime.pace import Pace
from understudy.runtime.program import UsageError
from understudy.runtime.properties import ConfigError
from understudy.runtime.tls_server import ServerTls, TlsMode
from understudy.runtime.world import World
from understudy.security.settings import SecuritySettings

if TYPE_CHECKING:
    from understudy.runtime.metrics_export import Exporter

log = get_logger("proxy")

_SHORTEST_SLEEP_SECONDS = 1.0
_CLUSTER_SECONDS = 10.0
"""How long a start waits for the first broker of its cluster."""


class UnknownClusterError(UsageError):
    """A proxy cannot serve a cluster that is not there."""


class Proxy:
    """A proxy in front of a cluster.

    Args:
        world: clock, network, disk and randomness.
        config: settings.
        host: address to listen on.
        own_brokers: local mode: returns the names of the only brokers to which it sends and from which it receives.
        security: local mode: returns who may call now, which *config* says of the start; brokers that are added may ask
            for more.

    Attributes:
        address: host and port by which gRPC clients reach it, once it runs.
        remoting_address: the same for clients of the remoting protocol; port 0 when they are not served.
        clients: who they are.
        receives: what they wait for; there once it runs.
    """

    def __init__(
        self,
        world: World,
        config: ProxyConfig,
        host: str = "0.0.0.0",
        *,
        own_brokers: Callable[[], frozenset[str]] | None = None,
        security: Callable[[], SecuritySettings] | None = None,
    ) -> None:
        self._world = world
        self._config = config
        self._host = host
        self._own_brokers = own_brokers
        self._security = security or (lambda: config.security)
        self.address = ("", config.grpc_server_port)
        self.remoting_address = ("", config.remoting_listen_port)
        self.clients = Clients(world.clock)
        self.receives: Receives

    async def run(self, task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address when calls are answered.

        Raises:
            ListenError: the port cannot be had.
            UnknownClusterError: there is no cluster of the configured name.
            ConfigError: the certificate cannot be used.
        """
        config, security = self._config, self._config.security
        options = SessionOptions(credentials=security.inner, tls=security.tls.for_calls())
        async with open_session(self._world, config.namesrv_addr, options) as session, trio.open_nursery() as nursery:
            brokers = Brokers(session, config.rocketmq_cluster_name, nursery, config.cache_rules)
            access = Access(self._security, brokers, self._world.clock, config.signature_window_seconds)
            posts = Posts(session)
            parts = Parts(
                config, self._world.clock, brokers, posts, self.clients, lambda: self.address, access, self._own_brokers
            )
            receipts = Receipts(parts)
            receives = self.receives = Receives(parts, receipts)
            transactions = Transactions(parts, session)
            methods = {
                path: method
                for calls in (
                    Routes(parts),
                    Telemetry(parts, receipts.renewals),
                    Sends(parts),
                    receipts,
                    receives,
                    transactions,
                    Health(),
                )
                for path, method in calls.methods().items()
            }
            limits = GrpcLimits(
                message_bytes=config.grpc_max_inbound_message_size,
                idle_seconds=config.grpc_client_idle_time_mills / 1000,
            )
            tls = self._tls()
            server = GrpcServer(self._world, self._host, config.grpc_server_port, methods, limits, tls, posts.send)
            server.on_stop.append(receives.stop)
            _, port = await server.bind()
            remoting = RemotingPort(
                self._world,
                self._host,
                config.remoting_listen_port,
                session,
                brokers,
                access,
                server,
                lambda: "{}:{}".format(*self.remoting_address),
            )
            remoting.tls = tls
            if config.remoting_listen_port:
                await remoting.bind()
            exporter = await self._bind_metrics(server, remoting, receives, receipts, parts)
            if self._own_brokers is None:
                await self._await_cluster(brokers)
            host = config.local_serve_addr or outgoing_address()
            self.address = host, port
            self.remoting_address = config.remoting_access_addr or host, remoting.address[1]
            nursery.start_soon(self._expire_clients)
            nursery.start_soon(transactions.run)
            nursery.start_soon(receipts.renewals.run)
            nursery.start_soon(receives.run)
            nursery.start_soon(posts.run)
            nursery.start_soon(server.run)
            if config.remoting_listen_port:
                nursery.start_soon(remoting.run)
            if exporter is not None:
                nursery.start_soon(exporter.run)
            task_status.started(self.address)

    async def _bind_metrics(
        self, server: GrpcServer, remoting: RemotingPort, receives: Receives, receipts: Receipts, parts: Parts
    ) -> Exporter | None:
        """Return what has metrics out, bound. Raises ``ListenError``."""
        config = self._config
        if config.metrics is None:
            return None
        from understudy.runtime.metrics_export import make_exporter  # few proxies have metrics out

        def families() -> list[Family]:
            numbers = Numbers(
                len(server.connections),
                len(remoting.connections),
                len(self.clients),
                len(receives),
                len(receipts.renewals),
                server.refused_connections + remoting.refused_connections,
            )
            return collect(config.proxy_mode.lower(), numbers, parts.ended, self._world.load)

        labels = {"cluster": config.proxy_cluster_name, "node_type": "proxy"}
        labels["node_id"] = config.proxy_name or platform.node()
        settings = attrs.evolve(config.metrics, labels={**labels, **config.metrics.labels})
        exporter = make_exporter(self._world, settings, families, "broker-meter")  # the reference's, for proxies too
        await exporter.bind()
        return exporter

    def _tls(self) -> ServerTls | None:
        """Return what secures connections. Raises :class:`ConfigError`."""
        config, clock = self._config, self._world.clock
        mode, files = config.tls.mode, config.tls.server
        if mode is TlsMode.DISABLED:
            return None
        if files is None:
            log.info(
                "TLS with a certificate that nobody vouches for; "
                "name one by tlsTestModeEnable=false, tlsCertPath and tlsKeyPath"
            )
            return ServerTls(clock, SelfSigned(), mode)
        try:
            return ServerTls(clock, attrs.evolve(files, protocols=("h2",)), mode)
        except OSError as error:
            reason = error.strerror or error
            certificate, key = PATHS if config.tls_test_mode_enable else OWN_PATHS
            raise ConfigError(
                f"{certificate}={files.certificate}, {key}={files.key}: cannot be used: {reason}"
            ) from None

    async def _await_cluster(self, brokers: Brokers) -> None:
        """Wait until the cluster is there, but not for long: a wrong name must not be found out by clients."""
        with self._world.clock.move_on_after(_CLUSTER_SECONDS):
            while True:
                try:
                    await brokers.route(self._config.rocketmq_cluster_name)
                    return
                except ProxyError as error:
                    absent = error.code == v2.TOPIC_NOT_FOUND
                    why = "no broker of such a cluster is registered" if absent else error.message
                await self._world.clock.sleep(_SHORTEST_SLEEP_SECONDS)
        name = self._config.rocketmq_cluster_name
        raise UnknownClusterError(
            f"rocketMQClusterName={name}: {why}; "
            f"start its brokers, or correct the name (name server {self._config.namesrv_addr})"
        )

    async def _expire_clients(self) -> None:
        clock = self._world.clock
        while True:
            async with Pace(self._world) as pace:
                due = min(await pace.run(self.clients.expire()), clock.monotonic() + EXPIRES_SECONDS)
            await clock.sleep(max(due - clock.monotonic(), _SHORTEST_SLEEP_SECONDS))
