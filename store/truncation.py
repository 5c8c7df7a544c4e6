"""Cutting a log back to a point that it shares with another one, in a running store.

A replica whose master lost the lead may have messages that the next master never had. They go, from the log, the queues
and the index, before anything else is appended: :class:`understudy.ha.switch.epochs.Epochs` says where both logs part.

The point is noted in a small file, ``log.truncate``, before anything is cut, and the note goes when all of it is
durable. A start that finds the note cuts the log there first. Without it a power loss in the middle could leave whole
records behind zeros, which a recovery would keep as messages behind a hole.

A full disk, or the end of whoever asked for the cut, may stop it in between. Nothing is appended then until the next
call has brought it to its end: a start would find the note and cut off what followed, too.

Source: DefaultMessageStore.truncateDirtyFiles, which cuts in place without any note.
"""

from __future__ import annotations

from functools import partial

import attrs
import trio

from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger
from understudy.store.core import BEING_CUT, StoreCore
from understudy.store.flush import Flusher, sync_files
from understudy.store.integrity import Integrity
from understudy.store.lookup import Lookup
from understudy.store.replication import Replication
from understudy.store.walk import is_blank

log = get_logger("store.truncation")

FILE_NAME = "log.truncate"


class TruncationError(ValueError):
    """The log cannot be cut there; nothing was changed. The message says why."""


@attrs.define
class _Begun:
    """A cut that has not come to its end.

    Attributes:
        offset: from where on everything goes (bytes).
        noted: the note is durable, so the cut is made whatever happens; before, it is given up.
    """

    offset: int
    noted: bool = False


class Truncation:
    """Cuts the log of one open store."""

    def __init__(
        self, core: StoreCore, flusher: Flusher, replication: Replication, integrity: Integrity, lookup: Lookup
    ) -> None:
        self._core = core
        self._flusher = flusher
        self._replication = replication
        self._integrity = integrity
        self._lookup = lookup
        self._turn = trio.Lock()
        self._begun: _Begun | None = None

    async def cut(self, offset: int) -> int:
        """See :meth:`understudy.store.message_store.MessageStore.truncate`."""
        core = self._core
        async with self._turn:
            await self._end()
            if offset >= core.log.end:
                return 0
            self._check(offset)
            gone = core.log.end - offset
            self._begun = begun = _Begun(offset)
            core.refusals.add(BEING_CUT)
            async with self._flusher.paused():
                await core.disk.in_thread(partial(_note, core.disk, core.config.folder, core.path(FILE_NAME), offset))
                begun.noted = True
            log.warning(
                "the log is cut back to where both logs are the same", folder=core.config.folder, at=offset, bytes=gone
            )
            await self._end()
            return gone

    async def finish(self) -> None:
        """End a cut that was stopped in between, if there is one. Raises ``OSError``: the disk refuses still."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        """Bring what has begun to its end: until then a start would cut there, whatever had followed by then."""
        core, begun = self._core, self._begun
        if begun is None:
            return
        if begun.noted:
            async with self._flusher.paused():
                paths = self._cut_all(begun.offset)
                await core.disk.in_thread(partial(self._settle, paths))
                await core.holes.change(lambda noted: [hole for hole in noted if hole < begun.offset])
            self._flusher.note_deletion()
            if not await self._flusher.make_durable():
                raise OSError(f"{core.config.folder}: what was cut from the log could not be made durable")
        await core.disk.in_thread(partial(_forget_note, core.disk, core.config.folder, core.path(FILE_NAME)))
        self._begun = None
        core.refusals.discard(BEING_CUT)

    def _check(self, offset: int) -> None:
        core = self._core
        first = max(core.segments.min_offset, 0)
        if offset < first:
            raise TruncationError(f"the log begins at {first}, after {offset}")
        if offset == core.dispatched or core.log.parse_at(offset, check_crc=False) is not None:
            return
        if not is_blank(core.log.tail_at(offset, 8), 0):
            raise TruncationError(f"no message begins at {offset}")

    def _cut_all(self, offset: int) -> list[str]:
        """Cut everything in memory and in the files, without waiting; return the files that must be synced."""
        core = self._core
        self._replication.close()
        last = self._lookup.record_before(offset)
        head = None if last is None else core.log.parse_at(last, check_crc=False)
        for queue in core.consume_queues:
            core.consume_queues.cut(queue, offset)
        for batch in core.batch_queues.by_key.values():
            batch.cut(offset)
        core.index.cut(offset, head.store_ms if head is not None else core.last_store_ms)
        kept = [held for held in core.held if held[0] <= offset]
        core.held.clear()
        core.held.extend(kept)
        paths = core.segments.cut_now(offset)
        core.log.continue_at(offset)
        core.dispatched = offset
        core.flushed = min(core.flushed, offset)
        core.trusted_from = min(core.trusted_from, offset)
        core.deletions.fit(core.segments.min_offset, offset)
        self._integrity.forget_from(offset)
        core.holes.forget_from(offset)
        return paths

    def _settle(self, paths: list[str]) -> None:
        core = self._core
        core.marks.forget()
        sync_files(core.disk, paths, [])


def finish_truncation(core: StoreCore) -> None:
    """Cut the log where a process that was stopped in the middle wanted it cut. Blocking; recovery comes after it."""
    path = core.path(FILE_NAME)
    if not core.disk.exists(path):
        return
    text = core.disk.read(path).strip()
    first, items = core.segments.min_offset, core.segments.items
    if text.isdigit() and items and first <= int(text) < items[-1].end:
        log.warning("the log was being cut back when the process ended; it is cut now", path=path, at=int(text))
        core.marks.forget()
        core.segments.cut(int(text))
    _forget_note(core.disk, core.config.folder, path)


def _note(disk: Disk, folder: str, path: str, offset: int) -> None:
    write_durably(disk, path, b"%d\n" % offset, keep_previous=False)


def _forget_note(disk: Disk, folder: str, path: str) -> None:
    if disk.exists(path):
        disk.remove(path)
        disk.sync_folder(folder)
