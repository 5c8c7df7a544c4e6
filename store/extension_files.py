"""The files of what extends the units of one consume queue (ConsumeQueueExt.java).

One after the other: size 2, tags code 8, store time 8, bytes of the bit map 2, the bit map. A file that has no room for
one more is closed with -1; the next one begins in the next file.
"""

from __future__ import annotations

import os.path
import struct
from collections.abc import Callable

import attrs

from understudy.runtime.disk import Disk
from understudy.store.mapped_files import MappedFiles
from understudy.store.segments import file_name, numbered_files

_HEAD = struct.Struct(">hqqh")
_END = b"\xff\xff"
#: There is always room for it.
_END_BYTES = 4
_ALLOCATE_BYTES = 1 << 16


@attrs.frozen
class Extension:
    """What extends one unit.

    Attributes:
        code: tags code of the message.
        store_ms: when it was stored.
        bits: bit map of the conditions that it meets; empty when none was asked.
    """

    code: int
    store_ms: int
    bits: bytes | memoryview

    @property
    def size_bytes(self) -> int:
        """What it takes in its file."""
        return _HEAD.size + len(self.bits)


class ExtensionFiles:
    """The extensions of one queue.

    Args:
        disk: where they are.
        mapped: the mapped queue files.
        folder: of these files.
        file_size: bytes of a new one.
        dirty: returns the files and the folders that are to be made durable with the queues.
        on_new_file: called before a new file is made.

    Attributes:
        folder: see above.
        end: where the next one is written, in bytes from the first there ever was.
        extended_to: queue offset before which no unit is extended any more.
    """

    def __init__(
        self,
        disk: Disk,
        mapped: MappedFiles,
        folder: str,
        file_size: int,
        dirty: Callable[[], tuple[set[str], set[str]]],
        on_new_file: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._mapped = mapped
        self.folder = folder
        self._dirty = dirty
        self._on_new_file = on_new_file
        self._starts = numbered_files(disk, folder)
        self._file_size = (disk.size(self._path(self._starts[0])) if self._starts else 0) or file_size
        self._allocated = 0
        self.end = 0
        self.extended_to = 0

    def unmapped(self, start: int) -> None:
        """Nothing is kept of a mapped file."""

    def read(self, position: int) -> Extension | None:
        """Return what stands at *position*; nothing when it is no extension."""
        start = self._start_of(position)
        if start not in self._starts:
            return None
        view, at = self._view(start), position - start
        if at + _HEAD.size > len(view):
            return None
        size, code, store_ms, length = _HEAD.unpack_from(view, at)
        if length < 0 or size != _HEAD.size + length or at + size > len(view):
            return None
        return Extension(code, store_ms, view[at + _HEAD.size : at + size])

    def put(self, extension: Extension) -> int:
        """Write one at the end; return where. Raises ``OSError`` when there is no space."""
        size, start = extension.size_bytes, self._start_of(self.end)
        if size > start + self._file_size - self.end - _END_BYTES:
            if start in self._starts:
                at = self.end - start
                self._view(start)[at : at + len(_END)] = _END
            self.end = start = start + self._file_size
        view, at = self._view(start), self.end - start
        if self.end + size > self._allocated:
            length = min(_ALLOCATE_BYTES, self._file_size - at)
            self._disk.allocate(self._path(start), at, length)
            self._allocated = self.end + length
        _HEAD.pack_into(view, at, size, extension.code, extension.store_ms, len(extension.bits))
        view[at + _HEAD.size : at + size] = extension.bits
        self._dirty()[0].add(self._path(start))
        self.end += size
        return start + at

    def end_after(self, last: int | None) -> None:
        """Put the end behind the extension at *last*, and clear what is there.

        Args:
            last: the last one that a unit names; ``None`` when none of those looked at does: then what was written
                stays.
        """
        found = None if last is None else self.read(last)
        if last is None:
            self.end = self._written_end()
        elif found is None:
            self.end = self._start_of(last) + self._file_size  # nothing may ever stand where that unit says
        else:
            self.end = last + found.size_bytes
        self._allocated = self.end
        start = self._start_of(self.end)
        for later in [each for each in self._starts if each > start]:
            self._delete(later)
        if start in self._starts:
            rest = bytes(self._view(start)[self.end - start :][: _HEAD.size])
            if rest.count(0) != len(rest):
                self._zero_from(start)

    def doubt(self) -> None:
        """Count nothing of them as durable: another process wrote them."""
        paths, folders = self._dirty()
        paths.update(map(self._path, self._starts))
        topic_folder = os.path.dirname(self.folder)
        folders.update((self.folder, topic_folder, os.path.dirname(topic_folder)))

    def begin_at(self, position: int) -> None:
        """Write the next one behind the file of *position*: there may be units that name what was there."""
        self.end = self._allocated = self._start_of(position) + self._file_size

    def forget_before(self, position: int) -> None:
        """Delete the files that end at *position* or before it."""
        for start in [start for start in self._starts if start + self._file_size <= position]:
            self._delete(start)

    # Inside

    def _path(self, start: int) -> str:
        return f"{self.folder}/{file_name(start)}"

    def _start_of(self, position: int) -> int:
        return position - position % self._file_size

    def _view(self, start: int) -> memoryview:
        if start not in self._starts:
            self._on_new_file()
            self._disk.make_folder(self.folder)
            topic_folder = os.path.dirname(self.folder)
            self._dirty()[1].update((self.folder, topic_folder, os.path.dirname(topic_folder)))
            self._starts.append(start)
            self._allocated = start
        return self._mapped.view(self._path(start), self._file_size, self, start)

    def _written_end(self) -> int:
        """Return where the last one that was written ends."""
        at = self._starts[-1] if self._starts else 0
        while (found := self.read(at)) is not None:
            at += found.size_bytes
        return at

    def _delete(self, start: int) -> None:
        path = self._path(start)
        self._mapped.drop(path)
        self._disk.remove(path)
        self._dirty()[0].discard(path)
        self._dirty()[1].add(self.folder)
        self._starts.remove(start)

    def _zero_from(self, start: int) -> None:
        file = self._disk.open(self._path(start))
        try:
            file.truncate(self.end - start)
            file.truncate(self._file_size)
        finally:
            file.close()
        self._dirty()[0].add(self._path(start))
