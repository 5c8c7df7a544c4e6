"""Look at the head of a raw record without decoding it; pure."""

from __future__ import annotations

import struct

from understudy.format.record import (
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION_ROLLBACK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_TIME_AT,
    SYSTEM_FLAGS_AT,
)
from understudy.format.record_layout import layout

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
#: Size, magic and queue offset.
_HEAD = layout("size", "magic", "queue_offset")


def own_offset(records: memoryview, at: int, size: int) -> int:
    """Return the queue offset that the record at byte *at* says it has; -1 when no record of *size* starts there."""
    try:
        found, magic, own = _HEAD.unpack_from(records, at)
    except struct.error:  # a unit that is lost says that its record has no byte
        return -1
    return own if found == size and magic in _MAGICS else -1


def size_of(records: memoryview) -> int:
    """Return the size that the first record says it has."""
    size: int = _INT.unpack_from(records, 0)[0]
    return size


def is_rolled_back(record: memoryview) -> bool:
    """Whether a record is a rolled back transaction, which nobody may see."""
    (flags,) = _INT.unpack_from(record, SYSTEM_FLAGS_AT)
    return bool(flags & FLAG_TRANSACTION_ROLLBACK == FLAG_TRANSACTION_ROLLBACK)


def is_inner_batch(record: memoryview) -> bool:
    """Whether a record is several messages, which a client sent as one batch."""
    (flags,) = _INT.unpack_from(record, SYSTEM_FLAGS_AT)
    return bool(flags & FLAG_INNER_BATCH)


def store_time(record: memoryview) -> int:
    """Return the store time of a record in milliseconds."""
    (flags,) = _INT.unpack_from(record, SYSTEM_FLAGS_AT)
    stored_ms: int = _LONG.unpack_from(record, STORE_TIME_AT[flags >> 4 & 3])[0]
    return stored_ms
