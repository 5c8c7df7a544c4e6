"""Offsets: of consumers (14, 15) and of queues (29 to 32).

Source: ConsumerManageProcessor.java, AdminBrokerProcessor.java.
"""

from __future__ import annotations

import attrs

from understudy.broker.catalog import Catalog
from understudy.broker.commit_bounds import commit_refusal
from understudy.broker.node import Node
from understudy.broker.presence import Presence
from understudy.broker.replicated.offsets import ReplicatedOffsets
from understudy.broker.told_offsets import SEEN_OFFSET, moves_on
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, optional_bool, optional_int, required, required_int
from understudy.store.message_store import MessageStore


@attrs.frozen
class OffsetParts:
    """What of a broker is needed for offsets.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        catalog: topics and groups.
        offsets: where groups are; a slave notes what its master must be told.
        presence: whether readers may be answered.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    offsets: ReplicatedOffsets
    presence: Presence


class OffsetProcessor:
    """Handlers of the offset codes of one broker, for ordinary queues."""

    def __init__(self, parts: OffsetParts) -> None:
        self._parts = parts
        self._config = parts.node.options.broker
        self._store = parts.store
        self._offsets = parts.offsets.table

    def query(self, connection: Connection, command: Command) -> Command:
        """Answer where a group goes on in a queue."""
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        queue_id = required_int(command, "queueId")
        if self._parts.presence.unreadable:
            # Differs because the reference answers what it knew when it went away; clients ask again.
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, "this broker was away and is not online again: ask once more in a moment", {}
            )
        if self._offsets.doubts.active:
            self._offsets.doubts.asked(f"{topic}@{group}", queue_id)
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return response(command, ext={"offset": str(offset)})
        if optional_bool(command, "setZeroIfNotFound") is False:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first", {}
            )
        # A group that is new on a young queue begins at its first message, whatever it is configured to do.
        if self._store.min_queue_offset(topic, queue_id) <= 0 < self._store.max_queue_offset(topic, queue_id):
            return response(command, ext={"offset": "0"})
        raise CommandError(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {}
        )

    def update(self, connection: Connection, command: Command) -> Command:
        """Commit a group's offset in a queue."""
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        if self._parts.catalog.groups.find(group) is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!", {})
        if self._parts.catalog.topics.get(topic) is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!", {})
        if optional(command, "queueId") is None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}", {})
        offset = optional_int(command, "commitOffset")
        if offset is None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}", {})
        queue_id = required_int(command, "queueId")
        end = self._store.max_queue_offset(topic, queue_id)
        refusal = commit_refusal(offset, end, is_slave=self._parts.node.identity.role.is_slave)
        if refusal is not None:
            which = f"queue {queue_id} of topic {topic}, group {group}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"{refusal}: {which}", {})
        looked_at = optional_int(command, SEEN_OFFSET)
        if looked_at is not None and not moves_on(
            offset, looked_at, self._offsets.queues(group, topic).get(queue_id, -1)
        ):
            return response(command, ext={})  # a slave passed it on, and the group has moved here since it looked
        if self._config.use_server_side_reset_offset:
            committed = self._offsets.commit_unless_reset(group, topic, queue_id, offset)
        else:
            self._offsets.commit(group, topic, queue_id, offset)
            committed = True
        if committed:
            self._parts.offsets.note_commit(group, topic, queue_id, offset)
        return response(command, ext={})

    def search(self, connection: Connection, command: Command) -> Command:
        """Answer the queue offset that belongs to a store time."""
        topic, queue_id = self._queue(command)
        timestamp_ms = required_int(command, "timestamp")
        boundary = "upper" if (optional(command, "boundaryType") or "").lower() == "upper" else "lower"
        offset = self._store.offset_by_time(topic, queue_id, timestamp_ms, boundary)
        return response(command, ext={"offset": str(offset)})

    def maximum(self, connection: Connection, command: Command) -> Command:
        """Answer the queue offset of the next message."""
        topic, queue_id = self._queue(command)
        return response(command, ext={"offset": str(self._store.max_queue_offset(topic, queue_id))})

    def minimum(self, connection: Connection, command: Command) -> Command:
        """Answer the queue offset of the first message."""
        topic, queue_id = self._queue(command)
        return response(command, remark="", ext={"offset": str(self._store.min_queue_offset(topic, queue_id))})

    def earliest(self, connection: Connection, command: Command) -> Command:
        """Answer the store time of the first message."""
        topic, queue_id = self._queue(command)
        return response(command, ext={"timestamp": str(self._store.earliest_store_time(topic, queue_id))})

    def _queue(self, command: Command) -> tuple[str, int]:
        return required(command, "topic"), required_int(command, "queueId")
