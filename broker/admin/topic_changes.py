"""Topics: create, change, delete (17, 18, 215)."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin import attributes
from understudy.broker.admin.answers import UNSET_REMARK, body_list
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.creation_times import CreationTimes
from understudy.broker.forgotten_topics import forget_topic
from understudy.broker.identity import Identity
from understudy.broker.node import Node
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence
from understudy.broker.registration import Registration
from understudy.broker.replication import Replication
from understudy.broker.topics import MULTI_TAG, QUEUE_LIMIT, SINGLE_TAG, TopicConfig, TopicTable
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_bool, optional_int, required_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class TopicGuard:
    """Which changes of topics a broker refuses.

    Attributes:
        identity: names, addresses and role.
        replication: knows the master.
        config: read at each request.
        topics: the table.
    """

    identity: Identity
    replication: Replication
    config: BrokerConfig
    topics: TopicTable

    def check_not_slave(self) -> None:
        """Refuse on a slave, also on one that acts: its table is its master's. Raises :class:`CommandError`.

        Differs because the reference accepts a topic, drops it when the master is back, and lets a deletion take
        messages away that the master still has.
        """
        if self.identity.role.is_slave:
            address = self.replication.master_address
            where = address or "which is not there now; the other groups take topics meanwhile"
            remark = f"a slave of {self.identity.name} has its master's topics; change them at the master, {where}"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)

    def check_name(self, name: str) -> None:
        """Refuse a name that no topic may have, or one of the system's. Raises :class:`CommandError`."""
        refusal = names.topic_name_error(name)
        if refusal is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, refusal)
        self.check_not_system(name)

    def check_not_system(self, name: str) -> None:
        """Refuse the name of one of the system's topics, unless settings allow it. Raises :class:`CommandError`."""
        if not self.config.validate_system_topic_when_update_topic:
            return
        if names.is_system_topic(name) or name in self.topics.system_names:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")


@attrs.frozen
class TopicSaves:
    """Makes changes of topics durable, then known to name servers.

    Attributes:
        persistence: saves the tables.
        store: saves where topics were deleted.
        registration: tells name servers.
    """

    persistence: Persistence
    store: MessageStore
    registration: Registration

    async def changed(self) -> None:
        """Save rows."""
        await self.persistence.save("topics")
        await self.registration.settled()

    async def mapped(self) -> None:
        """Save rows and mappings, and tell of all: the announcement of a topic alone says nothing of its mapping."""
        await self.persistence.save("queue mappings")
        await self.persistence.save("topics")
        self.registration.trigger()
        await self.registration.settled()

    async def deleted(self) -> None:
        """Save that rows are gone, with all that belongs to them."""
        await self.persistence.save("topics")
        await self.persistence.save("queue mappings")
        await self.store.save_deletions()
        await self.persistence.save("offsets")
        await self.registration.settled()


@attrs.frozen
class TopicChangeParts:
    """What of a broker is needed to change its topics.

    Attributes:
        guard: refuses some changes.
        saves: makes the others durable and known.
        world: clock and threads.
        config: read at each request.
        topics: the table.
        creations: how long changes take.
    """

    guard: TopicGuard
    saves: TopicSaves
    world: World
    config: BrokerConfig
    topics: TopicTable
    creations: CreationTimes


@attrs.frozen
class TopicDeletionParts:
    """What of a broker is needed to delete its topics.

    Attributes:
        guard: refuses some deletions.
        saves: makes the others durable and known.
        node: its settings are read at each request.
        topics, offsets: the tables.
        forget: deletes all that belongs to a topic whose row is gone.
    """

    guard: TopicGuard
    saves: TopicSaves
    node: Node
    topics: TopicTable
    offsets: OffsetTable
    forget: Callable[[str], None]


def register(broker: Broker, server: RemotingServer) -> None:
    """Change topics of *broker* as asked on *server*."""
    config, topics = broker.options.broker, broker.topics
    guard = TopicGuard(broker.identity, broker.replication, config, topics)
    saves = TopicSaves(broker.persistence, broker.store, broker.registration)
    changes = TopicChanges(TopicChangeParts(guard, saves, broker.world, config, topics, broker.stats.creations))
    server.register_async(RequestCode.UPDATE_AND_CREATE_TOPIC, changes.update)
    server.register_async(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, changes.update_list)
    deletion = TopicDeletion(
        TopicDeletionParts(
            guard=guard,
            saves=saves,
            node=broker.node,
            topics=topics,
            offsets=broker.offsets,
            forget=partial(forget_topic, broker),
        )
    )
    server.register_async(RequestCode.DELETE_TOPIC_IN_BROKER, deletion.delete)


