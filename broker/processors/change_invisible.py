"""Changes of the time for which a popped message belongs to its consumer (200053).

The message gets a check point of its own, then the old one is acknowledged for it: between the two it can come back
twice, but never be lost.

Source: ChangeInvisibleTimeProcessor.java.
"""

from __future__ import annotations

from understudy.broker.pop.revive_log import Ack, CheckPoint
from understudy.broker.processors.ack import AckParts, receipt_of
from understudy.format.receipts import ORDER_QUEUE
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.fields import CommandError, required, required_int
from understudy.remoting.server import RemotingServer
from understudy.store.status import PutRejected

NOTHING = {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"}
"""Header fields when nothing was changed."""
_SAME_MS = 1_000
"""A check point that is so much ahead of the clock was made by changes that followed each other at once."""


class InvisibleTimeProcessor:
    """Handler of CHANGE_MESSAGE_INVISIBLETIME of one broker."""

    def __init__(self, parts: AckParts) -> None:
        self._parts = parts
        self._store, self._stored = parts.store, parts.stored
        self._offsets, self._orders = parts.state.offsets, parts.state.orders
        self._clock = parts.state.clock

    def register(self, server: RemotingServer) -> None:
        """Answer the code at *server*."""
        server.register(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, self.change)

    def change(self, connection: Connection, command: Command) -> Answer:
        """Let a message belong to its consumer for another time from now on."""
        parts = self._parts
        group, topic = required(command, "consumerGroup"), required(command, "topic")
        queue_id, offset = required_int(command, "queueId"), required_int(command, "offset")
        invisible_ms, text = required_int(command, "invisibleTime"), required(command, "extraInfo")
        try:
            parts.admission.check_queue(connection, topic, queue_id)
            low, high = self._store.min_queue_offset(topic, queue_id), self._store.max_queue_offset(topic, queue_id)
            if not low <= offset < high:
                remark = f"queue {queue_id} of {topic} holds no message at {offset}, only {low} to {high}"
                raise CommandError(ResponseCode.NO_MESSAGE, remark)
            receipt = receipt_of(text)
            parts.check_receipt(receipt, queue_id, offset)
            limit_ms = parts.node.options.store.timer_max_delay_sec * 1000
            if not 0 <= invisible_ms <= limit_ms:
                remark = f"invisibleTime must be 0 to {limit_ms} ms, not {invisible_ms}"
                raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
            if receipt.revive_queue == ORDER_QUEUE:
                return self._change_in_order(command, group, topic, queue_id, offset, receipt.pop_ms, invisible_ms)
            copies = self._stored.copies()
            now_ms = _after(receipt.pop_ms, self._clock.wall_ms())
            point = CheckPoint(topic, group, queue_id, offset, now_ms, invisible_ms, receipt.broker_name, (offset,))
            key = (topic, group, queue_id, receipt.start_offset, receipt.pop_ms, receipt.broker_name)
            ack = Ack(key, (offset,))
            try:
                end = parts.state.moving.write(point, receipt.revive_queue)
            except PutRejected as error:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"{error.status.value}: {error.remark}") from None
            end = max(end, parts.write(ack, receipt.revive_queue, receipt.revive_ms))
        except CommandError as error:
            raise with_fields(error) from None
        ext = {"invisibleTime": str(invisible_ms), "popTime": str(now_ms), "reviveQid": str(receipt.revive_queue)}
        return self._stored.answer(connection, command, response(command, ext=ext), end, copies)

    def _change_in_order(
        self, command: Command, group: str, topic: str, queue_id: int, offset: int, pop_ms: int, invisible_ms: int
    ) -> Command:
        parts = self._parts
        if offset < self._offsets.query(group, topic, queue_id):
            return response(command, ext=NOTHING)
        visible_ms = self._clock.wall_ms() + invisible_ms
        if self._orders.change_visible(topic, group, queue_id, offset, pop_ms, visible_ms):
            parts.notify(topic, group, queue_id)
        ext = {"invisibleTime": str(visible_ms - pop_ms), "popTime": str(pop_ms), "reviveQid": str(ORDER_QUEUE)}
        return response(command, ext=ext)


def _after(pop_ms: int, now_ms: int) -> int:
    """Return the pop time of a check point that takes the place of one of *pop_ms*, in milliseconds.

    A time is part of what names a check point. With the same one, the acknowledgement that ends the former would end
    the new one as well, and its message would be lost; a client may ask within the millisecond in which it popped.
    """
    return pop_ms + 1 if 0 <= pop_ms - now_ms < _SAME_MS else now_ms


def with_fields(error: CommandError) -> CommandError:
    """Return *error* with the header fields that clients read in every answer."""
    return CommandError(error.code, error.remark, NOTHING)
