"""Whether a broker's store still has all that it had when it was heard last: its *incarnation* is the same one then.

It is a random text in the file ``storeIncarnation``, drawn anew when something of the store may be gone: what only
memory had, when its host was started anew (with ``SYNC_FLUSH`` nothing counts that only memory has); the page cache,
after a flush has failed; the store itself, when it was moved away; its log, when that is shorter than what the store
notes as confirmed (it may be on a disk of its own, which is not there). A process that is killed loses nothing, and
neither does one that is cut off. Controllers may elect who was away when they elected somebody, as long as it is the
same.

It does not tell that a copy was put back that was made since the host was started; with ``SYNC_FLUSH``, any copy.
"""

from __future__ import annotations

import os.path
import random

import trio

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably, write_durably
from understudy.runtime.log import get_logger

log = get_logger("broker.led")

FILE_NAME = "storeIncarnation"
END_SECONDS = 0.2
_BITS = 48


class StoreIncarnation:
    """The incarnation of one store.

    Args:
        disk: where the store is.
        folder: of the store.
        source: of randomness.
        durable: whether nothing counts before the disk has it.

    Attributes:
        value: empty while it is not known, and when nothing can be promised.
    """

    def __init__(self, disk: Disk, folder: str, source: random.Random, *, durable: bool) -> None:
        self._disk = disk
        self._path = os.path.join(folder, FILE_NAME)
        self._source = source
        self._holds = "SYNC_FLUSH" if durable else disk.boot_id()
        self._failed = False
        self.value = ""

    async def settle(self, *, anew: bool = False) -> None:
        """Find out which one it is, or begin a new one where, *anew*, something of the store is known to be gone."""
        try:
            self.value = await self._disk.in_thread(lambda: self._read_or_begin(anew))
        except OSError as error:
            log.warning("the incarnation of the store cannot be noted", file=self._path, why=error)

    def _read_or_begin(self, anew: bool) -> str:
        try:
            value, _, holds = self._disk.read(self._path).decode("ascii", "replace").partition(" ")
        except FileNotFoundError:
            value = holds = ""
        if value and holds == self._holds and not anew:
            return value
        value = f"{self._source.getrandbits(_BITS):012x}"
        make_folder_durably(self._disk, os.path.dirname(self._path))
        # Durable: what was true for SYNC_FLUSH must not be read again after a loss of power without it.
        write_durably(self._disk, self._path, f"{value} {self._holds}".encode(), keep_previous=False)
        return value

    async def end(self) -> None:
        """Know that a flush has failed: it is over, also for the next process."""
        if self._failed:
            return
        self._failed, self.value = True, ""
        try:
            # Not waited for longer than the caller can: the next process needs it, nobody in this one does.
            with trio.move_on_after(END_SECONDS):
                await self._disk.in_thread(lambda: self._disk.remove(self._path), abandon=True)
        except OSError as error:
            log.warning("the incarnation of the store cannot be ended", file=self._path, why=error)
