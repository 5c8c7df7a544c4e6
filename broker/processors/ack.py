"""Acknowledgements of popped messages, one (200051) or many (200151).

Source: AckMessageProcessor.java, BatchAck.java.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import attrs

from understudy.broker.node import Node
from understudy.broker.pop.order import UNKNOWN
from understudy.broker.pop.revive_log import MOST_MESSAGES, Ack, offsets_of_bits
from understudy.broker.pop.state import PopState
from understudy.broker.pop.waiting import ANY_QUEUE, PopHold
from understudy.broker.processors.gathered_acks import GatheredAcks
from understudy.broker.processors.pop import KIND
from understudy.broker.processors.pop_admission import PopAdmission
from understudy.broker.processors.stored_answer import StoredAnswers
from understudy.format import json_dialect
from understudy.format.json_values import list_of, name_of
from understudy.format.numbers import whole_number
from understudy.format.receipts import (
    LONGEST_MS,
    NORMAL,
    ORDER_QUEUE,
    RETRY_V1,
    RETRY_V2,
    Receipt,
    ReceiptError,
    read_receipt,
    topic_of,
)
from understudy.remoting.bodies import json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.fields import CommandError, required, required_int
from understudy.remoting.limits import LaneLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace, run_steps
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected

MOST_ACKS = 1024
"""Entries of one batch; each is a message in the log."""
SMALL_BATCH_BYTES = 4 * 1024
"""A batch up to here, some twenty entries, is taken at once; a larger one in pieces."""
LARGE_BATCHES = "large batches of acknowledgements"
LARGE_BATCH_LANE = LaneLimits(running=4, waiting=256)
MOST_BITS_BYTES = 64 << 10


@attrs.frozen
class AckParts:
    """What of a broker is needed for acknowledgements and changes of invisible times.

    Attributes:
        node: who it is, its settings and its world.
        admission: who may acknowledge what.
        store: which offsets exist.
        state: where it is noted what came back.
        hold: pops that wait.
        stored: answers that wait for the disk or for copies.
    """

    node: Node
    admission: PopAdmission
    store: MessageStore
    state: PopState
    hold: PopHold
    stored: StoredAnswers

    def check_receipt(self, receipt: Receipt, queue_id: int, offset: int) -> None:
        """Refuse a handle of another message. Raises :class:`CommandError`."""
        known = receipt.revive_queue == ORDER_QUEUE or receipt.revive_queue < self.state.log.queues
        in_time = receipt.invisible_ms <= self.node.options.store.timer_max_delay_sec * 1000
        if receipt.queue_id != queue_id or receipt.start_offset > offset or not known or not in_time:
            remark = "the receipt handle is not of this message: send the one that came with it"
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"{remark}, queue {queue_id}, offset {offset}")

    def write(self, ack: Ack, revive_queue: int, revive_ms: int) -> int:
        """Take *ack*; return the byte of the log behind it, 0 when it needs not be written.

        Differs: the reference answers success also when nothing was stored.

        Raises:
            CommandError (1): it cannot be stored.
        """
        try:
            return self.state.moving.acked(ack, revive_queue, revive_ms)
        except PutRejected as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{error.status.value}: {error.remark}") from None

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """Wake who waits for a queue that may be open again."""
        if not self.hold.wake(topic, group, ANY_QUEUE, KIND):
            self.hold.wake(topic, group, queue_id, KIND)


def receipt_of(text: str) -> Receipt:
    """Return a request's receipt handle. Raises :class:`CommandError`."""
    try:
        return read_receipt(text)
    except ReceiptError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None


