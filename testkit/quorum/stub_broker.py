"""A broker reduced to its talk with controllers: registers, sends heartbeats, asks for its role, obeys notifications.

It stores nothing and serves nobody. Drills and simulations use it where no real broker is at hand.
"""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import trio

from understudy.format.json_dialect import loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.remoting.server import RemotingServer
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

CALL_MS = 3000


@attrs.frozen
class StubSettings:
    """What a stub broker is told.

    Args:
        cluster_name, broker_name: its group.
        host, port: where it listens for notifications.
        controllers: addresses of the controller group.
        check_code: with which it claims its id; keep it across restarts.
        heartbeat_seconds, timeout_seconds, poll_seconds: as brokerHeartbeatInterval, controllerHeartBeatTimeoutMills,
            syncBrokerMetadataPeriod.
    """

    cluster_name: str
    broker_name: str
    host: str
    port: int
    controllers: tuple[str, ...]
    check_code: str
    heartbeat_seconds: float = 0.2
    timeout_seconds: float = 2.0
    poll_seconds: float = 1.0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@attrs.define
class RoleChange:
    """When (monotonic seconds) which master was learned, and how: pushed, polled, elected or registered."""

    at: float
    master_id: int
    master_epoch: int
    how: str


class StubBroker:
    """See the module.

    Args:
        world: the outside world.
        settings: see :class:`StubSettings`.
        broker_id: from an earlier life, or ``None``.

    Attributes:
        changes: every role change, oldest first.
    """

    def __init__(self, world: World, settings: StubSettings, broker_id: int | None = None) -> None:
        self._world = world
        self.settings = settings
        self.broker_id = broker_id
        self.master_id: int | None = None
        self.master_epoch = 0
        self.sync_state_set: list[int] = []
        self.set_epoch = 0
        self.max_offset_bytes = 0
        self.changes: list[RoleChange] = []
        self.changed = Signal()
        self._leader = ""

    @property
    def is_master(self) -> bool:
        return self.broker_id is not None and self.master_id == self.broker_id

    async def run(self) -> None:
        """Live until cancelled."""
        settings = self.settings
        server = RemotingServer(self._world, settings.host, settings.port, name=f"stub-{settings.port}")
        server.register(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._notified)
        await server.bind()
        async with open_client(self._world) as client, trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            nursery.start_soon(self._heartbeats, client)
            nursery.start_soon(self._keep_role, client)

    def _learn(self, master_id: int, epoch: int, sync_state_set: list[int], set_epoch: int, how: str) -> None:
        if epoch > self.master_epoch:
            self.master_id, self.master_epoch = master_id, epoch
            self.set_epoch = 0
            self.changes.append(RoleChange(self._world.clock.monotonic(), master_id, epoch, how))
            self.changed.set()
        if epoch == self.master_epoch and set_epoch > self.set_epoch:
            self.sync_state_set, self.set_epoch = sync_state_set, set_epoch

    def _notified(self, connection: Connection, command: Command) -> Command:
        fields = command.ext or {}
        body = loads(command.body)
        self._learn(
            int(fields["masterBrokerId"]),
            int(fields["masterEpoch"]),
            list(body["syncStateSet"]),
            int(fields["syncStateSetEpoch"]),
            "pushed",
        )
        return response(command, ResponseCode.SUCCESS)

    async def _heartbeats(self, client: RemotingClient) -> None:
        while True:
            if self.broker_id is not None:
                async with trio.open_nursery() as nursery:
                    for controller in self.settings.controllers:
                        nursery.start_soon(self._heartbeat, client, controller)
            await self._world.clock.sleep(self.settings.heartbeat_seconds)

    async def _heartbeat(self, client: RemotingClient, controller: str) -> None:
        fields = {
            "clusterName": self.settings.cluster_name,
            "brokerAddr": self.settings.address,
            "brokerName": self.settings.broker_name,
            "brokerId": str(self.broker_id),
            "epoch": str(self.master_epoch),
            "maxOffset": str(self.max_offset_bytes),
            "confirmOffset": str(self.max_offset_bytes),
            "heartbeatTimeoutMills": str(int(self.settings.timeout_seconds * 1000)),
        }
        with trio.move_on_after(self.settings.timeout_seconds):
            try:
                await client.invoke_oneway(controller, request(RequestCode.BROKER_HEARTBEAT, fields, oneway=True), 500)
            except RemotingError:
                return  # the controller is away; the next heartbeat tries again

    async def _keep_role(self, client: RemotingClient) -> None:
        while True:
            try:
                await self._turn(client)
                pause = self.settings.poll_seconds
            except RemotingError:
                self._leader, pause = "", self.settings.poll_seconds / 4
            await self._world.clock.sleep(pause)

    async def _turn(self, client: RemotingClient) -> None:
        if not self._leader:
            await self._find_leader(client)
        if not self._leader:
            return
        if self.broker_id is None:
            await self._apply_for_id(client)
        if self.broker_id is None:
            return
        if not self.changes:
            await self._ask(client, RequestCode.CONTROLLER_REGISTER_BROKER, brokerAddress=self.settings.address)
        answer = await self._ask(client, RequestCode.CONTROLLER_GET_REPLICA_INFO)
        if answer is None or answer.code != 0:
            return
        fields, body = answer.ext or {}, loads(answer.body)
        if "masterBrokerId" not in fields:
            await self._stand_for_election(client)
            return
        self._learn(
            int(fields["masterBrokerId"]),
            int(fields["masterEpoch"]),
            list(body["syncStateSet"]),
            int(body["syncStateSetEpoch"]),
            "polled",
        )
        if self.is_master:
            await self._expand(client)

    async def _find_leader(self, client: RemotingClient) -> None:
        for controller in self.settings.controllers:
            try:
                answer = await client.invoke(controller, request(RequestCode.CONTROLLER_GET_METADATA_INFO), 1000)
            except RemotingError:
                continue
            leader = (answer.ext or {}).get("controllerLeaderAddress", "")
            if leader:
                self._leader = leader
                return

    async def _ask(self, client: RemotingClient, code: RequestCode, **more: str) -> Command | None:
        fields = {"clusterName": self.settings.cluster_name, "brokerName": self.settings.broker_name, **more}
        if self.broker_id is not None:
            fields.setdefault("brokerId", str(self.broker_id))
        answer = await client.invoke(self._leader, request(code, fields), CALL_MS)
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = ""
            return None
        return answer

    async def _apply_for_id(self, client: RemotingClient) -> None:
        answer = await self._ask(client, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        if answer is None or answer.code != 0:
            return
        wanted = (answer.ext or {})["nextBrokerId"]
        code = self.settings.check_code
        applied = await self._ask(
            client, RequestCode.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=wanted, registerCheckCode=code
        )
        if applied is not None and applied.code == 0:
            self.broker_id = int(wanted)

    async def _stand_for_election(self, client: RemotingClient) -> None:
        answer = await self._ask(client, RequestCode.CONTROLLER_ELECT_MASTER, designateElect="false")
        if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            return
        fields = answer.ext or {}
        members = list(loads(answer.body)["syncStateSet"])
        self._learn(
            int(fields["masterBrokerId"]),
            int(fields["masterEpoch"]),
            members,
            int(fields["syncStateSetEpoch"]),
            "elected",
        )

    async def _expand(self, client: RemotingClient) -> None:
        """As master: take every living replica into the sync state set, as if it had caught up."""
        name, own = self.settings.broker_name, self.broker_id
        if not self._leader or own is None:
            return
        data = request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, msgspec.json.encode([name]))
        answer = await client.invoke(self._leader, data, CALL_MS)
        if answer.code != 0:
            return
        group: dict[str, Any] = loads(answer.body)["replicasInfoTable"].get(name, {})
        living = {row["brokerId"] for key in ("inSyncReplicas", "notInSyncReplicas") for row in group.get(key, ())
                  if row["alive"]}  # fmt: skip
        wanted = sorted(living | {own})
        if wanted == self.sync_state_set:
            return
        body = msgspec.json.encode({"syncStateSet": wanted, "syncStateSetEpoch": self.set_epoch})
        fields = {"brokerName": name, "masterBrokerId": str(own), "masterEpoch": str(self.master_epoch)}
        answer = await client.invoke(
            self._leader, request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body), CALL_MS
        )
        if answer.code == 0:
            changed = loads(answer.body)
            self._learn(
                own,
                self.master_epoch,
                list(changed["syncStateSet"]),
                int(changed["syncStateSetEpoch"]),
                "expanded",
            )
