"""The key index: from a hash of ``topic#key`` to the physical offsets of records.

A file has a 40-byte header, hash slots of 4 bytes and entries of 20 bytes (IndexFile.java)::

    0 begin time 8 | 8 end time 8 | 16 begin offset 8 | 24 end offset 8 | 32 used slots 4 | 36 entry count 4
    slot: number of its newest entry | entry: hash 4, physical offset 8, seconds after begin 4, older entry 4

Entry 0 is not used, so an empty file has count 1. Unlike the reference, a start restores the state that the recovery
mark names before it indexes records again, so that no record is found twice and none is missed.
"""

from __future__ import annotations

import os.path
import struct
import time
from array import array
from collections.abc import Callable, Iterable
from sys import byteorder

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.store.mapped_files import MappedFiles

log = get_logger("store.index")

HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_pack_entry = _ENTRY.pack_into
_pack_slot = _SLOT.pack_into
_unpack_slot = _SLOT.unpack_from
_HEADER_BYTES = HEADER.size
_ENTRY_BYTES = _ENTRY.size
_FILES_MAPPED = 4
_MAX_SECONDS = 0x7FFFFFFF


def key_hash(unsigned: int) -> int:
    """Return the hash an entry holds: the absolute value of the signed hash; that of -2**31 counts as 0."""
    if unsigned >= 0x80000000:
        unsigned = (1 << 32) - unsigned
        if unsigned == 0x80000000:
            return 0
    return unsigned


