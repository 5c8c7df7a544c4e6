"""How far groups have come: lag, time behind, topics and groups that belong together.

Codes 208, 300, 303, 308, 317, 343, 345. Source: AdminBrokerProcessor.java, ConsumerOffsetManager.java.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin.answers import json_answer, long_json_answer, queue_key, queue_value, unknown_topic
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ConsumerTable
from understudy.broker.node import Node
from understudy.broker.offsets import OffsetTable
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import ObjectKey, Rows
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import optional, optional_bool, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

_NEVER = 2**63 - 1


@attrs.frozen
class ProgressParts:
    """What of a broker is needed to tell how far its groups are.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        catalog: topics and groups.
        offsets, consumers: the tables.
        stats: counts.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    offsets: OffsetTable
    consumers: ConsumerTable[Connection]
    stats: BrokerStatistics


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about progress of *broker* on *server*."""
    handlers = ProgressAdmin(
        ProgressParts(
            node=broker.node,
            store=broker.store,
            catalog=broker.catalog,
            offsets=broker.offsets,
            consumers=broker.consumers,
            stats=broker.stats,
        )
    )
    server.register_async(RequestCode.GET_CONSUME_STATS, handlers.group)
    server.register_async(RequestCode.GET_BROKER_CONSUME_STATS, handlers.every_group)
    server.register_async(RequestCode.QUERY_CONSUME_TIME_SPAN, handlers.time_span)
    server.register(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, handlers.groups_of_topic)
    server.register(RequestCode.QUERY_TOPICS_BY_CONSUMER, handlers.topics_of_group)
    server.register(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, handlers.subscription)
    server.register_async(RequestCode.QUERY_CORRECTION_OFFSET, handlers.correction)


@attrs.define
class _Totals:
    """Messages that all groups are behind, and those of them that were pulled and not confirmed."""

    behind: int = 0
    in_flight: int = 0


class ProgressAdmin:
    """Handlers over one broker's offsets and store."""

    def __init__(self, parts: ProgressParts) -> None:
        self._parts = parts
        self._identity = parts.node.identity
        self._world = parts.node.world

    async def group(self, connection: Connection, command: Command) -> Command:
        """Return offsets and lag of one group (208)."""
        group, topic = required(command, "consumerGroup"), optional(command, "topic")
        listed = [name for name in (optional(command, "topicList") or "").split(";") if name]
        if listed:
            topics: Iterable[str] = dict.fromkeys(listed)
        else:
            wanted = [topic] if topic and topic.strip() else self._parts.offsets.topics_of(group)
            topics = subscribed(self._parts.consumers, group, wanted)
        rows = [row for row in map(self._parts.catalog.topics.get, topics) if row is not None]
        rate = sum((self._parts.stats.group_get_rate(group, row.name) for row in rows), 0.0)
        table = Rows(
            self._offsets(group, row, queue_id, with_pulls=True)
            for row in rows
            for queue_id in range(row.read_queue_nums)
        )
        async with Pace(self._world) as pace:
            return await long_json_answer(command, {"consumeTps": rate, "offsetTable": table}, pace)

    async def every_group(self, connection: Connection, command: Command) -> Command:
        """Return offsets and lag of every group (317)."""
        only_order = optional_bool(command, "isOrder") or False
        totals = _Totals()
        async with Pace(self._world) as pace:
            topics_of = await pace.run(self._parts.offsets.topics_by_group())

            def fields() -> Iterator[tuple[str, Any]]:
                yield "brokerAddr", self._identity.address
                yield (
                    "consumeStatsList",
                    (
                        Rows([(group, self._topics(group, topics_of.get(group, ()), totals, only_order))])
                        for group in list(self._parts.catalog.groups.rows)
                    ),
                )
                yield "totalDiff", totals.behind  # known once the list before it is written
                yield "totalInflightDiff", totals.in_flight

            return await long_json_answer(command, Rows(fields()), pace)

    def _topics(self, group: str, topics: Iterable[str], totals: _Totals, only_order: bool) -> Iterator[Rows]:
        """Make the rows of a group, one for each of its topics, while they are written."""

        def queues(row: TopicConfig) -> Iterator[tuple[ObjectKey, dict[str, int]]]:
            for queue_id in range(row.write_queue_nums):
                key, offsets = self._offsets(group, row, queue_id, with_pulls=False)
                totals.behind += offsets["brokerOffset"] - offsets["consumerOffset"]
                totals.in_flight += offsets["pullOffset"] - offsets["consumerOffset"]
                yield key, offsets

        for name in subscribed(self._parts.consumers, group, topics):
            row = self._parts.catalog.topics.get(name)
            if row is not None and (row.order or not only_order):
                rate = self._parts.stats.group_get_rate(group, name)
                yield Rows(iter({"consumeTps": rate, "offsetTable": Rows(queues(row))}.items()))

    async def time_span(self, connection: Connection, command: Command) -> Command:
        """Return first, last and consumed store time of each queue (303)."""
        topic, group = required(command, "topic"), required(command, "group")
        row = self._parts.catalog.topics.get(topic)
        if row is None:
            raise unknown_topic(topic, "topic[{topic}] not exist")
        store, now_ms = self._parts.store, self._world.clock.wall_ms()

        def span(queue_id: int) -> dict[str, Any]:
            first_ms = store.earliest_store_time(topic, queue_id)
            high = store.max_queue_offset(topic, queue_id)
            consumed = self._parts.offsets.query(group, topic, queue_id)
            waiting = max(consumed, store.min_queue_offset(topic, queue_id))
            consumed_ms = store.store_time_of(topic, queue_id, consumed - 1) if consumed > 0 else first_ms
            last_ms = store.store_time_of(topic, queue_id, high - 1) if high > 0 else -1
            return {
                "consumeTimeStamp": consumed_ms,
                "consumeTimeStampStr": time_text(consumed_ms),
                "delayTime": now_ms - store.store_time_of(topic, queue_id, waiting) if waiting < high else 0,
                "maxTimeStamp": last_ms,
                "maxTimeStampStr": time_text(last_ms),
                "messageQueue": queue_value(topic, self._identity.name, queue_id),
                "minTimeStamp": first_ms,
                "minTimeStampStr": time_text(first_ms),
            }

        async with Pace(self._world) as pace:
            spans = map(span, range(row.write_queue_nums))
            return await long_json_answer(command, {"consumeTimeSpanSet": spans}, pace)

    def groups_of_topic(self, connection: Connection, command: Command) -> Command:
        """List groups that consume or have consumed a topic (300)."""
        topic = required(command, "topic")
        groups = dict.fromkeys(self._parts.consumers.groups_of_topic(topic))
        groups |= dict.fromkeys(self._parts.offsets.groups_of(topic))
        return json_answer(command, {"groupList": list(groups)})

    def topics_of_group(self, connection: Connection, command: Command) -> Command:
        """List topics in which a group has offsets (343)."""
        topics = self._parts.offsets.topics_of(required(command, "group"))
        return json_answer(command, {"brokerAddr": self._identity.address, "topicList": topics})

    def subscription(self, connection: Connection, command: Command) -> Command:
        """Return what an online group wants of a topic (345)."""
        group, topic = required(command, "group"), required(command, "topic")
        body: dict[str, Any] = {"group": group}
        found = self._parts.consumers.find_subscription(group, topic)
        if found is not None:
            body["subscriptionData"] = found.to_json()
        body["topic"] = topic
        return json_answer(command, body)

    async def correction(self, connection: Connection, command: Command) -> Command:
        """Return per queue the smallest offset over all groups of a topic (308).

        Differs from the reference, which deletes the offsets of every group it is told to leave out.
        """
        topic, compare = required(command, "topic"), required(command, "compareGroup")
        left_out = set((optional(command, "filterGroups") or "").split(","))
        offsets, store = self._parts.offsets, self._parts.store
        smallest: dict[int, int] = {}
        async with Pace(self._world) as pace:
            for group in offsets.groups_of(topic):
                if group in left_out:
                    continue
                for queue_id, offset in offsets.queues(group, topic).items():
                    if offset >= store.min_queue_offset(topic, queue_id):
                        smallest[queue_id] = min(offset, smallest.get(queue_id, _NEVER))
                    await pace.breathe()
            for queue_id, offset in offsets.queues(compare, topic).items():
                if queue_id in smallest and smallest[queue_id] > offset:
                    smallest[queue_id] = _NEVER
            return await long_json_answer(command, {"correctionOffsets": smallest}, pace)

    def _offsets(
        self, group: str, row: TopicConfig, queue_id: int, *, with_pulls: bool
    ) -> tuple[ObjectKey, dict[str, int]]:
        offsets, store = self._parts.offsets, self._parts.store
        consumed = max(offsets.query(group, row.name, queue_id), 0)
        pulled = max(consumed, offsets.query_pull(group, row.name, queue_id)) if with_pulls else 0
        last_ms = store.store_time_of(row.name, queue_id, consumed - 1) if consumed > 0 else 0
        return queue_key(row.name, self._identity.name, queue_id), {
            "brokerOffset": max(store.max_queue_offset(row.name, queue_id), 0),
            "consumerOffset": consumed,
            "lastTimestamp": max(last_ms, 0),
            "pullOffset": pulled,
        }


def time_text(timestamp_ms: int) -> str:
    """Return a wall time of this machine's zone the way the reference words it (UtilAll.java)."""
    seconds, rest_ms = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{rest_ms:03}"


def subscribed(consumers: ConsumerTable[Connection], group: str, topics: Iterable[str]) -> list[str]:
    """Leave out topics an online group no longer subscribes to; an offline group keeps all.

    Args:
        consumers: the table.
        group: that consumes, or has consumed.
        topics: in which it has offsets.
    """
    info = consumers.get(group)
    if info is None or not info.subscriptions:
        return list(topics)
    return [topic for topic in topics if topic in info.subscriptions]
