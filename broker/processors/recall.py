"""Takes timer messages back (370): a message that waits for the same second and says which one shall not be delivered.

Source: RecallMessageProcessor.java.
"""

from __future__ import annotations

import attrs

from understudy.broker import delay
from understudy.broker.identity import host_bytes
from understudy.broker.inner import InnerMessage, append
from understudy.broker.node import Node
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.broker.timer import request
from understudy.broker.timer.recalls import was_handed_on
from understudy.broker.timer.rules import UNIQUE, delete_key
from understudy.broker.timer.timer import Timer
from understudy.broker.topics import TopicTable
from understudy.format import names
from understudy.format.properties import format_properties
from understudy.format.recall_handle import Handle, decode_handle
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.frame import encode
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected

TAG = "_RECALL_TAG_"
UNSET_REMARK = "not set any response code"
_BODY = b"0"


@attrs.frozen
class RecallParts:
    """What of a broker is needed to take timer messages back.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        topics: the table.
        timer: keeps what is taken back; its door lets the request in.
        stored: answers that wait for the disk or for copies.
    """

    node: Node
    store: MessageStore
    topics: TopicTable
    timer: Timer
    stored: StoredAnswers


class RecallProcessor:
    """The handler of one broker."""

    def __init__(self, parts: RecallParts) -> None:
        self._parts = parts
        self._identity = parts.node.identity
        self._options = parts.node.options

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        server.register(RequestCode.RECALL_MESSAGE, self.recall)

    def recall(self, connection: Connection, command: Command) -> Answer:
        """Store the request that takes one message back; answer with the key of that message.

        Whether the message was still there is not known before its second is over, as in the reference; but one that a
        slave handed on is not here any more, and its request would never meet it.
        """
        parts, stored, now_ms = self._parts, self._parts.stored, self._parts.node.world.clock.wall_ms()
        topic, handle = self._checked(command, now_ms)
        message = self._message(connection, optional(command, "producerGroup"), topic, handle, now_ms)
        try:
            appended = append(parts.store, message)
        except PutRejected as error:
            raise self._refused(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error.remark}") from None
        ext = {"msgId": handle.unique_key, "MSG_REGION": self._options.broker.region_id}
        answer = response(command, ResponseCode.SUCCESS, UNSET_REMARK, ext)
        copies = stored.replication.copies_needed() if self._identity.role.waits_for_copies else 1
        if command.flag & ONEWAY_BIT or (not (copies or 1) > 1 and not stored.flushes):
            return answer
        end = appended.physical_offset + appended.size_bytes
        stored.acknowledgements.add(end, connection, encode(answer), copies or 1)
        stored.replication.log_grew()
        return None

    def _checked(self, command: Command, now_ms: int) -> tuple[str, Handle]:
        parts, config = self._parts, self._options.broker
        unavailable = "recall failed, broker service not available"
        if not config.recall_message_enable:
            remark = "recall failed, operation is forbidden: set recallMessageEnable=true at this broker to allow it"
            raise self._refused(ResponseCode.NO_PERMISSION, remark)
        if self._identity.role.is_slave:
            remark = f"{unavailable}: this is a slave; send it to the master of {self._identity.name}"
            raise self._refused(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        if now_ms < config.start_accept_send_request_time_stamp or not (
            config.broker_permission & names.PERM_WRITE or config.allow_recall_when_broker_not_writeable
        ):
            remark = (
                f"{unavailable}: it takes no messages now; try again when it does, or set "
                "allowRecallWhenBrokerNotWriteable=true"
            )
            raise self._refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        topic = optional(command, "topic") or ""
        if topic not in parts.topics.rows:
            raise self._refused(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = decode_handle(optional(command, "recallHandle") or "", topic)
        except ValueError as error:
            raise self._refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.broker_name != self._identity.name:
            remark = f"{unavailable}: the handle is not of {self._identity.name}; send it to the broker that gave it"
            raise self._refused(ResponseCode.ILLEGAL_OPERATION, remark)
        if not 0 < handle.time_ms - now_ms < parts.timer.door.max_delay_seconds * 1000:
            remark = (
                "recall failed, timestamp invalid: only what is due later, and within timerMaxDelaySec, can be "
                "recalled; send the handle as it came, before its message is due"
            )
            raise self._refused(ResponseCode.ILLEGAL_OPERATION, remark)
        if was_handed_on(parts.store, parts.timer, topic, handle.unique_key):
            remark = "recall failed, the message was handed on to another broker while the master was away"
            raise self._refused(ResponseCode.ILLEGAL_OPERATION, remark)
        return topic, handle

    def _message(
        self, connection: Connection, group: str | None, topic: str, handle: Handle, now_ms: int
    ) -> InnerMessage:
        with_topic = self._options.store.append_topic_for_timer_delete_key
        pairs = {
            delay.TIMER_DELETE: delete_key(topic, handle.unique_key, with_topic=with_topic),
            UNIQUE: handle.unique_key,
            delay.TIMER_DELIVER: str(handle.time_ms),
            "BORN_TIMESTAMP": str(now_ms),
            "TAGS": TAG,
        }
        if group:
            pairs["PGROUP"] = group
        try:
            kept, queue_id = request.redirect(topic, 0, pairs, 0, now_ms, self._parts.timer.door)
        except request.TimerRefusedError as error:
            raise self._refused(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}") from None
        host = host_bytes(*connection.peer)
        try:
            properties = format_properties(pairs).encode()
        except UnicodeEncodeError:
            raise self._refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from None
        return InnerMessage(kept, queue_id, _BODY, properties, now_ms, host)

    def _refused(self, code: int, remark: str) -> CommandError:
        return CommandError(code, remark, {"MSG_REGION": self._options.broker.region_id})
