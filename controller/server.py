"""One controller: a member of the quorum, the port brokers and tools ask, and the leader's duties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from understudy.controller.configuration import (
    ALWAYS_BLACK,
    START_ONLY,
    ControllerConfig,
    check,
    read_peers,
    timing,
    tls_files,
)
from understudy.controller.failover import Failover
from understudy.controller.leadership import tell_when_nobody_leads, tell_who_leads
from understudy.controller.liveness import BrokerKey, Liveness
from understudy.controller.log_ends import LogEnds
from understudy.controller.metadata import Metadata
from understudy.controller.meter import ControllerMeter
from understudy.controller.metrics import ControllerMetrics
from understudy.controller.notification import RoleNotifier
from understudy.controller.operators import Operators
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.replication import ReplicatedMetadata
from understudy.controller.requests import ControllerRequests
from understudy.remoting.access import ranges_of
from understudy.remoting.client import open_client
from understudy.remoting.connection import Connection
from understudy.remoting.limits import LaneLimits
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Collect, Family
from understudy.runtime.network import ListenError
from understudy.runtime.program import first_cause
from understudy.runtime.stored_settings import SettingsInForce
from understudy.runtime.world import World
from understudy.security.opening import check_open, gate_of
from understudy.security.settings import SecuritySettings, secure_calls

if TYPE_CHECKING:
    from understudy.runtime.metrics_export import Exporter
    from understudy.security.gate import Gate

log = get_logger("controller")

LOST_TOLD = 20
"""Brokers lost in one moment of which each has a line in the log."""


class Controller:
    """A controller, alone in its process or inside a name server.

    Args:
        world: the outside world.
        config: settings.
        security: who may ask its API, and how its connections are secured; nobody has to sign by default.

    Attributes:
        metadata: the replicated state, for reading.
        member: the member of the quorum.
        failover: elections and their records; set once :meth:`run` runs.
        requests: the API; set once :meth:`run` runs.
        gate: what requests must pass, with the users of its file; that of a name server if it lives in one.
        more_metrics: of others in this process, served beside its own.

    Raises:
        ConfigError: for settings that cannot be used.
    """

    def __init__(self, world: World, config: ControllerConfig, security: SecuritySettings | None = None) -> None:
        self._world = world
        self._security = security or SecuritySettings()
        self.peers = read_peers(config)
        config = attrs.evolve(config, listen_port=self.peers.api[self.peers.own][1])
        self.settings = SettingsInForce(config, ALWAYS_BLACK, check, START_ONLY)
        self.metadata = Metadata()
        self.member = QuorumMember(
            world,
            QuorumSettings(
                config.controller_d_leger_group or "controller",
                self.peers.own,
                self.peers.raft,
                config.controller_store_path,
                config.bind_address,
                timing(config),
                tls=tls_files(config),
                secret_file=config.controller_raft_secret_file,
                open_to_all=config.controller_raft_open_to_all,
            ),
            self.metadata,
        )
        self.liveness = Liveness(world.clock.monotonic(), config.controller_unknown_broker_grace / 1000)
        self.failover: Failover | None = None
        self.requests: ControllerRequests | None = None
        self.gate: Gate | None = gate_of(self._security, self._security.cluster, world.clock.monotonic)
        if self.gate is not None:
            self.gate.authority.ensure_supers(self._security.super_users)  # it has no others
        self.more_metrics: list[Collect] = []
        self.metrics_settings, warning = read_metrics_settings(config)
        for said in (*self.peers.warnings, warning):
            if said:
                log.warning(said)

    @property
    def address(self) -> str:
        """``host:port`` of the API, as the member list has it."""
        return self.peers.address(self.peers.own)

    async def run(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports :attr:`address` when requests are answered.

        Raises:
            FatalError: when this member must not go on.
            ListenError, DiskLockedError: at the start.
            ConfigError: nobody could sign in.
        """
        check_open(self.gate)
        config = self.settings.current
        server = RemotingServer(
            self._world, config.bind_address, self.peers.api[self.peers.own][1], name="controller", limits=config.limits
        )
        server.administrators = ranges_of(config.admin_addresses)
        server.gate = self.gate
        server.tls = self._security.tls.for_servers(self._world.clock)
        server.lane(
            "controller", LaneLimits(running=4096, waiting=config.controller_request_thread_pool_queue_capacity)
        )
        async with open_client(self._world) as client:
            secure_calls(client, self._security)
            notifier = RoleNotifier(client)
            replicated = ReplicatedMetadata(self._world, self.member)
            ends = LogEnds(client, self._world.threads)
            failover = self.failover = Failover(
                self._world, self.member, self.metadata, replicated, self.liveness, notifier, ends
            )
            failover.config = config
            meter = None if self.metrics_settings is None else ControllerMeter(self._world.clock)
            failover.meter = replicated.meter = meter
            requests = self.requests = ControllerRequests(
                self._world,
                self.peers,
                self.member,
                self.metadata,
                replicated,
                self.liveness,
                failover,
                self.settings,
                Operators(self.member, self._world.clock, self._world.random),
            )
            requests.register(server, meter)
            exporter = None if meter is None else self._exporter(meter, failover)
            server.on_close.append(self._connection_closed)
            async with trio.open_nursery() as nursery:
                await self._start_member(nursery)
                if exporter is not None:
                    await exporter.bind()
                    nursery.start_soon(exporter.run)
                await server.bind()
                nursery.start_soon(notifier.run)
                nursery.start_soon(failover.run)
                nursery.start_soon(self._expire_brokers)
                patience = 2 * self.member.settings.timing.election_max_seconds
                nursery.start_soon(tell_who_leads, self.member)
                nursery.start_soon(tell_when_nobody_leads, self.member, self._world.clock, patience)
                nursery.start_soon(server.run)
                log.info("serving", address=self.address, members=self.peers.listed())
                task_status.started(self.address)

    async def _start_member(self, nursery: trio.Nursery) -> None:
        try:
            await nursery.start(self.member.run)
        except* ListenError as errors:
            hint = "members meet there; controllerRaftPeers gives all of them other addresses"
            raise ListenError(f"{first_cause(errors)}; {hint}") from None

    def _exporter(self, meter: ControllerMeter, failover: Failover) -> Exporter:
        from understudy.runtime.metrics_export import make_exporter  # few controllers have metrics out

        assert self.metrics_settings is not None
        config, world = self.settings.current, self._world
        metrics = ControllerMetrics(
            meter,
            self.peers,
            self.member,
            self.metadata,
            self.liveness,
            failover,
            world.clock,
            world.disk,
            config.controller_store_path,
        )
        labels = {**metrics.labels(config.controller_d_leger_group), **self.metrics_settings.labels}

        def collect() -> list[Family]:
            return [*metrics.collect(), *(family for more in self.more_metrics for family in more())]

        return make_exporter(world, attrs.evolve(self.metrics_settings, labels=labels), collect, "controller")

    def _connection_closed(self, connection: Connection) -> None:
        lost = self.liveness.connection_closed(connection)
        self._say_lost([(key, "its connection closed") for key in lost])
        for key in lost:
            self._lost(key, f"the connection of broker {key.broker_id} closed")

    async def _expire_brokers(self) -> None:
        """Notice silent brokers at their own deadline; asleep until the earliest one."""
        clock = self._world.clock
        while True:
            now = clock.monotonic()
            lost = []
            for key in self.liveness.expire(now):
                record = self.liveness.record(key.broker_name, key.broker_id)
                lost.append((key, "" if record is None else record.end_reason))
            self._say_lost(lost)
            for key, why in lost:
                self._lost(key, f"broker {key.broker_id} was {why}")
            for name, broker_id in self.liveness.waiting_newcomers(now):
                self._suspect(name, f"broker {broker_id} has registered and waits for others")
            for name in self.liveness.moments_over(now):
                self._suspect(name, "the first brokers have been heard, and the others had the time to be")
            longest = max(50, self.settings.current.scan_not_active_broker_interval) / 1000
            due = self.liveness.next_expiry(now)
            pause = longest if due is None else min(longest, max(0.02, due - now + 0.001))
            await clock.sleep(pause)

    @staticmethod
    def _say_lost(lost: list[tuple[BrokerKey, str]]) -> None:
        """Tell who is gone; of very many at once some, for each line takes its time."""
        for key, why in lost[:LOST_TOLD]:
            log.info("broker lost", group=key.broker_name, broker=key.broker_id, why=why)
        if len(lost) > LOST_TOLD:
            log.info("more brokers lost at once", count=len(lost) - LOST_TOLD)

    def _lost(self, key: BrokerKey, cause: str) -> None:
        group = self.metadata.groups.get(key.broker_name)
        if group is None or key.broker_id not in group.replicas:
            # never registered: nobody will ask why it is dead, and anybody may send heartbeats
            self.liveness.forget(key.broker_name, [key.broker_id])
        else:
            self._suspect(key.broker_name, cause)

    def _suspect(self, broker_name: str, cause: str) -> None:
        if self.failover is not None:
            self.failover.suspect(broker_name, cause)
