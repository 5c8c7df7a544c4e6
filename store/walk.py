"""Walk the records of the log forward, around damage.

A record counts only when it is whole: its lengths add up, it says its own physical offset, its body has its checksum
and its properties were not zeroed; a seal that is wrong counts among sealed records only. (The reference does not look
at properties.) Where a record is damaged, the walk looks for the next whole one; what lies between is a *hole*. When
nothing whole follows, the log ends there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from understudy.format.record import (
    BLANK,
    BLANK_MAGIC,
    BODY_LENGTH_AT,
    CRC_MASK,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    STORE_TIME_AT,
)
from understudy.store.seals import bears_seal, is_as_sealed, is_sealed
from understudy.store.segments import Segment, Segments

#: How far after damage a whole record is looked for. Data that was not synced when the power went is at most what
#: arrives between two flushes.
SEARCH_BYTES = 64 << 20
_SEARCH_STEP_BYTES = 1 << 20
#: Topic of the rolled back transactions that take the place of damage.
VOID_TOPIC = b"DAMAGED"
#: Records behind one with a wrong seal that are asked whether they were sealed.
_NEIGHBOURS_MAX = 8
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_MAGIC_BYTES = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class RecordHead(NamedTuple):
    """What dispatch needs of one record."""

    physical_offset: int
    size_bytes: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    topic: bytes
    properties: bytes


def parse(view: memoryview, at: int, base: int, check_crc: bool = True, before: int = -1) -> RecordHead | None:
    """Return the record at byte *at* of the file that starts at *base*; None when there is no whole one.

    Args:
        view: the mapped file.
        at: byte of the file where the record begins.
        base: byte of the log where the file begins.
        check_crc: whether the body is compared with its checksum, too, and a sealed record with its seal.
        before: byte of the file where the record before it begins, -1 if that is not known.
    """
    # Kept flat: a start after a crash runs this for every record since the last mark.
    left = len(view) - at
    if left < 91:
        return None
    size, magic, crc, queue_id, _, queue_offset, physical, sys_flag, _ = HEAD.unpack_from(view, at)
    if magic == MAGIC_V1:
        width = 1
    elif magic == MAGIC_V2:
        width = 2
    else:
        return None
    hosts = sys_flag >> 4 & 3
    body_at = at + BODY_LENGTH_AT[hosts] + 4
    end = at + size
    if physical != base + at or size > left or body_at + width + 2 > end:
        return None
    body_length: int = _INT.unpack_from(view, body_at - 4)[0]
    topic_at = body_at + body_length + width
    if body_length < 0 or topic_at + 2 > end:
        return None
    if check_crc and body_length and zlib.crc32(view[body_at : body_at + body_length]) & CRC_MASK != crc:
        return None
    topic_length: int = view[topic_at - 1] if width == 1 else _SHORT.unpack_from(view, topic_at - 2)[0]
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > end or properties_at + _SHORT.unpack_from(view, properties_at - 2)[0] != end:
        return None
    topic = bytes(view[topic_at : properties_at - 2])
    properties = bytes(view[properties_at:end])
    if check_crc and not is_as_sealed(view[at:end], properties) and _is_among_sealed(view, before, at, end, base):
        return None
    store_ms: int = _LONG.unpack_from(view, at + STORE_TIME_AT[hosts])[0]
    return RecordHead(physical, size, queue_id, queue_offset, sys_flag, store_ms, topic, properties)


def _is_among_sealed(view: memoryview, before: int, at: int, end: int, base: int) -> bool:
    """Whether the records beside the one from byte *at* to *end* were sealed, hence that one, too.

    Those behind it tell, and the one before it, if that is known, only where nothing follows: it may be the last one
    of a time in which records were sealed.
    """
    position = end
    for _ in range(_NEIGHBOURS_MAX):
        head = parse(view, position, base, check_crc=False)
        if head is None:
            break
        record = view[position : position + head.size_bytes]
        if not bears_seal(record):
            return False
        if is_sealed(record):
            return True
        position += head.size_bytes
    return position == end and before >= 0 and is_sealed(view[before:at])


def is_void(head: RecordHead) -> bool:
    """Whether a record stands in for damage."""
    rolled_back = head.sys_flag & FLAG_TRANSACTION_MASK == FLAG_TRANSACTION_ROLLBACK
    return rolled_back and VOID_TOPIC.startswith(head.topic)


def has_lost_pages(head: RecordHead, power_lost: bool) -> bool:
    """Whether topic or properties, which have no checksum, show the zeros of bytes that never reached the disk.

    Args:
        power_lost: zeros in the middle of the properties count too, not only at their end, where no client puts them.
    """
    properties = head.properties
    if b"\0" in head.topic or (properties and properties[-1] == 0):
        return True
    return power_lost and b"\0\0\0\0" in properties


def is_blank(view: memoryview, at: int) -> bool:
    """Whether the rest of the file from byte *at* is marked as unused."""
    return at == len(view) or (len(view) - at >= BLANK.size and BLANK.unpack_from(view, at)[1] == BLANK_MAGIC)


class Walk:
    """One walk; iterate it once, then read the attributes.

    Args:
        segments: the files.
        start: physical offset of a record, of a blank marker, or of the end.
        check_crc: compare the checksums of bodies.
        intact: the operating system still has every write (only the process died), so nothing whole can follow a gap
            of zeros and none is looked for.
        power_lost: the stop was unclean and unsynced pages may be missing anywhere.

    Attributes:
        end: first byte after the last whole record (or of the next file after a blank marker).
        holes: (first byte, byte after) of damage with whole records behind it.
        store_ms: store time of the last whole record.
        dispatched_ms: store time of the last whole record with a queue entry.
        count: whole records head.
    """

    def __init__(
        self,
        segments: Segments,
        start: int,
        *,
        check_crc: bool = True,
        intact: bool = False,
        power_lost: bool = False,
    ) -> None:
        self._segments = segments
        self._check_crc = check_crc
        self._intact = intact
        self._power_lost = power_lost
        self.end = start
        self.holes: list[tuple[int, int]] = []
        self.store_ms = 0
        self.dispatched_ms = 0
        self.count = 0

    def __iter__(self) -> Iterator[RecordHead]:
        segment = self._segments.find(self.end)
        while segment is not None:
            view = self._segments.view(segment)
            at, before = self.end - segment.start, -1
            while True:
                head = parse(view, at, segment.start, self._check_crc, before)
                if head is None or has_lost_pages(head, self._power_lost):
                    break
                before = at
                at += head.size_bytes
                self.end = segment.start + at
                self.store_ms = head.store_ms
                if head.sys_flag & FLAG_TRANSACTION_PREPARED == 0:
                    self.dispatched_ms = head.store_ms
                self.count += 1
                yield head
            if is_blank(view, at):
                following = self._segments.find(segment.end)
                if following is not None:
                    self.end = segment.end
                    segment = following
                    continue
                # The file after the blank marker was not created, or is lost: the log goes on in a new one.
                self.end = segment.end
                return
            found = self._next_whole(segment, at)
            if found is None:
                return
            self.holes.append((self.end, found))
            self.end = found
            segment = self._segments.find(found)

    def _next_whole(self, segment: Segment, at: int) -> int | None:
        view = self._segments.view(segment)
        zeros = bytes(view[at : at + 8]).count(0) == min(8, len(view) - at)
        if not (zeros and self._intact):
            found = self._search(view, at, segment.start)
            if found is not None:
                return found
        if self._intact and zeros:
            return None
        following = self._segments.find(segment.end)
        if following is not None and parse(self._segments.view(following), 0, following.start) is not None:
            return following.start
        return None

    def _search(self, view: memoryview, at: int, base: int) -> int | None:
        # A record carries its own physical offset, so four bytes of magic are enough to look for.
        limit = min(len(view), at + SEARCH_BYTES)
        position = at + 1
        while position < limit:
            chunk = bytes(view[position : position + _SEARCH_STEP_BYTES + 8])
            if chunk.count(0) != len(chunk):
                for offset in _magics(chunk):
                    candidate = position + offset - 4
                    if candidate > at and parse(view, candidate, base) is not None:
                        return base + candidate
            position += _SEARCH_STEP_BYTES
        return None


def _magics(chunk: bytes) -> Iterator[int]:
    found = []
    for magic in _MAGIC_BYTES:
        at = chunk.find(magic)
        while at >= 0:
            found.append(at)
            at = chunk.find(magic, at + 1)
    return iter(sorted(found))
