"""What a send is told, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import attrs

from understudy.format.names import TRACE_TOPIC
from understudy.mqclient.errors import SendFailedError
from understudy.mqclient.options import at_least, one_of, topic_name
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import LZ4, ZLIB, ZSTD
from understudy.mqclient.session import SessionOptions
from understudy.remoting.codes import ResponseCode


class SendStatus(StrEnum):
    """What the broker did; in every case the message is stored on the broker that answered."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@attrs.frozen
class SendResult:
    """Where a message went.

    Attributes:
        status: see :class:`SendStatus`.
        message_id: the unique id; of a batch, its ids joined by commas.
        offset_message_id: id made of the broker's address and the log position; of a batch joined by commas.
        queue: where it was stored.
        queue_offset: its position there; of a batch that of its first message.
        transaction_id: the broker's name for the transaction, if any.
        recall_handle: token by which a timed message can be called back, if any.
        region_id: region the broker says it belongs to.
        trace_on: whether the broker wants what becomes of the message to be traced.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None
    region_id: str | None
    trace_on: bool = True


class BatchesFailedError(SendFailedError):
    """A batch of several was not stored, and those after it were not sent. The cause is chained.

    Attributes:
        results: of the batches before it.
    """

    def __init__(self, results: Sequence[SendResult], why: str) -> None:
        super().__init__(f"batch {len(results) + 1} failed after {len(results)} were stored: {why}")
        self.results = tuple(results)


@attrs.frozen
class ProducerOptions:
    """How a producer sends.

    Attributes:
        send_timeout_ms: longest time of one send, all attempts together.
        attempts: how many brokers are tried when no queue is given. Where there are several, each gets its share of the
            time, so that one that does not answer leaves some for the others.
        retry_when_not_ok: try another broker when the message was stored but not flushed or replicated as asked.
        max_message_bytes: larger bodies are refused here.
        compress_above_bytes: bodies of at least so many bytes are compressed; 0 never.
        compression: :data:`~understudy.mqclient.records.ZLIB`, ``LZ4`` or ``ZSTD``.
        compression_level: for zlib 1 to 9.
        new_topic_queues: queues per broker that a missing topic is created with.
        enable_message_trace: write into *trace_topic* what was sent, for ``mqadmin queryMsgTraceById``.
        trace_topic: brokers with ``traceTopicEnable`` have the default one.
        session: see :class:`SessionOptions`.
    """

    send_timeout_ms: float = attrs.field(default=3_000, validator=at_least(1))
    attempts: int = attrs.field(default=3, validator=at_least(1))
    retry_when_not_ok: bool = False
    max_message_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=at_least(1))
    compress_above_bytes: int = attrs.field(default=4096, validator=at_least(0))
    compression: int = attrs.field(default=ZLIB, validator=one_of(ZLIB, LZ4, ZSTD))
    compression_level: int = 5
    new_topic_queues: int = attrs.field(default=4, validator=at_least(1))
    enable_message_trace: bool = False
    trace_topic: str = attrs.field(default=TRACE_TOPIC, validator=topic_name)
    session: SessionOptions = attrs.field(factory=SessionOptions)