class AckProcessor:
    """Handlers of the acknowledgement codes of one broker.

    Attributes:
        gathered: what came in the receive that is being handed on; to be settled at its end.
    """

    def __init__(self, parts: AckParts) -> None:
        self._parts = parts
        self._admission, self._store, self._stored = parts.admission, parts.store, parts.stored
        self._offsets, self._orders = parts.state.offsets, parts.state.orders
        self.gathered = GatheredAcks(parts.write, parts.stored)
        self._large_batches: Lane | None = None  # until the codes are registered

    def register(self, server: RemotingServer) -> None:
        """Answer the codes at *server*."""
        self._large_batches = server.lane(LARGE_BATCHES, LARGE_BATCH_LANE)
        server.register(RequestCode.ACK_MESSAGE, self.ack)
        server.register(RequestCode.BATCH_ACK_MESSAGE, self.ack_batch)

    def ack(self, connection: Connection, command: Command) -> Answer:
        """Take one acknowledgement; see :class:`GatheredAcks`."""
        parts = self._parts
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        queue_id, offset = required_int(command, "queueId"), required_int(command, "offset")
        text = required(command, "extraInfo")
        if not self.gathered.knows(connection, topic, queue_id):
            self._admission.check_queue(connection, topic, queue_id)
        low, high = self._store.min_queue_offset(topic, queue_id), self._store.max_queue_offset(topic, queue_id)
        if not low <= offset <= high:
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise CommandError(ResponseCode.NO_MESSAGE, remark)
        receipt = receipt_of(text)
        parts.check_receipt(receipt, queue_id, offset)
        if receipt.revive_queue == ORDER_QUEUE:
            self._ack_in_order(connection, group, topic, queue_id, offset, receipt.pop_ms)
            return response(command)
        key = (topic, group, queue_id, receipt.start_offset, receipt.pop_ms, receipt.broker_name)
        if connection.receiving:
            self.gathered.add(connection, command, (key, receipt.revive_queue, receipt.revive_ms), offset)
            return None
        copies = self._stored.copies()
        end = parts.write(Ack(key, (offset,)), receipt.revive_queue, receipt.revive_ms)
        return self._stored.answer(connection, command, response(command), end, copies)

    def _ack_in_order(
        self, connection: Connection, group: str, topic: str, queue_id: int, offset: int, pop_ms: int
    ) -> None:
        """Acknowledge a message that was popped in order. Raises :class:`CommandError`."""
        parts = self._parts
        before = self._offsets.query(group, topic, queue_id)
        if offset < before:
            return
        following = self._orders.ack(topic, group, queue_id, offset, pop_ms, before)
        if following == UNKNOWN:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, next:{following}, "
                f"/{connection.address}: only the newest pop of a queue in order can be acknowledged; send the handle "
                "that came with it, before its time is over",
            )
        counts = following >= 0 and self._offsets.commit_unless_reset(group, topic, queue_id, following)
        if counts and not self._orders.blocks(topic, group, queue_id, None):
            parts.notify(topic, group, queue_id)

    # --- many ----------------------------------------------------------------------------------------------------

    def ack_batch(self, connection: Connection, command: Command) -> Answer:
        """Take the acknowledgements of several pops; offsets that a queue does not hold are left out."""
        if self._large_batches is not None and len(command.body) > SMALL_BATCH_BYTES:
            return self._large_batches.submit(connection, command, self._in_pieces)
        return run_steps(self._batch(connection, command))

    async def _in_pieces(self, connection: Connection, command: Command) -> Answer:
        async with Pace(self._parts.node.world) as pace:
            return await pace.run(self._batch(connection, command))

    def _batch(self, connection: Connection, command: Command) -> Generator[None, None, Answer]:
        """Take a batch in short steps; when one is refused, those before it count, and may come again."""
        parts = self._parts
        entries, broker_name = _entries(command, parts.node.identity.name)
        batches: list[_Batch] = []
        for each in entries:
            batches.append(_Batch.read(each))
            yield
        for batch in batches:
            self._admission.check_queue(connection, batch.topic, batch.queue_id)
            if batch.revive_queue != ORDER_QUEUE and batch.revive_queue >= parts.state.log.queues:
                remark = f"revive queue {batch.revive_queue} does not exist, there are {parts.state.log.queues}"
                raise CommandError(
                    ResponseCode.MESSAGE_ILLEGAL, f"{remark}: send the numbers that came with the messages"
                )
        copies, end = self._stored.copies(), 0
        for batch in batches:
            low = self._store.min_queue_offset(batch.topic, batch.queue_id)
            high = self._store.max_queue_offset(batch.topic, batch.queue_id)
            offsets = tuple(offset for offset in batch.offsets if low <= offset <= high)
            if batch.revive_queue == ORDER_QUEUE:
                for offset in offsets:
                    self._ack_in_order(connection, batch.group, batch.topic, batch.queue_id, offset, batch.pop_ms)
            elif offsets:
                key = (batch.topic, batch.group, batch.queue_id, batch.start_offset, batch.pop_ms, broker_name)
                end = parts.write(Ack(key, offsets, True), batch.revive_queue, batch.pop_ms + batch.invisible_ms)
            yield
        return self._stored.answer(connection, command, response(command), end, copies)


