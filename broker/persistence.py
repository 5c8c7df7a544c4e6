"""Saves the broker's tables soon after they changed, each as a whole and durably.

A table is marked by :meth:`Persistence.changed`, which costs a set lookup; the service sleeps while nothing is marked.
Several changes within a table's delay are one write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.table import save_table
from understudy.runtime.world import World

log = get_logger("broker.persistence")

RETRY_SECONDS = 5.0


@attrs.define
class SavedTable:
    """One file.

    Attributes:
        name: short name, for logs and for marking.
        path: the file.
        snapshot: returns the content; must not share mutable parts with the table.
        delay_ms: longest time from a change to its write in milliseconds, asked anew for each change.
        barrier: waits until what the content speaks of is durable itself; raises ``OSError`` when it is not.
        private: nobody but this user may read the file.
    """

    name: str
    path: str
    snapshot: Callable[[], Any]
    delay_ms: Callable[[], int]
    barrier: Callable[[], Awaitable[None]] | None = None
    private: bool = False


class Persistence:
    """Every saved table of one broker.

    A table that cannot be written is its own fault: the others are written, the broker serves, and it is tried again.

    Attributes:
        unsaved: why a table could not be written at its last try, by its name; empty when all are well.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.unsaved: dict[str, str] = {}
        self._tables: dict[str, SavedTable] = {}
        self._due: dict[str, float] = {}
        self._wake = Signal()
        self._writing = trio.Lock()

    def add(self, table: SavedTable) -> None:
        """Take *table* into care."""
        self._tables[table.name] = table

    def changed(self, name: str) -> None:
        """Note that the table *name* differs from its file."""
        if name not in self._due:
            self._due_in(name, self._tables[name].delay_ms() / 1000)

    async def run(self) -> None:
        """Write what is due until cancelled; asleep while nothing changes."""
        while True:
            if not self._due:
                await self._wake.wait()
                continue
            soonest = min(self._due.values())
            if soonest > self._world.clock.monotonic():
                with self._world.clock.move_on_after(max(soonest - self._world.clock.monotonic(), 0)):
                    await self._wake.wait()
                continue
            now = self._world.clock.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                await self._try_to_save(name, "table not saved, trying again")

    async def save(self, name: str) -> None:
        """Write the table *name* now; returns when it is durable.

        Raises:
            OSError: it could not be written; the old file and its backup are still there, and it is tried again.
            TableUnfitError: it holds what cannot be written; otherwise the same.
        """
        table = self._tables[name]
        async with self._writing:
            self._due.pop(name, None)
            try:
                content = table.snapshot()
                if table.barrier is not None:
                    await table.barrier()
                disk = self._world.disk
                await disk.in_thread(lambda: save_table(disk, table.path, content, private=table.private))
            except BaseException as error:
                # It still differs from its file, also when only the request behind this write is gone.
                self._due_in(name, RETRY_SECONDS if isinstance(error, Exception) else 0)
                if isinstance(error, Exception):
                    self.unsaved[name] = str(error)
                raise
            self.unsaved.pop(name, None)

    def _due_in(self, name: str, seconds: float) -> None:
        """Have *name* written *seconds* from now, or when it is due already if that is sooner."""
        due = self._world.clock.monotonic() + seconds
        self._due[name] = min(due, self._due.get(name, due))
        self._wake.set()

    async def save_all(self) -> None:
        """Write every table now; one that cannot be written is logged and the others are written all the same."""
        for name in self._tables:
            await self._try_to_save(name, "table not saved")

    async def _try_to_save(self, name: str, complaint: str) -> None:
        path = self._tables[name].path
        try:
            await self.save(name)
        except OSError as error:
            log.error(complaint, table=name, path=path, error=error)
        except Exception as error:  # whatever one table holds, the broker and its other tables live on
            log.error(complaint, exc=error, table=name, path=path, error=error)
