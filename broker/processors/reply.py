"""Replies to requests (324, 325): pushed to the requester (326), and stored.

Source: ReplyMessageProcessor.java, Broker2Client.java.
"""

from __future__ import annotations

import attrs

from understudy.broker.clients import ProducerTable
from understudy.broker.identity import host_bytes
from understudy.broker.node import Node
from understudy.broker.processors import send_header
from understudy.broker.processors.send_admission import FAQ
from understudy.broker.topics import TopicTable
from understudy.format import names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import offset_message_id
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected

PUSH_TIMEOUT_MS = 10_000
LANE = "reply"


@attrs.frozen
class ReplyParts:
    """What of a broker is needed to pass replies on.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        topics, producers: the tables.
    """

    node: Node
    store: MessageStore
    topics: TopicTable
    producers: ProducerTable[Connection]


class ReplyProcessor:
    """Handlers of the reply codes of one broker."""

    def __init__(self, parts: ReplyParts) -> None:
        self._parts = parts
        node = parts.node
        self._config = node.options.broker
        self._identity = node.identity
        self._world = node.world
        self._store = parts.store
        self._store_host = host_bytes(node.identity.ip, node.identity.port)

    def register(self, server: RemotingServer) -> None:
        """Answer the reply codes at *server*."""
        server.register_async(RequestCode.SEND_REPLY_MESSAGE_V2, self.reply, LANE)
        server.register_async(RequestCode.SEND_REPLY_MESSAGE, self.reply_long, LANE)

    async def reply_long(self, connection: Connection, command: Command) -> Answer:
        """Answer code 324, whose header spells its fields out."""
        command.ext = send_header.to_letters(command.ext)
        return await self.reply(connection, command)

    async def reply(self, connection: Connection, command: Command) -> Answer:
        """Push a reply to whoever asked, store it, and say how the push went."""
        ext = command.ext or {}
        try:
            topic, queue_id, sys_flag = ext["b"], int(ext["e"]), int(ext["f"])
            born_ms, flag = int(ext["g"]), int(ext["h"])
            int(ext["d"])
            reconsume_times = int(ext.get("j") or 0)
        except (KeyError, TypeError, ValueError):
            raise send_header.explain(command.ext) from None
        send_header.check_numbers(ext)
        if not command.body:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the message has no body; send at least one byte")
        trace = "true" if self._config.trace_on else "false"
        answer = {"TRACE_ON": trace, "MSG_REGION": self._config.region_id}
        queue_id = self._check(connection, ext, topic, queue_id, answer)
        now_ms = self._world.clock.wall_ms()
        pairs = parse_properties(ext.get("i") or "")
        pairs.pop("POP_CK", None)
        pairs |= {"MSG_REGION": self._config.region_id, "TRACE_ON": trace, "PUSH_REPLY_TIME": str(now_ms)}
        properties = format_properties(pairs)
        failure = await self._push(connection, command, ext, pairs, properties, queue_id, now_ms)
        if not failure:
            answer |= {"queueId": str(queue_id), "msgId": "0", "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            try:
                put = self._store.append(
                    topic,
                    queue_id,
                    command.body,
                    properties.encode(),
                    born_ms,
                    host_bytes(*connection.peer),
                    flag=flag,
                    sys_flag=sys_flag,
                    reconsume_times=reconsume_times,
                )
            except PutRejected as error:
                return response(
                    command, ResponseCode.SYSTEM_ERROR, failure or f"{error.status.value}: {error.remark}", answer
                )
            answer["queueId"] = str(queue_id)
            answer["msgId"] = offset_message_id(self._store_host, put.physical_offset)
            answer["queueOffset"] = str(put.queue_offset)
        return response(command, ResponseCode.SYSTEM_ERROR if failure else 0, failure or None, answer)

    def _check(
        self, connection: Connection, ext: dict[str, str], topic: str, queue_id: int, answer: dict[str, str]
    ) -> int:
        """Check topic and queue as for any send; return the queue."""
        wrong = names.topic_name_error(topic)
        if wrong is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, wrong, answer)
        if topic in names.CLOSED_TOPICS:
            raise CommandError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.", answer)
        row = self._parts.topics.get(topic)
        if row is None:
            row = self._parts.topics.create_on_send(
                topic, ext.get("c") or "", int(ext["d"]), ext.get("k") == "true", self._config.auto_create_topic_enable
            )
        if row is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}", answer
            )
        if queue_id >= row.queue_limit or row.write_queue_nums <= 0:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {row.describe()} Producer: {connection.address}",
                answer,
            )
        return queue_id if queue_id >= 0 else self._world.random.randrange(row.write_queue_nums)

    async def _push(
        self,
        connection: Connection,
        command: Command,
        ext: dict[str, str],
        pairs: dict[str, str],
        properties: str,
        queue_id: int,
        now_ms: int,
    ) -> str:
        """Send the reply to the requester; return what went wrong, or an empty text."""
        client_id = pairs.get("REPLY_TO_CLIENT")
        if not client_id:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        requester = self._parts.producers.find_client(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        header = {
            "bornHost": connection.address,
            "storeHost": self._identity.address,
            "storeTimestamp": str(now_ms),
            "producerGroup": ext.get("a") or "",
            "topic": ext["b"],
            "defaultTopic": ext.get("c") or "",
            "defaultTopicQueueNums": ext["d"],
            "queueId": str(queue_id),
            "sysFlag": ext["f"],
            "bornTimestamp": ext["g"],
            "flag": ext["h"],
            "properties": properties,
            "reconsumeTimes": ext.get("j") or "0",
            "unitMode": ext.get("k") or "false",
        }
        push = request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, command.body)
        try:
            pushed = await requester.invoke(push, PUSH_TIMEOUT_MS)
        except RemotingError as error:
            return f"push reply message to {client_id} fail: {error}"
        if pushed.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} failed with code {pushed.code}: {pushed.remark or ''}"
        return ""
