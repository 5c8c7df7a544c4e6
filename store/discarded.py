"""Folders of queues that were deleted: moved aside at once, and removed by and by, in a thread.

A topic may have thousands of files, and each of them takes the disk a moment; one new name for their folder does not.
What the process keeps of them goes by and by, too: their files that are mapped, and the objects of tens of thousands.
Nothing that was moved here is ever read again. A start finds what the process before it had not removed. Where a loss
of power gives a folder its former name back, the deletion of the topic, which is durable by then, says that it means
nothing (:mod:`understudy.store.topic_deletion`).
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from functools import partial

import trio

from understudy.runtime.disk import Disk, Mapping
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_reason
from understudy.runtime.signal import Signal

log = get_logger("store.discarded")

FOLDER = "deleted"
#: Folders of queues that are removed by one call in a thread: a store that is closed waits for no more of them.
FOLDERS_AT_ONCE = 32
#: Objects of deleted queues that are let go in one turn of the event loop.
OBJECTS_AT_ONCE = 1024


class Discarded:
    """What was moved aside in one store.

    Args:
        disk: where it is.
        folder: ``deleted`` of the store.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        #: Name of the next one; ``None`` until those of the processes before this one are known.
        self._next: int | None = None
        self._more = Signal()
        self._mapped: list[Mapping] = []
        self._objects: list[object] = []

    def take(self, folder: str, mapped: Sequence[Mapping] = (), objects: Sequence[object] = ()) -> None:
        """Move *folder* aside, with all that is in it; one that is not there is fine.

        Where the disk has no room for one more name, it is removed at once.

        Args:
            folder: of one queue, or of all queues of a topic.
            mapped: files in it, to be given back in a thread before they are removed.
            objects: what was known of the queues, to be let go a few at a time.
        """
        disk = self._disk
        self._mapped += mapped
        self._objects += objects
        if not disk.exists(folder):
            return
        try:
            disk.make_folder(self._folder)
            if self._next is None:
                self._next = 1 + max((int(name) for name in disk.listdir(self._folder) if name.isdigit()), default=0)
            disk.replace(folder, os.path.join(self._folder, str(self._next)))
        except OSError as error:
            log.warning("a deleted queue cannot be moved aside and is removed", folder=folder, why=os_reason(error))
            disk.remove_tree(folder)
            return
        self._next += 1
        self._more.set()

    async def run(self) -> None:
        """Remove what was moved aside, by whatever process, until cancelled."""
        while True:
            handled = self._more.count
            while self._objects:
                del self._objects[-OBJECTS_AT_ONCE:]
                await trio.lowlevel.checkpoint()
            mapped, self._mapped = self._mapped, []
            for first in range(0, len(mapped), FOLDERS_AT_ONCE):
                await self._disk.in_thread(partial(_give_back, mapped[first : first + FOLDERS_AT_ONCE]))
            try:
                for name in self._disk.listdir(self._folder) if self._disk.exists(self._folder) else ():
                    await self._remove(os.path.join(self._folder, name))
            except OSError as error:
                log.warning("files of deleted queues stay", folder=self._folder, why=os_reason(error))
            await self._more.wait(handled)

    async def _remove(self, folder: str) -> None:
        """Remove one that was moved aside. Raises ``OSError``."""
        disk = self._disk
        names = await disk.in_thread(partial(disk.listdir, folder))
        for first in range(0, len(names), FOLDERS_AT_ONCE):
            await disk.in_thread(partial(self._remove_trees, folder, names[first : first + FOLDERS_AT_ONCE]))
        await disk.in_thread(partial(disk.remove_tree, folder))

    def _remove_trees(self, folder: str, names: list[str]) -> None:
        for name in names:
            self._disk.remove_tree(os.path.join(folder, name))


def _give_back(mapped: Sequence[Mapping]) -> None:
    for each in mapped:
        each.close()
