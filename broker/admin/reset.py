"""Reset a group's offsets: by the broker at the next pull, or through the online clients (222, 220).

Source: AdminBrokerProcessor.java, Broker2Client.java.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import UNSET_REMARK, long_json_answer, queue_key, queue_value
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ConsumerTable
from understudy.broker.node import Node
from understudy.broker.offsets import OffsetTable
from understudy.broker.persistence import Persistence
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import Rows
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional_bool, optional_int, required, required_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

PUSH_VERSION = 28  # V3_0_7_SNAPSHOT: clients that understand a pushed reset


@attrs.frozen
class ResetParts:
    """What of a broker is needed to reset offsets.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        catalog: topics and groups.
        offsets, consumers: the tables.
        persistence: saves the tables.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    offsets: OffsetTable
    consumers: ConsumerTable[Connection]
    persistence: Persistence


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer offset resets of *broker* on *server*."""
    server.register_async(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetAdmin(
            ResetParts(
                node=broker.node,
                store=broker.store,
                catalog=broker.catalog,
                offsets=broker.offsets,
                consumers=broker.consumers,
                persistence=broker.persistence,
            )
        ).reset,
    )


class ResetAdmin:
    """Handler over one broker's offsets."""

    def __init__(self, parts: ResetParts) -> None:
        self._parts = parts
        self._identity = parts.node.identity
        self._world = parts.node.world

    async def reset(self, connection: Connection, command: Command) -> Command:
        """Move a group in all queues of a topic, or in one (222)."""
        topic, group = required(command, "topic"), required(command, "group")
        timestamp_ms = required_int(command, "timestamp")
        if self._parts.node.options.broker.use_server_side_reset_offset:
            async with Pace(self._world) as pace:
                targets = await pace.run(self._targets(command, topic, group, timestamp_ms))
                for queue_id, offset in targets.items():
                    self._parts.offsets.assign_reset(group, topic, queue_id, offset)
                    await pace.breathe()
            await self._parts.persistence.save("offsets")
            async with Pace(self._world) as pace:
                return await long_json_answer(command, self._body(topic, targets), pace)
        async with Pace(self._world) as pace:
            targets = await self._push(command, topic, group, timestamp_ms, pace)
            return await long_json_answer(command, self._body(topic, targets), pace, remark=UNSET_REMARK)

    def _targets(
        self, command: Command, topic: str, group: str, timestamp_ms: int
    ) -> Generator[None, None, dict[int, int]]:
        if self._identity.role.is_slave:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        row = self._row(topic, f"Topic {topic} does not exist")
        if self._parts.catalog.groups.find(group) is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queue_id, offset = optional_int(command, "queueId"), optional_int(command, "offset")
        if queue_id is None or queue_id < 0:
            targets = {}
            for each in range(row.read_queue_nums):
                targets[each] = self._offset_at(topic, each, timestamp_ms)
                yield
            if not targets:
                raise CommandError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
            return targets
        if queue_id >= row.queue_limit:
            remark = f"queueId {queue_id} of topic {topic} does not exist, it has {row.queue_limit} queues"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        if offset is None or offset == -1:
            return {queue_id: self._offset_at(topic, queue_id, timestamp_ms)}
        store = self._parts.store
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        if not low <= offset <= high + 1:
            remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        return {queue_id: offset}

    async def _push(self, command: Command, topic: str, group: str, timestamp_ms: int, pace: Pace) -> dict[int, int]:
        """Tell the online members of the group to move (220)."""
        row = self._row(topic, f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}")
        force = optional_bool(command, "isForce") or False
        targets = {}
        for queue_id in range(row.write_queue_nums):
            consumed = self._parts.offsets.query(group, topic, queue_id)
            if consumed == -1:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            target = max(self._offset_at(topic, queue_id, timestamp_ms), 0)
            targets[queue_id] = target if force or target < consumed else consumed
            await pace.breathe()
        info = self._parts.consumers.get(group)
        if info is None:
            remark = f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, f"{remark} Timestamp: {timestamp_ms}")
        for channel in info.channels.values():
            if channel.version < PUSH_VERSION:
                remark = f"the client does not support this feature. version={channel.version}"
                raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        if command.language == "CPP":
            queues = (queue_value(topic, self._identity.name, each) | {"offset": targets[each]} for each in targets)
            value: object = {"offsetTable": (dict(sorted(queue.items())) for queue in queues)}
        else:
            value = self._body(topic, targets)
        body = (await long_json_answer(command, value, pace)).body
        ext = {"topic": topic, "group": group, "queueId": "-1", "timestamp": str(timestamp_ms), "isForce": "false"}
        for channel in list(info.channels.values()):
            channel.connection.notify(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), body))
            await pace.breathe()
        return targets

    def _row(self, topic: str, remark: str) -> TopicConfig:
        row = self._parts.catalog.topics.get(topic)
        if row is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return row

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        store = self._parts.store
        if timestamp_ms < 0:
            return store.max_queue_offset(topic, queue_id)
        return store.offset_by_time(topic, queue_id, timestamp_ms)

    def _body(self, topic: str, targets: dict[int, int]) -> dict[str, object]:
        name = self._identity.name
        table = ((queue_key(topic, name, queue_id), offset) for queue_id, offset in targets.items())
        return {"offsetTable": Rows(table)}
