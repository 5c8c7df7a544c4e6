"""Keeps every name server informed: registration at the start, regularly and after changes, and signing off.

Each name server is told for itself and in parallel; one that does not answer delays nobody. A topic that was created
is announced at once by a registration that holds only that topic.

Source: BrokerController.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.name_servers import NameServers
from understudy.broker.registration_requests import RegistrationRequests
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.broker.unheard import Unheard
from understudy.format.json_dialect import JsonError, loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("broker.registration")

SHORTEST_PERIOD_MS, LONGEST_PERIOD_MS = 10_000, 60_000
ANNOUNCE_TIMEOUT_MS = 3_000
SIGN_OFF_TIMEOUT_MS = 1_000
RETRY_MS = 5_000
SLOW_MS = 3_000
"""A name server that takes longer is left to answer when it can; nobody else waits for it."""


class Registration:
    """What one broker tells its name servers.

    Args:
        world: clock and network.
        options: read anew for each registration, so that a changed ``namesrvAddr`` counts at once.
        identity: who the broker is.
        topics: what it has.
        client: connections to name servers.

    Attributes:
        servers: where the name servers are.
        on_answer: called with the master's address and HA address that a name server answered (``None``: none).
        withheld: nobody may be told of this broker; after setting it false, call :meth:`trigger`.
        away: tells, at any moment, whether the broker has just been away for too long to say anything.
        on_unknown: called when a name server does not know this broker; registers there by default.
    """

    def __init__(
        self, world: World, options: BrokerOptions, identity: Identity, topics: TopicTable, client: RemotingClient
    ) -> None:
        self._world = world
        self._options = options
        self._identity = identity
        self._topics = topics
        self._client = client
        self._requests = RegistrationRequests(world.clock, options, identity, topics)
        broker = options.broker
        self.servers = NameServers(
            world,
            lambda: broker.namesrv_addr,
            lambda: broker.fetch_name_srv_addr_by_dns_lookup,
            lambda: broker.update_name_server_addr_period,
        )
        self.servers.on_change.append(self.trigger)
        self._changed: dict[str, TopicConfig] = {}
        self._missed: set[str] = set()
        self._took: set[str] = set()
        self._under_way: set[str] = set()
        self._again: set[str] = set()
        self._unheard = Unheard()
        self._told_at: float | None = None
        self._full = True
        self._wake = trio.Event()
        self._settled = trio.Event()
        self.on_answer: list[Callable[[str | None, str | None], None]] = []
        self.withheld = False
        self.away: Callable[[], bool] = lambda: False
        self.on_unknown: Callable[[], None] = self.trigger
        topics.on_change.append(self._topics_changed)

    @property
    def name_servers(self) -> list[str]:
        """The name servers in force, ``host:port`` each."""
        return self.servers.addresses

    @property
    def isolated(self) -> bool:
        """While true, nobody is told of this broker."""
        return self.withheld or self.away()

    def trigger(self) -> None:
        """Ask for a registration of everything soon."""
        self._full = True
        self._note()

    def lost(self) -> None:
        """Register soon, for a name server has lost this broker; later when its heartbeats do not seem to arrive."""
        broker, now = self._options.broker, self._world.clock.monotonic()
        notice_ms = 2 * max(broker.broker_heartbeat_interval, broker.sync_broker_member_group_period)
        timeout_ms = broker.broker_not_active_timeout_millis
        away_until = self._unheard.away_until
        if not broker.enable_slave_acting_master or self._unheard.may_return(
            now, self._told_at, timeout_ms / 1000, notice_ms / 1000
        ):
            self.trigger()
        elif self._unheard.away_until != away_until:  # once, though it is found lost at every look meanwhile
            log.warning(
                "lost again, heartbeats do not arrive", broker=self._identity.canonical_name, away_ms=timeout_ms
            )

    async def settled(self, timeout_ms: float = ANNOUNCE_TIMEOUT_MS) -> bool:
        """Wait until every change so far was told to the name servers that answer.

        Returns:
            False after *timeout_ms*.
        """
        with self._world.clock.move_on_after(timeout_ms / 1000) as scope:
            await self._settled.wait()
        return not scope.cancelled_caught

    async def run(self) -> None:
        """Register until cancelled; a name server that did not take it is asked again after :data:`RETRY_MS`."""
        self._client.on_close.append(self._connection_closed)
        try:
            async with trio.open_nursery() as nursery:
                await self._run(nursery)
        finally:
            self._client.on_close.remove(self._connection_closed)

    async def _run(self, nursery: trio.Nursery) -> None:
        clock = self._world.clock
        due = retry = clock.monotonic()
        while True:
            if self.isolated:
                self._wake = trio.Event()
                self._settled.set()
                await self._wake.wait()
                continue
            if clock.monotonic() >= due:
                self._full = True
            if self._full:
                self._full = False
                self._changed.clear()
                self._wake = trio.Event()
                await self._register_all(nursery, self.name_servers)
                due = clock.monotonic() + self._period_ms() / 1000
                retry = clock.monotonic() + RETRY_MS / 1000
            elif self._changed:
                rows = list(self._changed.values())
                self._changed.clear()
                self._wake = trio.Event()
                await self._announce(nursery, rows)
            elif self._missed and clock.monotonic() >= retry:
                again = [address for address in self.name_servers if address in self._missed]
                await self._register_all(nursery, again)
                retry = clock.monotonic() + RETRY_MS / 1000
            if self._full or self._changed:
                continue
            self._settled.set()
            wake_at = min(due, retry) if self._missed else due
            with clock.move_on_after(max(wake_at - clock.monotonic(), 0)):
                await self._wake.wait()
                self._wake = trio.Event()

    async def heartbeat(self) -> None:
        """Send light heartbeats until cancelled, as brokers do whose slaves may act for them."""
        broker = self._options.broker
        while True:
            async with trio.open_nursery() as nursery:
                for address in self.name_servers if not self.isolated else ():
                    nursery.start_soon(self._beat, address)
                nursery.start_soon(self._world.clock.sleep, broker.broker_heartbeat_interval / 1000)

    async def sign_off(self) -> None:
        """Tell every name server that the broker is gone; bounded by :data:`SIGN_OFF_TIMEOUT_MS`.

        Uses connections of its own: those of the running broker may be gone already.
        """
        with self._world.clock.move_on_after(SIGN_OFF_TIMEOUT_MS / 1000):
            async with open_client(self._world) as client, trio.open_nursery() as nursery:
                for address in self.name_servers:
                    nursery.start_soon(self._sign_off_at, client, address)

    def _topics_changed(self, rows: tuple[TopicConfig, ...]) -> None:
        if rows:
            self._changed.update((row.name, row) for row in rows)
        else:
            self._full = True
        self._note()

    def _note(self) -> None:
        if self._settled.is_set():
            self._settled = trio.Event()
        self._wake.set()

    def _period_ms(self) -> int:
        return max(SHORTEST_PERIOD_MS, min(self._options.broker.register_name_server_period, LONGEST_PERIOD_MS))

    async def _register_all(self, nursery: trio.Nursery, addresses: list[str]) -> None:
        """Register everything at *addresses*; note those that did not take it."""
        self._missed.intersection_update(self.name_servers)
        self._missed.difference_update(addresses)
        only_when_changed = not self._options.broker.force_register
        # Written at once: the version must be that of the rows, for a name server takes no changes of one it has.
        commands = {address: self._requests.register(self._topics.rows.values()) for address in addresses}

        async def register(address: str) -> None:
            await self._register_at(address, commands[address], only_when_changed)

        await self._tell_each(nursery, addresses, register)

    async def _announce(self, nursery: trio.Nursery, rows: list[TopicConfig]) -> None:
        """Tell of *rows* alone; name servers that missed something before are told everything."""
        addresses = self.name_servers
        missed = self._missed.intersection(addresses)
        self._missed.difference_update(missed)
        everything = self._topics.rows.values()
        commands = {
            address: self._requests.register(everything if address in missed else rows) for address in addresses
        }

        async def announce(address: str) -> None:
            if not self._options.broker.enable_single_topic_register:
                await self._register_at(address, commands[address], False)
                return
            async with trio.open_nursery() as parallel:
                for row in rows:
                    parallel.start_soon(self._register_topic_at, address, row)

        await self._tell_each(nursery, addresses, announce)

    async def _tell_each(
        self, nursery: trio.Nursery, addresses: list[str], tell: Callable[[str], Awaitable[None]]
    ) -> None:
        """Call *tell* for each of *addresses* in parallel and wait for all that need no more than :data:`SLOW_MS`.

        A name server that has not answered the last time yet is told everything as soon as it has.
        """
        free = [address for address in addresses if address not in self._under_way]
        self._again.update(address for address in addresses if address in self._under_way)
        left, done = len(free), trio.Event()

        async def one(address: str) -> None:
            nonlocal left
            try:
                await tell(address)
                left -= 1
                if left == 0:
                    done.set()
                while address in self._again and not self.isolated:
                    self._again.discard(address)
                    self._missed.discard(address)
                    await self._register_at(address, self._requests.register(self._topics.rows.values()), False)
            finally:
                self._under_way.discard(address)
                self._again.discard(address)
            if address in self._missed:
                self._wake.set()

        self._under_way.update(free)
        for address in free:
            nursery.start_soon(one, address)
        if free:
            with self._world.clock.move_on_after(SLOW_MS / 1000):
                await done.wait()

    async def _register_at(self, address: str, command: Command, only_when_changed: bool) -> None:
        if only_when_changed and (not await self._differs_at(address) or self.isolated):
            self._took.add(address)
            return
        timeout_ms = self._options.broker.register_broker_timeout_mills
        answer = await self._ask(address, command, timeout_ms, "register")
        if answer is None:
            self._missed.add(address)
            return
        self._took.add(address)
        self._told_at = self._world.clock.monotonic()
        ext = answer.ext or {}
        for listener in self.on_answer:
            listener(ext.get("masterAddr"), ext.get("haServerAddr"))
        if answer.body:
            self._take_order_config(address, answer.body)

    async def _register_topic_at(self, address: str, row: TopicConfig) -> None:
        await self._ask(address, self._requests.register_topic(row), ANNOUNCE_TIMEOUT_MS, "register a topic")

    async def _differs_at(self, address: str) -> bool:
        """Ask whether a name server knows another version of the topics; when it does not answer: yes."""
        answer = await self._ask(address, self._requests.ask_version(), ANNOUNCE_TIMEOUT_MS, "ask for the version")
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

    async def _beat(self, address: str) -> None:
        """Send one heartbeat; call :attr:`on_unknown` when the answer says that nobody knows this broker there.

        Name servers that know 904 never say so; the member view finds it out then.
        """
        timeout_ms = self._options.broker.send_heartbeat_timeout_millis
        try:
            if not self._options.broker.compatible_with_old_name_srv:
                await self._client.invoke_oneway(address, self._requests.heartbeat(), timeout_ms)
                return
            answer = await self._client.invoke(address, self._requests.ask_version(), timeout_ms)
        except RemotingError as error:
            log.debug("heartbeat not sent", name_server=address, why=error)
            return
        if answer.code == ResponseCode.SUCCESS and not answer.body and not self.isolated:
            log.info("not known, registering", broker=self._identity.canonical_name, name_server=address)
            self.on_unknown()

    def _connection_closed(self, address: str, connection: Connection) -> None:
        # A name server drops the brokers of a connection that ends; a new registration brings this one back. Where
        # none was taken before the connection ended, nothing was dropped: whoever is there is asked again later.
        if address in self._took and address in self.name_servers:
            self._took.discard(address)
            self.lost()

    async def _sign_off_at(self, client: RemotingClient, address: str) -> None:
        try:
            await client.invoke(address, self._requests.sign_off(), SIGN_OFF_TIMEOUT_MS)
        except RemotingError as error:
            log.info("not signed off", broker=self._identity.canonical_name, name_server=address, why=error)

    def _take_order_config(self, address: str, body: bytes) -> None:
        try:
            data = loads(body)
        except JsonError as error:
            log.warning("registration answer not understood", name_server=address, why=error)
            return
        table = data.get("table") if isinstance(data, Mapping) else None
        if isinstance(table, Mapping):
            self._topics.apply_order_config(str(topic) for topic in table)
