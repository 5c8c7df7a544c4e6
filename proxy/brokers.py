"""Brokers as a proxy sees them: routes, topics and groups that it remembers for a while, and calls to one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

import attrs
import trio

from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.route import BrokerAddresses, TopicRoute, parse_route
from understudy.mqclient.session import Session, fields, json_body
from understudy.proxy.cache import CacheRules, LoadingCache
from understudy.proxy.core.message_types import TopicType, type_of_topic
from understudy.proxy.core.settings import GroupConfig, parse_group
from understudy.proxy.core.statuses import ProxyError, code_of_response
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import ConnectFailedError, InvokeTimeoutError, RemotingError
from understudy.runtime.log import get_logger
from understudy.security.authority import SUBJECT_PREFIX
from understudy.security.policies import Acl, acl_of
from understudy.security.users import User, user_of

log = get_logger("proxy.brokers")

CALL_MS = 3_000
"""How long a broker has for an answer, unless the client's own time is shorter."""

_ABSENT = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.USER_NOT_EXIST,
        ResponseCode.POLICY_NOT_EXIST,
    }
)
_LONGEST_NAME = 255
"""Of a topic, a broker or a user; nothing is asked for a longer one, and nothing remembered."""

Withdraw = Callable[[], None]
"""Has a question that was parked not be answered any more."""


