"""Files and folders that survive a crash or power loss: replaced whole, and reachable by their names."""

from __future__ import annotations

import os.path

from understudy.runtime.disk import Disk


def make_folder_durably(disk: Disk, path: str) -> None:
    """Create a folder and its parents so that a power loss leaves the names of all of them. Blocking.

    A file is only as durable as the name of every folder above it.

    Args:
        disk: where to create it.
        path: the folder; an existing one is fine.
    """
    path = os.path.abspath(path)
    missing = []
    parent = os.path.dirname(path)
    while not disk.exists(path) and path != os.path.dirname(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        disk.make_folder(folder)
        disk.sync_folder(os.path.dirname(folder))
    if not missing:  # a process that was killed may have left the name unsynced
        disk.sync_folder(parent)


def write_durably(disk: Disk, path: str, *data: bytes, keep_previous: bool = True, private: bool = False) -> None:
    """Replace the file at *path* by *data*. Blocking; call it through ``disk.in_thread``.

    Order: temporary file, its sync, the old file kept as ``path + ".bak"``, rename, sync of the folder. After a power
    loss at any point ``path`` or, between the two renames, ``path + ".bak"`` holds a complete version.

    Args:
        disk: where to write.
        path: the file to replace; its folder must exist.
        data: the new content, in one or more pieces.
        keep_previous: keep the old content beside it as ``.bak`` (what the reference's readers fall back to).
        private: nobody but this user may read it.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary, private=private)
    try:
        file.truncate(0)
        offset = 0
        for piece in data:
            file.write_at(offset, piece)
            offset += len(piece)
        file.sync()
    finally:
        file.close()
    if keep_previous and disk.exists(path):
        disk.replace(path, path + ".bak")
    disk.replace(temporary, path)
    disk.sync_folder(os.path.dirname(path) or ".")
