"""One sync for everything of a turn, in a worker thread: a disk that hangs holds up its member, not the process."""

from __future__ import annotations

from collections.abc import Callable

from understudy.controller.raft.errors import CannotWriteError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.raft.snapshot import SnapshotStore
from understudy.runtime.background import open_background
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("controller.durability")


class Durability:
    """Syncs of one member.

    Args:
        world: disk and clock.
        settings: of the member.
        journal: its log.
        snapshots: its snapshot file.
        on_hang: told ``True`` when a sync takes longer than an election waits, ``False`` when it is over.
    """

    def __init__(
        self,
        world: World,
        settings: QuorumSettings,
        journal: Journal,
        snapshots: SnapshotStore,
        on_hang: Callable[[bool], None] = lambda hangs: None,
    ) -> None:
        self._world = world
        self._settings = settings
        self._journal = journal
        self._snapshots = snapshots
        self._on_hang = on_hang
        self._hangs = False

    async def make_durable(self) -> None:
        """Return when all that was written is on the disk. Raises :class:`FatalError` when it cannot be."""
        if not self._journal.dirty and not self._snapshots.pending:
            return
        try:
            async with open_background() as watch:
                watch.start_soon(self._tell_of_a_hang)
                await self._world.disk.in_thread(self._write)
        except OSError as error:
            # what reached the disk is not known after a failed sync: never try again, a restart reads what is there
            raise CannotWriteError(self._settings.folder, error) from error
        if self._hangs:
            self._hangs = False
            self._on_hang(False)

    async def _tell_of_a_hang(self) -> None:
        """Say that the disk does not answer. Nothing leaves this member meanwhile, so others elect one of them."""
        seconds = self._settings.timing.election_min_seconds
        await self._world.clock.sleep(seconds)
        self._hangs = True
        self._on_hang(True)
        log.error(
            f"the disk has not finished a sync for {seconds} s: this member neither leads nor votes until it does",
            folder=self._settings.folder,
            member=self._settings.member,
        )

    def _write(self) -> None:
        self._journal.sync()
        self._snapshots.write_pending()
