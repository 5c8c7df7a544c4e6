"""Folders and files of this machine that are opened part by part, so that nothing outside of the first is reached.

A link is followed nowhere but at the first folder. All of this is for a thread: disks are slow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def opened_folder(path: str, inside: int | None = None) -> Iterator[int]:
    """Open a folder; give its descriptor.

    Args:
        path: of it; inside of another one its name.
        inside: descriptor of another folder that is open: a link is not followed then.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if inside is None else os.O_NOFOLLOW)
    folder = os.open(path, flags, dir_fd=inside)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened_file(name: str, inside: int) -> Iterator[BinaryIO]:
    """Open the file called *name* in an open folder for reading; a link is not followed.

    It may be something else than a regular file: ask ``os.fstat``. A pipe of that name does not keep the thread.

    Raises:
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=inside), "rb") as file:
        yield file
