"""Find messages: by key, unique key or tag (12), by physical offset (33), entries of a consume queue (321)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin.answers import UNSET_REMARK, long_json_answer
from understudy.broker.clients import ConsumerTable
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.format.record_layout import layout
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, required, required_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

_SIZE_AND_PLACE = layout("size", "physical_offset")
ENTRY_LIMIT = 10_000
"""Most consume queue entries of one answer."""
_PAGE_BYTES = 4 << 20
_ENTRIES_IN_A_STEP = 256


@attrs.frozen
class MessageParts:
    """What of a broker is needed to find messages.

    Attributes:
        world: clock and threads.
        store: the messages.
        store_config: read at each request.
        consumers: the table.
    """

    world: World
    store: MessageStore
    store_config: MessageStoreConfig
    consumers: ConsumerTable[Connection]


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer message queries of *broker* on *server*."""
    handlers = MessageAdmin(
        MessageParts(
            world=broker.world, store=broker.store, store_config=broker.options.store, consumers=broker.consumers
        )
    )
    server.register_async(RequestCode.QUERY_MESSAGE, handlers.query)
    server.register(RequestCode.VIEW_MESSAGE_BY_ID, handlers.view)
    server.register_async(RequestCode.QUERY_CONSUME_QUEUE, handlers.queue_entries)


class MessageAdmin:
    """Handlers over one broker's store."""

    def __init__(self, parts: MessageParts) -> None:
        self._parts = parts

    async def query(self, connection: Connection, command: Command) -> Command:
        """Return the records that have a key (12)."""
        store, config = self._parts.store, self._parts.store_config
        topic, key = required(command, "topic"), required(command, "key")
        count = required_int(command, "maxNum")
        if optional(command, "_UNIQUE_KEY_QUERY") == "true":
            count = config.default_query_max_num
        begin_ms, end_ms = required_int(command, "beginTimestamp"), required_int(command, "endTimestamp")
        index_type = optional(command, "indexType")
        count = max(min(count, config.max_msgs_num_batch), 0)
        async with Pace(self._parts.world) as pace:
            found = await pace.run(store.query_in_steps(topic, key, count, begin_ms, end_ms, index_type))
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            nothing = {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark, nothing)
        ext = {
            "indexLastUpdatePhyoffset": str(found.index_last_update_physical_offset),
            "indexLastUpdateTimestamp": str(found.index_last_update_timestamp),
        }
        return response(command, ResponseCode.SUCCESS, None, ext, b"".join(found.records))

    def view(self, connection: Connection, command: Command) -> Command:
        """Return the record at a physical offset (33)."""
        offset = required_int(command, "offset")
        record = self._parts.store.read(offset) if offset >= 0 else None
        if record is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return response(command, body=bytes(record))

    async def queue_entries(self, connection: Connection, command: Command) -> Command:
        """Return entries of a consume queue with the filter of a group beside them (321)."""
        store = self._parts.store
        topic, queue_id = required(command, "topic"), required_int(command, "queueId")
        index, count = required_int(command, "index"), min(required_int(command, "count"), ENTRY_LIMIT)
        if not store.has_queue(topic, queue_id):
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        body: dict[str, Any] = {}
        group = optional(command, "consumerGroup")
        if group is not None:
            subscription = self._parts.consumers.find_subscription(group, topic)
            body["filterData"] = "null" if subscription is not None else f"{group}@{topic} is not online!"
            if subscription is not None:
                body["subscriptionData"] = subscription.to_json()
        if not low <= index < high:
            return response(command, 0, f"Index {index} of {queue_id}@{topic} is not exist!")
        async with Pace(self._parts.world) as pace:
            entries = await self._entries(topic, queue_id, index, count, pace)
            body |= {"maxQueueIndex": high, "minQueueIndex": low, "queueData": entries}
            return await long_json_answer(command, dict(sorted(body.items())), pace, remark=UNSET_REMARK)

    async def _entries(self, topic: str, queue_id: int, index: int, count: int, pace: Pace) -> list[dict[str, Any]]:
        """Read entries together with their records, so that what is answered was really found."""
        entries: list[dict[str, Any]] = []
        while len(entries) < count:
            codes: list[int] = []

            def take(code: int, codes: list[int] = codes) -> bool:
                codes.append(code)
                return True

            wanted = min(count - len(entries), _ENTRIES_IN_A_STEP)
            result = self._parts.store.get(topic, queue_id, index, wanted, _PAGE_BYTES, take)
            if result.status is not GetStatus.FOUND or not result.count:
                break
            for code, (physical, size) in zip(codes, _places(result.parts), strict=False):
                entries.append({"eval": False, "physicOffset": physical, "physicSize": size, "tagsCode": code})
            index = result.next_begin_offset
            await pace.breathe()
        return entries[:count]


def _places(parts: list[memoryview]) -> list[tuple[int, int]]:
    """Return physical offset and size of each record in *parts*."""
    ranges = []
    for part in parts:
        at = 0
        while at < len(part):
            size, physical = _SIZE_AND_PLACE.unpack_from(part, at)
            ranges.append((physical, size))
            at += size
    return ranges
