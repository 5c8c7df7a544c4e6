"""How the bytes of an open file, and the names in a folder, become durable on this system.

Linux, with any C library, has ``fdatasync``, which spares the commit of times. macOS has none, and its ``fsync`` leaves
the bytes in the memory of the drive: ``F_FULLFSYNC`` asks the drive to write them, where the file system can. What is
changed through a mapping is written by ``fdatasync`` on Linux; elsewhere ``msync`` must come first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from typing import Any

import attrs

_NOT_SUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}


@attrs.frozen
class Syncing:
    """What a system needs.

    Attributes:
        sync: makes what was written to a file descriptor durable, its length included.
        sync_all: makes all that there is at a file descriptor durable, also the mode and the owner of a file and the
            names in a folder, which ``fdatasync`` may leave out.
        mappings_first: changes through a mapping must be flushed before it.
    """

    sync: Callable[[int], None]
    sync_all: Callable[[int], None]
    mappings_first: bool


def syncing_of(platform: str, system: Any = os, control: Any = fcntl) -> Syncing:
    """Return what a system needs.

    Args:
        platform: as ``sys.platform``.
        system: the module ``os`` of that system.
        control: its module ``fcntl``.
    """
    full_sync = getattr(control, "F_FULLFSYNC", None)
    if full_sync is not None:

        def sync_drive(descriptor: int) -> None:
            try:
                control.fcntl(descriptor, full_sync)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                system.fsync(descriptor)  # a file system of another kind, such as one of the network

        return Syncing(sync_drive, sync_drive, mappings_first=True)
    sync = getattr(system, "fdatasync", system.fsync)
    return Syncing(sync, system.fsync, mappings_first=platform != "linux")


SYNCING = syncing_of(sys.platform)
