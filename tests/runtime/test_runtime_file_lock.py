"""Locks of files: what is taken on each system, by fakes that hold one kind of lock against the other as it does."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from understudy.runtime.disk import DiskLockedError, RealLock
from understudy.runtime.file_lock import HELD_ERRORS, hold


class Locks:
    """Module ``fcntl`` of a system, and the locks of one file there: owner by kind.

    Args:
        kinds_conflict: one of bytes stands against one of an open file, also within one process, as on macOS and BSD.
        of_open_files: there are locks of bytes that belong to an open file.
    """

    LOCK_EX, LOCK_NB, F_WRLCK = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.F_WRLCK

    def __init__(self, *, kinds_conflict: bool, of_open_files: bool = False) -> None:
        self.held: dict[str, object] = {}
        self._kinds_conflict = kinds_conflict
        if of_open_files:
            self.F_OFD_SETLK = 37

    def flock(self, descriptor: int, flags: int) -> None:
        self._take("file", descriptor)

    def lockf(self, descriptor: int, flags: int, length: int) -> None:
        self._take("bytes", "this process")

    def fcntl(self, descriptor: int, command: int, lock: bytes) -> None:
        self._take("bytes", descriptor)

    def java(self) -> None:
        """Lock the file as a Java process does."""
        self._take("bytes", "java")

    def _take(self, kind: str, owner: object) -> None:
        others = self.held.items() if self._kinds_conflict else [(kind, self.held.get(kind, owner))]
        if any(each != owner for _, each in others):
            raise BlockingIOError(errno.EAGAIN, "held")
        self.held[kind] = owner


SYSTEMS = [("linux", False, True), ("linux", False, False), ("darwin", True, False), ("freebsd14", True, False)]


@pytest.mark.parametrize(("platform", "kinds_conflict", "of_open_files"), SYSTEMS)
def test_a_file_is_held_against_ours_and_against_java(platform: str, kinds_conflict: bool, of_open_files: bool) -> None:
    locks = Locks(kinds_conflict=kinds_conflict, of_open_files=of_open_files)
    hold(7, platform, locks)
    for other in (lambda: hold(8, platform, locks), locks.java):
        with pytest.raises(BlockingIOError):
            other()


@pytest.mark.parametrize(("platform", "kinds_conflict", "of_open_files"), SYSTEMS)
def test_a_file_that_java_holds_is_refused(platform: str, kinds_conflict: bool, of_open_files: bool) -> None:
    locks = Locks(kinds_conflict=kinds_conflict, of_open_files=of_open_files)
    locks.java()
    with pytest.raises(OSError, match="held") as refused:
        hold(7, platform, locks)
    assert refused.value.errno in HELD_ERRORS


def test_this_system_holds_a_file_once(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = RealLock(path, b"lock")
    with pytest.raises(DiskLockedError, match="held by another process"):
        RealLock(path)
    os.close(os.open(path, os.O_RDWR))  # an ordinary lock of bytes would be gone by this
    with pytest.raises(DiskLockedError):
        RealLock(path)
    lock.release()
    RealLock(path).release()
