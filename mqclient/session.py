"""One client: its id, connections, routes and heartbeats. Producers, consumers and admin tools stand on it.

The session keeps the routes of the topics its users asked for, renews them, and tells every broker in them that the
client lives. Its users bring their own loops and hand in handlers for what brokers push.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import attrs
import trio

from understudy.format.json_dialect import JsonError, dumps
from understudy.format.names import DEFAULT_TOPIC, RETRY_PREFIX
from understudy.mqclient.errors import BrokerError, ClientError, NotConnectedError, RouteNotFoundError
from understudy.mqclient.heartbeat import heartbeat_body
from understudy.mqclient.options import at_least
from understudy.mqclient.route import BrokerAddresses, TopicRoute, for_new_topic, parse_route
from understudy.remoting.bodies import json_value
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import bare_errors
from understudy.runtime.log import get_logger
from understudy.runtime.world import World
from understudy.security.signature import Credentials, signer

log = get_logger("mqclient.session")

ANSWER_STEPS = 12_000_000
"""Largest cost of an answer, about three seconds of a thread: the progress of a group in 65,535 queues is below it."""
_TOPICS_MAX = 10_000
"""Names of topics that are remembered only for when they were asked for."""


@attrs.frozen
class SessionOptions:
    """What all kinds of clients have in common.

    Attributes:
        client_id: unique name of this client at the brokers; made up when ``None``.
        route_refresh_ms: how often known routes are asked for again.
        heartbeat_ms: how often brokers are told that the client lives (they forget it after 120 s).
        request_timeout_ms: longest wait for answers that are not a send or a pull.
        route_retry_ms: least time between two requests for the same missing or failing route.
        credentials: what requests are signed with; ``None``: they are not signed.
        tls: what connections are secured with; ``None``: they are plain.
    """

    client_id: str | None = None
    route_refresh_ms: float = attrs.field(default=30_000, validator=at_least(1))
    heartbeat_ms: float = attrs.field(default=30_000, validator=at_least(1))
    request_timeout_ms: float = attrs.field(default=3_000, validator=at_least(1))
    route_retry_ms: float = attrs.field(default=1_000, validator=at_least(0))
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


class GroupMember(Protocol):
    """A consumer, as the session sees it."""

    def heartbeat_entry(self) -> dict[str, Any]:
        """Return what heartbeats say about this consumer."""
        ...


class Session:
    """An open client. Make it with :func:`open_session`.

    Attributes:
        world: clock, network, disk and randomness.
        remoting: the connections; handlers for pushed requests are registered here.
        client_id: this client's name at the brokers.
        options: see :class:`SessionOptions`.
        producer_groups: groups for heartbeats.
        members: consumers by group.
        on_route_change: called with the topic when its route has changed.
    """

    def __init__(self, world: World, remoting: RemotingClient, options: SessionOptions) -> None:
        self.world = world
        self.remoting = remoting
        self.options = options
        self.client_id = options.client_id or f"understudy@{world.random.getrandbits(64):016x}"
        self.producer_groups: set[str] = set()
        self.members: dict[str, GroupMember] = {}
        self.on_route_change: list[Callable[[str], None]] = []
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, BrokerAddresses] = {}  # as the newest route of any topic has them
        self._asked_at: dict[str, float] = {}
        self._missing: dict[str, float] = {}  # topics that no broker had, and until when that is believed
        self._asking: dict[str, trio.Event] = {}
        self._greeted: set[str] = set()
        self._known_at: dict[str, Connection | None] = {}  # of those that took a heartbeat

    # --- calls -------------------------------------------------------------------------------------------------

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: float | None = None,
        accept: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask the server at *address* and return its answer.

        Args:
            address: ``host:port``.
            code: what to ask.
            ext: header fields; ``None`` values are left out, booleans become ``true`` and ``false``.
            body: payload.
            timeout_ms: longest wait; :attr:`SessionOptions.request_timeout_ms` when ``None``.
            accept: answers that are no error.

        Raises:
            BrokerError: another answer.
            NotConnectedError: no answer.
        """
        command = request(code, fields(ext), body)
        try:
            answer = await self.remoting.invoke(address, command, timeout_ms or self.options.request_timeout_ms)
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error
        return accepted(answer, address, accept)

    async def call_name_server(
        self,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        accept: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask one name server, see :meth:`call`.

        Args:
            code: of the request.
            ext: fields of its header.
            body: of the request.
            accept: codes of answers that are no failure.
        """
        command = request(code, fields(ext), body)
        try:
            answer = await self.remoting.invoke_name_server(command, self.options.request_timeout_ms)
        except RemotingError as error:
            raise NotConnectedError(f"no name server answers: {error}") from error
        return accepted(answer, "name server", accept)

    async def tell(
        self, address: str, code: RequestCode, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> None:
        """Send a one-way request. Raises :class:`NotConnectedError` when there is no connection.

        Args:
            address: of the server.
            code: of the request.
            ext: fields of its header.
            body: of the request.
        """
        try:
            await self.remoting.invoke_oneway(
                address, request(code, fields(ext), body, oneway=True), self.options.request_timeout_ms
            )
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error

    # --- routes ------------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, new_topic_queues: int = 0) -> TopicRoute:
        """Return the known route of *topic*, or ask for it.

        Args:
            topic: the topic.
            new_topic_queues: for a missing topic, take the route of the auto-create topic with at most so many queues
                on each broker; 0 does not.

        Raises:
            RouteNotFoundError: no broker has the topic.
            NotConnectedError: no name server answers.
        """
        known = self._routes.get(topic)
        if known is not None and known.queue_groups:
            return known
        if self._missing.get(topic, -math.inf) > self.world.clock.monotonic():
            raise RouteNotFoundError(_no_route(topic))
        return await self.fresh_route(topic, new_topic_queues=new_topic_queues)

    def known_route(self, topic: str) -> TopicRoute | None:
        """Return the route of *topic* if it has been asked for already."""
        return self._routes.get(topic)

    async def fresh_route(self, topic: str, *, new_topic_queues: int = 0) -> TopicRoute:
        """Ask a name server for the route of *topic*, see :meth:`route`. Calls at the same time share one request."""
        under_way = self._asking.get(topic)
        if under_way is not None:
            await under_way.wait()
            known = self._routes.get(topic)
            if known is not None:
                return known
        event = self._asking[topic] = trio.Event()
        _note(self._asked_at, topic, self.world.clock.monotonic())
        try:
            route = await self._ask(topic)
            if route is None and new_topic_queues:
                template = await self._ask(DEFAULT_TOPIC)
                if template is not None:
                    route = for_new_topic(topic, template, new_topic_queues)
        finally:
            if self._asking.get(topic) is event:
                del self._asking[topic]
            event.set()
        if route is None:
            _note(self._missing, topic, self.world.clock.monotonic() + self.options.route_retry_ms / 1000)
            raise RouteNotFoundError(_no_route(topic))
        self._missing.pop(topic, None)
        self._brokers.update(route.brokers)
        if self._routes.get(topic) != route:
            self._routes[topic] = route
            for callback in self.on_route_change:
                callback(topic)
        return route

    async def renew_route(self, topic: str) -> None:
        """Ask for the route of *topic* again unless that was done a moment ago; failures are only logged."""
        if self.world.clock.monotonic() - self._asked_at.get(topic, -1e9) < self.options.route_retry_ms / 1000:
            return
        try:
            await self.fresh_route(topic)
        except ClientError as error:
            log.info("route not renewed", topic=topic, why=error)

    async def _ask(self, topic: str) -> TopicRoute | None:
        answer = await self.call_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": True},
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        return parse_route(topic, await json_body(self, answer))

    def broker(self, name: str) -> BrokerAddresses | None:
        """Return the addresses of broker group *name* from the newest route that has it."""
        return self._brokers.get(name)

    def master_address(self, name: str) -> str:
        """Return the master's address of broker group *name*. Raises :class:`NotConnectedError` when none is known."""
        group = self.broker(name)
        if group is None or group.master is None:
            raise NotConnectedError(f"broker {name} has no master at the moment")
        return group.master

    async def refresh_routes(self) -> None:
        """Renew known routes for ever."""
        while True:
            await self.world.clock.sleep(self.options.route_refresh_ms / 1000)
            for topic in list(self._routes):
                try:
                    await self.fresh_route(topic)
                except ClientError as error:
                    log.info("route not renewed", topic=topic, why=error)

    # --- heartbeats --------------------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Tell every broker of the known routes that the client lives; failures are only logged."""
        if not self.producer_groups and not self.members:
            return
        async with trio.open_nursery() as nursery:
            for address in self.broker_addresses():
                nursery.start_soon(self.send_heartbeat, address)

    @trio.lowlevel.enable_ki_protection
    async def send_heartbeat(self, address: str) -> None:
        """Tell the broker at *address* that the client lives; a failure is only logged."""
        members = (member.heartbeat_entry() for member in self.members.values())
        body = heartbeat_body(self.client_id, sorted(self.producer_groups), members)
        self._greeted.add(address)
        try:
            await self.call(address, RequestCode.HEART_BEAT, {}, dumps(body))
        except ClientError as error:
            log.info("heartbeat failed", broker=address, why=error)
        else:
            self._known_at[address] = self.remoting.open_connection(address)

    async def greet(self, topic: str) -> None:
        """Tell those masters of *topic*'s known route that the client lives that do not know its present connection."""
        route = self._routes.get(topic)
        groups = [self._brokers[name] for name in route.brokers] if route else []
        async with trio.open_nursery() as nursery:
            for address in [group.master for group in groups if group.master is not None]:
                known = self._known_at.get(address)
                if known is None or known is not self.remoting.open_connection(address):
                    nursery.start_soon(self.send_heartbeat, address)

    def broker_addresses(self) -> list[str]:
        """Return the addresses that get heartbeats: masters, and for consumers the slaves too."""
        addresses: dict[str, None] = {}
        for group in self._brokers.values():
            for broker_id, address in group.addresses.items():
                if broker_id == 0 or self.members:
                    addresses[address] = None
        return list(addresses)

    async def keep_alive(self) -> None:
        """Send heartbeats for ever."""
        while True:
            await self.world.clock.sleep(self.options.heartbeat_ms / 1000)
            await self.send_heartbeats()

    async def sign_off(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell the brokers that got heartbeats that a group's member leaves; failures are only logged."""
        ext = {"clientID": self.client_id, "producerGroup": producer_group, "consumerGroup": consumer_group}
        for address in sorted(self._greeted):
            if self.remoting.open_connection(address) is None:
                continue
            try:
                await self.call(address, RequestCode.UNREGISTER_CLIENT, ext, timeout_ms=1000)
            except ClientError as error:
                log.info("sign-off failed", broker=address, why=error)


def fields(ext: Mapping[str, object] | None) -> dict[str, str] | None:
    """Return header fields as strings: ``None`` left out, booleans in lower case."""
    if ext is None:
        return None
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in ext.items()
        if value is not None
    }


def accepted(answer: Command, address: str, accept: Iterable[int]) -> Command:
    """Return *answer* if its code is among *accept*. Raises :class:`BrokerError` otherwise."""
    if answer.code in accept:
        return answer
    raise BrokerError(answer.code, answer.remark or "", address)


async def json_body(session: Session, answer: Command) -> dict[str, Any]:
    """Return the decoded body of *answer*, a large one read in a thread; an empty one is an empty object.

    Raises:
        ClientError: it is no JSON object, or takes too long to read.
    """
    if not answer.body:
        return {}
    try:
        value = await json_value(session.world.threads, bytes(answer.body), ANSWER_STEPS)
    except JsonError as error:
        raise ClientError(f"the answer's body cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ClientError("the answer's body is no JSON object")
    return value


def split_addresses(name_servers: str | Sequence[str]) -> list[str]:
    """Return the addresses in ``host:port;host:port`` or a sequence of such texts."""
    texts = [name_servers] if isinstance(name_servers, str) else name_servers
    return [part.strip() for text in texts for part in text.replace(",", ";").split(";") if part.strip()]


@asynccontextmanager
async def open_session(
    world: World, name_servers: str | Sequence[str], options: SessionOptions | None = None
) -> AsyncIterator[Session]:
    """Open a client; leaving the block ends its connections.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        options: see :class:`SessionOptions`.
    """
    with bare_errors():
        async with open_client(world) as remoting:
            remoting.set_name_servers(split_addresses(name_servers))
            chosen = options or SessionOptions()
            if chosen.credentials is not None:
                remoting.sign = signer(chosen.credentials)
            remoting.tls = chosen.tls
            yield Session(world, remoting, chosen)


def _note(times: dict[str, float], topic: str, at: float) -> None:
    if len(times) >= _TOPICS_MAX:
        times.clear()
    times[topic] = at


def _no_route(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        group = topic.removeprefix(RETRY_PREFIX)
        return f"no broker has the topic {topic}: no consumer of the group {group} was ever connected; check its name"
    return f"no broker has the topic {topic}; create it, or check the name server address"
