"""The controller's request handlers over a quorum of one that is always leader: no sockets, no log."""

from __future__ import annotations

import random
from typing import Any, cast

import trio

from understudy.controller.configuration import ALWAYS_BLACK, START_ONLY, ControllerConfig, check, read_peers
from understudy.controller.election import Live
from understudy.controller.failover import Failover
from understudy.controller.liveness import BrokerKey, Heartbeat, Liveness
from understudy.controller.log_ends import LogEnds
from understudy.controller.metadata import Metadata
from understudy.controller.notification import RoleNotifier
from understudy.controller.operators import Operators
from understudy.controller.raft.facts import Facts
from understudy.controller.raft.member import QuorumMember
from understudy.controller.replication import ReplicatedMetadata
from understudy.controller.requests import ControllerRequests
from understudy.remoting.bodies import JSON, read_ahead
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher, failure
from understudy.remoting.errors import ConnectFailedError
from understudy.runtime.properties import printable
from understudy.runtime.stored_settings import SettingsInForce
from understudy.runtime.threads import InPlace
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork

MAX_COMMAND_BYTES = 60_000


class LocalQuorum:
    """A quorum of one that is always leader, without log or network."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.leading = True

    def leads(self) -> bool:
        return self.leading

    def leader(self) -> str | None:
        return "n0" if self.leading else "n1"

    def term(self) -> int:
        return 1

    def facts(self) -> Facts:
        role = "LEADER" if self.leading else "FOLLOWER"
        return Facts(
            "n0", role, 1, self.leader(), None, 1, 1, 1, 1, True, True, True, (), {}, 1, 0.3, (), 0, 0,
        )  # fmt: skip

    async def forget(self, member: str) -> bool:
        await trio.lowlevel.checkpoint()
        if member not in ("n1", "n2"):
            raise ValueError(f"{printable(member)} is no other member")
        return True

    class settings:
        member = "n0"

    async def propose(self, client: str, sequence: int, command: bytes, timeout_seconds: float = 5) -> bytes:
        await trio.lowlevel.checkpoint()
        if len(command) > MAX_COMMAND_BYTES:
            raise ValueError(f"command of {len(command)} bytes")  # as the member of a quorum says it
        return self.metadata.apply(1, 0, 1, command)

    async def read_barrier(self, timeout_seconds: float = 5) -> int:
        await trio.lowlevel.checkpoint()
        return 1


class FakeConnection:
    """A connection from a host."""

    def __init__(self, source: str = "127.0.0.1") -> None:
        self.address = f"{source}:4711"
        self.local, self.peer, self.source = ("127.0.0.1", 21310), (source, 4711), source


class SilentReplicas:
    """No replica says where its log ends: heartbeats tell."""

    async def invoke_repeatable(self, address: str, question: Command, timeout_ms: float) -> Command:
        await trio.lowlevel.checkpoint()
        raise ConnectFailedError(address, "nobody is there")


class Desk:
    """The request handlers over a local quorum."""

    def __init__(self) -> None:
        source = random.Random(1)
        network = SimNetwork(source)
        self.world = World(VirtualClock(), network.host("here"), SimDisk(source), source)
        self.metadata = Metadata()
        self.quorum = LocalQuorum(self.metadata)
        config = ControllerConfig(
            controller_d_leger_group="w2group",
            controller_d_leger_peers="n0-127.0.0.1:21310;n1-127.0.0.1:21311;n2-127.0.0.1:21312",
            controller_d_leger_self_id="n0",
            config_store_path="/conf/controller.properties",
        )
        self.liveness = Liveness(trio.current_time())
        member = cast(QuorumMember, self.quorum)
        replicated = ReplicatedMetadata(self.world, member)
        self.notifier = RoleNotifier(cast(RemotingClient, None))
        ends = LogEnds(cast(RemotingClient, SilentReplicas()), self.world.threads)
        self.failover = Failover(self.world, member, self.metadata, replicated, self.liveness, self.notifier, ends)
        self.failover.config = config
        self.settings = SettingsInForce(config, ALWAYS_BLACK, check, START_ONLY)
        self.requests = ControllerRequests(
            self.world,
            read_peers(config),
            member,
            self.metadata,
            replicated,
            self.liveness,
            self.failover,
            self.settings,
            Operators(member, self.world.clock, source),
        )
        self.handlers: dict[int, Any] = {}
        self.requests.register(cast(Dispatcher, self))

    @classmethod
    def codes(cls) -> list[int]:
        """Return every request code that has a handler."""

        async def collect() -> list[int]:
            await trio.lowlevel.checkpoint()
            return list(cls().handlers)

        return trio.run(collect)

    def register(self, code: int, handler: Any) -> None:
        async def call(connection: Connection, command: Command) -> Command:
            await trio.lowlevel.checkpoint()
            return cast(Command, handler(connection, command))

        self.handlers[int(code)] = call

    def register_async(self, code: int, handler: Any, kind: str) -> None:
        self.handlers[int(code)] = handler

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", host: FakeConnection | None = None
    ) -> Command:
        command, connection = request(code, ext, body), cast(Connection, host or FakeConnection())
        if len(body) >= 1 << 14:
            await read_ahead(InPlace(), command, JSON.read)  # as servers do with large bodies
        try:
            return cast(Command, await self.handlers[code](connection, command))
        except Exception as error:
            return failure(connection, command, error)

    def alive(self, name: str, broker_ids: list[int]) -> None:
        for broker_id in broker_ids:
            heartbeat = Heartbeat(f"127.0.0.1:{21310 + 10 * broker_id}", trio.current_time(), 10, broker_id, Live())
            self.liveness.heartbeat(BrokerKey("W2", name, broker_id), heartbeat)
