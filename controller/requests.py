"""Requests 1001 to 1013 and heartbeats as they arrive on the controller's port (ControllerRequestProcessor.java)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from understudy.controller.answers import (
    broker_id_of,
    election_body,
    group_answer,
    incarnation_of,
    master_fields,
    number_of,
    quorum_text,
    sync_state_set,
    value_of,
)
from understudy.controller.commands import AlterSyncStateSet, ApplyBrokerId, CleanBrokerData, RegisterBroker
from understudy.controller.configuration import FORGET_MEMBER_KEY, ControllerConfig, Peers
from understudy.controller.election import LOWEST_PRIORITY, Live
from understudy.controller.explanation import explain
from understudy.controller.failover import Failover
from understudy.controller.leadership import heard_leader
from understudy.controller.liveness import DEFAULT_TIMEOUT_MS, BrokerKey, Heartbeat, Liveness, TooManyBrokersError
from understudy.controller.metadata import Metadata
from understudy.controller.meter import ControllerMeter
from understudy.controller.notification import set_body
from understudy.controller.operators import Operators
from understudy.controller.raft.errors import NotLeaderError
from understudy.controller.raft.member import QuorumMember
from understudy.controller.replication import NOT_LEADER, ReplicatedMetadata
from understudy.controller.trust import LONGEST_TIMEOUT_MS, Speakers, source_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.fields import (
    CommandError,
    optional,
    optional_bool,
    optional_int,
    required,
    required_int,
)
from understudy.remoting.settings_requests import SettingsRequests, read_body
from understudy.runtime.pace import Pace
from understudy.runtime.stored_settings import SettingsInForce
from understudy.runtime.world import World

EXPLAIN_MASTER = RequestCode.CONTROLLER_EXPLAIN_MASTER
"""Ours: explains one group's master (ext ``brokerName``), text in the body."""
QUORUM_FACTS = RequestCode.CONTROLLER_QUORUM_FACTS
"""Ours: this member's view of quorum and elections, text in the body."""

LANE = "controller"

MAX_GROUPS = 10_000
MAX_REPLICAS = 1_000
"""Groups of a controller, and replicas of a group; whoever reaches the port may apply for ids."""
MAX_NAMES = 20_000
"""Names in one question about many groups."""


