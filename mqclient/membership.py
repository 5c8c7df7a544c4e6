"""A consumer's place in its group: subscriptions, heartbeats, and which queues are its own.

The queues change when members come and go, routes change, or a broker says so; the owner of this object learns what to
give back and what to take through two callbacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import trio

from understudy.format.json_dialect import dumps
from understudy.format.names import retry_topic
from understudy.mqclient.allocation import Strategy, change
from understudy.mqclient.errors import ClientError, InvalidOptionError, NotConnectedError, RouteNotFoundError
from understudy.mqclient.heartbeat import ConsumeFrom, ConsumeType, MessageModel, consumer_data
from understudy.mqclient.queue import MessageQueue, check_group, check_topic
from understudy.mqclient.session import Session, json_body
from understudy.mqclient.subscription import TAG, Subscription, subscription
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("mqclient.membership")

_SOON_SECONDS = 1.0  # how soon a missing route or member list is asked for again
_SOON_TRIES = 15


class Membership:
    """One consumer in its group.

    Args:
        session: the client.
        group: consumer group.
        consume_type: pull or push.
        model: shared or broadcast.
        consume_from: start of a new group.
        strategy: who gets which queue.
        rebalance_ms: how often the queues are compared although nothing happened.

    Attributes:
        subscriptions: by topic.
        held: own queues, kept by the owner.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        consume_type: ConsumeType,
        model: MessageModel,
        consume_from: ConsumeFrom,
        strategy: Strategy,
        rebalance_ms: float,
    ) -> None:
        check_group(group)
        self.session = session
        self.group = group
        self.model = model
        self.consume_type = consume_type
        self.consume_from = consume_from
        self.strategy = strategy
        self.subscriptions: dict[str, Subscription] = {}
        self.rebalanced = trio.Event()
        self._rebalance_ms = rebalance_ms
        self._wanted = Signal()
        self._last_version = 0

    def subscribe(self, topic: str, expression: str, expression_type: str = "TAG") -> None:
        """Add or replace the subscription of *topic*. Raises :class:`InvalidMessageError`."""
        check_topic(topic)
        # Brokers keep the entry with the larger version, so two changes in one millisecond must differ.
        self._last_version = max(self._last_version + 1, self.session.world.clock.wall_ms())
        self.subscriptions[topic] = subscription(topic, expression, self._last_version, expression_type)

    def subscribe_all(self, expressions: Mapping[str, str]) -> None:
        """Subscribe to each topic of *expressions*; shared push consumers get their retry topic too.

        Raises:
            InvalidMessageError: a topic or an expression is none.
            InvalidOptionError: *expressions* says of no topic what is wanted of it.
        """
        if not isinstance(expressions, Mapping):
            raise InvalidOptionError(
                f"subscriptions are expressions by topic, like {{'Orders': '*'}}, not {expressions!r}"
            )
        for topic, expression in expressions.items():
            self.subscribe(topic, expression)
        if self.model is MessageModel.CLUSTERING and self.consume_type is ConsumeType.PASSIVELY:
            self.subscribe(retry_topic(self.group), "*")

    async def check(self, topic: str, expression: str, expression_type: str) -> None:
        """Ask a broker of *topic* whether it can serve a subscription by a condition; tags need no asking.

        Brokers are asked before it counts: in heartbeats they take it without a word, and refuse each pull.

        Raises:
            BrokerError: it cannot; says what is wrong with the condition, and where.
            ClientError: no broker answers.
        """
        if expression_type == TAG:
            return
        route = await self.session.route(topic)
        wanted = subscription(topic, expression, self._last_version, expression_type)
        body = {"clientId": self.session.client_id, "group": self.group, "subscriptionData": wanted.body()}
        last: ClientError | None = None
        for address in [address for group in route.brokers.values() if (address := group.any_address())]:
            try:
                await self.session.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=dumps(body))
            except NotConnectedError as error:
                last = error
                continue
            return
        raise last or ClientError(f"topic {topic} has no broker that could check the subscription")

    def heartbeat_entry(self) -> dict[str, Any]:
        """Return what heartbeats say about this consumer."""
        return consumer_data(self.group, self.consume_type, self.model, self.consume_from, self.subscriptions.values())

    async def join(self) -> None:
        """Learn the routes and tell the brokers that this member exists."""
        self.session.members[self.group] = self
        self.session.remoting.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        self.session.on_route_change.append(self._route_changed)
        for topic in self.subscriptions:
            try:
                await self.session.route(topic)
            except RouteNotFoundError as error:
                log.info("subscribed topic has no route yet", group=self.group, topic=topic, why=error)
        await self.session.send_heartbeats()

    def rebalance_soon(self) -> None:
        """Ask for a rebalance."""
        self._wanted.set()

    async def run(
        self,
        held: Callable[[], Iterable[MessageQueue]],
        revoke: Callable[[MessageQueue], Awaitable[None]],
        take: Callable[[MessageQueue], Awaitable[None]],
    ) -> None:
        """Rebalance for ever: when asked, and every now and then.

        Args:
            held: returns the queues that the owner has now.
            revoke: gives a queue back; returns when its progress is safe.
            take: starts consuming a queue.
        """
        tries_soon = 0
        while True:
            looked = self._wanted.count
            complete = await self._rebalance(held, revoke, take)
            self.rebalanced.set()
            tries_soon = 0 if complete else tries_soon + 1
            soon = not complete and tries_soon <= _SOON_TRIES
            with self.session.world.clock.move_on_after(_SOON_SECONDS if soon else self._rebalance_ms / 1000):
                await self._wanted.wait(looked)

    async def _rebalance(
        self,
        held: Callable[[], Iterable[MessageQueue]],
        revoke: Callable[[MessageQueue], Awaitable[None]],
        take: Callable[[MessageQueue], Awaitable[None]],
    ) -> bool:
        complete = True
        for topic in list(self.subscriptions):
            try:
                allotted = await self._allot(topic)
            except ClientError as error:
                log.info("topic not rebalanced", group=self.group, topic=topic, why=error)
                complete = False
                continue
            difference = change([queue for queue in held() if queue.topic == topic], allotted)
            for queue in difference.revoked:
                await revoke(queue)
            for queue in difference.taken:
                await take(queue)
        gone = [queue for queue in held() if queue.topic not in self.subscriptions]
        for queue in gone:
            await revoke(queue)
        return complete

    async def _allot(self, topic: str) -> list[MessageQueue]:
        """Return the queues of *topic* that are this member's. Raises :class:`ClientError` when that is not known."""
        known = self.session.known_route(topic)
        route = known if known is not None else await self.session.fresh_route(topic)
        if known is None:  # brokers we have not met yet must know this member before they list it
            await self.session.send_heartbeats()
        queues = route.read_queues
        if self.model is MessageModel.BROADCASTING:
            return list(queues)
        members = await self.members(topic)
        return self.strategy.allocate(self.session.client_id, queues, sorted(members))

    async def members(self, topic: str) -> list[str]:
        """Return the ids of the group's members, from any broker of *topic*. Raises :class:`ClientError`."""
        route = await self.session.route(topic)
        addresses = [address for group in route.brokers.values() if (address := group.any_address())]
        self.session.world.random.shuffle(addresses)
        last: ClientError | None = None
        for address in addresses:
            try:
                answer = await self.session.call(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group}
                )
                members = [
                    str(member) for member in (await json_body(self.session, answer)).get("consumerIdList") or ()
                ]
            except ClientError as error:
                last = error
                continue
            if self.session.client_id in members:
                return members
            # A broker that restarted or was met a moment ago does not know us yet: without us in the list every
            # member would compute a different answer.
            await self.session.send_heartbeat(address)
            last = ClientError(f"{address} does not list this member of {self.group} yet")
        raise last or ClientError(f"topic {topic} has no broker that could list the members of {self.group}")

    def _members_changed(self, connection: Connection, command: Command) -> None:
        if (command.ext or {}).get("consumerGroup") == self.group:
            self.rebalance_soon()

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalance_soon()