@attrs.frozen
class _Batch:
    """One entry of a batch: messages of one queue that one pop handed out; *topic* is where they were read."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    offsets: tuple[int, ...]

    @classmethod
    def read(cls, value: object) -> _Batch:
        """Read one entry. Raises :class:`CommandError`."""
        try:
            if not isinstance(value, Mapping):
                raise ValueError("acks: an entry is no JSON object")
            group = name_of(_field(value, "c", "consumerGroup"), "acks: c")
            topic = name_of(_field(value, "t", "topic"), "acks: t")
            mark = _field(value, "r", "retry") or NORMAL
            if mark not in (NORMAL, RETRY_V1, RETRY_V2):
                raise ValueError("acks: r must be 0, 1 or 2")
            start = _number(value, "so", "startOffset")
            bits = b64decode(name_of(_field(value, "b", "bitSet") or "", "acks: b", 2 * MOST_BITS_BYTES), validate=True)
            if sum(byte.bit_count() for byte in bits) > MOST_MESSAGES:
                raise ValueError(f"acks: b has more than {MOST_MESSAGES} bits, a pop has no more messages")
            return cls(
                group,
                topic_of(mark, group, topic),
                _number(value, "q", "queueId", (1 << 31) - 1),
                start,
                _number(value, "pt", "popTime"),
                _number(value, "it", "invisibleTime", LONGEST_MS >> 4),
                _number(value, "rq", "reviveQueueId", ORDER_QUEUE),
                tuple(offsets_of_bits(start, bits)),
            )
        except (ValueError, binascii.Error) as error:
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None


def _field(value: Mapping[str, Any], name: str, long_name: str) -> Any:
    found = value.get(name)
    return value.get(long_name) if found is None else found


def _number(value: Mapping[str, Any], name: str, long_name: str, high: int = LONGEST_MS) -> int:
    return whole_number(_field(value, name, long_name), f"acks: {name}", 0, high)


def _entries(command: Command, own_name: str) -> tuple[Iterable[object], str]:
    """Return the entries of a batch and the broker name they belong to. Raises :class:`CommandError`."""
    try:
        value = json_of(command) if command.body else {}
        entries = list_of(value.get("acks") if isinstance(value, Mapping) else None, "acks")
        broker_name = name_of(value.get("brokerName") or own_name, "brokerName") if entries else own_name
    except (json_dialect.JsonError, ValueError) as error:
        remark = f"the body is no batch of acknowledgements: {error}"
        raise CommandError(ResponseCode.MESSAGE_ILLEGAL, remark) from None
    if not entries:
        raise CommandError(ResponseCode.NO_MESSAGE, "the batch holds no acknowledgement")
    if len(entries) > MOST_ACKS:
        remark = f"the batch has {len(entries)} entries, more than {MOST_ACKS}: send it in parts"
        raise CommandError(ResponseCode.MESSAGE_ILLEGAL, remark)
    return entries, broker_name
