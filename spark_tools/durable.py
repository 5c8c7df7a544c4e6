"""Writing files so that a crash leaves the old contents or the new ones, never half of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from understudy.runtime.syncing import SYNCING


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def sync_directory(path: str) -> None:
    """Makes names created or replaced in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        SYNCING.sync_all(handle)
    finally:
        os.close(handle)


def replace_file(path: str, data: bytes) -> None:
    """Replaces (or creates) a file atomically and durably: temporary file, sync, rename, sync of the directory.

    The mode and owner of a replaced file are kept. Errors: OSError; the old contents are untouched then.
    """
    directory = os.path.dirname(path) or "."
    temporary = f"{path}.understudy-new"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        if os.path.exists(path):
            status = os.stat(path)
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        SYNCING.sync_all(file.fileno())  # its mode and owner, too
    os.replace(temporary, path)
    sync_directory(directory)


def remove_file(path: str) -> None:
    """Removes a file durably; one that is gone already is fine."""
    if os.path.exists(path):
        os.unlink(path)
        sync_directory(os.path.dirname(path) or ".")


class Journal:
    """Append-only JSON lines, each durable before the call returns; a torn last line is ignored when read.

    One process at a time: the file is locked while it is open. `entries` are those it was opened with or that were
    written since, but for the events of `EACH_CHANGE`, which are as many as a plan has changes: `replay` reads those.
    """

    EACH_CHANGE = ("write", "written", "skipped")

    def __init__(self, path: str) -> None:
        import fcntl

        self.path = path
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.entries = [entry for entry in self.replay() if entry["event"] not in self.EACH_CHANGE]
        self._file = open(path, "ab")  # noqa: SIM115 - stays open, and locked, until close
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise
        if self._file.tell() and not self._ends_with_newline():
            self._file.write(b"\n")

    def replay(self) -> Iterator[dict[str, Any]]:
        """All entries, oldest first, read as they are taken."""
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:  # torn by a crash: what it announced was not done yet
                    continue

    def _ends_with_newline(self) -> bool:
        with open(self.path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def write(self, *entries: dict[str, Any]) -> None:
        """Appends entries with one sync."""
        self._file.write("".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries).encode())
        self._file.flush()
        SYNCING.sync(self._file.fileno())
        self.entries += [entry for entry in entries if entry["event"] not in self.EACH_CHANGE]

    def of(self, event: str) -> Iterable[dict[str, Any]]:
        """Entries of one kind that are held, oldest first."""
        return [entry for entry in self.entries if entry.get("event") == event]

    def close(self) -> None:
        """Releases the lock."""
        self._file.close()