class Brokers:
    """What a proxy knows of a cluster.

    Args:
        session: connections.
        cluster_name: of the cluster whose brokers know the groups.
        tasks: where what is known is renewed.
        rules: how long it counts.

    Attributes:
        cluster_name: as given.
    """

    def __init__(self, session: Session, cluster_name: str, tasks: trio.Nursery, rules: CacheRules) -> None:
        self._session = session
        self.cluster_name = cluster_name
        clock = session.world.clock
        self._routes = LoadingCache[str, TopicRoute](clock, tasks, self._load_route, rules)
        self._topics = LoadingCache[str, TopicType](clock, tasks, self._load_topic, rules)
        self._groups = LoadingCache[str, GroupConfig](clock, tasks, self._load_group, rules)
        half = (
            rules.refresh_seconds / 2
        )  # asked after the one and renewed within the other: nobody deleted lasts longer
        strict = attrs.evolve(rules, refresh_seconds=half, expire_seconds=half)
        self._users = LoadingCache[str, User](clock, tasks, self._load_user, strict)
        self._acls = LoadingCache[str, Acl](clock, tasks, self._load_acl, strict)

    @property
    def random(self) -> Random:
        return self._session.world.random

    # --- what is known -----------------------------------------------------------------------------------------

    async def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Return the route of *topic*.

        Args:
            topic: its name.
            fresh: ask the name server, because what is known has failed.

        Raises:
            ProxyError: no broker has it (40402), or no name server answers (50400).
        """
        if len(topic) > _LONGEST_NAME:
            raise ProxyError(v2.TOPIC_NOT_FOUND, f"there is no topic with a name of {len(topic)} characters")
        try:
            route = await self._routes.get(topic, fresh=fresh)
        except ClientError as error:
            raise ProxyError(v2.PROXY_TIMEOUT, str(error)) from error
        if route is None:
            raise ProxyError(
                v2.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}; create it"
            )
        return route

    async def topic_type(self, topic: str) -> TopicType:
        """Return the kind of messages that *topic* takes; ``UNSPECIFIED`` when no broker has it."""
        try:
            return await self._topics.get(topic) or TopicType.UNSPECIFIED
        except ClientError as error:
            raise ProxyError(v2.PROXY_TIMEOUT, str(error)) from error

    async def group(self, group: str) -> GroupConfig:
        """Return the configuration of a consumer group; the default one when no broker tells."""
        try:
            return await self._groups.get(group) or GroupConfig()
        except ClientError as error:
            log.warning("group not known, taken for an ordinary one", group=group, why=error)
            return GroupConfig()

    async def user(self, name: str) -> User | None:
        """Return the user of that name, ``None`` if there is none. Raises :class:`ProxyError` (50400)."""
        if len(name) > _LONGEST_NAME:
            return None
        try:
            return await self._users.get(name)
        except ClientError as error:
            raise ProxyError(v2.PROXY_TIMEOUT, f"no broker tells who {name[:64]} is: {error}") from error

    async def acl(self, name: str) -> Acl | None:
        """Return the rules of a user, ``None`` if there are none. Raises :class:`ProxyError` (50400)."""
        try:
            return await self._acls.get(name)
        except ClientError as error:
            raise ProxyError(v2.PROXY_TIMEOUT, f"no broker tells what {name[:64]} may: {error}") from error

    async def _load_route(self, topic: str) -> TopicRoute | None:
        answer = await self._session.call_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": True},
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        return (
            parse_route(topic, await json_body(self._session, answer)) if answer.code == ResponseCode.SUCCESS else None
        )

    async def _load_topic(self, topic: str) -> TopicType | None:
        route = await self._routes.get(topic)
        if route is None:
            return None
        body = await self._ask_any(route, RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": True})
        if body is None:
            return None
        attributes = body.get("attributes")
        texts = attributes if isinstance(attributes, dict) else {}
        return type_of_topic({str(name): str(value) for name, value in texts.items()})

    async def _load_group(self, group: str) -> GroupConfig | None:
        body = await self._ask_cluster(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
        return None if body is None else parse_group(body)

    async def _load_user(self, name: str) -> User | None:
        body = await self._ask_cluster(RequestCode.AUTH_GET_USER, {"username": name})
        if body and body.get("password") == "":
            raise ClientError(
                "passwords are told to super users: innerClientAuthenticationCredentials must be one there"
            )
        try:
            return user_of(body, "the user") if body else None
        except ValueError as error:
            raise ClientError(f"the answer about user {name[:64]} makes no sense: {error}") from None

    async def _load_acl(self, name: str) -> Acl | None:
        body = await self._ask_cluster(RequestCode.AUTH_GET_ACL, {"subject": SUBJECT_PREFIX + name})
        acl = Acl()
        try:
            for kind, entries in acl_of(body or {}):
                acl = acl.merged(kind, entries)
        except ValueError as error:
            raise ClientError(f"the answer about the rules of {name[:64]} makes no sense: {error}") from None
        return acl

    async def _ask_cluster(self, code: RequestCode, ext: Mapping[str, object]) -> Mapping[str, object] | None:
        """Ask any broker of the cluster, see :meth:`_ask_any`."""
        route = await self._routes.get(self.cluster_name)
        if route is None:
            raise ClientError(f"no broker of the cluster {self.cluster_name} is registered")
        return await self._ask_any(route, code, ext)

    async def _ask_any(
        self, route: TopicRoute, code: RequestCode, ext: Mapping[str, object]
    ) -> Mapping[str, object] | None:
        """Ask one broker after the other, in an order of chance; return the first answer.

        ``None`` is the word of a broker that there is no such thing. One that refuses for another reason, because it is
        busy or takes the proxy's own signature for none, has not said so.

        Raises:
            ClientError: none answered.
        """
        failure: ClientError | None = None
        absent = False
        brokers = list(route.brokers.values())
        self.random.shuffle(brokers)
        for broker in brokers:
            address = broker.any_address()
            if address is None:
                continue
            try:
                return await json_body(self._session, await self._session.call(address, code, ext))
            except ClientError as error:
                if isinstance(error, BrokerError) and error.code in _ABSENT:
                    absent = True
                else:
                    failure = error
        if absent:
            return None
        raise failure or ClientError(f"no broker of {route.topic} has an address")

    # --- calls -------------------------------------------------------------------------------------------------

    async def addresses(self, broker_name: str, topic: str) -> BrokerAddresses:
        """Return where the brokers of a group are.

        Args:
            broker_name: the group of brokers.
            topic: one that it should have.

        Raises:
            ProxyError: nobody knows it (40013: only a receipt handle names one that is not in a route).
        """
        for name in (topic, broker_name):
            try:
                known = (await self.route(name)).brokers.get(broker_name)
            except ProxyError as error:
                if error.code != v2.TOPIC_NOT_FOUND:
                    raise
                continue
            if known is not None:
                return known
        raise ProxyError(
            v2.INVALID_RECEIPT_HANDLE,
            f"there is no broker {broker_name[:64]} in this cluster; use what this cluster gave",
        )

    def route_at_hand(self, topic: str) -> TopicRoute | None:
        """Return the route of *topic* if it was asked for before and counts."""
        return self._routes.at_hand(topic)

    def topic_type_at_hand(self, topic: str) -> TopicType | None:
        """Return the kind of messages that *topic* takes, if that was asked for before and counts."""
        return self._topics.at_hand(topic)

    def known(self, broker_name: str, topic: str) -> BrokerAddresses | None:
        """Return where the brokers of a group are, if a route says so that was asked for before."""
        for name in (topic, broker_name):
            route = self._routes.at_hand(name)
            if route is not None and broker_name in route.brokers:
                return route.brokers[broker_name]
        return None

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object],
        body: bytes = b"",
        *,
        timeout_ms: float = CALL_MS,
        accept: Iterable[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask the broker at *address*.

        Args:
            address: of the broker.
            code: of the request.
            ext: fields of its header.
            body: of the request.
            timeout_ms: longest wait for the answer.
            accept: codes of answers that are no failure.

        Raises:
            ProxyError: it refuses, with the code that this is for clients, or does not answer (50400).
        """
        answer = await self.ask(address, request(code, fields(ext), body), timeout_ms)
        if answer.code not in accept:
            raise refusal_of(answer)
        return answer

    async def ask(self, address: str, command: Command, timeout_ms: float) -> Command:
        """Return what the broker at *address* answers, whatever it is. Raises :class:`ProxyError` (50400, 50001)."""
        try:
            return await self._session.remoting.invoke(address, command, timeout_ms)
        except InvokeTimeoutError as error:
            raise ProxyError(v2.PROXY_TIMEOUT, str(error)) from error
        except RemotingError as error:
            raise BrokerGoneError(str(error), sent=not isinstance(error, ConnectFailedError)) from error

    async def park(self, address: str, command: Command, answered: Callable[[Command | None], None]) -> Withdraw:
        """Ask the broker at *address* what it may answer late, see ``Connection.ask`` of the remoting protocol.

        Raises:
            BrokerGoneError: it cannot be reached.
        """
        try:
            return (await self._session.remoting.connection(address, CALL_MS)).ask(command, answered)
        except RemotingError as error:
            raise BrokerGoneError(str(error), sent=False) from error


def refusal_of(answer: Command) -> ProxyError:
    """Return what a client is told about a broker's refusal."""
    return ProxyError(code_of_response(answer.code), answer.remark or f"the broker answered {answer.code}")


class BrokerGoneError(ProxyError):
    """A broker cannot be reached, or went away before it answered.

    Args:
        message: which, and why.
        sent: it may have got the request.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(v2.INTERNAL_SERVER_ERROR, message)
        self.sent = sent
