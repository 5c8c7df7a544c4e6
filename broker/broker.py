"""One broker: what it consists of.

Everything here lives as long as the broker, whatever its role: identity, store, tables, ports, connections and the
handlers of requests. What belongs to one role is its session (:mod:`~understudy.broker.session`); how a broker starts
and stops is :mod:`~understudy.broker.life`. Nothing in here knows of other brokers.

Source: BrokerController.java.
"""

from __future__ import annotations

import os.path
from collections.abc import Set
from functools import partial
from typing import TYPE_CHECKING

from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.arrivals import Arrivals
from understudy.broker.broadcast import BroadcastOffsets
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ConsumerTable, ProducerTable
from understudy.broker.compacted_topics import declare_compacted
from understudy.broker.conditions import Conditions
from understudy.broker.config import BrokerOptions, delay_levels_ms
from understudy.broker.deferred_service import DeferredService
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.delay_rules import DelayRules
from understudy.broker.filter_bits import keep_bits
from understudy.broker.first_read_questions import FirstReadQuestions
from understudy.broker.first_reads import FirstReads
from understudy.broker.forgotten_topics import forget_topics, young_topics
from understudy.broker.groups import GroupTable
from understudy.broker.handlers import register_handlers
from understudy.broker.history_keeper import HistoryKeeper
from understudy.broker.hold import PullHold
from understudy.broker.identity import host_bytes
from understudy.broker.locks import QueueLocks
from understudy.broker.logical.forwards import LANE as LOGICAL_LANE
from understudy.broker.logical.forwards import Forwards
from understudy.broker.logical.pulls import LogicalPulls
from understudy.broker.member_group import MemberGroup
from understudy.broker.metrics import exporter_of
from understudy.broker.name_server_heartbeats import NameServerHeartbeats
from understudy.broker.node import Node
from understudy.broker.offsets import OffsetTable
from understudy.broker.parts import admission_parts, member_parts, pull_parts, send_parts, transaction_parts
from understudy.broker.persistence import Persistence
from understudy.broker.pop.order import OrderTable
from understudy.broker.pop.stepped_clock import PopClock
from understudy.broker.pops import Pops
from understudy.broker.ports import Ports
from understudy.broker.presence import Presence
from understudy.broker.processors.members import MemberProcessor
from understudy.broker.processors.pull import PullProcessor
from understudy.broker.processors.pull_broadcast import BroadcastPulls
from understudy.broker.processors.pull_subscriptions import Subscriptions
from understudy.broker.processors.send import SendProcessor
from understudy.broker.processors.send_admission import Admission
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.redelivery import OwnLog
from understudy.broker.registration import Registration
from understudy.broker.replicated.levels import ReplicatedLevels, key_of
from understudy.broker.request_modes import RequestModeTable
from understudy.broker.role import Role
from understudy.broker.role_change import Roles
from understudy.broker.saved_tables import acting_pops_of, consumer_filters_of, tables_of
from understudy.broker.schedule import DelayLevels
from understudy.broker.services import BrokerServices
from understudy.broker.session import OpenRules, RoleSession
from understudy.broker.slave_sync import SlaveSync
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.storage import store_settings
from understudy.broker.subscribers import Subscribers
from understudy.broker.timer.service import TimerService
from understudy.broker.topic_counters import DELAYED
from understudy.broker.topics import TopicConfig, TopicTable, has_batch_queues
from understudy.broker.transactions.service import Transactions
from understudy.format import names
from understudy.remoting.client import RemotingClient
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import LARGE_BODIES, Lane
from understudy.runtime.world import World
from understudy.security.opening import gate_of
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.led.service import Led


