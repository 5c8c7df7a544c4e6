"""Holding a file against every other program, Java ones too; the system gives it back when the process ends.

There are two kinds of locks: ``flock`` is of an open file, and Java takes ``fcntl`` locks of bytes. Linux does not hold
one against the other, so both are taken there. On macOS and the BSDs every lock of a file stands against every other
of another owner, whatever its kind: ``flock`` alone keeps Java out, and the second kind would be refused by the first,
even in one process (flock(2) of FreeBSD, and of macOS).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from typing import Any

HELD_ERRORS = frozenset({errno.EAGAIN, errno.EACCES})
"""What :func:`hold` raises when another one holds the file."""


def hold(descriptor: int, platform: str = sys.platform, control: Any = fcntl) -> None:
    """Hold the open file *descriptor* until it is closed.

    An ordinary lock of bytes belongs to the process, and is gone as soon as it closes any descriptor of the file. Where
    there are locks of an open file, they are taken: they stand against the ordinary ones as well.

    Args:
        descriptor: of a file that is open for writing.
        platform: as ``sys.platform``.
        control: the module ``fcntl`` of that system.

    Raises:
        OSError: with one of :data:`HELD_ERRORS` when another one holds it.
    """
    control.flock(descriptor, control.LOCK_EX | control.LOCK_NB)
    if platform != "linux":
        return
    if hasattr(control, "F_OFD_SETLK"):
        first_byte = struct.pack("hhqqi4x", control.F_WRLCK, os.SEEK_SET, 0, 1, 0)  # struct flock of a 64-bit system
        control.fcntl(descriptor, control.F_OFD_SETLK, first_byte)
    else:
        control.lockf(descriptor, control.LOCK_EX | control.LOCK_NB, 1)
