"""What the store answers: statuses of puts and reads, and the small values that carry results."""

from __future__ import annotations

import enum
from typing import NamedTuple

UNKNOWN_TAGS = -(1 << 63)
"""In place of a tags code: what was stored is several messages, each of which may have tags of its own."""


class PutStatus(enum.Enum):
    """Result of a put, with the names of PutMessageStatus.java."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class GetStatus(enum.Enum):
    """Result of a read of a queue, with the names of GetMessageStatus.java."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class PutRejected(Exception):
    """Nothing was written.

    Args:
        status: the reference's name for the refusal.
        remark: one sentence for the sender: what is wrong and what to do.
        special: the reference's own words for the status do not fit; the sender is told the remark.
    """

    def __init__(self, status: PutStatus, remark: str, *, special: bool = False) -> None:
        super().__init__(remark)
        self.status = status
        self.remark = remark
        self.special = special


class Appended(NamedTuple):
    """Where a record went.

    Attributes:
        physical_offset: first byte of the record in the commit log.
        size_bytes: length of the record; physical_offset + size_bytes is what a flush or a replica must reach.
        queue_offset: index of the message in its queue.
    """

    physical_offset: int
    size_bytes: int
    queue_offset: int


class AppendedBatch(NamedTuple):
    """Where the records of a batch went.

    Attributes:
        first_queue_offset: index of the first message in the queue; the others follow without a gap.
        physical_offsets: first byte of each record, in order.
        end_offset: byte after the last record; what a flush or a replica must reach.
    """

    first_queue_offset: int
    physical_offsets: list[int]
    end_offset: int


class GetResult:
    """What a read of a queue found.

    Attributes:
        status: result.
        next_begin_offset: queue offset to ask for next.
        min_offset: first queue offset that still has a message.
        max_offset: queue offset the next message will get.
        parts: raw records as views of the mapped log, neighbours joined into one view where that is cheap. They stay
            readable as long as they are referenced, also when their file is deleted; drop them soon.
        size_bytes: sum of the lengths of *parts*.
        count: number of messages in *parts*.
        suggest_slave: the reader is so far behind that a slave should serve it.
    """

    __slots__ = (
        "count",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "parts",
        "size_bytes",
        "status",
        "suggest_slave",
    )

    def __init__(
        self,
        status: GetStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        parts: list[memoryview],
        size_bytes: int = 0,
        count: int = 0,
        suggest_slave: bool = False,
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.parts = parts
        self.size_bytes = size_bytes
        self.count = count
        self.suggest_slave = suggest_slave

    def __repr__(self) -> str:
        return (
            f"GetResult({self.status.name}, next={self.next_begin_offset}, min={self.min_offset}, "
            f"max={self.max_offset}, count={self.count}, bytes={self.size_bytes})"
        )


class QueryResult(NamedTuple):
    """What a search of the index found.

    Attributes:
        records: raw records in ascending physical order. Hash collisions are possible: compare the key.
        index_last_update_timestamp: store time, in milliseconds, of the newest indexed record; 0 without an index.
        index_last_update_physical_offset: physical offset of the newest indexed record; 0 without an index.
    """

    records: list[memoryview]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int
