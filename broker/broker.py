"""One broker: what it consists of, how it starts, serves and stops.

The life of a broker is one call of :meth:`Broker.run`. Its parts are public attributes, each in a module of its own.
Nothing in here knows of other brokers; a failure leaves :meth:`Broker.run` as an exception and touches nobody else.

Source: BrokerController.java, BrokerStartup.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from understudy.broker import admin
from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.broadcast import BroadcastOffsets
from understudy.broker.clients import ConsumerTable, ProducerTable
from understudy.broker.config import BrokerOptions, delay_levels_ms
from understudy.broker.groups import GroupTable
from understudy.broker.hold import PullHold
from understudy.broker.identity import Identity, host_bytes
from understudy.broker.inner import InnerMessage, append
from understudy.broker.locks import QueueLocks
from understudy.broker.member_group import MemberGroup
from understudy.broker.metrics import open_endpoint
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence, SavedTable
from understudy.broker.processors.lock import LockProcessor
from understudy.broker.processors.members import MemberProcessor
from understudy.broker.processors.pull import PullProcessor
from understudy.broker.processors.queue_offsets import OffsetProcessor
from understudy.broker.processors.reply import LANE as REPLY_LANE
from understudy.broker.processors.reply import ReplyProcessor
from understudy.broker.processors.send import SendProcessor
from understudy.broker.processors.send_back import SendBackProcessor
from understudy.broker.registration import Registration
from understudy.broker.replication import Replication
from understudy.broker.role import OpenRole, Role
from understudy.broker.schedule import ScheduleProgress, ScheduleService
from understudy.broker.slave_sync import SlaveSync
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.storage import BrokerStartError, config_path, load, store_settings
from understudy.broker.topics import SystemTopicPlan, TopicTable
from understudy.broker.twin import refuse_twin
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.limits import ConnectionLimits, LaneLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.runtime.metrics_endpoint import MetricsEndpoint
from understudy.runtime.supervisor import Supervisor, open_supervisor
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

log = get_logger("broker")

STOP_SECONDS = 10.0
FIRST_REGISTRATION_MS = 1_000
FAST_PORT_DISTANCE = 2
PROGRESS_DELAY_MS = 500
"""Longest time from a commit to its write: within a second it survives a power loss, whatever the keys allow."""
PULL_CODES = frozenset(
    {
        int(code)
        for code in (
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.PEEK_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
        )
    }
)
"""Codes the fast port does not serve."""


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
        schedule: the service of delayed messages.
        registration: what name servers are told.
        member_group: who else of the replica group is alive.
        slave_sync: copies the master's tables; ``None`` on a master.
        role: decides which services run; ``None`` when nobody brought one.
        metrics: where metrics are served; ``None`` unless the settings ask for it.
        persistence: saves the tables.
        server: the listening port.
        services: what runs.
        started_ms: wall time of the start.
    """

    identity: Identity
    store: MessageStore
    schedule: ScheduleService
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
        redelivery: Callable[[InnerMessage], Awaitable[bool]] | None = None,
        role: OpenRole | None = None,
    ) -> None:
        self.world = world
        self.options = options
        config, keys = options.broker, options.store
        now_ms = world.clock.wall_ms
        self.started_ms = now_ms()
        self.delay_levels_ms = delay_levels_ms(keys.messageDelayLevel)
        self.sync_flush = keys.flushDiskType == "SYNC_FLUSH"
        self.topics = TopicTable(now_ms)
        self.groups = GroupTable(now_ms)
        self.groups.auto_create = lambda: config.autoCreateSubscriptionGroup
        self.groups.create_system = lambda: config.enableCreateSysGroup
        self.offsets = OffsetTable(now_ms, config.consumerOffsetUpdateVersionStep)
        self.producers: ProducerTable[Connection] = ProducerTable()
        self.consumers: ConsumerTable[Connection] = ConsumerTable()
        self.broadcasts = BroadcastOffsets(
            world.clock,
            self.offsets,
            lambda: config.broadcastOffsetExpireSecond,
            lambda: config.broadcastOffsetExpireMaxSecond,
        )
        self.locks = QueueLocks()
        self.hold = PullHold(world.clock, lambda: config.pullThreadPoolQueueCapacity)
        self.stats = BrokerStatistics(world.clock, config.brokerClusterName)
        self.schedule_progress = ScheduleProgress(now_ms, config.delayOffsetUpdateVersionStep)
        self.persistence = Persistence(world)
        self.replication = Replication(world, options)
        self.fast_server = None
        self.metrics: MetricsEndpoint | None = None
        self.slave_sync: SlaveSync | None = None
        self.role: Role | None = None
        self._open_role = role
        self._was_synced = False
        self._shared_client = client
        self._redelivery = redelivery if redelivery is not None else self.append_to_own_log

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master and takes no messages of its own."""
        return self.options.store.brokerRole == "SLAVE"

    @property
    def store_host(self) -> bytes:
        """Address and port as they stand in this broker's records and message ids."""
        return host_bytes(self.identity.ip, self.identity.port)

    async def append_to_own_log(self, message: InnerMessage) -> bool:
        """Put a due message into this broker's log; the redelivery target of a master."""
        append(self.store, message)
        return True

    def _handed_on(self) -> None:
        """Answer the pulls that a receive's messages woke, and take its time."""
        self.hold.answer_ready()
        self.send.take_time()

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
        limits = ConnectionLimits(idle_seconds=server_keys.serverChannelMaxIdleTimeSeconds)
        host, port = server_keys.bindAddress, server_keys.listenPort
        name = self.options.broker.brokerName
        self.server = RemotingServer(self.world, host, port, name=f"broker {name}", limits=limits)
        _, real_port = await self.server.bind()
        config, keys = self.options.broker, self.options.store
        try:
            ha_port = await self.replication.bind(host, keys.haListenPort if port else 0)
        except BaseException:
            await self._unbind()
            raise
        self.identity = Identity(
            config.brokerClusterName,
            name,
            config.brokerId,
            config.brokerIP1 or "127.0.0.1",
            real_port,
            f"{config.brokerIP2 or config.brokerIP1 or '127.0.0.1'}:{ha_port}",
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
            await self._load_tables()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.store.close()
            raise
        self.acknowledgements = Acknowledgements(
            self.store,
            self.world.clock,
            lambda: self.options.store.syncFlushTimeout,
            lambda: self.options.broker.sendThreadPoolQueueCapacity,
            flushes=self.sync_flush,
            copied=self.replication.copied,
            copies_timeout_ms=lambda: self.options.store.slaveTimeout,
        )
        self.replication.open(self.store)
        self.replication.copies_changed.append(self.acknowledgements.settle)
        self.schedule = ScheduleService(
            self.world.clock,
            self.store,
            self.schedule_progress,
            self.delay_levels_ms,
            self._redelivery,
            lambda topic, queue_id, size: self.stats.topic(topic).add(queue_id, 1, size),
        )
        self.store.arrived.append(self.hold.arrived)
        self.store.arrived.append(self.schedule.arrived)

    async def _load_tables(self) -> None:
        config, keys, disk = self.options.broker, self.options.store, self.world.disk
        self.topics.install(
            SystemTopicPlan(
                cluster=config.brokerClusterName,
                broker_name=config.brokerName,
                default_queue_nums=config.defaultTopicQueueNums,
                revive_queue_nums=config.reviveQueueNum,
                auto_create=config.autoCreateTopicEnable,
                cluster_topic=config.clusterTopicEnable,
                broker_topic=config.brokerTopicEnable,
                trace=config.traceTopicEnable,
                trace_topic=config.msgTraceTopicName,
                timer_wheel=keys.timerWheelEnable,
            )
        )
        self.groups.install()
        tables = (
            ("topics", "topics.json", self.topics, lambda: 0),
            ("groups", "subscriptionGroup.json", self.groups, lambda: 0),
            ("offsets", "consumerOffset.json", self.offsets, _soon(lambda: config.flushConsumerOffsetInterval)),
            ("delay", "delayOffset.json", self.schedule_progress, _soon(lambda: keys.flushDelayOffsetInterval)),
        )
        absent = []
        for name, file_name, table, delay_ms in tables:
            path = config_path(keys, file_name)
            if not await load(disk, path, table.merge_json):
                absent.append(name)
            if name == "topics" and absent and self.store.max_physical_offset > 0:
                raise BrokerStartError(
                    f"{path} is missing, but the log beside it holds {self.store.max_physical_offset} bytes: restore "
                    "it from a backup or another replica, or write {} into it to start without topics"
                )
            self.persistence.add(SavedTable(name, path, table.to_json, delay_ms, self._barrier_of(name)))
        if self.is_slave:
            path = config_path(keys, "replica.json")
            await load(disk, path, self._load_replica_state)
            self.persistence.add(SavedTable("replica", path, self._replica_state, lambda: 0))
        if absent:
            await disk.in_thread(lambda: make_folder_durably(disk, config_path(keys, "").rstrip("/")))
            await self.persistence.save_all()
        self.topics.on_change.append(lambda rows: self.persistence.changed("topics"))
        self.groups.on_change.append(lambda: self.persistence.changed("groups"))
        self.offsets.on_change.append(lambda: self.persistence.changed("offsets"))
        self.schedule_progress.on_change.append(lambda: self.persistence.changed("delay"))

    def _load_replica_state(self, content: Mapping[str, Any]) -> None:
        self._was_synced = content.get("synced") is True

    def _replica_state(self) -> dict[str, Any]:
        """Return what says after a restart that the tables of this slave are those of its group."""
        sync = self.slave_sync
        return {
            "master": self.replication.master_address,
            "synced": self._was_synced if sync is None else sync.synced,
            "syncedAt": 0 if sync is None else sync.synced_ms,
        }

    def _barrier_of(self, name: str) -> Callable[[], Awaitable[None]] | None:
        """Progress of delayed messages must not be durable before their copies are."""
        if name != "delay" or not self.sync_flush:
            return None

        async def copies_durable() -> None:
            # Flushes by itself: at the end of a clean stop the store's own flushing is over already.
            reached = self.store.max_physical_offset
            if self.store.flushed_offset < reached and not await self.store.flush():
                raise OSError(f"the log could not be flushed up to {reached}")

        return copies_durable

    async def _serve(
        self, scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        clock, keys = self.world.clock, self.options.store
        with scope:
            async with open_client(self.world) as own_client:
                self.client = self._shared_client if self._shared_client is not None else own_client
                self._register_handlers()
                if not self.options.broker.enableControllerMode:
                    await refuse_twin(clock, self.member_group, self.client, self.identity)
                async with open_supervisor(clock, self.identity.canonical_name) as services:
                    self.services = services
                    services.start("store", self.store.run)
                    services.start("persistence", self.persistence.run)
                    services.start("pull hold", self.hold.run)
                    if self.sync_flush or self.options.store.brokerRole == "SYNC_MASTER":
                        reason = f"flushDiskType={keys.flushDiskType}, brokerRole={keys.brokerRole}"
                        services.start("acknowledgements", self.acknowledgements.run, reason=reason)
                    self.replication.start(services)
                    services.start("housekeeping", self.members.run)
                    services.start("broadcast offsets", lambda: self.broadcasts.run(self.members.is_connected))
                    services.start("statistics", self.stats.run)
                    services.start("server", self.server.run)
                    if self.fast_server is not None:
                        services.start("fast server", self.fast_server.run)
                    if self.metrics is not None:
                        services.start("metrics", self.metrics.run, reason="metricsExporterType=PROM")
                    services.start("registration", self.registration.run)
                    if self.role is not None:
                        services.start("role", self.role.run, reason="decides which other services run")
                    else:
                        self._start_by_configuration(services)
                    if self.is_slave or self.options.broker.enableSlaveActingMaster:
                        services.start("member group", self.member_group.run, reason="replica group")
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

    def _start_by_configuration(self, services: Supervisor) -> None:
        if not self.is_slave:
            services.start("schedule", self.schedule.run, reason="master")
        if self.options.broker.enableSlaveActingMaster or self.options.broker.enableControllerMode:
            services.start("heartbeat", self.registration.heartbeat, reason="acting master or controller mode")
        if self.slave_sync is not None:
            services.start("metadata sync", self.slave_sync.run, reason="SLAVE")

    def _register_handlers(self) -> None:
        server, config = self.server, self.options.broker
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
                self.topics,
                self.groups,
                self.offsets,
                self.schedule_progress,
            )
            self.slave_sync.synced = self._was_synced
            self.slave_sync.on_synced.append(lambda: self.persistence.changed("replica"))
            self.slave_sync.on_topic_gone.append(self.forget_topic)
        if self._open_role is not None:
            self.role = self._open_role(self)
            self.schedule.target = self.role.redeliver
        self.send = SendProcessor(self)
        self.pull = PullProcessor(self)
        self.members = MemberProcessor(self)
        self.hold.answer = self.pull.again
        for processor in (
            self.send,
            SendBackProcessor(self),
            ReplyProcessor(self),
            self.pull,
            self.members,
            OffsetProcessor(self),
            LockProcessor(self),
        ):
            processor.register(server)
        admin.register_all(self, server)
        server.lane(
            REPLY_LANE, LaneLimits(config.processReplyMessageThreadPoolNums, config.replyThreadPoolQueueCapacity)
        )
        administration = LaneLimits(
            config.adminBrokerThreadPoolNums,
            config.adminBrokerThreadPoolQueueCapacity,
            config.waitTimeMillsInAdminBrokerQueue / 1000,
        )
        # Lanes of their own for questions that wait for clients or name servers, so that changes do not wait behind.
        server.lane("admin", administration)
        server.lane("relay", administration)
        server.lane(
            "assignment",
            LaneLimits(config.loadBalanceProcessorThreadPoolNums, config.loadBalanceThreadPoolQueueCapacity),
        )
        server.on_close.append(self.members.closed)
        server.handed_on = self._handed_on
        if self.fast_server is not None:
            server.copy_to(self.fast_server, without=PULL_CODES)
            self.fast_server.on_close.append(self.members.closed)
        if self.is_slave:
            if config.enableSlaveActingMaster:
                refusal = (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: this is a slave")
            else:
                refusal = (
                    ResponseCode.SYSTEM_BUSY,
                    "[REJECTREQUEST]system busy, start flow control for a while: this is a slave",
                )
            self.send.admission.refusal = CommandError(*refusal)

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


def _soon(interval_ms: Callable[[], int]) -> Callable[[], int]:
    """Return a configured interval, but never more than :data:`PROGRESS_DELAY_MS`."""
    return lambda: min(interval_ms(), PROGRESS_DELAY_MS)
