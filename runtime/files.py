"""Reading whole files: what a program needs of a disk before it has imported anything else."""

from __future__ import annotations

import os
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


class RealFiles:
    """The machine's file systems."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()
