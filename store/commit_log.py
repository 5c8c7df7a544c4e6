"""The end of the log that is written to, and checked access to what is in it."""

from __future__ import annotations

from understudy.store.record import BLANK, BLANK_MAGIC, MAGIC_V1, MAGIC_V2
from understudy.store.segments import Segments
from understudy.store.walk import Seen, parse


class CommitLog:
    """The log and its write position. The writer uses the fields directly.

    Attributes:
        segments: the files.
        view: the file that is written now; empty before the first write.
        base: physical offset of its first byte.
        at: write position in it.
        limit: its length.
    """

    __slots__ = ("at", "base", "limit", "segments", "view")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.view = memoryview(b"")
        self.base = 0
        self.at = 0
        self.limit = 0

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

    def roll(self) -> None:
        """Close the current file with a blank marker and open the next one."""
        if self.at < self.limit:
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

    def parse_at(self, physical: int, *, check_crc: bool = True) -> Seen | None:
        """Return the whole record at *physical*; None when there is none."""
        segment = self.segments.find(physical)
        if segment is None or physical >= self.end:
            return None
        seen = parse(self.segments.view(segment), physical - segment.start, segment.start, check_crc)
        return seen if seen is not None and physical + seen.size_bytes <= self.end else None

    def holds_record(self, physical: int, size: int) -> bool:
        """Whether a record of *size* bytes seems to start at *physical* (head only, for checks of queue units)."""
        segment = self.segments.find(physical)
        if segment is None or physical + size > segment.end:
            return False
        at = physical - segment.start
        found, magic = BLANK.unpack_from(self.segments.view(segment), at)
        return bool(found == size and magic in (MAGIC_V1, MAGIC_V2))