class IndexFile:
    """One index file and a copy of its header."""

    __slots__ = (
        "begin_ms",
        "begin_offset",
        "changed",
        "count",
        "end_ms",
        "end_offset",
        "name",
        "path",
        "used_slots",
        "view",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.begin_ms = self.end_ms = self.begin_offset = self.end_offset = self.used_slots = 0
        self.count = 1
        self.changed = False
        self.view: memoryview | None = None

    def unmapped(self, start: int) -> None:
        """Forget the view."""
        self.view = None


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
        self._slots = slots
        self._capacity = capacity
        self._entries_at = _HEADER_BYTES + 4 * slots
        self._file_bytes = self._entries_at + _ENTRY_BYTES * capacity
        self._now_ms = now_ms
        self._mapped = MappedFiles(disk, _FILES_MAPPED)
        self.files: list[IndexFile] = []
        self._newest: IndexFile | None = None
        self.dirty_paths: set[str] = set()
        self.unsynced_folder = False

    def load(self) -> None:
        """Find the files and read their headers. A file of another geometry is deleted: it can be built again."""
        self.files = []
        for name in self._disk.listdir(self._folder):
            if len(name) != 17 or not (name.isascii() and name.isdigit()):
                continue
            file = IndexFile(os.path.join(self._folder, name))
            if self._disk.size(file.path) != self._file_bytes:
                log.warning("index file has an unexpected length and is built again", path=file.path)
                self._disk.remove(file.path)
                continue
            header = HEADER.unpack_from(self._view(file), 0)
            file.begin_ms, file.end_ms, file.begin_offset, file.end_offset, file.used_slots, file.count = header
            file.count = max(file.count, 1)
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
        if file is None or file.count >= self._capacity:
            file = self._add_file()
        view = file.view
        if view is None:
            view = self._view(file)
        if unsigned >= 0x80000000:
            unsigned = key_hash(unsigned)
        number = file.count
        slot_at = _HEADER_BYTES + unsigned % self._slots * 4
        previous = _unpack_slot(view, slot_at)[0]
        if not 0 < previous <= number:
            previous = 0
            file.used_slots += 1
        begin_ms = file.begin_ms
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= _MAX_SECONDS:
            seconds = 0 if seconds < 0 else _MAX_SECONDS
        _pack_entry(view, self._entries_at + number * _ENTRY_BYTES, unsigned, physical, seconds, previous)
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
            if file is None or file.count >= self._capacity or file.count == 1 or file.view is None:
                self.put_one(hashes[done], physicals[done], store_ms)
                done += 1
                continue
            view, number, slots, entry_at = file.view, file.count, self._slots, self._entries_at
            begin_ms = file.begin_ms
            seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
            seconds = min(max(seconds, 0), _MAX_SECONDS)
            stop = min(len(hashes), done + self._capacity - number)
            for position in range(done, stop):
                unsigned = hashes[position]
                if unsigned >= 0x80000000:
                    unsigned = key_hash(unsigned)
                slot_at = _HEADER_BYTES + unsigned % slots * 4
                previous = _unpack_slot(view, slot_at)[0]
                if not 0 < previous <= number:
                    previous = 0
                    file.used_slots += 1
                _pack_entry(view, entry_at + number * _ENTRY_BYTES, unsigned, physicals[position], seconds, previous)
                _pack_slot(view, slot_at, number)
                number += 1
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
                self._write_header(file)

    def _add_file(self) -> IndexFile:
        previous = self._newest
        if previous is not None:
            self._write_header(previous)
        now = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now / 1000)) + f"{now % 1000:03d}"
        if previous is not None and name <= previous.name:
            name = f"{int(previous.name) + 1:017d}"
        if not self.files:
            self._disk.make_folder(self._folder)
        file = IndexFile(os.path.join(self._folder, name))
        if previous is not None:
            file.begin_ms = file.end_ms = previous.end_ms
            file.begin_offset = file.end_offset = previous.end_offset
        self._view(file)
        self.files.append(file)
        self._newest = file
        self.unsynced_folder = True
        return file

    # Reading

    def offsets(self, unsigned: int, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return physical offsets of records with that hash, stored in [begin_ms, end_ms], newest first."""
        wanted = key_hash(unsigned)
        found: list[int] = []
        for file in reversed(self.files):
            overlaps = (
                (begin_ms < file.begin_ms and end_ms > file.end_ms)
                or file.begin_ms <= begin_ms <= file.end_ms
                or file.begin_ms <= end_ms <= file.end_ms
            )
            if overlaps:
                self._walk_chain(file, wanted, max_num, begin_ms, end_ms, found)
            if file.begin_ms < begin_ms or len(found) >= max_num:
                break
        return found

    def holds(self, unsigned: int, physical: int) -> bool:
        """Whether the record at *physical*, which must be the newest one indexed, is in the index under that hash."""
        wanted = key_hash(unsigned)
        for file in reversed(self.files[-2:]):
            found: list[int] = []
            self._walk_chain(file, wanted, 1 << 30, -(1 << 62), 1 << 62, found, stop_below=physical)
            if physical in found:
                return True
        return False

    def _walk_chain(
        self,
        file: IndexFile,
        wanted: int,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        found: list[int],
        stop_below: int = -1,
    ) -> None:
        view = self._view(file)
        (number,) = _SLOT.unpack_from(view, _HEADER_BYTES + wanted % self._slots * 4)
        if not 0 < number <= file.count or file.count <= 1:
            return
        while len(found) < max_num:
            unsigned, physical, seconds, previous = _ENTRY.unpack_from(view, self._entries_at + number * _ENTRY_BYTES)
            if seconds < 0 or physical < stop_below:
                break
            stored_ms = file.begin_ms + seconds * 1000
            if unsigned == wanted and begin_ms <= stored_ms <= end_ms:
                found.append(physical)
            # Entries of a slot only point back; anything else is damage and would never end.
            if not 0 < previous < number or stored_ms < begin_ms:
                break
            number = previous

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
            self._delete(self.files.pop())
        if not name:
            return not self.files
        if not self.files or self.files[-1].name != name or not 1 <= count <= self._capacity:
            return False
        file = self.files[-1]
        if count > 1 and not 0 <= self._entry(file, count - 1)[1] < limit:
            return False
        if trusted and file.count >= count:
            self._undo(file, count)
        else:
            self._rebuild_slots(file, count)
        file.used_slots = used_slots
        self._close_state(file, store_ms)
        return True

    def cut(self, physical: int, store_ms: int) -> None:
        """Drop the entries of records at *physical* and after it.

        Args:
            store_ms: store time of the newest record that stays.
        """
        while self.files:
            file = self.files[-1]
            count = file.count
            while count > 1 and self._entry(file, count - 1)[1] >= physical:
                count -= 1
            if count < file.count:
                self._undo(file, count)
                self._close_state(file, store_ms)
            if count > 1 or len(self.files) == 1:
                break
            self._delete(self.files.pop())

    def keep_until(self, index_ms: int) -> None:
        """Keep the files that ended before *index_ms*, which were full and durable then; delete the others, which may
        be damaged (IndexService.java)."""
        kept = 0
        while kept < len(self.files) and 0 < self.files[kept].end_ms < index_ms:
            kept += 1
        while len(self.files) > kept:
            self._delete(self.files.pop())

    def doubt_after(self, physical: int) -> None:
        """Count the entries of records at *physical* and after it as not durable: another process wrote them."""
        self.dirty_paths.update(file.path for file in self.files if file.end_offset >= physical)
        self.unsynced_folder = bool(self.files)

    def clear(self) -> None:
        """Delete every file."""
        while self.files:
            self._delete(self.files.pop())

    def delete_before(self, log_min: int) -> None:
        """Delete leading files, never the last, whose records are all before *log_min*."""
        while len(self.files) > 1 and self.files[0].end_offset < log_min:
            self._delete(self.files.pop(0))

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

    def _view(self, file: IndexFile) -> memoryview:
        if file.view is None:
            file.view = self._mapped.view(file.path, self._file_bytes, file, 0)
        return file.view

    def _write_header(self, file: IndexFile) -> None:
        view = file.view if file.view is not None else self._view(file)
        HEADER.pack_into(
            view, 0, file.begin_ms, file.end_ms, file.begin_offset, file.end_offset, file.used_slots, file.count
        )

    def _entry(self, file: IndexFile, number: int) -> tuple[int, int, int, int]:
        entry: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self._view(file), self._entries_at + number * _ENTRY_BYTES
        )
        return entry

    def _undo(self, file: IndexFile, count: int) -> None:
        # Newest first, each slot gets back the entry it had before; then the entries are zero again. When the process
        # died, entries are there that the header does not count.
        view = self._view(file)
        newest = file.count - 1
        while newest + 1 < self._capacity and any(self._entry(file, newest + 1)):
            newest += 1
        for number in range(newest, count - 1, -1):
            unsigned, _, _, previous = self._entry(file, number)
            slot_at = _HEADER_BYTES + unsigned % self._slots * 4
            if _SLOT.unpack_from(view, slot_at)[0] == number:
                _SLOT.pack_into(view, slot_at, previous)
                if previous == 0:
                    file.used_slots -= 1
        start, end = self._entries_at + count * _ENTRY_BYTES, self._entries_at + (newest + 1) * _ENTRY_BYTES
        if end > start:
            view[start:end] = bytes(end - start)
        file.count = count

    def _rebuild_slots(self, file: IndexFile, count: int) -> None:
        view = self._view(file)
        slots = array("i", bytes(4 * self._slots))
        entries = view[self._entries_at + _ENTRY_BYTES : self._entries_at + count * _ENTRY_BYTES]
        for number, (unsigned, _, _, _) in enumerate(_ENTRY.iter_unpack(entries), 1):
            slots[unsigned % self._slots] = number
        if byteorder == "little":
            slots.byteswap()
        view[_HEADER_BYTES : self._entries_at] = slots.tobytes()
        entries.release()
        file.count = count

    def _close_state(self, file: IndexFile, store_ms: int) -> None:
        if file.count > 1:
            file.end_offset = self._entry(file, file.count - 1)[1]
            file.end_ms = store_ms
        else:
            older = self.files[-2] if len(self.files) > 1 else None
            file.begin_ms = file.end_ms = older.end_ms if older else 0
            file.begin_offset = file.end_offset = older.end_offset if older else 0
        self._write_header(file)
        self.dirty_paths.add(file.path)

    def _delete(self, file: IndexFile) -> None:
        self._mapped.drop(file.path)
        self._disk.remove(file.path)
        self.dirty_paths.discard(file.path)
        self._newest = self.files[-1] if self.files else None
        self.unsynced_folder = True
