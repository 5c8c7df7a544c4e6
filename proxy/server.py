"""A proxy: its port, its calls and its clients, in one nursery."""

from __future__ import annotations

from collections.abc import Callable

import trio

from understudy.mqclient.session import open_session
from understudy.proxy.brokers import Brokers
from understudy.proxy.clients import EXPIRES_SECONDS, Clients
from understudy.proxy.config import ProxyConfig
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.server import GrpcServer
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import Parts
from understudy.proxy.rpcs.receipts import Receipts
from understudy.proxy.rpcs.receives import Receives
from understudy.proxy.rpcs.routes import Routes
from understudy.proxy.rpcs.sends import Sends
from understudy.proxy.rpcs.telemetry import Telemetry
from understudy.proxy.rpcs.transactions import Transactions
from understudy.runtime.log import get_logger
from understudy.runtime.network import outgoing_address
from understudy.runtime.program import UsageError
from understudy.runtime.properties import ConfigError
from understudy.runtime.tls_server import CertificateFiles, ServerTls, TlsMode
from understudy.runtime.world import World

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

    Attributes:
        address: host and port by which clients reach it, once it runs.
        clients: who they are.
    """

    def __init__(
        self,
        world: World,
        config: ProxyConfig,
        host: str = "0.0.0.0",
        *,
        own_brokers: Callable[[], frozenset[str]] | None = None,
    ) -> None:
        self._world = world
        self._config = config
        self._host = host
        self._own_brokers = own_brokers
        self.address = ("", config.grpc_server_port)
        self.clients = Clients(world.clock)

    async def run(self, task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address when calls are answered.

        Raises:
            ListenError: the port cannot be had.
            UnknownClusterError: there is no cluster of the configured name.
            ConfigError: the certificate cannot be used.
        """
        config = self._config
        async with open_session(self._world, config.namesrv_addr) as session, trio.open_nursery() as nursery:
            brokers = Brokers(session, config.rocketmq_cluster_name, nursery, config.cache_rules)
            parts = Parts(config, self._world.clock, brokers, self.clients, lambda: self.address, self._own_brokers)
            receipts = Receipts(parts)
            receives = Receives(parts, receipts)
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
                )
                for path, method in calls.methods().items()
            }
            limits = GrpcLimits(
                message_bytes=config.grpc_max_inbound_message_size,
                idle_seconds=config.grpc_client_idle_time_mills / 1000,
            )
            server = GrpcServer(self._world, self._host, config.grpc_server_port, methods, limits, self._tls())
            server.on_stop.append(receives.stop)
            _, port = await server.bind()
            if self._own_brokers is None:
                await self._await_cluster(brokers)
            self.address = (config.local_serve_addr or outgoing_address(), port)
            nursery.start_soon(self._expire_clients)
            nursery.start_soon(transactions.run)
            nursery.start_soon(receipts.renewals.run)
            nursery.start_soon(server.run)
            task_status.started(self.address)

    def _tls(self) -> ServerTls | None:
        """Return what secures connections. Raises :class:`ConfigError`."""
        config, clock = self._config, self._world.clock
        if config.tls_mode is TlsMode.DISABLED:
            return None
        if config.tls_test_mode_enable:
            from understudy.proxy.self_signed import SelfSigned  # few proxies in tests speak TLS, and it takes time

            log.info("TLS with a certificate that nobody vouches for; name one by tlsCertPath and tlsKeyPath")
            return ServerTls(clock, SelfSigned(), config.tls_mode)
        files = CertificateFiles(config.tls_cert_path, config.tls_key_path, protocols=("h2",))
        try:
            return ServerTls(clock, files, config.tls_mode)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"tlsCertPath={config.tls_cert_path}, tlsKeyPath={config.tls_key_path}: cannot be used: {reason}"
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
            self.clients.expire()
            due = min(self.clients.next_expiry(), clock.monotonic() + EXPIRES_SECONDS)
            await clock.sleep(max(due - clock.monotonic(), _SHORTEST_SLEEP_SECONDS))
