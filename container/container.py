"""A container: hosts brokers in one process, each with its own lifetime, and adds and removes them live.

The laws:

* A broker is one task with its own cancel scope. Whatever happens inside it, its neighbours and the container go on;
  a broker that ends by itself is reported and leaves the table.
* Adding and removing happen one at a time. A broker that could not start leaves nothing behind but the files it made.
* All brokers of a container share one client, so that a name server sees one connection per container; but for those
  that controllers lead, which are lost one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.broker_files import (
    AddBrokerError,
    asked_file,
    broker_options,
    name_server_keys,
    read_broker_file,
)
from understudy.container.config import ContainerOptions
from understudy.container.hosted import BrokerIdentity, HostedBroker, free_id, host_broker
from understudy.remoting.access import ranges_of
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.program import one_line, single_cause
from understudy.runtime.properties import Properties
from understudy.runtime.supervisor import open_supervisor
from understudy.runtime.world import World
from understudy.security.opening import check_open, gate_of
from understudy.security.settings import secure_calls

if TYPE_CHECKING:
    from understudy.container.escape.neighbour import Beside

log = get_logger("container")


class BootHook(Protocol):
    """Code of the embedding program that runs around the start of each broker; an exception refuses the broker."""

    @property
    def name(self) -> str: ...
    async def before_start(self, options: BrokerOptions, properties: Mapping[str, str]) -> None: ...
    async def after_start(self, broker: Broker, properties: Mapping[str, str]) -> None: ...


class BrokerContainer:
    """Hosts brokers. Run it with ``await nursery.start(container.run)``.

    Args:
        world: clock, network, disk and randomness shared by all brokers of this host.
        options: the container's configuration.
        machine: where defaults of broker files come from; the real machine when ``None``.
        hooks: run around the start of each broker, in order.
        on_boot: called with a line for people whenever something is up (the reference's boot lines).
    """

    def __init__(
        self,
        world: World,
        options: ContainerOptions,
        *,
        machine: Machine | None = None,
        hooks: list[BootHook] | None = None,
        on_boot: Callable[[str], None] | None = None,
    ) -> None:
        self.world = world
        self.options = options
        self.hooks: list[BootHook] = list(hooks or ())
        keys = options.server
        self.server = RemotingServer(world, keys.bind_address, keys.listen_port, name="container", limits=keys.limits)
        self.server.administrators = ranges_of(keys.admin_addresses)
        gate = self._gate = gate_of(options.security, options.security.cluster, world.clock.monotonic)
        self.server.gate = gate
        if gate is not None:
            gate.authority.ensure_supers(options.security.super_users)  # it has no others
        self._machine = machine
        self._named_host = options.container.broker_container_ip  # brokers that are added later say the same one
        self._on_boot = on_boot or (lambda line: None)
        self._hosted: dict[BrokerIdentity, HostedBroker] = {}
        self._failed: dict[BrokerIdentity, str] = {}
        self._changing = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._client: RemotingClient | None = None

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The container's own address, ``host:port``, for ADD_BROKER and REMOVE_BROKER."""
        return f"{self._named_host}:{self.server.address[1]}"

    def brokers(self) -> list[HostedBroker]:
        """Return the hosted brokers, masters first, then by identity."""
        return sorted(self._hosted.values(), key=lambda each: (not each.is_master, each.identity))

    def broker(self, identity: BrokerIdentity) -> Broker | None:
        """Return the broker *identity*, or ``None``."""
        hosted = self._hosted.get(identity)
        return hosted.broker if hosted is not None else None

    def failures(self) -> dict[BrokerIdentity, str]:
        """Return the brokers that ended by themselves since they were last added, with the reason."""
        return dict(self._failed)

    def _neighbours(self) -> list[Beside]:
        from understudy.container.escape.local import neighbour_of

        return [neighbour_of(each.broker) for each in self.brokers() if each.serves]

    # --- lifetime ----------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started when the port is bound and every broker of the configuration is up.

        Stopping: slaves first, then masters, each within its own bound.

        Raises:
            ListenError: the container's port cannot be had.
            ConfigError: nobody could sign in.
            AddBrokerError: a broker of the configuration cannot start.
        """
        from understudy.container.processor import register_all

        check_open(self._gate)
        self.server.tls = self.options.security.tls.for_servers(self.world.clock)
        register_all(self)
        await self.server.bind()
        # The client and the server are shielded: brokers still need them to say goodbye to the name servers.
        infrastructure = trio.CancelScope()
        async with trio.open_nursery() as root:
            try:
                await root.start(self._serve, infrastructure)
                self._on_boot(f"The broker container boot success. serializeType=JSON, address {self.address}")
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    try:
                        await self._add_configured_brokers()
                        task_status.started()
                        await trio.sleep_forever()
                    finally:
                        self._nursery = None
                        with trio.CancelScope(shield=True):
                            await self._stop_all()
            finally:
                infrastructure.cancel()

    async def _serve(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        with scope:
            async with open_client(self.world) as client, open_supervisor(self.world.clock, "container") as services:
                secure_calls(client, self.options.security)
                self._client = client
                services.start("remoting", self.server.run)
                await trio.lowlevel.checkpoint_if_cancelled()
                scope.shield = True
                task_status.started()
                await trio.sleep_forever()

    async def _add_configured_brokers(self) -> None:
        for path in self.options.broker_files():
            try:
                await self.add_broker_file(path)
            except AddBrokerError as error:
                raise AddBrokerError(error.detail) from error

    async def _stop_all(self) -> None:
        slaves = [each for each in self._hosted.values() if not each.is_master]
        masters = [each for each in self._hosted.values() if each.is_master]
        for group in (slaves, masters):
            for hosted in group:
                hosted.serves = False
                hosted.scope.cancel()
            for hosted in group:
                await hosted.stopped.wait()

    # --- adding and removing -----------------------------------------------------------------------------------

    async def add_asked_file(self, path: str) -> Broker:
        """Start the broker whose configuration is the file *path*, which a peer has named.

        Raises:
            AddBrokerError: it lies where peers may name no file, or as for :meth:`add_broker_file`.
        """
        return await self.add_broker_file(asked_file(path, self.options, self.world.disk))

    async def add_broker_file(self, path: str) -> Broker:
        """Start the broker whose configuration is the file *path* on this host.

        Raises:
            AddBrokerError: the file cannot be used or the broker cannot start.
        """
        properties = read_broker_file(path, self.world.disk, self.options.container.rocketmq_home)
        return await self.add_broker(properties, source=properties.source)

    async def add_broker(self, properties: Mapping[str, str], *, source: str = "configuration") -> Broker:
        """Start a broker. Once begun it goes on even if the caller is cancelled; only the end of the container ends it.

        Args:
            properties: its configuration, the reference's keys to text.
            source: name of the file, for messages; a live update of the configuration is written there.

        Returns:
            The broker, recovered, registered and serving.

        Raises:
            AddBrokerError: the message says why; nothing runs then.
        """
        if self._nursery is None:
            raise AddBrokerError("the container is stopping")
        adding = _Adding()
        self._nursery.start_soon(self._add, properties, source, adding)
        await adding.done.wait()
        if adding.broker is None:
            raise adding.error
        return adding.broker

    async def _add(self, properties: Mapping[str, str], source: str, adding: _Adding) -> None:
        try:
            adding.broker = await self._add_now(properties, source)
        except AddBrokerError as error:
            adding.error = error
        finally:
            adding.done.set()

    async def _add_now(self, properties: Mapping[str, str], source: str) -> Broker:
        async with self._changing:
            options = broker_options(properties, source, self.options, self.world.disk, self._machine)
            options.container = self.address
            config = options.broker
            if config.enable_controller_mode and "brokerId" not in properties:
                config.broker_id = free_id(options, self._hosted.values())
            identity = BrokerIdentity(config.broker_cluster_name, config.broker_name, config.broker_id)
            if identity in self._hosted:
                raise AddBrokerError(f"{identity} has already been added to current broker container")
            if self._nursery is None:
                raise AddBrokerError("the container is stopping")
            self._failed.pop(identity, None)
            kind = "slave" if options.store.broker_role == "SLAVE" else "master"
            try:
                for hook in self.hooks:
                    await hook.before_start(options, properties)
                if self._nursery is None:
                    raise AddBrokerError("the container is stopping")
                hosted: HostedBroker = await self._nursery.start(self._host, identity, options)
                for hook in self.hooks:
                    await hook.after_start(hosted.broker, properties)
            except Exception as error:
                cause = single_cause(error)
                log.error("broker not added", exc=error, broker=identity, error=cause)
                begun = self._hosted.pop(identity, None)
                if begun is not None:  # a hook refused it
                    begun.serves = False
                    begun.scope.cancel()
                raise AddBrokerError(f"Failed to initialize {kind} broker {identity}: {one_line(cause)}") from error
            self._on_boot(
                f"The broker[{config.broker_name}, {hosted.broker.identity.address}] boot success. "
                f"brokerId={config.broker_id}, "
                f"serializeType=JSON and name server is {self.options.container.namesrv_addr or 'not configured'}"
            )
            return hosted.broker

    async def remove_broker(self, identity: BrokerIdentity) -> bool:
        """Stop broker *identity* and take it off the tables.

        Returns:
            Whether there was one.
        """
        async with self._changing:
            hosted = self._hosted.get(identity)
            if hosted is None:
                return False
            hosted.serves = False
            hosted.scope.cancel()
            await hosted.stopped.wait()
            log.info("broker removed", broker=identity)
            return True

    async def _host(
        self, identity: BrokerIdentity, options: BrokerOptions, *, task_status: trio.TaskStatus[HostedBroker]
    ) -> None:
        """Run one broker; after its start nothing of it leaves this task."""
        # Shielded once it has started: the end of the container stops its brokers in their order, not all at once.
        started = _Started(self, identity, task_status)
        try:
            with started.scope:
                await host_broker(self.world, options, self._client, self._neighbours, task_status=started)
            if started.hosted is None:
                raise AddBrokerError("stopped while it started")
        except Exception as error:
            if started.hosted is None:
                raise
            cause = single_cause(error)
            started.hosted.failure = f"{type(cause).__name__}: {cause}"
            self._failed[identity] = started.hosted.failure
            log.error("broker failed, its neighbours go on", exc=error, broker=identity, error=started.hosted.failure)
        finally:
            hosted = started.hosted
            if hosted is not None:
                hosted.serves = False
                if self._hosted.get(identity) is hosted:
                    del self._hosted[identity]
                hosted.stopped.set()

    def _enter(self, hosted: HostedBroker) -> None:
        """List a broker that has started."""
        self._hosted[hosted.identity] = hosted
        self._tell_name_servers(hosted)  # they may have changed while it started

    # --- name servers ------------------------------------------------------------------------------------------

    def name_servers_changed(self) -> None:
        """Tell the brokers of the container's name servers, which are theirs."""
        for hosted in self._hosted.values():
            self._tell_name_servers(hosted)

    def _tell_name_servers(self, hosted: HostedBroker) -> None:
        keys, options = self.options.container, hosted.broker.options
        values = Properties(name_server_keys(keys), "container")
        if keys.namesrv_addr and options.read_change(values).texts.items() - options.properties().items():
            options.apply(options.read_change(values))
            hosted.broker.settings_changed()


@attrs.define
class _Adding:
    """What became of a broker that was to be added, for the task that asked."""

    done: trio.Event = attrs.field(factory=trio.Event)
    broker: Broker | None = None
    error: AddBrokerError = attrs.field(factory=lambda: AddBrokerError("the container is stopping"))


class _Started:
    """A task status that lists the broker in its container, and shields it from then on."""

    def __init__(
        self, container: BrokerContainer, identity: BrokerIdentity, inner: trio.TaskStatus[HostedBroker]
    ) -> None:
        self._container = container
        self._identity = identity
        self._inner = inner
        self.scope = trio.CancelScope()
        self.hosted: HostedBroker | None = None

    def started(self, broker: Broker | None = None) -> None:
        assert broker is not None
        self.hosted = HostedBroker(self._identity, broker, self.scope)
        self._container._enter(self.hosted)
        self.scope.shield = True
        self._inner.started(self.hosted)
