"""Which topics there are, and where the queues of one begin and end (21, 202, 305, 351)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import json_answer, long_json_answer, queue_key, unknown_topic
from understudy.broker.admin.paging import page
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.identity import Identity
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.topics import TopicTable
from understudy.format.json_dialect import ObjectKey, Rows
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import optional_bool, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World
from understudy.store.deletions import to_json
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


@attrs.frozen
class TopicListParts:
    """What of a broker is needed to list its topics.

    Attributes:
        world: clock and threads.
        config: read at each request.
        topics, queue_mappings: the tables.
        store: knows which topics were deleted.
    """

    world: World
    config: BrokerConfig
    topics: TopicTable
    queue_mappings: QueueMappings
    store: MessageStore


@attrs.frozen
class TopicQueueParts:
    """What of a broker is needed to describe the queues of a topic.

    Attributes:
        world: clock and threads.
        identity: names, addresses and role.
        topics: the table.
        store: the messages.
        stats: counts.
    """

    world: World
    identity: Identity
    topics: TopicTable
    store: MessageStore
    stats: BrokerStatistics


def topic_list_parts(broker: Broker) -> TopicListParts:
    """Return what lists topics."""
    return TopicListParts(
        world=broker.world,
        config=broker.options.broker,
        topics=broker.topics,
        queue_mappings=broker.queue_mappings,
        store=broker.store,
    )


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about topics of *broker* on *server*."""
    topics = TopicList(topic_list_parts(broker))
    server.register_async(RequestCode.GET_ALL_TOPIC_CONFIG, topics.get_all)
    server.register(RequestCode.GET_TOPIC_CONFIG, topics.get)
    server.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, topics.system_topics)
    queues = TopicQueues(
        TopicQueueParts(
            world=broker.world,
            identity=broker.identity,
            topics=broker.topics,
            store=broker.store,
            stats=broker.stats,
        )
    )
    server.register_async(RequestCode.GET_TOPIC_STATS_INFO, queues.status)


class TopicList:
    """Handlers over one broker's topic table."""

    def __init__(self, parts: TopicListParts) -> None:
        self._parts = parts

    async def get_all(self, connection: Connection, command: Command) -> Command:
        """List topics, whole or by pages (21)."""
        topics, config = self._parts.topics, self._parts.config
        size = config.split_metadata_size if config.enable_split_metadata else 0
        async with Pace(self._parts.world) as pace:
            rows = page(command, topics.rows, topics.version, "topicSeq", "maxTopicNum", size)
            mappings = self._parts.queue_mappings
            body = {
                "dataVersion": topics.version.to_json(),
                "mappingDataVersion": mappings.version.to_json(),
                "topicConfigTable": Rows((name, row.to_json()) for name, row in list(rows.items())),
                "topicQueueMappingDetailMap": mappings.rows,
                "topicQueueMappingInfoMap": {},
            }
            if deletions := self._parts.store.deletions:
                body["deletedTopicTable"] = to_json(deletions)
            total = {"totalTopicNum": str(len(topics.rows))}
            return await long_json_answer(command, body, pace, ext=total)

    def get(self, connection: Connection, command: Command) -> Command:
        """Return one topic, with its mapping if that is asked for (351)."""
        topic = required(command, "topic")
        row = self._parts.topics.get(topic)
        if row is None:
            raise unknown_topic(topic, "No topic in this broker. topic: {topic}")
        body = row.to_json()
        mapping = self._parts.queue_mappings.table.get(topic)
        if mapping is not None and optional_bool(command, "lo"):
            body["mappingDetail"] = mapping.to_json()
        return json_answer(command, body)

    def system_topics(self, connection: Connection, command: Command) -> Command:
        """List the topics that belong to the system (305)."""
        return json_answer(command, {"topicList": sorted(self._parts.topics.system_names)})


class TopicQueues:
    """Handler over the queues of one broker's topics."""

    def __init__(self, parts: TopicQueueParts) -> None:
        self._parts = parts

    async def status(self, connection: Connection, command: Command) -> Command:
        """Return first and last offset of each queue (202)."""
        topic = required(command, "topic")
        row = self._parts.topics.get(topic)
        if row is None:
            raise unknown_topic(topic, "topic[{topic}] not exist")
        body = {
            "offsetTable": Rows(map(self._offsets, itertools.repeat(topic), range(row.queue_limit))),
            "topicPutTps": self._parts.stats.topic_put_rate(topic),
        }
        async with Pace(self._parts.world) as pace:
            return await long_json_answer(command, body, pace)

    def _offsets(self, topic: str, queue_id: int) -> tuple[ObjectKey, dict[str, int]]:
        store = self._parts.store
        low = max(store.min_queue_offset(topic, queue_id), 0)
        high = max(store.max_queue_offset(topic, queue_id), 0)
        return queue_key(topic, self._parts.identity.name, queue_id), {
            "lastUpdateTimestamp": store.store_time_of(topic, queue_id, high - 1) if high > 0 else 0,
            "maxOffset": high,
            "minOffset": low,
        }
