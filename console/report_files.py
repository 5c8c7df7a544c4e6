"""The files of Spark reports as an input: the interface, and a folder of the machine outside of which nothing is read.

What a browser names is opened part by part, each below the one before, and a link is followed nowhere but at the folder
itself. All of this is for a thread: disks are slow.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from typing import Protocol

import attrs

from understudy.runtime.confined_files import opened_file, opened_folder

FILE = "report.json"
MOST_DEPTH = 3
"""Folders between the one that was given and a report."""
_NO_REPORTS = (".parquet", ".journal")


class ReportError(Exception):
    """A report, or the folder, cannot be read; the message is one line."""


@attrs.frozen
class Stamp:
    """By what a file is known again that nobody has changed.

    Attributes:
        written_ns: when it was written, in nanoseconds of wall time.
        size: in bytes.
        number: of the file, on its file system.
    """

    written_ns: int
    size: int
    number: int


@attrs.frozen
class Found:
    """The reports that there are.

    Attributes:
        stamps: of each one's file, by the name of its folder below the first; ``.`` for that one.
        more: there are more names than were to be taken in.
        troubles: of folders, one line each.
    """

    stamps: dict[str, Stamp] = attrs.field(factory=dict)
    more: bool = False
    troubles: tuple[str, ...] = ()


class ReportFiles(Protocol):
    """Where reports are."""

    def find(self, most_names: int) -> Found:
        """Return which there are, after a look at so many names of files and folders at the most.

        Raises:
            ReportError: nothing can be read.
        """
        ...

    def read(self, name: str, most_bytes: int) -> tuple[bytes, Stamp]:
        """Return the content of the report called *name*, and the stamp of its file.

        Raises:
            ReportError: there is none, it has more than *most_bytes*, or it cannot be read.
        """
        ...


@attrs.frozen
class ReportFolder:
    """The :class:`ReportFiles` below a folder of this machine.

    Attributes:
        path: of the folder, which may be a link.
    """

    path: str

    def find(self, most_names: int) -> Found:
        """See :class:`ReportFiles`."""
        search = _Search(most_names)
        try:
            with opened_folder(self.path) as root:
                search.below(root, ())
        except OSError as error:
            raise ReportError(f"{self.path} cannot be read: {error.strerror}") from None
        return Found(search.found, search.more, tuple(search.troubles))

    def read(self, name: str, most_bytes: int) -> tuple[bytes, Stamp]:
        """See :class:`ReportFiles`."""
        parts = [] if name == "." else name.split("/")
        if len(parts) > MOST_DEPTH or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ReportError("there is no such report")
        try:
            with ExitStack() as stack:
                inside = stack.enter_context(opened_folder(self.path))
                for part in parts:
                    inside = stack.enter_context(opened_folder(part, inside))
                file = stack.enter_context(opened_file(FILE, inside))
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode):
                    raise ReportError("there is no such report")
                if about.st_size > most_bytes:
                    raise ReportError(too_large(name, about.st_size, most_bytes))
                return file.read(most_bytes), _stamp(about)
        except (FileNotFoundError, NotADirectoryError):
            raise ReportError("there is no such report") from None
        except (OSError, UnicodeEncodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "that is no name of a file"
            raise ReportError(f"{file_of(name)} cannot be read: {why}") from None


def file_of(name: str) -> str:
    """Return how the file of the report called *name* is told to people."""
    return FILE if name == "." else f"{name}/{FILE}"


def too_large(name: str, size: int, most_bytes: int) -> str:
    """Return what is wrong with the report called *name*, which has *size* bytes."""
    return f"{file_of(name)} has {size} bytes; the console reads {most_bytes} at most, the page beside it shows it"


@attrs.define
class _Search:
    """Looks for reports; *left* is how many names it still takes in, and *more* whether there are others."""

    left: int
    more: bool = False
    found: dict[str, Stamp] = attrs.field(factory=dict)
    troubles: list[str] = attrs.field(factory=list)

    def below(self, folder: int, parts: tuple[str, ...]) -> None:
        """Note the reports in an open *folder*, whose name below the first is *parts*, and in those below it."""
        name = "/".join(parts) or "."
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.left <= 0:
                    self.more = True
                    return
                self.left -= 1
                if entry.name == FILE and entry.is_file(follow_symlinks=False):
                    self.found[name] = _stamp(entry.stat(follow_symlinks=False))
                elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(_NO_REPORTS):
                    folders.append(entry.name)
        for each in sorted(folders) if len(parts) < MOST_DEPTH else ():
            try:
                with opened_folder(each, folder) as inner:
                    self.below(inner, (*parts, each))
            except OSError as error:
                self.troubles.append(f"{'/'.join((*parts, each))} cannot be read: {error.strerror}")


def _stamp(about: os.stat_result) -> Stamp:
    return Stamp(about.st_mtime_ns, about.st_size, about.st_ino)
