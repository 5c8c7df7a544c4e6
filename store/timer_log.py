"""The timer log: a unit for each message of the timer topic, those of one second chained backwards.

The reference's files (TimerLog.java): units of 52 bytes in files of one length; where no unit and blank fit any more
stands a blank of 16 bytes. A unit is written once and never changed; units at the end may be taken back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from understudy.format.record import BLANK_MAGIC
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_reason
from understudy.store.flush import sync_files
from understudy.store.segments import Segment, Segments

log = get_logger("store.timer")

_UNIT = struct.Struct(">iqiqiqiiq")
UNIT_BYTES = _UNIT.size
_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = BLANK_MAGIC - (1 << 32)
MAGIC, ROLL, DELETE = 1, 2, 4
NONE = -1
MOST_WAIT_MS = (1 << 31) - 1
"""The longest time between a unit's writing and its due time that its field holds."""
MAPPED_MAX = 8
_ALLOCATE_BYTES = 1 << 20


class Unit(NamedTuple):
    """One unit.

    Attributes:
        previous: position of the unit before it of the same second, -1 for the first.
        magic: 1, and bits for units that roll (2) or delete (4).
        write_ms: time of the wheel when it was written.
        wait_ms: how long after that it is due.
        physical, size: where its message lies in the commit log, in bytes.
        topic_hash: Java's hash of the topic the message is for.
    """

    previous: int
    magic: int
    write_ms: int
    wait_ms: int
    physical: int
    size: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        """The second in whose slot it is."""
        return self.write_ms + self.wait_ms

    @property
    def rolls(self) -> bool:
        """Whether its message must be put into the timer topic again then."""
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        """Whether its message takes back another one."""
        return bool(self.magic & DELETE)


