"""One sync for everything of a turn, where it costs the least."""

from __future__ import annotations

from understudy.controller.raft.errors import CannotWriteError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.raft.snapshot import SnapshotStore
from understudy.runtime.world import World

NEWEST_SYNC_WEIGHT = 1 / 16


class Durability:
    """Syncs of one member: in place as long as the disk is fast, else, and for snapshots, in a worker thread.

    Args:
        world: disk and clock.
        settings: of the member.
        journal: its log.
        snapshots: its snapshot file.
    """

    def __init__(self, world: World, settings: QuorumSettings, journal: Journal, snapshots: SnapshotStore) -> None:
        self.average_seconds = 0.0
        self._world = world
        self._settings = settings
        self._journal = journal
        self._snapshots = snapshots

    async def make_durable(self) -> None:
        """Return when all that was written is on the disk. *Errors*: :class:`FatalError` when it cannot be."""
        if not self._journal.dirty and not self._snapshots.pending:
            return
        began = self._world.clock.monotonic()
        try:
            if self.average_seconds < self._settings.inline_sync_seconds and not self._snapshots.pending:
                self._write()
            else:
                await self._world.disk.in_thread(self._write)
        except OSError as error:
            # what reached the disk is not known after a failed sync: never try again, a restart reads what is there
            raise CannotWriteError(self._settings.folder, error) from error
        took = self._world.clock.monotonic() - began
        self.average_seconds += (took - self.average_seconds) * NEWEST_SYNC_WEIGHT

    def _write(self) -> None:
        self._journal.sync()
        self._snapshots.write_pending()
