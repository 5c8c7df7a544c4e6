"""The name server as one lifetime: sockets, timer, notifications, and a controller beside it if one is given."""

from __future__ import annotations

import os.path
from typing import Protocol

import trio

from understudy.namesrv.admin_requests import AdminRequests
from understudy.namesrv.broker_requests import BrokerRequests
from understudy.namesrv.client_requests import ClientRequests
from understudy.namesrv.config import ALWAYS_BLACK, START_ONLY, NamesrvConfig
from understudy.namesrv.key_values import KeyValueConfig
from understudy.namesrv.liveness import Liveness
from understudy.namesrv.notices import Notifier
from understudy.namesrv.records import MinBrokerIdNotice
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.topic_table import TopicTable
from understudy.remoting.access import ranges_of
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Collect
from understudy.runtime.os_failure import os_reason
from understudy.runtime.stored_settings import SettingsInForce
from understudy.runtime.world import World
from understudy.security import requests as security_requests
from understudy.security.gate import Gate
from understudy.security.kept import KeptAuthority
from understudy.security.opening import check_open
from understudy.security.settings import SecuritySettings

log = get_logger("namesrv.server")


class EmbeddedController(Protocol):
    """A controller that lives and dies with the name server; it listens on a port of its own."""

    def show_also(self, collect: Collect) -> None:
        """Serve these metrics beside its own, if it serves any."""
        ...

    def guard(self, gate: Gate) -> None:
        """Have its requests pass *gate*, too."""
        ...

    async def run(self) -> None:
        """Serve until cancelled."""
        ...


class NameServer:
    """One name server.

    Args:
        world: clock, network, disk.
        config: settings; the defaults if not given.
        listen_host: address to listen on instead of the settings' ``bindAddress``.
        listen_port: port instead of the settings' ``listenPort``; 0 for a free one.
        controller: run beside the name server.

    Attributes:
        table: the route table, for reading.
        settings: the settings in force.
        key_values: the key-value configuration.
    """

    def __init__(
        self,
        world: World,
        config: NamesrvConfig | None = None,
        listen_host: str | None = None,
        listen_port: int | None = None,
        *,
        controller: EmbeddedController | None = None,
        security: SecuritySettings | None = None,
    ) -> None:
        config = config or NamesrvConfig()
        self._world = world
        self._controller = controller
        self.table = RouteTable(TopicTable(kept=world.load.kept))
        self.settings = SettingsInForce(config, ALWAYS_BLACK, start_only=START_ONLY)
        self.key_values = KeyValueConfig(world.disk, config.kv_config_path)
        security = security or SecuritySettings()
        self._notifier = Notifier(world, security)
        self._liveness = Liveness(self.table, world.clock, self._tell)
        self._server = RemotingServer(
            world,
            config.bind_address if listen_host is None else listen_host,
            config.listen_port if listen_port is None else listen_port,
            name="namesrv",
            limits=config.limits,
        )
        self._server.administrators = ranges_of(config.admin_addresses)
        path = os.path.join(os.path.dirname(config.kv_config_path), "users.json")
        self._users = KeptAuthority(world.disk, path, security.super_users)
        self._server.tls = security.tls.for_servers(world.clock)
        if security.authenticates:
            gate = self._server.gate = Gate(self._users.table, security, security.cluster, world.clock.monotonic)
            if controller is not None:
                controller.guard(gate)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on; the real port once :meth:`run` has started."""
        return self._server.address

    @property
    def refused_connections(self) -> int:
        """Connections closed as soon as they came, because descriptors were short."""
        return self._server.refused_connections

    async def run(self, task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports :attr:`address` when requests are answered.

        The port, connections and tasks are given back on cancellation.

        Raises:
            ListenError: the port cannot be had.
            TableDamagedError: the key-value file is there and no copy of it can be read.
            ConfigError: nobody could sign in.
            OSError: the key-value file may not be read, or the folder its setting names may not be written.
        """
        await self._check_folder()
        await self.key_values.load()
        server, clock = self._server, self._world.clock
        if isinstance(server.gate, Gate):
            await self._users.load()
            check_open(server.gate)
            security_requests.register(server, server.gate, self._users.save, self._world)
        BrokerRequests(self.table, self._liveness, self.key_values, self.settings, self._tell).register(server)
        ClientRequests(self.table, self.key_values, self.settings, clock).register(server)
        AdminRequests(self.table, self.key_values, self.settings, self._world.disk).register(server)
        server.on_close.append(self._liveness.on_close)
        await server.bind()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notifier.run)
            nursery.start_soon(self._liveness.run_unregistrations)
            nursery.start_soon(self._liveness.run_expiry)
            nursery.start_soon(server.run)
            if self._controller is not None:
                nursery.start_soon(self._controller.run)
            log.info("serving", address="{}:{}".format(*self.address))
            task_status.started(self.address)

    def _tell(self, notices: tuple[MinBrokerIdNotice, ...]) -> None:
        if notices and self.settings.current.notify_min_broker_id_changed:
            self._notifier.tell(notices)

    async def _check_folder(self) -> None:
        """Make the key-value folder now if a setting names it: a wrong path should be told to whoever starts this."""
        disk, path = self._world.disk, self.settings.current.kv_config_path
        folder = os.path.dirname(path) or "."
        if path == NamesrvConfig().kv_config_path or disk.exists(path):
            return

        def probe() -> None:
            disk.make_folder(folder)
            trial = os.path.join(folder, f".{os.path.basename(path)}.trial")
            disk.open(trial).close()
            disk.remove(trial)

        try:
            await disk.in_thread(probe)
        except OSError as error:
            raise OSError(f"kvConfigPath: cannot write in {folder}: {os_reason(error)}") from error
