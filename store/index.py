"""The key index: from a hash of ``topic#key`` to the physical offsets of records (IndexService.java).

Unlike the reference, a start restores the state that the recovery mark names before it indexes records again, so that
no record is found twice and none is missed.
"""

from __future__ import annotations

import os.path
import time
from collections.abc import Callable, Generator, Iterable
from functools import partial

from understudy.format.java_hash import index_hash
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.store.index_file import (
    ENTRIES_AT_ONCE_MAX,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SECONDS_MAX,
    SLOT,
    Geometry,
    IndexFile,
    entries_at_once,
)
from understudy.store.mapped_files import MappedFiles, remove_mapped

log = get_logger("store.index")

_pack_entry = ENTRY.pack_into
_pack_slot = SLOT.pack_into
_unpack_slot = SLOT.unpack_from
_FILES_MAPPED = 4
#: Space taken ahead in one go, in entries.
_ALLOCATE_ENTRIES = 32_768


class Index:
    """All index files of one store, oldest first.

    Args:
        disk: where they are.
        folder: ``index`` of the store.
        slots: hash slots of a file.
        capacity: a file is full when its count reaches this.
        now_ms: wall time, for the names of new files.
    """

    def __init__(self, disk: Disk, folder: str, slots: int, capacity: int, now_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._folder = folder
        self._geometry = Geometry(slots, capacity)
        self._slots = slots
        self._capacity = capacity
        self._entries_at = self._geometry.entries_at
        self._now_ms = now_ms
        self._mapped = MappedFiles(disk, _FILES_MAPPED)
        self.files: list[IndexFile] = []
        self._newest: IndexFile | None = None
        self.dirty_paths: set[str] = set()
        self.unsynced_folder = False
        self._failing = False

    def load(self) -> None:
        """Find the files and read their headers. A file of another geometry is deleted: it can be built again."""
        self.files = []
        for name in self._disk.listdir(self._folder):
            if len(name) != 17 or not (name.isascii() and name.isdigit()):
                continue
            file = IndexFile(os.path.join(self._folder, name), self._geometry, self._mapped)
            if self._disk.size(file.path) != self._geometry.file_bytes:
                log.warning("index file has an unexpected length and is built again", path=file.path)
                self._disk.remove(file.path)
                continue
            file.read_header()
            self.files.append(file)
            self._newest = file

    # Writing

    def put(self, hashes: Iterable[int], physical: int, store_ms: int) -> None:
        """Add one record under each hash.

        Args:
            hashes: unsigned Java hashes of ``topic#key``.
            physical: where the record starts.
            store_ms: its store time.
        """
        for unsigned in hashes:
            self.put_one(unsigned, physical, store_ms)

    def put_one(self, unsigned: int, physical: int, store_ms: int) -> None:
        """Add one record under one hash; see :meth:`put`. The header in the file follows with :meth:`write_headers`."""
        file = self._newest
        if file is None or file.count >= file.room:
            file = self._grow()
            if file is None:
                return
        view = file.view
        if view is None:
            try:
                view = file.mapped_view()
            except OSError as error:
                self._left_out(error)
                return
        if unsigned >= 0x80000000:
            unsigned = index_hash(unsigned)
        number = file.count
        slot_at = HEADER_BYTES + unsigned % self._slots * 4
        previous = _unpack_slot(view, slot_at)[0]
        if not 0 < previous <= number:
            previous = 0
            file.used_slots += 1
        begin_ms = file.begin_ms
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= SECONDS_MAX:
            seconds = 0 if seconds < 0 else SECONDS_MAX
        _pack_entry(view, self._entries_at + number * ENTRY_BYTES, unsigned, physical, seconds, previous)
        _pack_slot(view, slot_at, number)
        if number == 1:
            file.begin_ms, file.begin_offset = store_ms, physical
        file.count = number + 1
        file.end_offset = physical
        file.end_ms = store_ms
        if not file.changed:
            file.changed = True
            self.dirty_paths.add(file.path)

    def put_each(self, hashes: list[int], physicals: list[int], store_ms: int) -> None:
        """Add records that were stored together, each under the hash at its position; see :meth:`put_one`."""
        done = 0
        while done < len(hashes):
            file = self._newest
            if file is None or file.count >= file.room or file.count == 1 or file.view is None:
                self.put_one(hashes[done], physicals[done], store_ms)
                done += 1
                continue
            view, number, slots = file.view, file.count, self._slots
            begin_ms = file.begin_ms
            seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
            seconds = min(max(seconds, 0), SECONDS_MAX)
            stop = min(len(hashes), done + file.room - number, done + ENTRIES_AT_ONCE_MAX)
            slots_at: list[int] = []
            values: list[int] = []
            fresh = 0
            for position in range(done, stop):
                unsigned = hashes[position]
                if unsigned >= 0x80000000:
                    unsigned = 0x100000000 - unsigned & 0x7FFFFFFF  # as index_hash
                slot_at = HEADER_BYTES + unsigned % slots * 4
                previous = _unpack_slot(view, slot_at)[0]
                if not 0 < previous < number:
                    previous = 0
                    fresh += 1
                slots_at.append(slot_at)
                values += (unsigned, physicals[position], seconds, previous)
            if len(set(slots_at)) < len(slots_at):  # two under one slot: the second must find the first
                for position in range(done, stop):
                    self.put_one(hashes[position], physicals[position], store_ms)
                done = stop
                continue
            # Entries first: a slot must never name an entry that is not there.
            entries_at_once(stop - done).pack_into(view, self._entries_at + number * ENTRY_BYTES, *values)
            for slot_at in slots_at:
                _pack_slot(view, slot_at, number)
                number += 1
            file.used_slots += fresh
            file.count = number
            file.end_offset, file.end_ms = physicals[stop - 1], store_ms
            if not file.changed:
                file.changed = True
                self.dirty_paths.add(file.path)
            done = stop

    def write_headers(self) -> None:
        """Write the headers of changed files."""
        for file in self.files[-2:]:
            if file.changed:
                file.write_header()

    def _grow(self) -> IndexFile | None:
        """Return a file with room for an entry; None when the disk has no space: then messages are not indexed."""
        file = self._newest
        try:
            if file is None or file.count >= self._capacity:
                file = self._add_file()
            room = min(file.count + _ALLOCATE_ENTRIES, self._capacity)
            begin = self._entries_at + file.room * ENTRY_BYTES if file.room else 0
            self._disk.allocate(file.path, begin, self._entries_at + room * ENTRY_BYTES - begin)
        except OSError as error:
            self._left_out(error)
            return None
        self._failing = False
        file.room = room
        return file

    def _left_out(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            log.error("messages cannot be entered into the index, no key finds them; free some space", error=error)

    def _add_file(self) -> IndexFile:
        previous = self._newest
        if previous is not None:
            previous.write_header()
        now = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now / 1000)) + f"{now % 1000:03d}"
        if previous is not None and name <= previous.name:
            name = f"{int(previous.name) + 1:017d}"
        if not self.files:
            self._disk.make_folder(self._folder)
        file = IndexFile(os.path.join(self._folder, name), self._geometry, self._mapped)
        if previous is not None:
            file.begin_ms = file.end_ms = previous.end_ms
            file.begin_offset = file.end_offset = previous.end_offset
        file.mapped_view()
        self.files.append(file)
        self._newest = file
        self.unsynced_folder = True
        return file

    # Reading

    def offsets(self, unsigned: int, max_num: int, begin_ms: int, end_ms: int) -> Generator[None, None, list[int]]:
        """Return physical offsets of records with that hash, stored in [begin_ms, end_ms], newest first.

        Args:
            unsigned: hash of topic and key, not negative.
            max_num: most offsets to be found.
            begin_ms: earliest store time, included.
            end_ms: latest store time, included.

        Yields:
            Now and then, so that others have their turn.
        """
        wanted = index_hash(unsigned)
        found: list[int] = []
        for file in reversed(list(self.files)):
            overlaps = (
                (begin_ms < file.begin_ms and end_ms > file.end_ms)
                or file.begin_ms <= begin_ms <= file.end_ms
                or file.begin_ms <= end_ms <= file.end_ms
            )
            if overlaps and file in self.files:
                for _ in file.find(wanted, max_num, begin_ms, end_ms, found):
                    yield
                    if file not in self.files:
                        break  # deleted meanwhile, as everything that is older
            if file.begin_ms < begin_ms or len(found) >= max_num:
                break
        return found

    def holds(self, unsigned: int, physical: int) -> bool:
        """Whether the record at *physical*, which must be the newest one indexed, is in the index under that hash."""
        wanted = index_hash(unsigned)
        for file in reversed(self.files[-2:]):
            found: list[int] = []
            for _ in file.find(wanted, 1 << 30, -(1 << 62), 1 << 62, found, stop_below=physical):
                continue
            if physical in found:
                return True
        return False

    def hashes_at(self, physical: int) -> set[int]:
        """Return the hashes under which the record at *physical* was entered; nothing when it was not."""
        found: set[int] = set()
        for file in self.files:
            if file.count > 1 and file.begin_offset <= physical <= file.end_offset:
                found |= file.hashes_at(physical)
        return found

    @property
    def last(self) -> IndexFile | None:
        """The newest file."""
        return self.files[-1] if self.files else None

    @property
    def full_until_ms(self) -> int:
        """End time of the newest full file; 0 without one."""
        return self.files[-2].end_ms if len(self.files) > 1 else 0

    # Recovery

    def rewind(self, name: str, count: int, used_slots: int, limit: int, store_ms: int, *, trusted: bool) -> bool:
        """Restore the state in which file *name* had *count* entries, all of records before *limit*.

        Args:
            store_ms: store time of the newest record before *limit*.
            trusted: whether every write of the process reached the file (it died, the machine did not).

        Returns: False when that state is not there; the index must be built from the log then.
        """
        while self.files and self.files[-1].name > name:
            self._take(self.files.pop())()
        if not name:
            return not self.files
        if not self.files or self.files[-1].name != name or not 1 <= count <= self._capacity:
            return False
        file = self.files[-1]
        if count > 1 and not 0 <= file.entry(count - 1)[1] < limit:
            return False
        if trusted and file.count >= count:
            file.undo(count)
        else:
            file.rebuild_slots(count)
        file.used_slots = used_slots
        self._close_state(file, store_ms)
        return True

    def cut(self, physical: int, store_ms: int) -> None:
        """Drop the entries of records at *physical* and after it.

        Args:
            store_ms: store time of the newest record that stays.
        """
        for remove in self.cut_in_steps(physical, store_ms):
            if remove is not None:
                remove()

    def cut_in_steps(self, physical: int, store_ms: int) -> Generator[Callable[[], None] | None]:
        """Do what :meth:`cut` does, while nothing is entered; what is left after each step is an index.

        Yields:
            Now and then ``None``, so that others have their turn, and what removes a file from the disk. Blocking;
            raises ``OSError``.
        """
        while self.files:
            file = self.files[-1]
            while file.undo_some(physical):
                self._close_state(file, store_ms)
                yield None
            if file.count > 1 or len(self.files) == 1:
                break
            yield self._take(self.files.pop())

    def keep_until(self, index_ms: int) -> None:
        """Keep the files that ended before *index_ms*, which were full and durable then; delete the others, which may
        be damaged (IndexService.java)."""
        kept = 0
        while kept < len(self.files) and 0 < self.files[kept].end_ms < index_ms:
            kept += 1
        while len(self.files) > kept:
            self._take(self.files.pop())()

    def doubt_after(self, physical: int) -> None:
        """Count the entries of records at *physical* and after it as not durable: another process wrote them."""
        self.dirty_paths.update(file.path for file in self.files if file.end_offset >= physical)
        self.unsynced_folder = bool(self.files)

    def clear(self) -> None:
        """Delete every file."""
        while self.files:
            self._take(self.files.pop())()

    def take_before(self, log_min: int) -> list[Callable[[], None]]:
        """Take out leading files, never the last, whose records are all before *log_min*.

        Returns:
            What removes each of them from the disk. Blocking; raises ``OSError``.
        """
        removals = list[Callable[[], None]]()
        while len(self.files) > 1 and self.files[0].end_offset < log_min:
            removals.append(self._take(self.files.pop(0)))
        return removals

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return (files, folders) that changed since the last call."""
        self.write_headers()
        for file in self.files:
            file.changed = False
        paths, self.dirty_paths = self.dirty_paths, set()
        folders = {self._folder, os.path.dirname(self._folder)} if self.unsynced_folder else set()
        self.unsynced_folder = False
        return paths, folders

    def close(self) -> None:
        """Give every mapping back."""
        self._mapped.close()

    # Inside

    def _close_state(self, file: IndexFile, store_ms: int) -> None:
        if file.count > 1:
            file.end_offset = file.entry(file.count - 1)[1]
            file.end_ms = store_ms
        else:
            older = self.files[-2] if len(self.files) > 1 else None
            file.begin_ms = file.end_ms = older.end_ms if older else 0
            file.begin_offset = file.end_offset = older.end_offset if older else 0
        file.write_header()
        self.dirty_paths.add(file.path)

    def _take(self, file: IndexFile) -> Callable[[], None]:
        """Forget *file*, which is out of the list, and return what removes it from the disk."""
        self.dirty_paths.discard(file.path)
        self._newest = self.files[-1] if self.files else None
        self.unsynced_folder = True
        return partial(remove_mapped, self._disk, file.path, self._mapped.take(file.path))
