"""The files of the commit log: names, folders, order, creation and deletion.

A file is named by its first physical offset in 20 digits and has a fixed length; the space after its last record is
zero or a blank marker. Files may lie in several folders (MultiPathMappedFileQueue.java). Unlike the reference, a file
of an unexpected length does not stop the start: a short one is filled with zeros, which end the log there unless more
follows, and a long one keeps its length.
"""

from __future__ import annotations

import os.path
from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.store.mapped_files import MappedFiles, remove_mapped

log = get_logger("store.segments")


def file_name(start: int) -> str:
    """Return the name of the file that starts at byte *start*."""
    return f"{start:020d}"


def numbered_files(disk: Disk, folder: str) -> list[int]:
    """Return the starts of the numbered files in *folder*, ascending; other names are ignored."""
    return sorted(int(name) for name in disk.listdir(folder) if len(name) == 20 and name.isascii() and name.isdigit())


class Segment:
    """One file of the log."""

    __slots__ = ("path", "size", "start", "view")

    def __init__(self, path: str, start: int, size: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.view: memoryview | None = None

    @property
    def end(self) -> int:
        """Physical offset after the file."""
        return self.start + self.size

    def unmapped(self, start: int) -> None:
        """Forget the view; the next reader maps the file again."""
        self.view = None


class Segments:
    """All files of one log, oldest first.

    Args:
        disk: where they are.
        folders: folders that get new files in turn.
        read_only_folders: folders that are only read.
        file_size: bytes of a new file.
        mapped_max: most files mapped at the same time.
        folder_full: says whether a folder should not get a new file now.

    Attributes:
        on_lost: called, perhaps again and again, with a file that is not on the disk any more although nobody here
            deleted it. It is not of the log any more, unless it is the last one, which is still written to.
    """

    def __init__(
        self,
        disk: Disk,
        folders: tuple[str, ...],
        read_only_folders: tuple[str, ...],
        file_size: int,
        mapped_max: int,
        folder_full: Callable[[str], bool] = lambda folder: False,
    ) -> None:
        self.disk = self._disk = disk
        self._folders = folders
        self._read_only = read_only_folders
        self._folder_full = folder_full
        self._mapped = MappedFiles(disk, mapped_max)
        self.file_size = file_size
        self.items: list[Segment] = []
        self._starts: list[int] = []
        self.unsynced_folders: set[str] = set()
        self.on_lost: Callable[[Segment], None] = lambda segment: None

    def load(self) -> None:
        """Find the files. An empty last file is deleted, a short one counts as filled with zeros."""
        found: dict[int, str] = {}
        for folder in (*self._read_only, *self._folders):
            if folder not in self._read_only:
                make_folder_durably(self._disk, folder)
            for start in numbered_files(self._disk, folder):
                found.setdefault(start, os.path.join(folder, file_name(start)))
        starts = sorted(found)
        while starts and self._disk.size(found[starts[-1]]) == 0:
            self._disk.remove(found[starts.pop()])
        self.items = []
        for index, start in enumerate(starts):
            length = self._disk.size(found[start])
            size = max(length, self.file_size)
            if index + 1 < len(starts):
                size = min(size, starts[index + 1] - start)
            if length != self.file_size:
                log.warning("commit log file has an unexpected length", path=found[start], bytes=length, taken=size)
            self.items.append(Segment(found[start], start, size))
        self._starts = starts

    def read_ahead(self, on: bool) -> None:
        """Have the system read ahead in the files, or not."""
        self._mapped.read_ahead(on)

    @property
    def min_offset(self) -> int:
        """First byte of the first file; -1 without files."""
        return self._starts[0] if self._starts else -1

    def find(self, offset: int) -> Segment | None:
        """Return the file that holds *offset*; one that was removed behind our back holds nothing."""
        segment = self._at(offset)
        if segment is not None and segment.view is None:
            try:
                self.view(segment)
            except FileNotFoundError:
                self.lose(segment)
                return None
        return segment

    def _at(self, offset: int) -> Segment | None:
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self.items[index].end:
            return None
        return self.items[index]

    def path_of(self, start: int) -> str:
        """Return the path of the file that begins at *start*. Raises ``KeyError``."""
        segment = self._at(start)
        if segment is None:
            raise KeyError(start)
        return segment.path

    def after(self, offset: int) -> Segment | None:
        """Return the first file that starts after *offset*."""
        index = bisect_right(self._starts, offset)
        return self.items[index] if index < len(self.items) else None

    def view(self, segment: Segment) -> memoryview:
        """Return the bytes of a file, mapped if it is not."""
        if segment.view is None:
            segment.view = self._mapped.view(segment.path, segment.size, segment, segment.start, create=False)
        return segment.view

    def look_for_lost(self) -> None:
        """Find out which files were removed behind our back; costs a look at each."""
        for segment in [segment for segment in self.items if not self._disk.exists(segment.path)]:
            self.lose(segment)

    def lose(self, segment: Segment) -> None:
        """Take note that the file of *segment* is not on the disk any more."""
        if segment is not self.items[-1]:
            index = self.items.index(segment)
            del self.items[index], self._starts[index]
            self._mapped.drop(segment.path)
        self.on_lost(segment)

    def create(self, start: int) -> Segment:
        """Add an empty file that begins at *start*, which must be after every other file."""
        usable = [folder for folder in self._folders if not self._folder_full(folder)] or list(self._folders)
        folder = usable[start // self.file_size % len(usable)]
        segment = Segment(os.path.join(folder, file_name(start)), start, self.file_size)
        segment.view = self._mapped.view(segment.path, segment.size, segment, start)
        self.unsynced_folders.add(folder)
        self.items.append(segment)
        self._starts.append(start)
        return segment

    def delete_first(self) -> None:
        """Delete the oldest file; slices of it that readers hold stay readable."""
        self.take_first()()

    def take_first(self) -> Callable[[], None]:
        """Take the oldest file out of the log; slices of it that readers hold stay readable.

        Returns:
            What removes it from the disk. Blocking; raises ``OSError``.
        """
        segment = self.items.pop(0)
        del self._starts[0]
        self.unsynced_folders.add(os.path.dirname(segment.path))
        return partial(remove_mapped, self._disk, segment.path, self._mapped.take(segment.path))

    def put_back(self, segment: Segment) -> None:
        """Have a file that was taken out, and could not be removed, as the oldest one again."""
        if self.items and self.items[0].start == segment.end:
            self.items.insert(0, segment)
            self._starts.insert(0, segment.start)

    def cut(self, offset: int) -> None:
        """Forget the bytes from *offset* on: zero the rest of its file, delete the files after it.

        Differs from the reference, which leaves the rest of the file as it is: bytes of records that were cut off could
        be taken for records again after a crash.
        """
        for path in self.cut_now(offset):
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()

    def cut_now(self, offset: int) -> list[str]:
        """Cut as :meth:`cut` does and wait for nothing; return the files that must be synced."""
        while self.items and self.items[-1].start >= offset and self.items[-1].start > self._starts[0]:
            self._delete(self.items.pop())
            self._starts.pop()
        segment = self.find(offset)
        if segment is None:
            return []
        file = self._disk.open(segment.path)
        try:
            file.truncate(offset - segment.start)
            file.truncate(segment.size)
        finally:
            file.close()
        return [segment.path]

    def close(self) -> None:
        """Give every mapping back."""
        self._mapped.close()

    def _delete(self, segment: Segment) -> None:
        self._mapped.drop(segment.path)
        self._disk.remove(segment.path)
        self.unsynced_folders.add(os.path.dirname(segment.path))
