"""The first hole of a log: damage that recovery made void, remembered until the bytes are back.

A void record looks whole to every later start. A slave must know nevertheless that its master has something else
there, so the physical offset stands in a small file, ``recovery.hole``, from before the record is written until all
holes are repaired or the log is cut there. A message at that offset says nothing of the holes after it. The reference
has no such file: it cuts its log at the first damage.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger

log = get_logger("store.holes")

FILE_NAME = "recovery.hole"


def first_hole(noted: int | None, found: Sequence[tuple[int, int]], min_offset: int, end: int) -> int | None:
    """Return the physical offset of the first hole of a log, or ``None`` for a log without one.

    Args:
        noted: where earlier starts found the first one.
        found: (first byte, byte after) of the damage this start found.
        min_offset: first byte of the log.
        end: byte after the last one.
    """
    starts = [start for start, _ in found]
    if noted is not None:
        starts.append(noted)
    return min((start for start in starts if min_offset <= start < end), default=None)


def load_hole(disk: Disk, path: str) -> int | None:
    """Return the noted offset; ``None`` without a note. Blocking."""
    if not disk.exists(path):
        return None
    text = disk.read(path).decode("ascii", "replace").strip()
    if not text.isdecimal():
        log.warning("the note of the log's first hole is not readable and is left out of account", path=path)
        return None
    return int(text)


def keep_hole(disk: Disk, folder: str, path: str, offset: int | None) -> None:
    """Note *offset* durably in *path*, a file in *folder*; ``None`` removes the note. Blocking.

    Args:
        disk: where it is written.
        folder: that *path* is in; synced after a removal.
        path: file of the note.
        offset: where the hole begins (bytes of the log); ``None`` removes the note.

    Raises:
        OSError: the disk did not take it.
    """
    if offset is not None:
        write_durably(disk, path, b"%d\n" % offset, keep_previous=False)
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_folder(folder)
