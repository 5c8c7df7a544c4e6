"""One broker: what it consists of, how it starts, serves and stops.

The life of a broker is one call of :meth:`Broker.run`. Its parts are public attributes, each in a module of its own.
Nothing in here knows of other brokers; a failure leaves :meth:`Broker.run` as an exception and touches nobody else.

Source: BrokerController.java, BrokerStartup.java.
"""

from __future__ import annotations

import trio

from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.broadcast import BroadcastOffsets
from understudy.broker.clients import ConsumerTable, ProducerTable
from understudy.broker.config import BrokerOptions, delay_levels_ms
from understudy.broker.deferred_service import DeferredService
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.groups import GroupTable
from understudy.broker.handlers import register_handlers
from understudy.broker.hold import PullHold
from understudy.broker.identity import Identity, host_bytes
from understudy.broker.locks import QueueLocks
from understudy.broker.member_group import MemberGroup
from understudy.broker.metrics import open_endpoint
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence
from understudy.broker.processors.members import MemberProcessor
from understudy.broker.processors.pull import PullProcessor
from understudy.broker.processors.send import SendProcessor
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.redelivery import OwnLog, Redelivery
from understudy.broker.registration import Registration
from understudy.broker.replication import Replication
from understudy.broker.role import OpenRole, Role
from understudy.broker.saved_tables import load_tables, tables_of
from understudy.broker.schedule import DelayLevels
from understudy.broker.services import start_services
from understudy.broker.slave_sync import SlaveSync
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.storage import store_settings
from understudy.broker.topics import TopicTable
from understudy.broker.twin import refuse_twin
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.connection import Connection
from understudy.remoting.limits import ConnectionLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.metrics_endpoint import MetricsEndpoint
from understudy.runtime.supervisor import Supervisor, open_supervisor
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

log = get_logger("broker")

STOP_SECONDS = 10.0
FIRST_REGISTRATION_MS = 1_000
FAST_PORT_DISTANCE = 2


