"""Static topics: make one, or give it another mapping (513).

Source: AdminBrokerProcessor.java (updateAndCreateStaticTopic), TopicQueueMappingManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.topic_changes import TopicGuard, TopicSaves, check_row
from understudy.broker.catalog import Catalog
from understudy.broker.identity import Identity
from understudy.broker.topics import BATCH_QUEUES, QUEUE_LIMIT, QUEUE_TYPE, SINGLE_TAG, TopicConfig, has_batch_queues
from understudy.format.json_dialect import JsonError
from understudy.format.static_topics import MappingError, TopicMapping, successor
from understudy.remoting.bodies import json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_bool, optional_int, required_int
from understudy.remoting.server import RemotingServer

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

ITEMS_MAX = 20_000
"""Pieces of all logical queues of a topic that one group may know of: they are read, saved and copied as one."""


@attrs.frozen
class StaticTopicParts:
    """What of a broker is needed to change its static topics.

    Attributes:
        identity: names, addresses and role.
        guard: refuses some changes.
        saves: makes the others durable and known.
        catalog: the topics, and which of them are static.
    """

    identity: Identity
    guard: TopicGuard
    saves: TopicSaves
    catalog: Catalog


def register(broker: Broker, server: RemotingServer) -> None:
    """Change static topics of *broker* as asked on *server*."""
    guard = TopicGuard(broker.identity, broker.replication, broker.options.broker, broker.topics)
    saves = TopicSaves(broker.persistence, broker.store, broker.registration)
    changes = StaticTopicChanges(StaticTopicParts(broker.identity, guard, saves, broker.catalog))
    server.register_async(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, changes.update)


class StaticTopicChanges:
    """Handler that maps topics of one broker."""

    def __init__(self, parts: StaticTopicParts) -> None:
        self._parts = parts

    async def update(self, connection: Connection, command: Command) -> Command:
        """Create or change a topic and its mapping, both or neither (513).

        Differs because the reference changes the topic also where it refuses the mapping.
        """
        parts, name = self._parts, optional(command, "topic") or ""
        parts.guard.check_name(name)
        read, write = required_int(command, "readQueueNums"), required_int(command, "writeQueueNums")
        known = parts.catalog.topics.get(name)
        if known is not None and has_batch_queues(known.attributes):
            # Differs because the messages in a batch have the offsets of its physical queue, which clients would take.
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{name}] has batch queues ({QUEUE_TYPE}={BATCH_QUEUES}): its queues cannot be mapped",
            )
        row = TopicConfig(
            name,
            read,
            write,
            required_int(command, "perm"),
            optional(command, "topicFilterType") or SINGLE_TAG,
            optional_int(command, "topicSysFlag") or 0,
            optional_bool(command, "order") or False,
            {} if known is None else known.attributes,
        )
        check_row(row)
        parts.guard.check_not_slave()
        mapping = self._mapping(command, row)
        # The mapping first: nobody may store or read by global ids before it counts.
        parts.catalog.mappings.put(mapping)
        parts.catalog.topics.update([row])
        await parts.saves.mapped()
        return response(command)

    def _mapping(self, command: Command, row: TopicConfig) -> TopicMapping:
        """Return the mapping that the topic will have. Raises :class:`CommandError`."""
        own = self._parts.identity.name
        try:
            value = json_of(command)
            _check_size(value)
            asked = TopicMapping.from_json(value, row.name)
            if asked.topic != row.name or asked.broker_name != own:
                raise MappingError(
                    f"a mapping of {asked.topic} for {asked.broker_name} is none of {row.name} for {own}"
                )
            if asked.epoch < 0:
                raise MappingError("the epoch of a mapping must not be negative")
            known = self._parts.catalog.mappings.table.get(row.name)
            mapping = successor(known, asked, force=optional_bool(command, "force") or False)
            _check_queues(mapping, row)
        except (JsonError, ValueError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return mapping


def _check_size(value: object) -> None:
    """Check, before it is understood, that a mapping is not too large. Raises :class:`MappingError`."""
    hosted = value.get("hostedQueues") if isinstance(value, Mapping) else None
    chains = hosted.values() if isinstance(hosted, Mapping) else ()
    if sum(len(items) if isinstance(items, list) else 1 for items in chains) > ITEMS_MAX:
        raise MappingError(f"the logical queues of a mapping have {ITEMS_MAX} items at most")


def _check_queues(mapping: TopicMapping, row: TopicConfig) -> None:
    """Check that the topic has the queues that the mapping leads here, and no others. Raises :class:`MappingError`.

    Differs because the reference takes any number of logical queues, for each of which its clients keep an object.
    """
    if mapping.total_queues > QUEUE_LIMIT:
        raise MappingError(f"a topic has {QUEUE_LIMIT} logical queues at most, not {mapping.total_queues}")
    beyond = max(mapping.queues, default=-1)
    if beyond >= mapping.total_queues:
        raise MappingError(f"there is no logical queue {beyond}, {row.name} has {mapping.total_queues} of them")
    for global_id, item in mapping.led.items():
        if item.queue_id >= min(row.read_queue_nums, row.write_queue_nums):
            raise MappingError(
                f"logical queue {global_id} is mapped to queue {item.queue_id}, but {row.name} has "
                f"{row.write_queue_nums} write and {row.read_queue_nums} read queues here"
            )
