"""Questions the broker hands on to a connected consumer: running info, direct consumption, offsets (307, 309, 223).

Source: AdminBrokerProcessor.java, Broker2Client.java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from understudy.broker.admin.answers import UNSET_REMARK, json_answer
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ClientChannel, ConsumerTable
from understudy.broker.node import Node
from understudy.broker.processors.send_back_copies import topics_of
from understudy.format import json_dialect
from understudy.format.json_dialect import ObjectKey
from understudy.format.record import RecordError, decode_offset_message_id, decode_record
from understudy.remoting.bodies import json_value
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import InvokeTimeoutError, RemotingError
from understudy.remoting.fields import CommandError, optional, required
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker
    from understudy.security.gate import Gate

log = get_logger("broker.relay")

RELAY_VERSION = 62  # V3_1_8_SNAPSHOT: clients that answer such questions
STATUS_VERSION = 28  # V3_0_7_SNAPSHOT
RELAY_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


@attrs.frozen
class RelayParts:
    """What of a broker is needed to pass questions on to its clients.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        catalog: topics and groups.
        consumers: the table.
        gate: who may read what; ``None``: everybody everything.
    """

    node: Node
    store: MessageStore
    catalog: Catalog
    consumers: ConsumerTable[Connection]
    gate: Gate | None


def register(broker: Broker, server: RemotingServer) -> None:
    """Hand questions to the consumers of *broker* that come in on *server*."""
    handlers = RelayAdmin(
        RelayParts(
            node=broker.node,
            store=broker.store,
            catalog=broker.catalog,
            consumers=broker.consumers,
            gate=broker.gate,
        )
    )
    server.register_async(RequestCode.GET_CONSUMER_RUNNING_INFO, handlers.running_info, kind="relay")
    server.register_async(RequestCode.CONSUME_MESSAGE_DIRECTLY, handlers.consume, kind="relay")
    server.register_async(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, handlers.status, kind="relay")


class RelayAdmin:
    """Handlers over one broker's online consumers."""

    def __init__(self, parts: RelayParts) -> None:
        self._parts = parts

    async def running_info(self, connection: Connection, command: Command) -> Command:
        """Ask a consumer what it does (307)."""
        return await self._call(command, dict(command.ext or {}), command.body)

    async def consume(self, connection: Connection, command: Command) -> Command:
        """Have a consumer process one stored message now (309)."""
        group, ext = required(command, "consumerGroup"), dict(command.ext or {})
        ext["brokerName"] = self._parts.node.identity.name
        topic = self._parts.catalog.topics.get(optional(command, "topic") or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.sys_flag)
        row = self._parts.catalog.groups.get(group)
        if row is not None:
            ext["groupSysFlag"] = str(row.sys_flag)
        message_id = optional(command, "msgId")
        record = None
        if message_id:
            record = self._parts.store.read(physical_offset_of(message_id))
            if record is None:
                remark = f"message {message_id} is not in this broker's log, it may have been deleted"
                raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
            self._check_reading(connection, command, record)
        return await self._call(command, ext, command.body if record is None else bytes(record))

    def _check_reading(self, connection: Connection, command: Command, record: bytes | memoryview) -> None:
        """Refuse to show a group a message that who asks may not read (differs: the reference looks at the group)."""
        if self._parts.gate is None:
            return
        try:
            topics = topics_of(decode_record(record), required(command, "consumerGroup"))
        except RecordError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"no message stands there: {error}") from None
        self._parts.gate.check_reading(command, topics, connection.source)

    async def status(self, connection: Connection, command: Command) -> Command:
        """Ask the members of a group for their offsets (223)."""
        topic, group = required(command, "topic"), required(command, "group")
        wanted = (optional(command, "clientAddr") or "").strip()
        info = self._parts.consumers.get(group)
        if info is None:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        channels = [each for each in info.channels.values() if not wanted or each.client_id == wanted]
        for channel in channels:
            if channel.version < STATUS_VERSION:
                remark = f"the client does not support this feature. version={channel.version}"
                raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        table: dict[str, dict[ObjectKey, Any]] = {}
        async with trio.open_nursery() as nursery:
            for channel in channels:
                nursery.start_soon(self._ask_offsets, channel, topic, group, table)
        body = {"consumerTable": dict(sorted(table.items())), "messageQueueTable": {}}
        return json_answer(command, body, remark=UNSET_REMARK)

    async def _call(self, command: Command, ext: dict[str, str], body: bytes) -> Command:
        group, client_id = required(command, "consumerGroup"), optional(command, "clientId") or ""
        info = self._parts.consumers.get(group)
        channel = info.channel_of(client_id) if info is not None else None
        if channel is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        if channel.version < RELAY_VERSION:
            remark = f"The Consumer <{client_id}> Version <{channel.version}> too low to finish"
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{remark}, please upgrade it to V3_1_8_SNAPSHOT")
        try:
            answer = await channel.connection.invoke(request(command.code, ext, body), RELAY_TIMEOUT_MS)
        except InvokeTimeoutError as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise CommandError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except RemotingError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from None
        return response(command, answer.code, answer.remark, answer.ext, answer.body)

    async def _ask_offsets(
        self, channel: ClientChannel[Connection], topic: str, group: str, table: dict[str, dict[ObjectKey, Any]]
    ) -> None:
        question = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group})
        try:
            answer = await channel.connection.invoke(question, STATUS_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("consumer did not tell its offsets", group=group, client=channel.client_id, error=error)
            return
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return
        try:
            value = await json_value(self._parts.node.world.threads, answer.body)
            queues = value.get("messageQueueTable") or {}
            table[channel.client_id] = {ObjectKey(json_dialect.loads(key)): queues[key] for key in queues}
        except (json_dialect.JsonError, AttributeError, TypeError) as error:
            log.warning("offsets of a consumer are unreadable", group=group, client=channel.client_id, error=error)


def physical_offset_of(message_id: str) -> int:
    """Return the physical offset that a message id names.

    Args:
        message_id: host, port and physical offset in hexadecimal: 32 digits, 56 with an IPv6 host.

    Raises:
        CommandError (1): it is no such id (for example a unique key, which the index must be asked for).
    """
    try:
        return decode_offset_message_id(message_id)[2]
    except ValueError:
        remark = f"msgId {message_id[:64]!r} is not an offset message id of 32 or 56 hexadecimal digits"
        raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from None