class ControllerRequests:
    """Answers requests.

    Args:
        world: of this controller: its clock, its disk, and whose turn it is.
        peers: the controller group.
        member: member of the quorum.
        metadata: replicated state, for reading after a barrier.
        replicated: the way to change it.
        liveness: heartbeats of brokers.
        failover: elections.
        settings: settings in force.
        operators: whom it believes that a member's disk is lost.
    """

    def __init__(
        self,
        world: World,
        peers: Peers,
        member: QuorumMember,
        metadata: Metadata,
        replicated: ReplicatedMetadata,
        liveness: Liveness,
        failover: Failover,
        settings: SettingsInForce[ControllerConfig],
        operators: Operators,
    ) -> None:
        self._world = world
        self._clock = world.clock
        self._peers = peers
        self._member = member
        self._metadata = metadata
        self._replicated = replicated
        self._liveness = liveness
        self._failover = failover
        self._settings = settings
        self._settings_requests = SettingsRequests(settings, world.disk, settled=self._settings_changed, fields={})
        self._operators = operators
        self._speakers = Speakers(metadata, liveness)
        self.heartbeat_count = 0

    def register(self, server: Dispatcher, meter: ControllerMeter | None = None) -> None:
        """Add the handlers to *server*, counted by *meter* if one is given."""
        for code, handler in (
            (RequestCode.BROKER_HEARTBEAT, self._heartbeat),
            (RequestCode.CONTROLLER_GET_METADATA_INFO, self._controller_metadata),
            (RequestCode.GET_CONTROLLER_CONFIG, self._settings_requests.get),
        ):
            server.register(code, handler if meter is None else meter.handler(code, handler))
        for code, waiting in (
            (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, self._alter_sync_state_set),
            (RequestCode.CONTROLLER_ELECT_MASTER, self._elect_master),
            (RequestCode.CONTROLLER_REGISTER_BROKER, self._register_broker),
            (RequestCode.CONTROLLER_GET_REPLICA_INFO, self._replica_info),
            (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, self._sync_state_data),
            (RequestCode.CLEAN_BROKER_DATA, self._clean_broker_data),
            (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, self._next_broker_id),
            (RequestCode.CONTROLLER_APPLY_BROKER_ID, self._apply_broker_id),
            (RequestCode.UPDATE_CONTROLLER_CONFIG, self._update_config),
            (EXPLAIN_MASTER, self._explain_master),
            (QUORUM_FACTS, self._quorum_facts),
        ):
            server.register_async(code, waiting if meter is None else meter.async_handler(code, waiting), LANE)

    # -- answered by any member ----------------------------------------------------------------------------------

    def _heartbeat(self, connection: Connection, command: Command) -> Command:
        broker_id = optional_int(command, "brokerId")
        if broker_id is None:
            raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        key = BrokerKey(required(command, "clusterName"), required(command, "brokerName"), broker_id)
        address = required(command, "brokerAddr")
        now = self._clock.monotonic()
        self._speakers.check_heartbeat(key, address, connection, now, incarnation_of(command))
        facts = Live(
            number_of(command, "epoch", -1),
            number_of(command, "maxOffset", -1),
            number_of(command, "confirmOffset", -1),
            number_of(command, "electionPriority", LOWEST_PRIORITY),
            optional_bool(command, "confirmsElection") or False,
            incarnation_of(command),
        )
        timeout_ms = min(number_of(command, "heartbeatTimeoutMills", DEFAULT_TIMEOUT_MS), LONGEST_TIMEOUT_MS)
        pause_seconds = max(0, number_of(command, "heartbeatInterval", 0)) / 1000
        heartbeat = Heartbeat(
            address, now, timeout_ms / 1000, connection, facts, pause_seconds, source=source_of(connection)
        )
        self.heartbeat_count += 1
        try:
            came_alive = self._liveness.heartbeat(key, heartbeat)
        except TooManyBrokersError as error:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, {error}") from None
        if came_alive:
            self._failover.suspect(key.broker_name, f"broker {broker_id} came alive and the group has no master")
        return response(command, ResponseCode.SUCCESS, "Heart beat success")

    def _controller_metadata(self, connection: Connection, command: Command) -> Command:
        fields = {"isLeader": "true" if self._member.leads() else "false"}
        leader = heard_leader(self._member.facts())
        if leader is not None and (leader != self._peers.own or self._member.leads()):
            fields = {
                "controllerLeaderId": leader,
                "controllerLeaderAddress": self._peers.address(leader),
                **fields,
            }
        fields["peers"] = self._peers.listed()
        if self._settings.current.controller_d_leger_group:
            fields["group"] = self._settings.current.controller_d_leger_group
        return response(command, ext=fields)

    async def _update_config(self, connection: Connection, command: Command) -> Command:
        values = read_body(command)
        forget = values.pop(FORGET_MEMBER_KEY, "").strip()
        if forget:
            self._operators.check(connection, command, forget)
            await self._forget(forget)
        await self._settings_requests.change(values, connection)
        return response(command, ext={})

    async def _settings_changed(self, texts: Mapping[str, str]) -> None:
        self._failover.config = self._settings.current

    async def _forget(self, member: str) -> None:
        try:
            await self._member.forget(member)
        except ValueError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{FORGET_MEMBER_KEY}: {error}") from None
        except NotLeaderError:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this controller's quorum member is not running") from None

    async def _quorum_facts(self, connection: Connection, command: Command) -> Command:
        text = quorum_text(self._member.facts(), sorted(self._peers.api), self._failover.records)
        return response(command, body=text.encode())

    # -- answered by the leader ----------------------------------------------------------------------------------

    def _check_leader(self, ext: dict[str, str] | None = None) -> None:
        if not self._member.leads():
            fields = dict(ext or {})
            leader = heard_leader(self._member.facts())
            if leader is not None and leader != self._peers.own:
                fields["controllerLeaderAddress"] = self._peers.address(leader)
            raise CommandError(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER, fields)

    async def _alter_sync_state_set(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        new_set, set_epoch = sync_state_set(command)
        name, master_id = required(command, "brokerName"), required_int(command, "masterBrokerId")
        self._speakers.check(name, master_id, connection, self._clock.monotonic(), {"newSyncStateSetEpoch": "0"})
        living = self._failover.living(name)
        outcome = await self._replicated.run(
            AlterSyncStateSet(
                name,
                master_id,
                required_int(command, "masterEpoch"),
                set_epoch,
                new_set,
                sorted(living),
                {one: living[one].incarnation for one in new_set if one in living and living[one].incarnation},
            )
        )
        if outcome.code:
            return response(command, outcome.code, outcome.remark, {"newSyncStateSetEpoch": "0"})
        assert outcome.set_epoch is not None and outcome.sync_state_set is not None
        fields = {"newSyncStateSetEpoch": str(outcome.set_epoch)}
        return response(command, ext=fields, body=set_body(outcome.sync_state_set, outcome.set_epoch))

    async def _elect_master(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        cluster, name = required(command, "clusterName"), required(command, "brokerName")
        asked = required_int(command, "brokerId")
        designate = optional_bool(command, "designateElect") or False
        broker_id = None if asked == -1 else asked
        cause = f"{'operator' if designate else 'broker'} at {connection.address} asked for {asked}"
        if designate and broker_id is not None:
            outcome = await self._failover.elect(name, broker_id, True, cause)
        else:
            if broker_id is not None and self._may_lead_soon(name, broker_id):
                self._liveness.expect(name, broker_id, self._clock.monotonic())
            outcome = await self._failover.elect_if_needed(name, broker_id, cause)
        if outcome.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            return response(command, outcome.code, outcome.remark, {})
        fields: dict[str, str] = {}
        if outcome.master_id is not None and outcome.master_address is not None:
            fields = {"masterBrokerId": str(outcome.master_id), "masterAddress": outcome.master_address}
        fields |= {"syncStateSetEpoch": str(outcome.set_epoch), "masterEpoch": str(outcome.master_epoch)}
        body = election_body(outcome, cluster, name)
        return response(command, outcome.code, outcome.remark or None, fields, body)

    def _may_lead_soon(self, name: str, broker_id: int) -> bool:
        """Return whether a broker that asks for an election may be elected; one that is said to be master is silent."""
        return self._registered(name, broker_id) and broker_id != self._metadata.groups[name].master_id

    def _registered(self, name: str, broker_id: int) -> bool:
        group = self._metadata.groups.get(name)
        return group is not None and broker_id in group.replicas

    async def _register_broker(self, connection: Connection, command: Command) -> Command:
        cluster, name = optional(command, "clusterName") or "", required(command, "brokerName")
        names = {"clusterName": cluster, "brokerName": name}
        self._check_leader(names)
        broker_id = required_int(command, "brokerId")
        address = optional(command, "brokerAddress") or ""
        await self._replicated.fresh()
        incarnation = incarnation_of(command)
        alive = [*self._alive(name), *([broker_id] if incarnation else ())]  # ours wait when they hear that they lead
        group = self._metadata.groups.get(name)
        replica = group.replicas.get(broker_id) if group is not None else None
        if replica is not None and address and replica.address != address:
            if self._lives_elsewhere(name, broker_id, replica.address, connection):
                remark = (
                    f"BrokerId: {broker_id} in broker-set: {name} is alive at {replica.address}; if the broker at "
                    f"{address} has a copy of its store, remove brokerIdentity from that copy, else stop one of both"
                )
                return response(command, ResponseCode.CONTROLLER_INVALID_REQUEST, remark, names)
            outcome = await self._replicated.run(RegisterBroker(cluster, name, broker_id, address, alive))
        else:
            self._speakers.check(name, broker_id, connection, self._clock.monotonic(), names, incarnation)
            outcome = self._metadata.registration(name, broker_id, alive)
        if outcome.code:
            return response(command, outcome.code, outcome.remark, names)
        if self._liveness.registers(name, broker_id, incarnation, self._clock.monotonic()):
            self._failover.suspect(name, f"broker {broker_id} begins anew")
        fields = {**master_fields(outcome), **names}
        if outcome.master_id is not None:
            fields |= {"syncStateSetEpoch": str(outcome.set_epoch), "masterEpoch": str(outcome.master_epoch)}
        return response(command, ext=fields, body=set_body(outcome.sync_state_set or [], outcome.set_epoch or 0))

    def _lives_elsewhere(self, name: str, broker_id: int, address: str, connection: Connection) -> bool:
        """Return whether heartbeats of the broker come from *address*, and not over *connection*."""
        record = self._liveness.record(name, broker_id)
        if record is None or record.address != address or record.connection == connection:
            return False
        return self._liveness.maybe_alive(name, broker_id, self._clock.monotonic())

    async def _replica_info(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        name = required(command, "brokerName")
        await self._replicated.fresh()
        outcome = self._metadata.replica_info(name)
        if outcome.code:
            return response(command, outcome.code, outcome.remark, {})
        fields = {**master_fields(outcome), "masterEpoch": str(outcome.master_epoch)}
        return response(command, ext=fields, body=set_body(outcome.sync_state_set or [], outcome.set_epoch or 0))

    async def _sync_state_data(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        if not command.body:
            return response(command)
        names = value_of(command)
        if not isinstance(names, list):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the body is no JSON list of broker names")
        if len(names) > MAX_NAMES:
            remark = f"{len(names)} broker names are asked for, {MAX_NAMES} are answered at a time: ask in parts"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        await self._replicated.fresh()
        rows = []
        async with Pace(self._world) as pace:  # thousands may ask at once, and are all let go on by one barrier
            for name in sorted({str(name) for name in names if isinstance(name, str | int)}):
                group = self._metadata.groups.get(name)
                if group is not None:
                    shown = group_answer(group, self._alive(name))
                    rows.append(msgspec.json.encode(name) + b":" + msgspec.json.encode(shown))
                await pace.breathe()
        return response(command, body=b'{"replicasInfoTable":{' + b",".join(rows) + b"}}")

    async def _clean_broker_data(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        name = required(command, "brokerName")
        text = optional(command, "brokerControllerIdsToClean")
        broker_ids: list[int] | None = None
        if text is not None and text.strip():
            try:
                broker_ids = [int(part) for part in text.split(";") if part.strip()]
            except ValueError:
                remark = f"illegal brokerControllerIdsToClean {text[:100]!r}: give ids separated by semicolons"
                raise CommandError(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark) from None
        living_too = optional_bool(command, "isCleanLivingBroker") or False
        outcome = await self._replicated.run(CleanBrokerData(name, broker_ids, living_too, self._alive(name)))
        if outcome.code:
            return response(command, outcome.code, outcome.remark)
        self._liveness.forget(name, broker_ids)
        self._failover.suspect(name, "replicas were removed")
        return response(command)

    async def _next_broker_id(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        cluster, name = optional(command, "clusterName") or "", required(command, "brokerName")
        await self._replicated.fresh()
        next_id = str(self._metadata.next_broker_id(name))
        return response(command, ext={"clusterName": cluster, "nextBrokerId": next_id, "brokerName": name})

    async def _apply_broker_id(self, connection: Connection, command: Command) -> Command:
        cluster, name = optional(command, "clusterName") or "", required(command, "brokerName")
        names = {"clusterName": cluster, "brokerName": name}
        self._check_leader(names)
        broker_id, code = broker_id_of(command, "appliedBrokerId"), required(command, "registerCheckCode")
        group = self._metadata.groups.get(name)
        if len(self._metadata.groups) >= MAX_GROUPS if group is None else len(group.replicas) >= MAX_REPLICAS:
            full = f"{MAX_GROUPS} groups" if group is None else f"{MAX_REPLICAS} replicas of {name}"
            remark = f"{full} are registered already: remove what is gone by mqadmin cleanBrokerMetadata"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark, names)
        outcome = await self._replicated.run(ApplyBrokerId(cluster, name, broker_id, code))
        return response(command, outcome.code, outcome.remark or None, names)

    async def _explain_master(self, connection: Connection, command: Command) -> Command:
        self._check_leader()
        name = required(command, "brokerName")
        await self._replicated.fresh()
        group = self._metadata.groups.get(name)
        if group is None:
            known = ", ".join(sorted(self._metadata.groups)[:50]) or "none"
            remark = f"no broker group {name} is registered; registered are {known}"
            return response(command, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark, {})
        unclean = self._settings.current.enable_elect_unclean_master
        text = explain(group, self._liveness, self._clock.monotonic(), unclean)
        recent = [record.describe() for record in self._failover.records if record.broker_name == name][-5:]
        return response(command, body=(text + "".join(f"#Election\t{line}\n" for line in recent)).encode())

    def _alive(self, name: str) -> list[int]:
        return sorted(self._failover.living(name))
