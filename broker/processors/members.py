"""Membership of clients: heartbeats (34), leaving (35), members of a group (38), check of a subscription (46).

Source: ClientManageProcessor.java, ConsumerManageProcessor.java, DefaultConsumerIdsChangeListener.java.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import attrs
import trio

from understudy.broker import filters, heartbeat
from understudy.broker.catalog import Catalog
from understudy.broker.clients import CONSUME_ACTIVELY, ClientChannel, ProducerTable
from understudy.broker.conditions import UnsupportedFilterError
from understudy.broker.heartbeat import ConsumerBeat, Heartbeat, HeartbeatError
from understudy.broker.hold import PullHold
from understudy.broker.locks import QueueLocks
from understudy.broker.node import Node
from understudy.broker.sql_filter.lexer import SqlError
from understudy.broker.subscribers import Subscribers
from understudy.format import names
from understudy.format.json_dialect import dumps
from understudy.remoting.bodies import JsonError, body_of, json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.fields import CommandError, optional, required
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace, run_steps
from understudy.runtime.signal import Signal

HOUSEKEEPING_SECONDS = 10.0
TOPICS_OF_A_STEP = 256


@attrs.frozen
class MemberParts:
    """What of a broker is needed to know its clients.

    Attributes:
        node: who it is, its settings and its world.
        catalog: topics and groups.
        producers: those that are connected.
        subscribers: consumers that are connected.
        hold: pulls that wait.
        locks: the locks.
    """

    node: Node
    catalog: Catalog
    producers: ProducerTable[Connection]
    subscribers: Subscribers
    hold: PullHold
    locks: QueueLocks


class MemberProcessor:
    """Handlers of the membership codes of one broker, and the service that expires silent clients.

    Args:
        parts: of the broker.
        large: where long heartbeats wait.
    """

    def __init__(self, parts: MemberParts, large: Lane) -> None:
        self._parts = parts
        self._large = large
        self._config = parts.node.options.broker
        self._world = parts.node.world
        self._clock = self._world.clock
        self._topics, self._groups = parts.catalog.topics, parts.catalog.groups
        self._consumers, self._filters = parts.subscribers.consumers, parts.subscribers.filters
        self._changed: dict[str, None] = {}  # groups whose members must be told
        self._wake = Signal()

    def register(self, server: RemotingServer) -> None:
        """Answer the membership codes at *server* and learn when its connections end."""
        server.register(RequestCode.HEART_BEAT, self.heartbeat, heartbeat.READING)
        server.register(RequestCode.UNREGISTER_CLIENT, self.unregister)
        server.register(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.consumer_list)
        check = self._parts.subscribers.conditions.beside(server, self._world.threads, self.check_config)
        server.register(RequestCode.CHECK_CLIENT_CONFIG, check)

    def heartbeat(self, connection: Connection, command: Command) -> Answer:
        """Enter a client's groups; tell the members of consumer groups that changed."""
        try:
            beat: Heartbeat = body_of(command, heartbeat.parse_heartbeat)
        except HeartbeatError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if beat.long:

            async def enter(connection: Connection, command: Command) -> Command:
                async with Pace(self._world) as pace:
                    return await pace.run(self._enter(connection, command, beat))

            return self._large.submit(connection, command, enter)
        return run_steps(self._enter(connection, command, beat))

    def _enter(self, connection: Connection, command: Command, beat: Heartbeat) -> Generator[None, None, Command]:
        """Enter the groups of a heartbeat, one in a step, or some of its subscriptions, or one of its conditions."""
        now_ms = self._clock.wall_ms()
        second_form = beat.fingerprint != 0
        changed = not second_form
        for consumer in beat.consumers:
            known = yield from self._enter_consumer(
                connection, command, beat.client_id, consumer, beat.without_subscriptions, now_ms
            )
            if not known:
                changed = True
            entered = self._consumers.get(consumer.group) is not None
            if entered and not beat.without_subscriptions:
                yield from self._filters.take(consumer.group, consumer.subscriptions)
            if second_form and entered and self._consumers.swap_fingerprint(consumer.group, beat.fingerprint):
                changed = True
            yield
        if self._config.enable_register_producer:
            for group in beat.producers:
                channel = self._channel(connection, command, beat.client_id, now_ms)
                self._parts.producers.register(group, channel)
                yield
        return response(
            command,
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"},
        )

    def _enter_consumer(
        self,
        connection: Connection,
        command: Command,
        client_id: str,
        beat: ConsumerBeat,
        without_subscriptions: bool,
        now_ms: int,
    ) -> Generator[None, None, bool]:
        """Enter one consumer group, in steps; return whether its subscriptions are known now."""
        if self._config.reject_pull_consumer_enable and beat.consume_type == CONSUME_ACTIVELY:
            return True
        row = self._groups.get(beat.group)
        if row is None:
            return True
        ordered = False
        for first in range(0, len(beat.subscriptions), TOPICS_OF_A_STEP):
            if first:
                yield
            part = beat.subscriptions[first : first + TOPICS_OF_A_STEP]
            ordered = ordered or any(self._topics.is_order(subscription.topic) for subscription in part)
        self._topics.ensure(
            names.retry_topic(beat.group),
            row.retry_queue_nums,
            names.PERM_READ | names.PERM_WRITE,
            sys_flag=names.SYSFLAG_UNIT_SUBSCRIPTION if beat.unit_mode else 0,
            order=ordered,
        )
        known = self._consumers.get(beat.group)
        unknown = without_subscriptions and (known is None or not known.subscriptions)
        changed = yield from self._consumers.registering(
            beat.group,
            self._channel(connection, command, client_id, now_ms),
            beat.consume_type,
            beat.message_model,
            beat.consume_from_where,
            None if without_subscriptions else beat.subscriptions,
            now_ms,
        )
        if changed:
            self.tell_members(beat.group)
        # Differs because the reference lets a client go on without subscriptions after the broker was restarted.
        return not unknown

    def is_connected(self, group: str, client_id: str) -> bool:
        """Tell whether *client_id* is a member of *group* on some connection."""
        info = self._consumers.get(group)
        return info is not None and info.channel_of(client_id) is not None

    def tell_members(self, group: str) -> None:
        """Have NOTIFY_CONSUMER_IDS_CHANGED sent to every member of *group* that shares queues with others.

        Changes that come while members are told are told together: when thousands of members come or go at once, each
        is told a few times instead of thousands of times.
        """
        self._changed[group] = None
        self._wake.set()

    async def _tell_changed(self) -> None:
        """Tell members of groups that changed, until cancelled."""
        while True:
            if not self._changed:
                await self._wake.wait()
            async with Pace(self._world) as pace:
                while self._changed:
                    group = next(iter(self._changed))
                    del self._changed[group]
                    frame = encode(
                        request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True)
                    )
                    for member in self._to_tell(group):
                        member.write(frame)
                        await pace.breathe()

    def _to_tell(self, group: str) -> list[Connection]:
        info = self._consumers.get(group)
        if info is None or info.broadcasting or not self._config.notify_consumer_ids_changed_enable:
            return []
        row = self._groups.find(group)
        if row is not None and not row.notify_consumer_ids_changed_enable:
            return []
        return list(info.channels)

    def unregister(self, connection: Connection, command: Command) -> Command:
        """Take a client out of the groups it names."""
        client_id = optional(command, "clientID")
        producer_group = optional(command, "producerGroup")
        consumer_group = optional(command, "consumerGroup")
        if producer_group is not None:
            self._parts.producers.unregister(producer_group, connection, client_id)
        if consumer_group is not None and self._consumers.unregister(consumer_group, connection, client_id):
            self.tell_members(consumer_group)
        return response(command, ext={})

    def consumer_list(self, connection: Connection, command: Command) -> Command:
        """Answer the ids of a group's members."""
        group = required(command, "consumerGroup")
        info = self._consumers.get(group)
        if info is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {})
        return response(command, ext={}, body=dumps({"consumerIdList": info.client_ids()}))

    def check_config(self, connection: Connection, command: Command) -> Command:
        """Say whether the broker can serve a subscription."""
        if not command.body:
            return response(command)
        try:
            data = json_of(command)
        except JsonError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from None
        subscription = data.get("subscriptionData") if isinstance(data, Mapping) else None
        if isinstance(subscription, Mapping):
            kind, text = subscription.get("expressionType"), subscription.get("subString")
            try:
                filters.check_length("" if text is None else str(text))
            except filters.SubscriptionError as error:
                raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
            if not filters.is_tag_type(None if kind is None else str(kind)):
                try:
                    self._parts.subscribers.conditions.get(str(kind), "" if text is None else str(text))
                except UnsupportedFilterError as error:
                    raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
                except SqlError as error:
                    raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return response(command)

    def closed(self, connection: Connection) -> None:
        """Forget a connection that ended and tell the groups it was in."""
        self._parts.hold.drop(connection)
        self._parts.producers.close(connection)
        for group in self._consumers.close(connection):
            self.tell_members(group)

    async def run(self) -> None:
        """Tell members of changes, and close connections of clients that fell silent, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_changed)
            nursery.start_soon(self._expire)

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(HOUSEKEEPING_SECONDS)
            now_ms = self._clock.wall_ms()
            silent = self._consumers.expired(now_ms, self._config.channel_expired_timeout)
            for connection in dict.fromkeys([*silent, *self._parts.producers.expired(now_ms)]):
                connection.close("no heartbeat")
                self.closed(connection)
            async with Pace(self._world) as pace:
                await pace.run(self._parts.locks.expiring(now_ms))
                await pace.run(self._filters.burying())

    def _channel(
        self, connection: Connection, command: Command, client_id: str, now_ms: int
    ) -> ClientChannel[Connection]:
        return ClientChannel(connection, client_id, command.language or "OTHER", command.version, now_ms)
