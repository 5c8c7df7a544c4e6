"""Questions about queues that are popped: is there something (200054), what (200052), how many wait (200055).

Source: NotificationProcessor.java, PeekMessageProcessor.java, PollingInfoProcessor.java.
"""

from __future__ import annotations

import attrs

from understudy.broker.node import Node
from understudy.broker.pop.choice import DICE, Queue, queues_of, queues_to_read
from understudy.broker.pop.revive_log import MOST_MESSAGES
from understudy.broker.pop.state import PopState
from understudy.broker.pop.taking import MOST_BYTES
from understudy.broker.pop.waiting import EARLY_MS, PopHold, WaitingPop, wait_ends_at
from understudy.broker.processors.pop import KIND, NOTHING
from understudy.broker.processors.pop_admission import PopAdmission
from understudy.broker.processors.send_admission import FAQ
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, held_bytes, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, failure
from understudy.remoting.fields import CommandError, optional, optional_bool, required, required_int
from understudy.remoting.frame import Buffer, encode, reply_head
from understudy.remoting.server import RemotingServer
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

NOTIFICATION = "notification"
"""The kind of waiters that are only told that there is something."""


@attrs.frozen
class QuestionParts:
    """What of a broker is needed to answer questions about pops.

    Attributes:
        node: who it is, its settings and its world.
        admission: who may pop what.
        store: the messages.
        state: what went out.
        hold: those who wait for an answer.
    """

    node: Node
    admission: PopAdmission
    store: MessageStore
    state: PopState
    hold: PopHold


class PopQuestions:
    """Handlers of the codes that change nothing."""

    def __init__(self, parts: QuestionParts) -> None:
        self._parts = parts
        self._world = parts.node.world
        self._topics = parts.admission.catalog.topics

    def register(self, server: RemotingServer) -> None:
        """Answer the codes at *server*."""
        server.register(RequestCode.NOTIFICATION, self.notification)
        server.register(RequestCode.PEEK_MESSAGE, self.peek)
        server.register(RequestCode.POLLING_INFO, self.polling)
        server.register(RequestCode.POP_ROLLBACK, self.roll_back)

    def roll_back(self, connection: Connection, command: Command) -> Command:
        """Accept what only the service over RocksDB does (200056): there is nothing to give back."""
        return response(command)

    def polling(self, connection: Connection, command: Command) -> Command:
        """Tell how many pops wait for a queue."""
        group, topic, queue_id = self._group_queue(command, {})
        return response(command, ext={"pollingNum": str(self._parts.hold.count(topic, group, queue_id, KIND))})

    def _group_queue(self, command: Command, ext: dict[str, str]) -> tuple[str, str, int]:
        """Return group, topic and queue id, all of which exist. Raises :class:`CommandError`."""
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        queue_id = required_int(command, "queueId")
        row = self._topics.get(topic)
        if row is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}", ext
            )
        if not row.perm & names.PERM_READ:
            raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden", ext)
        if queue_id >= row.read_queue_nums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{row.read_queue_nums}]",
                ext,
            )
        self._parts.admission.check_reader(group, row, ext)
        return group, topic, max(queue_id, -1)

    def _queues(self, group: str, topic: str, queue_id: int, *, in_order: bool, retry_percent: int) -> list[Queue]:
        draw, retry = self._world.random.randrange(DICE), list[Queue]()
        for form in () if in_order else (False, True):
            row = self._topics.rows.get(names.pop_retry_topic(group, topic, second_form=form))
            if row is not None:
                retry += queues_of(row.name, row.read_queue_nums, draw)
        known = self._topics.get(topic)
        queues = known.read_queue_nums if known is not None else 0
        return queues_to_read(topic, queue_id, queues, retry, draw, retry_percent=retry_percent, in_order=in_order)

    # --- notification --------------------------------------------------------------------------------------------

    def notification(self, connection: Connection, command: Command) -> Answer:
        """Tell whether a pop would find something; wait for it when the client wants that."""
        return self._notification(connection, command, None)

    def _notification(self, connection: Connection, command: Command, waited: WaitingPop | None) -> Command | None:
        parts, clock = self._parts, self._world.clock
        group, topic, queue_id = self._group_queue(command, _has(False))
        ends_at = wait_ends_at(command, clock) if waited is None else waited.ends_at
        in_order = bool(optional_bool(command, "order"))
        attempt_id = optional(command, "attemptId")
        for queue in self._queues(group, topic, queue_id, in_order=in_order, retry_percent=DICE):
            if in_order and parts.state.orders.blocks(queue.topic, group, queue.queue_id, attempt_id):
                continue
            if self._holds_more(group, queue):
                return response(command, ext=_has(True))
        wait_ms = round((ends_at - clock.monotonic()) * 1000) - EARLY_MS
        if wait_ms <= 0:
            return response(command, ext=_has(False))
        size = held_bytes(command)
        waiting = WaitingPop(connection, command, None, topic, group, queue_id, NOTIFICATION, ends_at, size)
        if parts.hold.full(waiting):
            return response(command, ext=_has(False, full=True))
        parts.hold.wait(waiting, wait_ms)
        return None

    def _holds_more(self, group: str, queue: Queue) -> bool:
        store = self._parts.store
        return self._position(group, queue) < store.max_queue_offset(queue.topic, queue.queue_id)

    def _position(self, group: str, queue: Queue) -> int:
        offset = self._parts.state.moving.position(group, queue.topic, queue.queue_id)
        return offset if offset >= 0 else self._parts.store.min_queue_offset(queue.topic, queue.queue_id)

    def again(self, waiting: WaitingPop) -> None:
        """Answer a question that waited."""
        connection, command = waiting.connection, waiting.command
        try:
            answer = self._notification(connection, command, waiting)
        except Exception as error:
            answer = failure(connection, command, error)
        if answer is not None:
            connection.write(encode(answer))

    # --- peek ----------------------------------------------------------------------------------------------------

    def peek(self, connection: Connection, command: Command) -> Answer:
        """Return what a pop would find, and leave it there."""
        parts = self._parts
        group, topic, queue_id = self._group_queue(command, NOTHING)
        most = required_int(command, "maxMsgNums")
        if not 1 <= most <= MOST_MESSAGES:
            remark = f"maxMsgNums must be 1 to {MOST_MESSAGES}, not {most}"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark, NOTHING)
        percent = parts.node.options.broker.pop_from_retry_probability
        body, rest, count, size = list[Buffer](), 0, 0, 0
        for queue in self._queues(group, topic, queue_id, in_order=False, retry_percent=percent):
            offset = self._position(group, queue)
            rest += max(parts.store.max_queue_offset(queue.topic, queue.queue_id) - offset, 0)
            if count == most:
                continue
            found = parts.store.get(queue.topic, queue.queue_id, offset, most - count, MOST_BYTES)
            body += found.parts
            count += found.count
            size += found.size_bytes
        if not count:
            raise CommandError(ResponseCode.PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE.value, NOTHING)
        ext = f'"invisibleTime":"0","restNum":"{rest}","popTime":"0","reviveQid":"0"'.encode()
        return [reply_head(command.opaque or 0, ResponseCode.SUCCESS, ext, size, b"FOUND"), *body]


def _has(message: bool, *, full: bool = False) -> dict[str, str]:
    return {"hasMsg": str(message).lower(), "pollingFull": str(full).lower()}
