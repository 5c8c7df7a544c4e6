"""Reading whole files: what a program needs of a disk before it has imported anything else."""

from __future__ import annotations

import os
import stat
from typing import Protocol


class Files(Protocol):
    """Files that are read whole; every :class:`~understudy.runtime.disk.Disk` is one."""

    def exists(self, path: str) -> bool:
        """Return whether there is something at *path*."""
        ...

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises ``FileNotFoundError``."""
        ...

    def regular_file(self, path: str) -> str | None:
        """Return the absolute path of the regular file at *path*, links followed; ``None`` when there is none."""
        ...


class RealFiles:
    """The machine's file systems."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def regular_file(self, path: str) -> str | None:
        try:
            real = os.path.realpath(path, strict=True)
            return real if stat.S_ISREG(os.stat(real).st_mode) else None
        except (OSError, ValueError):  # ValueError: a path that no system can have
            return None
