"""All consume queues of one store: their files, units, ends and deletion.

A unit is always written at its queue offset, unlike the reference. Where records are lost between two
others (a damaged log), the free units point to the next record of the queue, so that a reader meets it twice rather
than a hole; readers here skip the repetition.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.store.consume_queue import (
    FILLER,
    FILLER_SIZE,
    UNIT,
    UNIT_BYTES,
    UNITS_AT_ONCE_MAX,
    ConsumeQueue,
    is_torn,
    units_at_once,
)
from understudy.store.discarded import Discarded
from understudy.store.mapped_files import MappedFiles

log = get_logger("store.consume_queues")

MOST_BRIDGED = 1_000_000  # units of messages that are missing between some that are there: 20 MB
#: Space taken ahead in one go, in units.
_ALLOCATE_UNITS = 4096
#: The same of a light queue: there may be tens of thousands of them, most with a few messages.
_ALLOCATE_LIGHT_UNITS = 204


class ConsumeQueues:
    """All queues of one store.

    Args:
        disk: where they are.
        folder: ``consumequeue`` of the store.
        file_size: bytes of one file, a multiple of 20.
        mapped: the mapped queue files.
        discarded: where the files of deleted queues go.

    Attributes:
        by_key, by_topic: the queues; change them through methods only.
        on_changed: called when a queue has lost its units from a queue offset on, or has another one there than before,
            and when one alone was deleted.
        on_deleted: called when all queues of a topic were deleted: there may be tens of thousands.
        on_former: called with the physical offset and the size of a record of a former life of a queue.
    """

    def __init__(self, disk: Disk, folder: str, file_size: int, mapped: MappedFiles, discarded: Discarded) -> None:
        self._disk = disk
        self._folder = folder
        self._file_size = -(-file_size // UNIT_BYTES) * UNIT_BYTES
        self._mapped = mapped
        self._discarded = discarded
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.by_topic: dict[str, list[ConsumeQueue]] = {}
        #: How many of them are light queues.
        self.light_count = 0
        self.dirty_paths: set[str] = set()
        self._dirty: list[ConsumeQueue] = []
        self.unsynced_folders: set[str] = set()
        self.on_changed: Callable[[ConsumeQueue, int], None] = lambda queue, offset: None
        self.on_deleted: Callable[[str], None] = lambda topic: None
        self.on_former: Callable[[ConsumeQueue, int, int], None] = lambda queue, physical, size: None
        self.log_min: Callable[[], int] = lambda: 0

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def load(self) -> None:
        """Find the queues and their files; their ends are found by :mod:`understudy.store.queue_recovery`."""
        for topic in self._disk.listdir(self._folder):
            topic_folder = os.path.join(self._folder, topic)
            for name in self._disk.listdir(topic_folder):
                if name.isascii() and name.isdigit():
                    self.create(topic, int(name)).find_files(self._disk)

    def create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, added (without files) if it is new."""
        key = (topic, queue_id)
        queue = self.by_key.get(key)
        if queue is None:
            folder = os.path.join(self._folder, topic, str(queue_id))
            queue = self.by_key[key] = ConsumeQueue(topic, queue_id, folder, self._file_size)
            self.by_topic.setdefault(topic, []).append(queue)
            self.light_count += queue.is_light
        return queue

    # Units

    def map_tail(self, queue: ConsumeQueue, offset: int) -> None:
        """Make the view of *queue* cover queue offset *offset*, with a new file if needed, and mark it changed."""
        start = queue.start_of(offset)
        view, first = self._file_view(queue, start, create=True), start // UNIT_BYTES
        until = self._allocate(queue, first, offset, offset + 1)
        queue.view, queue.view_from, queue.view_to = view, first, until
        queue.clean = True
        self.mark_dirty(queue)

    def make_room(self, queue: ConsumeQueue, count: int) -> None:
        """Take the space for *count* units at the end of *queue*. Raises ``OSError`` when the disk is full."""
        per_file = queue.file_size // UNIT_BYTES
        at, end = queue.next_offset, queue.next_offset + count
        while at < end:
            first = queue.start_of(at) // UNIT_BYTES
            stop = min(end, first + per_file)
            self._file_view(queue, first * UNIT_BYTES, create=True)
            until = self._allocate(queue, first, at, stop)
            if first == queue.view_from < queue.view_to:
                queue.view_to = max(queue.view_to, until)
            at = stop

    def _allocate(self, queue: ConsumeQueue, first: int, offset: int, end: int) -> int:
        """Take the space of the units from *offset* to *end*, and some more, in the file that begins with unit *first*;
        return the queue offset where it ends."""
        ahead = _ALLOCATE_LIGHT_UNITS if queue.is_light else _ALLOCATE_UNITS
        until = min(max(end, offset + ahead), first + queue.file_size // UNIT_BYTES)
        self._disk.allocate(
            queue.path(first * UNIT_BYTES), (offset - first) * UNIT_BYTES, (until - offset) * UNIT_BYTES
        )
        return until

    def mark_dirty(self, queue: ConsumeQueue) -> None:
        """Note that the tail file of *queue* changes."""
        if queue.clean:
            queue.clean = False
            self._dirty.append(queue)
        self.dirty_paths.add(queue.path(queue.view_from * UNIT_BYTES))

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return (files, folders) that changed since the last call."""
        paths, folders = self.dirty_paths, self.unsynced_folders
        self.dirty_paths, self.unsynced_folders = set(), set()
        for queue in self._dirty:
            queue.clean = True
        self._dirty.clear()
        return paths, folders

    def units(self, queue: ConsumeQueue, offset: int, count: int) -> memoryview:
        """Return the units from *offset*, at most *count* and at most to the end of their file; empty if missing."""
        if queue.view_from <= offset < queue.view_to:
            view, first, end = queue.view, queue.view_from, queue.view_to
        else:
            start = queue.start_of(offset)
            if start not in queue.starts:
                return memoryview(b"")
            view, first = self._file_view(queue, start, create=False), start // UNIT_BYTES
            end = first + queue.file_size // UNIT_BYTES
        return view[(offset - first) * UNIT_BYTES : (min(offset + count, end) - first) * UNIT_BYTES]

    def unit(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) of one queue offset; None when its file is missing."""
        raw = self.units(queue, offset, 1)
        if len(raw) < UNIT_BYTES:
            return None
        physical, size, code = UNIT.unpack(raw)
        return physical, size, code

    def append_units(self, queue: ConsumeQueue, values: list[int]) -> None:
        """Write units at the end of *queue*; *values* are physical offset, size and tags code of each."""
        done, count = 0, len(values) // 3
        while done < count:
            offset = queue.next_offset
            if not queue.view_from <= offset < queue.view_to:
                self.map_tail(queue, offset)
            elif queue.clean:
                self.mark_dirty(queue)
            fits = min(count - done, queue.view_to - offset, UNITS_AT_ONCE_MAX)
            units_at_once(fits).pack_into(
                queue.view, (offset - queue.view_from) * UNIT_BYTES, *values[done * 3 : (done + fits) * 3]
            )
            done += fits
            queue.next_offset = offset + fits

    def put(self, queue: ConsumeQueue, offset: int, physical: int, size: int, code: int) -> bool:
        """Write one unit at its queue offset, whatever is or is not there; for recovery and replication.

        A unit that is there already and points to the same record or a later one stays, unless it is torn, or only
        stands in for one that was missing. When every unit is older than the record, the queue was deleted and made
        again where the record comes from: what lies behind it goes. A record that would stand behind a later one is of
        a former life of its queue, and stays out.

        Args:
            queue: whose unit it is.
            offset: its queue offset.
            physical: where the record begins in the log (bytes).
            size: length of the record (bytes), or that of a filler.
            code: tags code of the record.

        Returns:
            Whether something went that way.
        """
        former = None
        if offset >= queue.next_offset and self._ends_after(queue, physical):
            self.on_former(queue, physical, size)
            return False
        if offset < queue.next_offset:
            present = self.unit(queue, offset)
            if present is not None and present[0] == physical and is_torn(present, size, code):
                self._write(queue, offset, physical, size, code)
                return False
            newer = present is not None and present[1] != FILLER_SIZE and present[0] >= physical
            stands_in = self._stands_in(queue, offset, physical)
            if newer and not stands_in:
                if present is not None and present[0] > physical:
                    self.on_former(queue, physical, size)
                return False
            newest = self.unit(queue, queue.next_offset - 1)
            if not stands_in and newest is not None and newest[1] != FILLER_SIZE and newest[0] < physical:
                former = newest
                queue.next_offset = offset
                queue.max_offset = min(queue.max_offset, offset)
                self.clear_after_end(queue)
            self.on_changed(queue, offset)
            if offset < queue.min_offset:
                queue.min_checked_for = -2
        elif offset > queue.next_offset:
            self._bridge_gap(queue, offset, physical, size, code)
        self._write(queue, offset, physical, size, code)
        queue.next_offset = max(queue.next_offset, offset + 1)
        if former is not None:
            self.on_former(queue, former[0], former[1])
        return former is not None

    def _ends_after(self, queue: ConsumeQueue, physical: int) -> bool:
        """Whether the last record of *queue* lies behind *physical* in the log."""
        newest = self.unit(queue, queue.next_offset - 1) if queue.next_offset else None
        return newest is not None and newest[1] != FILLER_SIZE and newest[0] > physical

    def _stands_in(self, queue: ConsumeQueue, offset: int, physical: int) -> bool:
        """Whether a unit points to a neighbour's record because its own, which may be *physical*, was missing."""
        present = self.unit(queue, offset)
        if present is None or present[1] == FILLER_SIZE or present[0] == physical:
            return False
        before = self.unit(queue, offset - 1) if offset else None
        if before is not None and before[1] != FILLER_SIZE:
            if before[0] >= physical:
                return False
            if present[0] <= before[0]:
                return True
        following = self.unit(queue, offset + 1) if offset + 1 < queue.next_offset else None
        return following is not None and present[0] == following[0]

    def first_at_or_after(self, queue: ConsumeQueue, physical: int) -> int:
        """Return the first queue offset whose record starts at *physical* or later; ``next_offset`` if none does."""
        low = queue.starts[0] // UNIT_BYTES if queue.starts else queue.next_offset
        high = queue.next_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(queue, middle)
            if unit is not None and unit[1] != FILLER_SIZE and unit[0] >= physical:
                high = middle
            else:
                low = middle + 1
        return low

    def correct_min(self, queue: ConsumeQueue, log_min: int) -> int:
        """Return the first queue offset whose record is still in a log that starts at *log_min*."""
        if queue.min_checked_for != log_min:
            queue.min_offset = self.first_at_or_after(queue, max(log_min, 0))
            queue.min_checked_for = log_min
        return queue.min_offset

    # Ends

    def clear_after_end(self, queue: ConsumeQueue) -> None:
        """Zero what lies after ``next_offset`` and delete the files after it."""
        last = queue.start_of(queue.next_offset)
        for start in [start for start in queue.starts if start > last]:
            self._delete_file(queue, start)
        if last in queue.starts:
            self._zero_from(queue, last, queue.next_offset * UNIT_BYTES - last)

    def doubt_after(self, queue: ConsumeQueue, physical: int) -> None:
        """Count the units of records at *physical* and after it as not durable: another process wrote them."""
        newest = self.unit(queue, queue.next_offset - 1) if queue.next_offset else None
        if newest is None or newest[0] < physical:
            return
        first = queue.start_of(self.first_at_or_after(queue, physical))
        self.dirty_paths.update(queue.path(start) for start in queue.starts if start >= first)
        topic_folder = os.path.dirname(queue.folder)
        self.unsynced_folders.update((queue.folder, topic_folder, self._folder, os.path.dirname(self._folder)))

    def cut(self, queue: ConsumeQueue, physical: int) -> None:
        """Drop the units of records at *physical* and after it."""
        keep = self.first_at_or_after(queue, physical)
        if keep < queue.next_offset:
            queue.next_offset = keep
            queue.max_offset = min(queue.max_offset, keep)
            queue.min_checked_for = -2
            self.clear_after_end(queue)
            self.on_changed(queue, keep)

    # Deletion

    def delete_before(self, queue: ConsumeQueue, log_min: int) -> None:
        """Delete leading files, never the last, whose records are all before *log_min*."""
        while len(queue.starts) > 1:
            last = self.unit(queue, queue.starts[1] // UNIT_BYTES - 1)
            if last is None or last[0] >= log_min:
                break
            self._delete_file(queue, queue.starts[0])
        self.correct_min(queue, log_min)

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic, none of which is known afterwards; their files go later."""
        queues = self.by_topic.pop(topic, None)
        if queues is not None:
            self._forget(queues, os.path.join(self._folder, topic), self._folder)
            self.on_deleted(topic)

    def delete(self, queue: ConsumeQueue) -> None:
        """Delete one queue; its files go later."""
        of_topic = self.by_topic[queue.topic]
        if of_topic == [queue]:
            self.delete_topic(queue.topic)
        else:
            of_topic.remove(queue)
            self._forget([queue], queue.folder, os.path.dirname(queue.folder))
            self.on_changed(queue, 0)

    def _forget(self, queues: list[ConsumeQueue], folder: str, parent: str) -> None:
        """Know nothing more of *queues*, whose files are all that is in *folder*, which lies in *parent*.

        What is noted of them for the next sync stays: it passes over what is not there.
        """
        topic, by_key = queues[0].topic, self.by_key
        self.light_count -= len(queues) if queues[0].is_light else 0
        self.unsynced_folders.add(parent)
        for queue in queues:
            queue.starts = []
            del by_key[topic, queue.queue_id]
        self._discarded.take(folder, self._mapped.take_all(set(queues)), queues)

    # Inside

    def _file_view(self, queue: ConsumeQueue, start: int, *, create: bool) -> memoryview:
        if start not in queue.starts and create:
            if not queue.starts:
                self._disk.make_folder(queue.folder)
                topic_folder = os.path.dirname(queue.folder)
                self.unsynced_folders.update((topic_folder, self._folder, os.path.dirname(self._folder)))
            view = self._mapped.view(queue.path(start), queue.file_size, queue, start)
            queue.starts.append(start)
            queue.starts.sort()
            self.unsynced_folders.add(queue.folder)
            return view
        return self._mapped.view(queue.path(start), queue.file_size, queue, start)

    def _write(self, queue: ConsumeQueue, offset: int, physical: int, size: int, code: int) -> None:
        if not queue.view_from <= offset < queue.view_to:
            self.map_tail(queue, offset)
        elif queue.clean:
            self.mark_dirty(queue)
        UNIT.pack_into(queue.view, (offset - queue.view_from) * UNIT_BYTES, physical, size, code)

    def _bridge_gap(self, queue: ConsumeQueue, offset: int, physical: int, size: int, code: int) -> None:
        missing, live = offset - queue.next_offset, self._ends_after(queue, self.log_min() - 1)
        if queue.starts and (missing < queue.file_size // UNIT_BYTES or (live and missing <= MOST_BRIDGED)):
            told = {"topic": queue.topic, "queue": queue.queue_id, "first": queue.next_offset, "after": offset}
            log.warning("messages are missing in a queue; their units point to the message after them", **told)
            unit, at = UNIT.pack(physical, size, code), queue.next_offset
            while at < offset:
                self._write(queue, at, physical, size, code)
                begin, end = queue.view_from, min(offset, queue.view_to)
                queue.view[(at - begin) * UNIT_BYTES : (end - begin) * UNIT_BYTES] = unit * (end - at)
                at = end
            return
        for start in list(queue.starts):
            self._delete_file(queue, start)
        first = queue.start_of(offset) // UNIT_BYTES
        if first < offset:
            self.map_tail(queue, first)
            self._allocate(queue, first, first, offset)
            queue.view[: (offset - first) * UNIT_BYTES] = FILLER * (offset - first)
        queue.min_offset = queue.max_offset = offset
        queue.min_checked_for = -2

    def _zero_from(self, queue: ConsumeQueue, start: int, position: int) -> None:
        file = self._disk.open(queue.path(start))
        try:
            file.truncate(position)
            file.truncate(queue.file_size)
        finally:
            file.close()
        self.dirty_paths.add(queue.path(start))
        if queue.view_from * UNIT_BYTES == start:
            queue.view_to = min(queue.view_to, queue.view_from + position // UNIT_BYTES)  # its space was given back

    def _delete_file(self, queue: ConsumeQueue, start: int) -> None:
        path = queue.path(start)
        self._mapped.drop(path)
        self._disk.remove(path)
        self.dirty_paths.discard(path)
        self.unsynced_folders.add(queue.folder)
        queue.starts.remove(start)