class TopicChanges:
    """Handlers that make rows of one broker's topic table."""

    def __init__(self, parts: TopicChangeParts) -> None:
        self._parts = parts

    async def update(self, connection: Connection, command: Command) -> Command:
        """Create or change one topic (17)."""
        name = optional(command, "topic") or ""
        with self._parts.creations.of_topic(name):
            await self._update(name, command)
        return response(command, ResponseCode.SUCCESS, UNSET_REMARK)

    async def _update(self, name: str, command: Command) -> None:
        self._parts.guard.check_name(name)
        row = TopicConfig(
            name,
            required_int(command, "readQueueNums"),
            required_int(command, "writeQueueNums"),
            required_int(command, "perm"),
            optional(command, "topicFilterType") or SINGLE_TAG,
            optional_int(command, "topicSysFlag") or 0,
            optional_bool(command, "order") or False,
        )
        try:
            changes = attributes.parse(optional(command, "attributes"))
        except attributes.AttributeRefusedError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._parts.guard.check_not_slave()
        await self._put([(row, changes)])

    async def update_list(self, connection: Connection, command: Command) -> Command:
        """Create or change several topics, all or none (18)."""
        values = body_list(command, "topicConfigList", "topic configurations")
        with self._parts.creations.of_topic(str(values[0].get("topicName") or "") if values else ""):
            await self._update_list(values)
        return response(command, ResponseCode.SUCCESS, UNSET_REMARK)

    async def _update_list(self, values: list[dict[str, Any]]) -> None:
        wanted = []
        async with Pace(self._parts.world) as pace:
            for value in values:
                self._parts.guard.check_name(str(value.get("topicName") or ""))
                try:
                    row = TopicConfig.from_json(value)
                except ValueError as error:
                    raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
                row.attributes = {}
                signed = value.get("attributes") or {}
                wanted.append(
                    (row, {str(key): str(text) for key, text in signed.items()} if isinstance(signed, dict) else {})
                )
                await pace.breathe()
        self._parts.guard.check_not_slave()
        await self._put(wanted)

    async def _put(self, wanted: list[tuple[TopicConfig, dict[str, str]]]) -> None:
        """Take all of *wanted*, each a row and changes of attributes, or none; checked in pieces, taken at once."""
        topics = self._parts.topics
        checked: list[TopicConfig] = []
        before: list[TopicConfig | None] = []
        async with Pace(self._parts.world) as pace:
            for row, changes in wanted:
                known = topics.get(row.name)
                altered = self._altered(row, changes, known)
                checked.append(known if known is not None and altered == known else altered)
                before.append(known)
                await pace.breathe()
        self._parts.guard.check_not_slave()  # it may have become one meanwhile
        now = [topics.rows.get(row.name) for row in checked]
        if not all(map(operator.is_, now, before)):  # somebody has changed some of them meanwhile
            for number, (row, changes) in enumerate(wanted):
                if now[number] is not before[number]:
                    checked[number] = self._altered(row, changes, now[number])
        changed = list(itertools.compress(checked, map(operator.is_not, checked, now)))
        if changed:
            topics.update(changed)
            await self._parts.saves.changed()

    def _altered(self, row: TopicConfig, changes: dict[str, str], known: TopicConfig | None) -> TopicConfig:
        """Return *row* with the attributes of *known* after *changes*. Raises CommandError."""
        check_row(row)
        if changes.get("+message.type") == "MIXED" and not self._parts.config.enable_mixed_message_type:
            raise CommandError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        current = None if known is None else known.attributes
        try:
            altered = attributes.alter(attributes.TOPIC_ATTRIBUTES, current, changes)
        except attributes.AttributeRefusedError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return attrs.evolve(row, attributes=altered)


class TopicDeletion:
    """Handler that takes topics away from one broker."""

    def __init__(self, parts: TopicDeletionParts) -> None:
        self._parts = parts

    async def delete(self, connection: Connection, command: Command) -> Command:
        """Delete a topic with its offsets, queues and POP retry topics (215)."""
        topic = optional(command, "topic") or ""
        if not topic.strip():
            raise CommandError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        parts = self._parts
        parts.guard.check_not_system(topic)
        parts.guard.check_not_slave()
        retries = list[TopicConfig]()
        if parts.node.options.broker.clear_retry_topic_when_delete_topic:
            for group in parts.offsets.groups_of(topic):
                both = (names.retry_topic(f"{group}+{topic}"), names.retry_topic(f"{group}_{topic}"))
                retries += [row for row in map(parts.topics.get, both) if row is not None]
        parts.topics.delete(topic)
        parts.forget(topic)
        async with Pace(parts.node.world) as pace:
            for row in retries:
                await pace.breathe()
                parts.guard.check_not_slave()  # it may have become one meanwhile
                if parts.topics.get(row.name) is row:  # not one of the next life of the topic
                    parts.topics.delete(row.name)
                    parts.forget(row.name)
        await parts.saves.deleted()
        return response(command)


def check_row(row: TopicConfig) -> None:
    """Refuse a row whose numbers no topic may have. Raises :class:`CommandError`."""
    if row.filter_type not in (SINGLE_TAG, MULTI_TAG):
        remark = f"topicFilterType = [{row.filter_type}] value invalid"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
    for label, number in (("readQueueNums", row.read_queue_nums), ("writeQueueNums", row.write_queue_nums)):
        if not 0 <= number <= QUEUE_LIMIT:
            remark = f"{label} of topic {row.name} is {number}, it must be from 0 to {QUEUE_LIMIT}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
    if not 0 <= row.perm <= 7:
        remark = f"perm of topic {row.name} is {row.perm}, it must be from 0 to 7 (4 read, 2 write, 1 inherit)"
        raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
