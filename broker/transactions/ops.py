"""Op messages: which half messages are decided, as the log keeps it. Pure.

An op message stands in the op queue that has the number of the half queue. Its body names the queue offsets of half
messages that are decided, each followed by a comma; older brokers wrote one, without a comma.

Source: TransactionalMessageServiceImpl.java (getOpMessage, batchSendOpMessage), TransactionalMessageBridge.java.
"""

from __future__ import annotations

from understudy.broker.inner import InnerMessage
from understudy.format import names
from understudy.format.record import Record

DECIDED = "d"
_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
_LONG_DIGITS = 19


class OpBatch:
    """Decisions of one half queue that no op message has yet.

    Attributes:
        offsets: queue offsets of the half messages, in the order of their decisions.
        since: when the first decision was made, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.since = 0.0
        self._length = 0

    def add(self, offset: int, now: float, most: int) -> bool:
        """Add the half message at *offset*; return whether the batch is full.

        Args:
            offset: its queue offset.
            now: monotonic seconds; a wall clock that is set back keeps no decision from the log.
            most: ``transactionOpMsgMaxSize``, bytes of a body above which it is written at once.
        """
        if not self.offsets:
            self.since = now
        self.offsets.append(offset)
        self._length += len(str(offset)) + 1
        return self._length >= most

    def due_at(self, interval_ms: int) -> float:
        """Return when it is to be written (``transactionOpBatchInterval``), in monotonic seconds; never when empty."""
        return self.since + interval_ms / 1000 if self.offsets else float("inf")

    def message(self, queue_id: int, now_ms: int, host: bytes) -> InnerMessage:
        """Return the op message of everything in it.

        Args:
            queue_id: of the half queue.
            now_ms: wall time.
            host: address and port of this broker, as records hold them.
        """
        body = "".join([f"{offset}," for offset in self.offsets]).encode()
        return InnerMessage(names.HALF_OPERATION_TOPIC, queue_id, body, _PROPERTIES, now_ms, host)

    def clear(self) -> None:
        """Forget what was written."""
        self.offsets, self._length = [], 0


def decided_of(record: Record) -> list[int]:
    """Return the queue offsets of the half messages that an op message names; what is no offset is left out."""
    if record.properties.get("TAGS") != DECIDED:
        return []
    words = record.body.decode("ascii", "replace").split(",")
    return [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= _LONG_DIGITS]
