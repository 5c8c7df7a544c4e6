"""The bytes of a compaction log and its queue; pure.

A file of the log has records as the commit log has them, but each says where it is in *this* log. It ends with a blank
marker. The file of units beside it has the same name and the units of batch queues, one for each record; behind the
last of a closed file comes a unit that says it is the end. Lengths of files are the reference's, which takes no others:
those of units hold whole units, those of the log are a multiple of that.

Source: CompactionLog.java, SparseConsumeQueue.java.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from understudy.format.java_hash import java_hash_of_bytes
from understudy.format.properties import find_property
from understudy.format.record import BLANK_BYTES, BODY_LENGTH_AT, CRC_MASK, PHYSICAL_OFFSET_AT, SYSTEM_FLAGS_AT
from understudy.format.record_layout import place_of
from understudy.store.batch_queue import UNIT, UNIT_BYTES
from understudy.store.compaction.survivors import Entry, digest
from understudy.store.properties_digest import KEYS, TAGS
from understudy.store.seals import NAME, SEAL_BYTES, seal
from understudy.store.walk import RecordHead, parse

FOLDER, LOG_FOLDER, QUEUE_FOLDER = "compaction", "compactionLog", "compactionCq"
END_UNIT = UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_FEWEST_UNITS = 2
_FEWEST_QUEUE_FILES = 5
_LONG, _INT = struct.Struct(">q"), struct.Struct(">i")
_CRC_AT = place_of("body_crc")


class FileLengths(NamedTuple):
    """Bytes of one file of the log and of the file of units beside it."""

    log: int
    queue: int


def file_lengths(log_setting: int, queue_setting: int) -> FileLengths:
    """Return the lengths for ``compactionMappedFileSize`` and ``compactionCqMappedFileSize``."""
    queue = max(queue_setting // UNIT_BYTES, _FEWEST_UNITS) * UNIT_BYTES
    times, rest = divmod(log_setting, queue)
    if times < _FEWEST_QUEUE_FILES:
        return FileLengths(queue * _FEWEST_QUEUE_FILES, queue)
    return FileLengths(queue * (times if 0 < rest < queue >> 1 else times + 1), queue)


class Copy(NamedTuple):
    """A record on its way into a compaction log.

    Attributes:
        offset: its queue offset.
        code: its tags code.
        store_ms: when it was stored (wall time).
        record: its bytes, wherever they say they are.
    """

    offset: int
    code: int
    store_ms: int
    record: bytes

    def placed(self, position: int) -> bytearray:
        """Return the bytes of the record as one that begins at *position* of the log."""
        data = bytearray(self.record)
        _LONG.pack_into(data, PHYSICAL_OFFSET_AT, position)
        if data[-SEAL_BYTES : len(NAME) - SEAL_BYTES] == NAME:
            data[-SEAL_BYTES:] = seal(memoryview(data)[:-SEAL_BYTES])
        return data

    def unit(self, position: int) -> bytes:
        """Return the unit of the record that begins at *position* of the log."""
        return UNIT.pack(position, len(self.record), self.code, self.store_ms, self.offset, 1, -1, 0)


def copy_of(head: RecordHead, record: memoryview) -> Copy | None:
    """Return what goes into the compaction log of a record; ``None`` for one without a key: it has no place there."""
    keys = find_property(head.properties, KEYS)
    if keys is None or not keys.strip():
        return None
    tags = find_property(head.properties, TAGS)
    code = 0 if tags is None else java_hash_of_bytes(tags)
    return Copy(head.queue_offset, code, head.store_ms, bytes(record))


def whole(view: memoryview, at: int, start: int) -> RecordHead | None:
    """Return the record at byte *at* of a file of the log that begins at *start*; ``None`` when there is no whole one.

    A seal is not looked at: the reference does not make a new one when it copies the record.
    """
    head = parse(view, at, start, check_crc=False)
    if head is None:
        return None
    body_at = at + BODY_LENGTH_AT[_INT.unpack_from(view, at + SYSTEM_FLAGS_AT)[0] >> 4 & 3] + 4
    length: int = _INT.unpack_from(view, body_at - 4)[0]
    (crc,) = _INT.unpack_from(view, at + _CRC_AT)
    return head if not length or zlib.crc32(view[body_at : body_at + length]) & CRC_MASK == crc else None


def entry_of(head: RecordHead, view: memoryview, at: int) -> Entry:
    """Return what a round must know of the record *head* at byte *at* of *view*."""
    length_at = at + BODY_LENGTH_AT[head.sys_flag >> 4 & 3]
    keys = find_property(head.properties, KEYS) or b""
    return Entry(digest(keys), head.queue_offset, not _INT.unpack_from(view, length_at)[0], head.store_ms)


def fits(lengths: FileLengths, end: int, count: int, size: int) -> bool:
    """Whether one more record goes into a file.

    Args:
        lengths: of the file.
        end: bytes of records in it.
        count: units beside them.
        size: bytes of the record.
    """
    return (count + 1) * UNIT_BYTES < lengths.queue and end + size + BLANK_BYTES <= lengths.log