class TimerLog:
    """The timer log of one store. No file exists before the first unit.

    Args:
        disk: where the files are.
        folder: their folder.
        file_bytes: length of each (``mappedFileSizeTimerLog``).

    Attributes:
        end: position of the next unit.
    """

    def __init__(self, disk: Disk, folder: str, file_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file_bytes = max(file_bytes, UNIT_BYTES + _BLANK.size)
        self._segments = Segments(disk, (folder,), (), self._file_bytes, MAPPED_MAX)
        self._view = memoryview(b"")
        self._segment: Segment | None = None
        self._allocated = 0
        self._changed: set[str] = set()
        self.end = 0

    def load(self) -> None:
        """Find the files; where they end is found by :meth:`units`. Blocking."""
        if self._disk.exists(self._folder):
            self._segments.load()

    @property
    def begin(self) -> int:
        """Position of the oldest unit there may be; 0 without files."""
        return max(self._segments.min_offset, 0)

    @property
    def has_files(self) -> bool:
        """Whether there is any file."""
        return bool(self._segments.items)

    def file_before(self, position: int) -> int:
        """Return where the file begins that is a whole file before *position*."""
        segment = self._segments.find(max(position - self._segments.file_size, self.begin))
        return self.begin if segment is None else segment.start

    def ends_with_unit(self, position: int) -> bool:
        """Whether the log reaches to *position* without a gap: a unit ends there, or nothing is before it."""
        files = self._segments.items
        if any(file.end != following.start for file, following in pairwise(files)):
            return False
        segment = self._segments.find(position - 1) if position > self.begin else None
        if segment is None:
            return position == self.begin
        at = position - segment.start
        return at % UNIT_BYTES == 0 and _parse(self._segments.view(segment), at - UNIT_BYTES) is not None

    def units(self, position: int) -> Iterator[tuple[int, Unit]]:
        """Return the units from *position* on with their positions, up to the first that is none."""
        while (segment := self._segments.find(position)) is not None:
            view, at = self._segments.view(segment), position - segment.start
            while at + UNIT_BYTES <= segment.size:
                unit = _parse(view, at)
                if unit is None:
                    break
                yield segment.start + at, unit
                at += UNIT_BYTES
            if at + _BLANK.size > segment.size or _BLANK.unpack_from(view, at)[2] != _BLANK_MAGIC:
                return
            position = segment.end

    def unit(self, position: int) -> Unit | None:
        """Return the unit at *position*; ``None`` when there is none."""
        segment = self._segments.find(position) if 0 <= position < self.end else None
        if segment is None or position + UNIT_BYTES > segment.end:
            return None
        return _parse(self._segments.view(segment), position - segment.start)

    def last(self) -> tuple[int, Unit] | None:
        """Return the newest unit with its position; ``None`` when there is none."""
        segment = self._segments.find(self.end - 1) if self.end > self.begin else None
        if segment is None:
            return None
        position = segment.start + min(self.end - segment.start, _whole(segment)) - UNIT_BYTES
        unit = self.unit(position) if position >= segment.start else None
        return None if unit is None else (position, unit)

    def append(self, unit: Unit) -> int:
        """Write *unit* at the end and return its position. Raises ``OSError`` when the disk is full."""
        segment = self._segment
        if segment is None or self.end + UNIT_BYTES + _BLANK.size > segment.end:
            segment = self._roll(segment)
        at = self.end - segment.start
        self._reserve(segment, at, at + UNIT_BYTES)
        _UNIT.pack_into(self._view, at, UNIT_BYTES, *unit, 0)
        self._changed.add(segment.path)
        self.end += UNIT_BYTES
        return self.end - UNIT_BYTES

    def continue_at(self, end: int) -> None:
        """Forget everything from position *end* on, durably, and write there from now on. Blocking."""
        if self._segments.items:
            self._segments.cut(end)
        self._segment, self._view, self.end = None, memoryview(b""), end
        segment = self._segments.find(end)
        if segment is not None:
            self._open(segment, end - segment.start)
        elif self._segments.items and self._segments.items[-1].end != end:
            self.end = self._segments.items[-1].end

    def remove(self) -> None:
        """Remove every file: the log begins anew at 0. Blocking."""
        self._segments.close()
        if self._disk.exists(self._folder):
            self._disk.remove_tree(self._folder)
        self._segments = Segments(self._disk, (self._folder,), (), self._file_bytes, MAPPED_MAX)
        self._changed.clear()
        self._segment, self._view, self.end = None, memoryview(b""), 0

    def take_changed(self) -> tuple[set[str], set[str]]:
        """Return the files and folders to be made durable now."""
        files, self._changed = self._changed, set()
        folders, self._segments.unsynced_folders = self._segments.unsynced_folders, set()
        return files, folders

    def sync(self, files: set[str], folders: set[str]) -> None:
        """Make *files* and *folders* durable. Blocking, may run in a thread."""
        sync_files(self._disk, sorted(files), sorted(folders))

    def not_synced(self, files: set[str], folders: set[str]) -> None:
        """Take note that they are not durable."""
        self._changed |= files
        self._segments.unsynced_folders |= folders

    async def delete_before(self, physical: int) -> None:
        """Delete the files whose messages are all gone: those of bytes before *physical* of the commit log.

        A file is out of the log before it is removed, in a thread; one that cannot be removed is in it again.
        """
        while len(self._segments.items) > 1:
            first = self._segments.items[0]
            last = self.unit(first.start + _whole(first) - UNIT_BYTES)
            if last is None or last.physical >= physical:
                return
            try:
                await self._disk.in_thread(self._segments.take_first())
            except OSError as error:
                self._segments.put_back(first)
                log.error("a file of the timer log cannot be deleted", path=first.path, why=os_reason(error))
                return

    def close(self) -> None:
        """Give the files back."""
        self._view = memoryview(b"")
        self._segments.close()

    def _open(self, segment: Segment, at: int) -> None:
        # A view of our own, which stays when the mapping is given back to make room for others.
        self._segment, self._view, self._allocated = segment, self._segments.view(segment)[:], at

    def _roll(self, segment: Segment | None) -> Segment:
        if segment is None and not self._segments.items:
            self._segments.load()  # makes the folder
        if segment is not None:
            at = self.end - segment.start
            self._reserve(segment, at, at + _BLANK.size)
            _BLANK.pack_into(self._view, at, segment.size - at, 0, _BLANK_MAGIC)
            self._changed.add(segment.path)
            self.end = segment.end
        fresh = self._segments.create(self.end)
        self._changed.add(fresh.path)
        self._open(fresh, 0)
        return fresh

    def _reserve(self, segment: Segment, at: int, end: int) -> None:
        if end > self._allocated:
            ahead = min(max(end, at + _ALLOCATE_BYTES), segment.size)
            self._disk.allocate(segment.path, at, ahead - at)
            self._allocated = ahead


def _whole(segment: Segment) -> int:
    """Return how many bytes of a file units can take."""
    return (segment.size - _BLANK.size) // UNIT_BYTES * UNIT_BYTES


def _parse(view: memoryview, at: int) -> Unit | None:
    size, previous, magic, write_ms, wait_ms, physical, length, topic_hash, _ = _UNIT.unpack_from(view, at)
    if size != UNIT_BYTES or not 0 < magic <= 0xF:
        return None
    return Unit(previous, magic, write_ms, wait_ms, physical, length, topic_hash)
