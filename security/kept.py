"""The table of users of a server that keeps no other tables, and copies it from nobody."""

from __future__ import annotations

import os.path
from collections.abc import Sequence

import trio

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, load_table, save_table
from understudy.security.authority import Authority
from understudy.security.signature import Credentials

log = get_logger("security")


class KeptAuthority:
    """A table of users in a file of its own.

    Args:
        disk: where the file is.
        path: the file; nobody but the program's user may read it.
        supers: super users that are there whatever the file says.

    Attributes:
        table: the users.
    """

    def __init__(self, disk: Disk, path: str, supers: Sequence[Credentials]) -> None:
        self._disk = disk
        self._path = path
        self._supers = supers
        self._one_writer = trio.Lock()
        self._unsaved = False
        self.table = Authority()
        self.table.ensure_supers(supers)

    async def load(self) -> None:
        """Read the file, if there is one.

        Raises:
            TableDamagedError: there is one, and no copy of it can be read.
            OSError: it may not be read.
        """
        found = await self._disk.in_thread(lambda: load_table(self._disk, self._path))
        for sentence in found.damage:
            log.warning("damaged copy skipped", why=sentence, taken=found.source)
        if found.data is not None:
            try:
                self.table.take(found.data, self._supers)
            except ValueError as error:
                raise TableDamagedError(f"{self._path}: {error}; repair the file or move it away") from None

    async def save(self) -> None:
        """Make the table durable, one writer at a time; those that wait for one share the next.

        Raises:
            OSError: it could not be written; the old file and its backup are still there, and the next call writes it.
            TableUnfitError: it holds what cannot be written; otherwise the same.
        """
        self._unsaved = True
        async with self._one_writer:
            if not self._unsaved:
                return  # a write that began after this call had all of it
            self._unsaved = False
            content = self.table.to_json()

            def write() -> None:
                self._disk.make_folder(os.path.dirname(self._path) or ".")
                save_table(self._disk, self._path, content, private=True)

            try:
                await self._disk.in_thread(write)
            except BaseException:
                self._unsaved = True  # also for those that wait: what they changed is not on the disk either
                raise
