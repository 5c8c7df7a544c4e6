"""Keeps every name server informed: registration at the start, regularly and after changes, and signing off.

When and whom to tell is decided in :mod:`understudy.broker.registering`; here it is done. A topic that was created is
announced at once by a registration that holds only that topic.

Source: BrokerController.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

import trio

from understudy.broker import registering
from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.name_servers import NameServers
from understudy.broker.presence import Presence
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.registering import (
    MANY_TOPICS,
    Action,
    Announce,
    Answered,
    Begun,
    Changed,
    Closed,
    Event,
    Everything,
    FoundLost,
    Look,
    Register,
    Settings,
    StayAway,
    TellResult,
    Told,
)
from understudy.broker.registration_requests import RegistrationRequests
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format.json_dialect import JsonError
from understudy.remoting.bodies import json_value
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("broker.registration")

TOPICS_AT_ONCE = 64
SHORTEST_PERIOD_MS, LONGEST_PERIOD_MS = 10_000, 60_000
ANNOUNCE_TIMEOUT_MS = 3_000
SIGN_OFF_TIMEOUT_MS = 1_000
SLOW_MS = 3_000
"""A name server that takes longer is left to answer when it can; nobody else waits for it."""


class Registration:
    """What one broker tells its name servers.

    Args:
        world: clock and network.
        options: read anew for each registration, so that a changed ``namesrvAddr`` counts at once.
        identity: who the broker is.
        topics: what it has.
        mappings: which of its topics are static.
        client: connections to name servers.
        presence: whether name servers may be told of the broker.
        learn_master: takes the master's address and HA address that a name server answered (``None``: none).

    Attributes:
        servers: where the name servers are.
        requests: what is said to them.
        on_taken: called when a name server has taken everything.
        master_declines: whether the master of this broker would take nothing back, so that no slave may be shown in its
            place; whoever sets it knows the group.
        may_tell: asked before a name server takes this broker into routes, with its address, and whether this is the
            connection over which it was told the last time; whoever sets it looks there whether others have acted for
            this broker since. Any peer may have signed it off, whatever the connection.
    """

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        identity: Identity,
        topics: TopicTable,
        mappings: QueueMappings,
        client: RemotingClient,
        presence: Presence,
        learn_master: Callable[[str | None, str | None], None],
    ) -> None:
        self._world = world
        self._options = options
        self._identity = identity
        self._topics = topics
        self._client = client
        self._presence = presence
        self._learn_master = learn_master
        broker = options.broker
        self.requests = RegistrationRequests(
            options,
            identity,
            topics,
            mappings,
            lambda: broker.enable_slave_acting_master and not self.master_declines(),
        )
        self.servers = NameServers(
            world,
            lambda: broker.namesrv_addr,
            lambda: broker.fetch_name_srv_addr_by_dns_lookup,
            lambda: broker.update_name_server_addr_period,
        )
        self.on_taken: list[Callable[[], object]] = []
        self.master_declines: Callable[[], bool] = _never
        self.may_tell: Callable[[str, bool], Awaitable[bool]] = _always
        self._state = registering.State()
        self._over: dict[str, Connection] = {}  # by name server: what carried the last registration that was taken
        self._wake = Signal()
        self._at_rest = False
        self._settled = Signal()
        self.servers.on_change.append(self.trigger)
        topics.on_change.append(self._topics_changed)
        presence.on_register.append(self.trigger)

    @property
    def name_servers(self) -> list[str]:
        """The name servers in force, ``host:port`` each."""
        return self.servers.addresses

    @property
    def isolated(self) -> bool:
        """While true, no name server is told of this broker."""
        return self._presence.withheld

    def trigger(self) -> None:
        """Ask for a registration of everything soon."""
        self._take(Everything())
        self._note()

    def lost(self) -> None:
        """Register soon, for a name server has lost this broker; later when its heartbeats do not seem to arrive."""
        for action in self._take(FoundLost()):
            self._say(action)
        self._note()

    async def settled(self, timeout_ms: float = ANNOUNCE_TIMEOUT_MS) -> bool:
        """Wait until every change so far was told to the name servers that answer.

        Returns:
            False after *timeout_ms*.
        """
        with self._world.clock.move_on_after(timeout_ms / 1000) as scope:
            if not self._at_rest:
                await self._settled.wait()
        return not scope.cancelled_caught

    async def run(self) -> None:
        """Register until cancelled."""
        self._take(Begun())
        self._client.on_close.append(self._connection_closed)
        try:
            async with trio.open_nursery() as nursery:
                await self._run(nursery)
        finally:
            self._client.on_close.remove(self._connection_closed)

    async def _run(self, nursery: trio.Nursery) -> None:
        clock = self._world.clock
        while True:
            noted = self._wake.count
            withheld = self.isolated
            actions = self._take(Look(tuple(self.name_servers), withheld))
            for action in actions:
                await self._carry_out(nursery, action)
            if actions:
                continue
            self._at_rest = True
            self._settled.set()
            if withheld:
                await self._wake.wait(noted)
                continue
            with clock.move_on_after(max(self._state.wake_at - clock.monotonic(), 0)):
                await self._wake.wait(noted)

    async def sign_off(self) -> None:
        """Tell every name server that the broker is gone; bounded by :data:`SIGN_OFF_TIMEOUT_MS`.

        Uses connections of its own: those of the running broker may be gone already.
        """
        with self._world.clock.move_on_after(SIGN_OFF_TIMEOUT_MS / 1000):
            async with open_client(self._world, like=self._client) as client, trio.open_nursery() as nursery:
                for address in self.name_servers:
                    nursery.start_soon(self._sign_off_at, client, address)

    # --- what happens ------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> tuple[Action, ...]:
        self._state, actions = registering.step(self._state, event, self._world.clock.monotonic(), self._settings())
        return actions

    def _settings(self) -> Settings:
        broker = self._options.broker
        period_ms = max(SHORTEST_PERIOD_MS, min(broker.register_name_server_period, LONGEST_PERIOD_MS))
        return Settings(
            period_seconds=period_ms / 1000,
            only_when_changed=not broker.force_register,
            heartbeats=broker.enable_slave_acting_master,
            timeout_seconds=broker.broker_not_active_timeout_millis / 1000,
            notice_seconds=2 * max(broker.broker_heartbeat_interval, broker.sync_broker_member_group_period) / 1000,
        )

    def _topics_changed(self, rows: tuple[TopicConfig, ...]) -> None:
        few = 0 < len(rows) <= MANY_TOPICS
        self._take(Changed(tuple(row.name for row in rows)) if few else Everything())
        self._note()

    def _connection_closed(self, address: str, connection: Connection) -> None:
        if address in self.name_servers:
            for action in self._take(Closed(address)):
                self._say(action)
            self._note()

    def _note(self) -> None:
        self._at_rest = False
        self._wake.set()

    def _say(self, action: Action) -> None:
        if isinstance(action, StayAway):
            log.warning(
                "lost again, heartbeats do not arrive",
                broker=self._identity.canonical_name,
                away_ms=round(action.seconds * 1000),
            )

    # --- telling -----------------------------------------------------------------------------------------------

    async def _carry_out(self, nursery: trio.Nursery, action: Action) -> None:
        if isinstance(action, Register):
            # The version must be that of the rows, for a name server takes no changes of one it has.
            commands = {address: await self._everything() for address in action.servers}

            async def register(address: str) -> TellResult:
                return await self._register_at(address, commands[address], action.only_when_changed)

            await self._tell_each(nursery, action.servers, register)
            self._take(Told(everything=action.regular))
        elif isinstance(action, Announce):
            rows = [self._topics.rows[name] for name in action.topics if name in self._topics.rows]
            # Begun before anything is waited for: topics that change meanwhile come with a version of their own.
            begun = {address: self._begun(rows) for address in action.servers if address not in action.everything}
            commands = {
                address: await (self._written(begun[address]) if address in begun else self._everything())
                for address in action.servers
            }

            async def announce(address: str) -> TellResult:
                if not self._options.broker.enable_single_topic_register:
                    return await self._register_at(address, commands[address], False)
                for first in range(0, len(rows), TOPICS_AT_ONCE):
                    async with trio.open_nursery() as parallel:
                        for row in rows[first : first + TOPICS_AT_ONCE]:
                            parallel.start_soon(self._register_topic_at, address, row)
                return TellResult.ANNOUNCED

            await self._tell_each(nursery, action.servers, announce)
        else:
            self._say(action)

    async def _everything(self) -> Command:
        return await self._written(self.requests.registering(self._topics.rows.values()))

    def _begun(self, rows: Iterable[TopicConfig]) -> Generator[None, None, Command]:
        """Return the steps of a registration with *rows* and the version of now."""
        steps = self.requests.registering(rows)
        next(steps)
        return steps

    async def _written(self, steps: Generator[None, None, Command]) -> Command:
        async with Pace(self._world) as pace:
            return await pace.run(steps)

    async def _tell_each(
        self, nursery: trio.Nursery, addresses: tuple[str, ...], tell: Callable[[str], Awaitable[TellResult]]
    ) -> None:
        """Call *tell* for each of *addresses* in parallel and wait for all that need no more than :data:`SLOW_MS`."""
        left, done = len(addresses), trio.Event()

        async def one(address: str) -> None:
            nonlocal left
            result = await tell(address)
            left -= 1
            if left == 0:
                done.set()
            while self._take(Answered(address, result, self.isolated)):  # told everything once more
                result = await self._register_at(address, await self._everything(), False)
            if result is TellResult.MISSED:
                self._wake.set()

        for address in addresses:
            nursery.start_soon(one, address)
        if addresses:
            with self._world.clock.move_on_after(SLOW_MS / 1000):
                await done.wait()

    async def _register_at(self, address: str, command: Command, only_when_changed: bool) -> TellResult:
        if only_when_changed and (not await self._differs_at(address) or self.isolated):
            return TellResult.HAS_IT
        now = self._client.current(address)
        same = now is not None and now is self._over.get(address) and address in self._state.took
        if not await self.may_tell(address, same):
            return TellResult.MISSED
        timeout_ms = self._options.broker.register_broker_timeout_mills
        answer = await self._ask(address, command, timeout_ms, "register")
        if answer is None:
            return TellResult.MISSED
        now = self._client.current(address)
        if now is not None:
            self._over[address] = now
        ext = answer.ext or {}
        self._learn_master(ext.get("masterAddr"), ext.get("haServerAddr"))
        if answer.body:
            await self._take_order_config(address, answer.body)
        for listener in self.on_taken:
            listener()
        return TellResult.TOOK

    async def _register_topic_at(self, address: str, row: TopicConfig) -> None:
        await self._ask(address, self.requests.register_topic(row), ANNOUNCE_TIMEOUT_MS, "register a topic")

    async def _differs_at(self, address: str) -> bool:
        """Ask whether a name server knows another version of the topics; when it does not answer: yes."""
        answer = await self._ask(address, self.requests.ask_version(), ANNOUNCE_TIMEOUT_MS, "ask for the version")
        return answer is None or (answer.ext or {}).get("changed", "true").lower() == "true"

    async def _ask(self, address: str, command: Command, timeout_ms: float, what: str) -> Command | None:
        try:
            answer = await self._client.invoke(address, command, timeout_ms)
        except RemotingError as error:
            log.warning(f"cannot {what}", broker=self._identity.canonical_name, name_server=address, why=error)
            return None
        if answer.code != ResponseCode.SUCCESS:
            log.warning(
                f"cannot {what}",
                broker=self._identity.canonical_name,
                name_server=address,
                code=answer.code,
                why=answer.remark,
            )
            return None
        return answer

    async def _sign_off_at(self, client: RemotingClient, address: str) -> None:
        try:
            await client.invoke(address, self.requests.sign_off(), SIGN_OFF_TIMEOUT_MS)
        except RemotingError as error:
            log.info("not signed off", broker=self._identity.canonical_name, name_server=address, why=error)

    async def _take_order_config(self, address: str, body: bytes) -> None:
        try:
            data = await json_value(self._world.threads, body)
        except JsonError as error:
            log.warning("registration answer not understood", name_server=address, why=error)
            return
        table = data.get("table") if isinstance(data, Mapping) else None
        if isinstance(table, Mapping):
            self._topics.apply_order_config(str(topic) for topic in table)


def _never() -> bool:
    return False


async def _always(address: str, same: bool) -> bool:
    return True