class Broker:
    """One broker.

    Args:
        world: clock, network, disk and randomness.
        options: its configuration; read while it runs, so that live changes count.
        client: shared connections to other servers; the broker opens its own when ``None``.
        redelivery: where due delayed messages go; its own log when ``None``.
        role: opens what decides which services run; without it the configured role alone does.

    Attributes (those without a type here exist once :meth:`run` has started):
        options: the configuration.
        identity: names and addresses, with the real port.
        topics, groups, offsets, broadcasts, producers, consumers, locks, hold, stats, schedule_progress: the tables.
        replication: copies to slaves, or from the master.
        store: the messages.
        own_log: puts due messages into them.
        schedule: the service of delayed messages.
        registration: what name servers are told.
        member_group: who else of the replica group is alive.
        slave_sync: copies the master's tables; ``None`` on a master.
        role: decides which services run; ``None`` when nobody brought one.
        metrics: where metrics are served; ``None`` unless the settings ask for it.
        queue_mappings: static topics, as the master answered them.
        tables: those of them that travel between replicas.
        persistence: saves the tables.
        server: the listening port.
        services: what runs.
        started_ms: wall time of the start.
        was_synced: as a slave, it knew its group's tables when it stopped last.
    """

    identity: Identity
    store: MessageStore
    own_log: OwnLog
    schedule: DeferredService
    registration: Registration
    server: RemotingServer
    fast_server: RemotingServer | None
    services: Supervisor
    send: SendProcessor
    pull: PullProcessor
    members: MemberProcessor
    client: RemotingClient
    member_group: MemberGroup

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        *,
        client: RemotingClient | None = None,
        redelivery: Redelivery | None = None,
        role: OpenRole | None = None,
    ) -> None:
        self.world = world
        self.options = options
        config, keys = options.broker, options.store
        now_ms = world.clock.wall_ms
        self.started_ms = now_ms()
        self.delay_levels_ms = delay_levels_ms(keys.message_delay_level)
        self.sync_flush = keys.flush_disk_type == "SYNC_FLUSH"
        self.topics = TopicTable(now_ms)
        self.groups = GroupTable(now_ms)
        self.groups.auto_create = lambda: config.auto_create_subscription_group
        self.groups.create_system = lambda: config.enable_create_sys_group
        self.offsets = OffsetTable(now_ms, config.consumer_offset_update_version_step)
        self.producers: ProducerTable[Connection] = ProducerTable()
        self.consumers: ConsumerTable[Connection] = ConsumerTable()
        self.broadcasts = BroadcastOffsets(
            world.clock,
            self.offsets,
            lambda: config.broadcast_offset_expire_second,
            lambda: config.broadcast_offset_expire_max_second,
        )
        self.locks = QueueLocks()
        self.hold = PullHold(world.clock, lambda: config.pull_thread_pool_queue_capacity, world.load.parked)
        self.stats = BrokerStatistics(world.clock, config.broker_cluster_name)
        self.schedule_progress = ScheduleProgress(now_ms, config.delay_offset_update_version_step)
        self.queue_mappings = QueueMappings(now_ms)
        self.persistence = Persistence(world)
        self.tables = tables_of(self)
        self.tables.topics.on_gone.append(self.forget_topic)
        self.replication = Replication(world, options)
        self.fast_server = None
        self.metrics: MetricsEndpoint | None = None
        self.slave_sync: SlaveSync | None = None
        self.role: Role | None = None
        self._open_role = role
        self.was_synced = False
        self._shared_client = client
        self._redelivery = redelivery

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master and takes no messages of its own."""
        return self.options.store.broker_role == "SLAVE"

    @property
    def store_host(self) -> bytes:
        """Address and port as they stand in this broker's records and message ids."""
        return host_bytes(self.identity.ip, self.identity.port)

    def forget_topic(self, topic: str) -> None:
        """Delete what belongs to a topic whose row is gone: queues, offsets, statistics; who waits there is told."""
        self.offsets.remove_topic(topic)
        self.store.delete_topic(topic)
        self.stats.topic_deleted(topic)
        self.hold.wake_topic(topic)

    # --- life --------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then sign off, flush and save, within :data:`STOP_SECONDS`.

        Args:
            task_status: told when the port is bound, the store recovered, requests are answered, and the name servers
                that answer quickly know the broker.

        *Resources*: ports, the store's folder and every task are given back when this returns or raises.

        *Errors*: before it serves: ``ListenError``, ``DiskLockedError``, ``BrokerStartError``, ``OSError``, each one
        clear line. Later: an exception group when an essential service failed.
        """
        await self._bind()
        try:
            await self._open()
        except BaseException:
            await self._unbind()
            raise
        try:
            async with trio.open_nursery() as nursery:
                serving = trio.CancelScope()
                try:
                    await nursery.start(self._serve, serving)
                    await trio.lowlevel.checkpoint_if_cancelled()
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    try:
                        with trio.move_on_after(STOP_SECONDS / 2, shield=True):
                            await self._retire()
                    finally:
                        serving.cancel()
        finally:
            with trio.move_on_after(STOP_SECONDS, shield=True):
                await self._close()

    async def _bind(self) -> None:
        server_keys = self.options.server
        limits = ConnectionLimits(idle_seconds=server_keys.server_channel_max_idle_time_seconds)
        host, port = server_keys.bind_address, server_keys.listen_port
        name = self.options.broker.broker_name
        self.server = RemotingServer(self.world, host, port, name=f"broker {name}", limits=limits)
        _, real_port = await self.server.bind()
        config, keys = self.options.broker, self.options.store
        try:
            ha_port = await self.replication.bind(host, keys.ha_listen_port if port else 0)
        except BaseException:
            await self._unbind()
            raise
        self.identity = Identity(
            config.broker_cluster_name,
            name,
            config.broker_id,
            config.broker_ip1 or "127.0.0.1",
            real_port,
            f"{config.broker_ip2 or config.broker_ip1 or '127.0.0.1'}:{ha_port}",
            self.options.store_address,
        )
        try:
            self.metrics = open_endpoint(self)
            if self.metrics is not None:
                await self.metrics.bind()
        except BaseException:
            self.metrics = None
            await self._unbind()
            raise
        if port > FAST_PORT_DISTANCE:
            self.fast_server = RemotingServer(
                self.world, host, port - FAST_PORT_DISTANCE, name=f"broker {name} (fast port)", limits=limits
            )
            try:
                await self.fast_server.bind()
            except BaseException:
                await self._unbind()
                raise

    async def _unbind(self) -> None:
        await self.server.unbind()
        await self.replication.unbind()
        if self.fast_server is not None:
            await self.fast_server.unbind()
        if self.metrics is not None:
            await self.metrics.unbind()

    async def _open(self) -> None:
        """Recover the store, load the tables, and connect the parts."""
        identity = self.identity
        self.store = await MessageStore.open(
            self.world, store_settings(self.options.store), (identity.ip, identity.port)
        )
        try:
            await load_tables(self)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.store.close()
            raise
        self.acknowledgements = Acknowledgements(
            self.store,
            self.world.clock,
            lambda: self.options.store.sync_flush_timeout,
            lambda: self.options.broker.send_thread_pool_queue_capacity,
            flushes=self.sync_flush,
            copied=self.replication.copied,
            copies_timeout_ms=lambda: self.options.store.slave_timeout,
        )
        self.replication.open(self.store)
        self.replication.copies_changed.append(self.acknowledgements.settle)
        self.own_log = OwnLog(self.world.clock, self.store, self.replication, self.options.store)
        levels = DelayLevels(
            self.world.clock,
            self.store,
            self.schedule_progress,
            self.delay_levels_ms,
            lambda topic, queue_id, size: self.stats.topic(topic).add(queue_id, 1, size),
        )
        self.schedule = DeferredService(self.world.clock, levels, self._redelivery or self.own_log)
        levels.announce = self.schedule.arrived
        self.store.arrived.append(self.hold.arrived)
        self.store.arrived.append(levels.arrived)

    async def _serve(
        self, scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        clock = self.world.clock
        with scope:
            async with open_client(self.world) as own_client:
                self.client = self._shared_client if self._shared_client is not None else own_client
                self._connect()
                await self.registration.servers.refresh()
                if not self.options.broker.enable_controller_mode:
                    await refuse_twin(clock, self.member_group, self.client, self.identity)
                async with open_supervisor(clock, self.identity.canonical_name) as services:
                    self.services = services
                    start_services(self, services)
                    if self.registration.name_servers:
                        await self.registration.settled(FIRST_REGISTRATION_MS)
                    log.info(
                        "broker serves",
                        name=self.identity.canonical_name,
                        address=self.identity.address,
                        name_servers=";".join(self.registration.name_servers) or "none",
                    )
                    await trio.lowlevel.checkpoint_if_cancelled()
                    scope.shield = True  # only now: a stop during the start ends it at once, a later one in its order
                    task_status.started()
                    await trio.sleep_forever()

    def settings_changed(self) -> None:
        """Tell services that wait for nothing else that a key of the configuration may have another value."""
        if hasattr(self, "store"):
            self.store.change_settings(store_settings(self.options.store))
        if hasattr(self, "registration"):
            self.registration.servers.changed()

    def _connect(self) -> None:
        self.registration = Registration(self.world, self.options, self.identity, self.topics, self.client)
        self.member_group = MemberGroup(
            self.world, self.options, self.identity, self.registration, self.replication, self.client
        )
        if self.is_slave:
            self.slave_sync = SlaveSync(
                self.world,
                self.replication,
                self.client,
                self.identity.address,
                self.tables,
            )
            self.slave_sync.synced = self.was_synced
            self.slave_sync.on_synced.append(lambda: self.persistence.changed("replica"))
        if self._open_role is not None:
            self.role = self._open_role(self)
            self.schedule.target = self.role
        self.send = SendProcessor(self)
        self.pull = PullProcessor(self)
        self.members = MemberProcessor(self)
        self.hold.answer = self.pull.again
        register_handlers(self)

    async def _retire(self) -> None:
        """Leave while still serving: sign off, and answer the sends that wait for the disk."""
        if hasattr(self, "registration"):
            await self.registration.sign_off()
            if self.sync_flush:
                await self.acknowledgements.drain(
                    lambda: self.store.wait_flushed(self.store.max_physical_offset, 1_000)
                )

    async def _close(self) -> None:
        """Give everything back after the services are gone."""
        try:
            await self._unbind()
            await self.persistence.save_all()
        finally:
            await self.store.close()
        log.info("broker stopped", name=self.identity.canonical_name)
