"""A consume queue: where the messages of one queue of a topic lie in the log.

A unit has 20 bytes: physical offset 8, record size 4, tags code 8. Unit *n* belongs to queue offset *n*, so the file
that starts at byte *s* holds queue offsets from *s* / 20 (ConsumeQueue.java). When the first file of a queue starts
below its first message, filler units take the space before it. :mod:`understudy.store.consume_queues` reads and writes
them.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from understudy.format.java_hash import unsigned_hash
from understudy.format.light_queues import is_light
from understudy.format.names import SCHEDULE_TOPIC
from understudy.format.record import topic_field
from understudy.runtime.disk import Disk
from understudy.store.properties_digest import NO_PROPERTIES
from understudy.store.segments import file_name, numbered_files

UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size
#: Most units written in one go.
UNITS_AT_ONCE_MAX = 256
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)

#: What a file system leaves of a unit that it could not keep.
_LOST = bytes(UNIT_BYTES)
_LOW = 0xFFFFFFFF  # of a code, the half that stands behind


def first_lost(raw: bytes | memoryview) -> int:
    """Return the number of the first unit in *raw* that is nothing but zeros; -1 when there is none.

    No other units have so many zeros in a row, so this is one search.
    """
    data = bytes(raw)
    at = data.find(_LOST)
    while at >= 0:
        number = -(-at // UNIT_BYTES)
        if data[number * UNIT_BYTES : (number + 1) * UNIT_BYTES] == _LOST:
            return number
        at = data.find(_LOST, at + 1)
    return -1


def is_torn(unit: tuple[int, int, int], size: int, code: int) -> bool:
    """Return whether *unit*, whose physical offset is right, has lost its end: a block of the disk began within it.

    Args:
        unit: physical offset, size and code, as they stand there.
        size, code: what its record says. Another code may be meant, as that of a unit that is extended.
    """
    if unit[1] == size:
        return unit[2] != code and unit[2] in (0, code & _LOW, code & ~_LOW)
    return unit[1] != FILLER_SIZE


@lru_cache(maxsize=UNITS_AT_ONCE_MAX)
def units_at_once(count: int) -> struct.Struct:
    """Return the layout of *count* units in a row, at most :data:`UNITS_AT_ONCE_MAX`."""
    return struct.Struct(">" + "qiq" * count)


class ConsumeQueue:
    """One queue. The store reads and writes the fields directly on the hot path.

    Attributes:
        next_offset: queue offset of the next message to be written.
        max_offset: queue offset after the last message that readers may see.
        view, view_from, view_to: the mapped tail file and the queue offsets that may be written there; an empty range
            when it is not mapped.
        clean: nothing was written since the files were last made durable.
        topic_field, magic: how the topic stands in a record.
        hash_prefix: Java hash of ``topic#``, for the index.
        tag_hashes, prefix_hashes: index hashes of tags, and of all but the end of unique keys, seen lately.
        digest: what was found in the properties of a message lately.
        whole_from, whole_to: records at these queue offsets are known to be whole.
    """

    __slots__ = (
        "clean",
        "digest",
        "file_size",
        "folder",
        "hash_prefix",
        "is_light",
        "is_schedule",
        "magic",
        "max_offset",
        "min_checked_for",
        "min_offset",
        "next_offset",
        "prefix_hashes",
        "queue_id",
        "starts",
        "tag_hashes",
        "topic",
        "topic_field",
        "view",
        "view_from",
        "view_to",
        "whole_from",
        "whole_to",
    )

    def __init__(self, topic: str, queue_id: int, folder: str, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.file_size = file_size
        self.magic, self.topic_field = topic_field(topic)
        self.hash_prefix = unsigned_hash(f"{topic}#".encode())
        self.tag_hashes: dict[bytes, int] = {}
        self.prefix_hashes: dict[bytes, int] = {}
        self.digest = NO_PROPERTIES
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.is_light = is_light(topic)
        self.starts: list[int] = []
        self.next_offset = 0
        self.max_offset = 0
        self.min_offset = 0
        self.min_checked_for = -2
        self.view: memoryview = memoryview(b"")
        self.view_from = 0
        self.view_to = 0
        self.clean = True
        self.whole_from = 0
        self.whole_to = 0

    def find_files(self, disk: Disk) -> None:
        """Take the files that are in the folder, and their size where they have one of their own."""
        self.starts = starts = numbered_files(disk, self.folder)
        if len(starts) > 1:
            self.file_size = starts[1] - starts[0]
        elif starts:
            length = disk.size(self.path(starts[0]))
            if length > self.file_size and length % UNIT_BYTES == 0:
                self.file_size = length

    def path(self, start: int) -> str:
        """Return the path of the file that starts at byte *start*."""
        return f"{self.folder}/{file_name(start)}"

    def unmapped(self, start: int) -> None:
        """Forget the view of the tail file."""
        if self.view_from * UNIT_BYTES == start:
            self.view, self.view_from, self.view_to = memoryview(b""), 0, 0

    def start_of(self, offset: int) -> int:
        """Return the first byte of the file that holds queue offset *offset*."""
        position = offset * UNIT_BYTES
        return position - position % self.file_size
