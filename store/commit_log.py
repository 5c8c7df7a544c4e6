"""The end of the log that is written to, and checked access to what is in it."""

from __future__ import annotations

from understudy.format.record import BLANK, BLANK_MAGIC
from understudy.store.segments import Segments
from understudy.store.walk import RecordHead, parse

#: Space taken ahead of the write position in one go; it costs some ten microseconds.
ALLOCATE_BYTES = 16 << 20


class CommitLog:
    """The log and its write position. The writer uses the fields directly.

    Attributes:
        segments: the files.
        view: the file that is written now; empty before the first write.
        base: physical offset of its first byte.
        at: write position in it.
        limit: its length.
        allocated: how far its space on the disk is taken; a write beyond it through the mapping could end the process.
    """

    __slots__ = ("allocated", "at", "base", "limit", "segments", "view")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.view = memoryview(b"")
        self.base = 0
        self.at = 0
        self.limit = 0
        self.allocated = 0

    @property
    def end(self) -> int:
        """Byte after the last one written."""
        return self.base + self.at

    def continue_at(self, end: int) -> None:
        """Write from physical offset *end* on; a file for it is made when the first record comes."""
        segment = self.segments.find(end)
        if segment is None:
            self.view, self.base, self.at, self.limit = memoryview(b""), end, 0, 0
        else:
            # A view of our own: the file stays mapped for us when the mapping is given back to make room for others.
            self.view, self.base, self.limit = self.segments.view(segment)[:], segment.start, segment.size
            self.at = end - segment.start
        self.allocated = self.at

    def reserve(self, size: int) -> bool:
        """Take the space for *size* bytes at the write position, and some for what follows.

        Returns: False when they do not fit in the rest of the file.

        Raises ``OSError`` when the disk is full.
        """
        end = self.at + size
        if end > self.limit:
            return False
        if end > self.allocated:
            path = self.segments.path_of(self.base)
            ahead = min(max(end, self.at + ALLOCATE_BYTES), self.limit)
            try:
                self.segments.disk.allocate(path, self.at, ahead - self.at)
            except OSError:
                ahead = end  # the last of the space may do for this one
                self.segments.disk.allocate(path, self.at, ahead - self.at)
            self.allocated = ahead
        return True

    def roll(self) -> None:
        """Close the current file with a blank marker and open the next one."""
        if self.at < self.limit:
            self.reserve(BLANK.size)
            BLANK.pack_into(self.view, self.at, self.limit - self.at, BLANK_MAGIC)
        start = self.base + self.limit
        self.continue_at(self.segments.create(start).start)

    def bytes_at(self, physical: int, size: int) -> memoryview | None:
        """Return *size* raw bytes from *physical*; None when they are not all in one file of the log."""
        if physical >= self.base and physical + size <= self.base + self.at and self.limit:
            at = physical - self.base
            return self.view[at : at + size]
        segment = self.segments.find(physical)
        if segment is None or size < 0 or physical + size > min(segment.end, self.end):
            return None
        at = physical - segment.start
        return self.segments.view(segment)[at : at + size]

    def tail_at(self, physical: int, maximum: int) -> memoryview:
        """Return at most *maximum* raw bytes from *physical*, to the end of its file or of the log."""
        segment = self.segments.find(physical)
        if segment is None or physical >= self.end:
            return memoryview(b"")
        at = physical - segment.start
        return self.segments.view(segment)[at : min(at + maximum, segment.size, self.end - segment.start)]

    def parse_at(self, physical: int, *, check_crc: bool = True) -> RecordHead | None:
        """Return the whole record at *physical*; None when there is none."""
        segment = self.segments.find(physical)
        if segment is None or physical >= self.end:
            return None
        head = parse(self.segments.view(segment), physical - segment.start, segment.start, check_crc)
        return head if head is not None and physical + head.size_bytes <= self.end else None