class Broker:
    """One broker, complete from the moment it is made; :func:`~understudy.broker.life.run_broker` makes and runs it.

    Args:
        world: clock, network, disk and randomness.
        options: its configuration; read while it runs, so that live changes count.
        ports: the ports, taken already.
        store: the messages, recovered already.
        client: connections to other servers.
        open_rules: opens what decides which services run, once for each role.

    Attributes:
        world, options, store, client: as given.
        identity: names and addresses with the real ports, and the role.
        node, catalog, subscribers, delays, stored: records of what belongs together, which handlers share.
        topics, groups, offsets, broadcasts, producers, consumers, locks, hold, stats, schedule_progress: the tables.
        conditions, consumer_filters: of subscriptions that are no set of tags: compiled ones, and the record of them.
        arrivals: who is told of messages that became readable.
        queue_mappings: which topics are static, and where their queues lie.
        forwards: asks other groups for what static topics have there.
        request_modes: how groups consume topics.
        gate: what requests must pass, with the users; ``None`` where they need no signature.
        tables: those of them that travel between replicas.
        persistence: saves the tables.
        server, fast_server: the listening ports.
        metrics: where metrics are served; ``None`` unless the settings ask for it.
        replication: copies to slaves, or from the master.
        slave_sync: copies the master's tables while the broker is a slave.
        first_reads, first_read_questions: which consumers a slave asks its master about, and who asks.
        acknowledgements: sends that wait for the disk or for copies.
        own_log: puts due messages into the store.
        schedule, delay_levels: the service of delayed messages, and what it reads.
        transactions: half messages, and what is decided about them.
        timing, timer: the service of timer messages, and what it runs.
        orders: what was popped in order.
        pop_clock: the wall clock as pops see it.
        acting_pops: what was handed out for the master.
        pops: everything that serves pops.
        registration: what name servers are told.
        presence: whether it may be found.
        member_group: who else of the replica group is alive.
        heartbeats: what name servers hear between registrations.
        roles: its roles, one session after the other.
        led: has controllers say the role; ``None`` outside controller mode.
        services: everything that runs, or does not and why.
        send, pull, members: handlers of requests that others call as well.
        started_ms: wall time of the start.
    """

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        ports: Ports,
        store: MessageStore,
        client: RemotingClient,
        open_rules: OpenRules,
    ) -> None:
        self.world = world
        self.options = options
        self.identity = ports.identity
        self.node = Node(self.identity, options, world)
        self.server = ports.server
        self.fast_server = ports.fast_server
        self.replication = ports.replication
        self.store = store
        self.client = client
        config, keys = options.broker, options.store
        now_ms = world.clock.wall_ms
        self.started_ms = now_ms()
        self.delay_levels_ms = delay_levels_ms(keys.message_delay_level)
        self.sync_flush = keys.flush_disk_type == "SYNC_FLUSH"
        self.topics = TopicTable(now_ms)
        self.groups = GroupTable(now_ms)
        self.queue_mappings = QueueMappings(now_ms)
        self.catalog = Catalog(self.topics, self.groups, self.queue_mappings)
        self.groups.auto_create = lambda: config.auto_create_subscription_group
        self.groups.create_system = lambda: config.enable_create_sys_group
        self.topics.light_queues = self.groups.light_queues = keys.enable_lmq
        self.offsets = OffsetTable(now_ms, config.consumer_offset_update_version_step)
        self.offsets.light_queues = keys.enable_lmq
        self.producers: ProducerTable[Connection] = ProducerTable()
        self.consumers: ConsumerTable[Connection] = ConsumerTable()
        self.broadcasts = BroadcastOffsets(
            world.clock,
            self.offsets,
            lambda: config.broadcast_offset_expire_second,
            lambda: config.broadcast_offset_expire_max_second,
        )
        self.locks = QueueLocks(kept=world.load.kept)
        self.conditions = Conditions(lambda: config.enable_property_filter)
        self.consumer_filters = consumer_filters_of(self)
        if keys.enable_consume_queue_ext:
            keep_bits(store.extensions, self.consumer_filters, self.conditions, config)
        self.subscribers = Subscribers(self.consumers, self.conditions, self.consumer_filters)
        self.hold = PullHold(world.clock, lambda: config.pull_thread_pool_queue_capacity, world.load.parked)
        self.arrivals = Arrivals(self.hold.parked, self.hold.arrived)
        self.stats = BrokerStatistics(world.clock, config.broker_cluster_name)
        self.stats.light_together = lambda: keys.enable_lmq and not config.enable_lmq_stats
        self.schedule_progress = ScheduleProgress(now_ms, config.delay_offset_update_version_step)
        self.own_log = OwnLog(world.clock, store, self.replication, keys)
        self.timing = TimerService(world, store, keys, self.own_log, self._delivered)
        self.timer = self.timing.timer
        self.delays = DelayRules(len(self.delay_levels_ms), self.timer.door)
        self.pop_clock = PopClock(world.clock)
        self.orders = OrderTable(self.pop_clock.wall_ms)
        self.pop_clock.on_step.append(self.orders.stepped)
        self.acting_pops = acting_pops_of(self)
        self.request_modes = RequestModeTable()
        self.gate = gate_of(options.security, config.broker_cluster_name, world.clock.monotonic)
        self.server.gate = self.gate
        self.server.tls = options.security.tls.for_servers(world.clock)
        if self.fast_server is not None:
            self.fast_server.tls = self.server.tls
        self.persistence = Persistence(world)
        self.tables = tables_of(self)
        self.topics.on_change.append(self._topics_changed)
        self.queue_mappings.on_change.append(self._mappings_changed)
        if config.enable_controller_mode:  # else nobody is elected, and a master has made all topics itself
            self.tables.topics.young = partial(young_topics, self)
        self.tables.topics.on_gone.append(partial(forget_topics, self))
        self.tables.topics.on_deletions.append(store.learn_deletions)
        store.dropped.append(self.wake_topics)
        self.history = HistoryKeeper(store, self.tables, self.persistence, world.random)
        self.metrics = exporter_of(self)
        self.acknowledgements = Acknowledgements(
            store,
            world.clock,
            lambda: keys.sync_flush_timeout,
            lambda: config.send_thread_pool_queue_capacity,
            flushes=self.sync_flush,
            copied=self.replication.copied,
            copies_timeout_ms=lambda: keys.slave_timeout,
        )
        self.stored = StoredAnswers(self.identity, keys, self.acknowledgements, self.replication)
        self.replication.open(store)
        self.replication.begin()
        self.replication.copies_changed.append(self.acknowledgements.settle)
        self.presence = Presence(world.clock, options, self.identity)
        self.registration = Registration(
            world,
            options,
            self.identity,
            self.topics,
            self.queue_mappings,
            client,
            self.presence,
            self.replication.follow,
        )
        self.member_group = MemberGroup(
            world,
            options,
            self.identity,
            self.registration,
            self.replication,
            client,
            self.presence,
            lambda: self.persistence.changed("members"),
        )
        self.heartbeats = NameServerHeartbeats(
            world.clock, options, self.identity, self.registration, client, self.member_group.not_known
        )
        self.slave_sync = SlaveSync(
            world, self.replication, client, self.identity, lambda: self.member_group.members, self.tables, self.history
        )
        self.presence.on_forget.append(self.member_group.begin_anew)
        self.member_group.on_view.append(self.slave_sync.look)
        first_reads = FirstReads(
            lambda: world.clock.monotonic() * 1000, self.offsets.doubts, store.queue_offset_at, store.max_queue_offset
        )
        self.replication.follows.append(first_reads.begin)
        self.first_reads = first_reads
        self.first_read_questions = FirstReadQuestions(first_reads, self.replication, client, world.threads, self.hold)
        self.slave_sync.on_synced.append(lambda: self.persistence.changed("replica"))
        self.transactions = Transactions(transaction_parts(self))
        self.services = BrokerServices()
        self.roles = Roles(self, open_rules)
        levels = self.delay_levels = DelayLevels(
            world.clock, store, self.schedule_progress, self.delay_levels_ms, self._delivered
        )
        self.schedule = DeferredService(world.clock, levels, self.session.rules)
        levels.announce = self.schedule.arrived
        self.timing.target = self.session.rules
        self.timer.lacks = levels.lacks = lambda: self.role.is_slave
        levels.before_cut = lambda level: self.history.before_cut(ReplicatedLevels.name, key_of(level))
        self.pops = Pops(self)
        self.replication.cutting.append(self.pops.forget_from)
        self.arrivals.listen(names.SCHEDULE_TOPIC, levels.arrived)
        self.arrivals.listen(names.TIMER_TOPIC, self.timing.arrived)
        self.arrivals.listen(self.pops.log.topic, self.pops.queues.arrived)
        store.arrived.append(self.arrivals.arrived)
        self.send = SendProcessor(send_parts(self), Admission(admission_parts(self)))
        subscriptions = Subscriptions(world.clock, self.groups, self.subscribers)
        broadcasting = BroadcastPulls(config, store, self.consumers, self.broadcasts)
        self.forwards = Forwards(self.node, client, lambda: self.registration.name_servers)
        logical = LogicalPulls(self.node, self.queue_mappings, self.forwards, self.logical_lane)
        self.pull = PullProcessor(pull_parts(self), subscriptions, broadcasting, logical)
        self.members = MemberProcessor(member_parts(self), self.server.lane(LARGE_BODIES))
        self.hold.answer = self.pull.again
        register_handlers(self)
        if self.gate is not None:
            from understudy.broker.signed_slaves import SignedSlaves  # others start without them
            from understudy.security import requests as security_requests

            slaves = self.replication.signed_slaves = SignedSlaves(self.gate, config.broker_cluster_name, world.clock)
            slaves.watch(self.server)
            security_requests.register(self.server, self.gate, lambda: self.persistence.save("users"), self.world)
        self.led = self._led()

    def _led(self) -> Led | None:
        """Make what has controllers lead the broker, where the settings ask for it."""
        if not self.options.broker.enable_controller_mode:
            return None
        from understudy.broker.led.service import Led  # others start without it
        from understudy.broker.switch_replication import SwitchReplication

        replication, keys = self.replication, self.options.store
        assert isinstance(replication, SwitchReplication)  # as its ports were made
        for table in (self.topics, self.groups, self.offsets):
            table.state_version = lambda: self.role.epoch
        path = keys.store_path_broker_identity or os.path.join(keys.store_path_root_dir, "brokerIdentity")
        led = Led(self, replication, path)
        led.register(self.server)
        return led

    def _delivered(self, topic: str, queue_id: int, size_bytes: int) -> None:
        self.stats.topic(topic).of(DELAYED)(queue_id, 1, size_bytes)

    @property
    def role(self) -> Role:
        """What the broker is in its group now."""
        return self.identity.role

    @property
    def session(self) -> RoleSession:
        """The broker in its role."""
        return self.roles.session

    async def change_role(self, role: Role) -> None:
        """Have the running broker take *role*; connections of clients live on. See :class:`Roles` for the laws.

        Args:
            role: with the epoch of its controller, and the reason that people read.

        Raises :class:`~understudy.broker.role_change.RoleChangeError`: the role stays as it is.
        """
        await self.roles.change(role)

    @property
    def store_host(self) -> bytes:
        """Address and port as they stand in this broker's records and message ids."""
        return host_bytes(self.identity.ip, self.identity.port)

    def _topics_changed(self, rows: tuple[TopicConfig, ...]) -> None:
        known = self.store.batch_topics | self.store.changing_kinds.keys()
        batch = {row.name for row in rows if row.attributes and has_batch_queues(row.attributes)}
        if batch or known:
            simple = [row.name for row in rows if row.name in known and row.name not in batch]
            self.store.declare_kinds(batch, simple, beside=self.role.is_slave)  # a master stores what it is sent
        declare_compacted(self.store, self.options.store, rows)

    def _mappings_changed(self) -> None:
        self.wake_topics(self.queue_mappings.table.keys())  # who waits there may have to go on elsewhere

    def logical_lane(self) -> Lane:
        """Return where requests for logical queues wait for other groups."""
        return self.server.lane(LOGICAL_LANE)

    def end_requests(self) -> None:
        """Finish what the requests of one receive began: pulls and pops that messages woke are answered before their
        senders, and acknowledgements are stored."""
        self.hold.answer_ready()
        self.pops.hold.answer_ready()
        if self.pops.gathered.connection is not None:
            self.pops.gathered.settle()

    def wake_topics(self, topics: Set[str]) -> None:
        """Answer who waits for messages of *topics* now."""
        self.hold.wake_topics(topics)
        self.pops.hold.wake_topics(topics)

    def settings_changed(self) -> None:
        """Tell services that wait for nothing else that a key of the configuration may have another value.

        The role looks anew at which of them must run.
        """
        self.store.change_settings(store_settings(self.options.store, self.role))
        self.replication.settings_changed()
        self.registration.servers.changed()
        if self.led is not None:
            self.led.servers.changed()
        self.transactions.settings_changed()
        self.presence.settings_changed()
        self.session.look()

    async def retire(self) -> None:
        """Leave while still serving: sign off, and answer the sends that wait for the disk."""
        await self.registration.sign_off()
        if self.sync_flush or self.replication.waits_for_disk:
            await self.acknowledgements.drain(lambda: self.store.wait_flushed(self.store.max_physical_offset, 1_000))
