"""Make the log durable: on a timer, or at once for many waiting senders with one sync; and note progress.

Two loops. The first makes the log durable. The second writes the live recovery mark every moment and, now and then,
makes log, queues and index durable together and notes that in the durable mark and the reference's checkpoint. Both
sleep when nothing changed.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from understudy.runtime.descriptors import is_shortage
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_reason
from understudy.runtime.signal import Signal
from understudy.store.checkpoint import Checkpoint, save_checkpoint
from understudy.store.core import StoreCore
from understudy.store.deletions import FILE_NAME as DELETIONS_FILE
from understudy.store.deletions import save_deletions, to_json

log = get_logger("store.flush")

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})

PAGE_BYTES = 4096
#: Between two live marks while messages arrive.
LIVE_MARK_MS = 200
#: Between two tries to note progress on a full disk.
NO_SPACE_RETRY_MS = 1000
#: From so many changed files on, one sync of the whole file system is cheaper than one for each.
MANY_FILES = 64


def sync_files(disk: Disk, paths: list[str], folders: list[str], folder_of_all: str = "") -> list[str]:
    """Wait until files and folders are durable; those deleted meanwhile are left out. Blocking.

    Args:
        folder_of_all: where all of them lie, if that is one file system.

    Returns:
        The files that are not there.
    """
    if len(paths) + len(folders) > MANY_FILES and folder_of_all and disk.sync_everything(folder_of_all):
        return [path for path in paths if not disk.exists(path)]
    missing = []
    for path in paths:
        try:
            file = disk.open(path, create=False)
        except FileNotFoundError:
            missing.append(path)
            continue
        try:
            file.sync()
        finally:
            file.close()
    for folder in folders:
        try:
            disk.sync_folder(folder)
        except FileNotFoundError:
            continue
    return missing


class Flusher:
    """Flushes one store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._waiters: deque[tuple[int, trio.Event]] = deque()
        self._urgent = Signal()
        self._lock = trio.Lock()
        self._deletions_lock = trio.Lock()
        self._durable_end = -1
        self._began: float | None = None
        #: Whether the last round failed for want of descriptors or memory, which says nothing about the disk.
        self._short = False
        #: Whether the disk refused. The system may have dropped what it could not write, so a later sync that succeeds
        #: says nothing of it: nothing more is taken for durable until the store is opened anew.
        self.failed = False
        #: Why messages are refused: there is no space for the notes of what is durable.
        self._no_space = f"the disk of {core.config.folder} is full, so progress cannot be noted; free some space"
        #: Called now and then while the log grows: a disk may fill up between two looks of the retention.
        self.on_progress: Callable[[], None] = lambda: None
        #: Raised when queues are deleted or the log begins anew, so that a mark taken before is not written after.
        self.generation = 0

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until *offset* of the log is durable; False after *timeout_ms*. One sync serves all waiters."""
        core = self._core
        if core.flushed >= offset:
            return True
        waiter = offset, trio.Event()
        self._waiters.append(waiter)
        self._urgent.set()
        core.wake()
        try:
            with core.clock.move_on_after(timeout_ms / 1000):
                await waiter[1].wait()
        finally:
            if not waiter[1].is_set():
                self._waiters.remove(waiter)
        return core.flushed >= offset

    async def run(self) -> None:
        """Run both loops until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_loop)
            nursery.start_soon(self._mark_loop)

    async def _flush_loop(self) -> None:
        core = self._core
        last_flush = core.clock.monotonic()
        while True:
            if core.flushed >= core.log.end:
                await self._sleep_until_work()
                last_flush = core.clock.monotonic()
                continue
            config = core.config
            if not core.sync_flush and not self._waiters:
                with core.clock.move_on_after(config.flush_interval_commit_log_ms / 1000):
                    await self._urgent.wait()
                due = core.clock.monotonic() - last_flush >= config.flush_commit_log_thorough_interval_ms / 1000
                least_bytes = config.flush_commit_log_least_pages * PAGE_BYTES
                if core.log.end - core.flushed < least_bytes and not due and not self._waiters:
                    continue
            if not await self.flush():
                await core.clock.sleep(config.flush_interval_commit_log_ms / 1000)
            last_flush = core.clock.monotonic()

    async def _mark_loop(self) -> None:
        core = self._core
        last_durable = core.clock.monotonic()
        while True:
            if self._durable_end == core.dispatched:
                await self._sleep_until_work()
                last_durable = core.clock.monotonic()
                continue
            await core.clock.sleep(LIVE_MARK_MS / 1000)
            if await self._note_copied():
                core.marks.write_live(core.mark())
            self.on_progress()
            pause_ms = core.config.flush_commit_log_thorough_interval_ms
            if self._no_space in core.refusals:
                pause_ms = min(pause_ms, NO_SPACE_RETRY_MS)
            if core.clock.monotonic() - last_durable >= pause_ms / 1000:
                await self.make_durable()
                last_durable = core.clock.monotonic()

    async def _sleep_until_work(self) -> None:
        self._core.asleep = True
        await self._core.growth.wait()

    def syncing_seconds(self) -> float:
        """Return for how long the disk has been asked by now to make something durable; 0.0 while it is not."""
        return 0.0 if self._began is None else self._core.clock.monotonic() - self._began

    @asynccontextmanager
    async def _syncing(self) -> AsyncIterator[None]:
        async with self._lock:
            self._began = self._core.clock.monotonic()
            try:
                yield
            finally:
                self._began = None

    async def flush(self) -> bool:
        """Make everything written so far durable, whether :meth:`run` runs or not; False when the disk refused."""
        core = self._core
        async with self._syncing():
            if self.failed:
                return False
            end = core.log.end
            paths, folders = self._log_paths(end), self._take_log_folders()
            if not await self._sync(paths, folders):
                self._put_back(paths, folders)
                return False
            self._flushed_to(end)
        return True

    async def make_durable(self) -> bool:
        """Make log, queues and index durable and note it; False when the disk refused or queues were deleted."""
        core = self._core
        async with self._syncing():
            if self.failed:
                return False
            generation, mark, end = self.generation, core.mark(), core.log.end
            checkpoint = Checkpoint(
                physic_ms=core.last_store_ms,
                logics_ms=core.last_dispatched_ms,
                index_ms=core.index.full_until_ms,
                master_flushed_offset=core.checkpoint.master_flushed_offset,
                confirm_offset=core.confirmed_end(end),
            )
            paths = self._log_paths(end)
            folders = self._take_log_folders()
            for part in (core.consume_queues, core.index, core.batch_queues):
                more_paths, more_folders = part.take_dirty()
                paths += sorted(more_paths)
                folders += sorted(more_folders)
            if not await self._sync(paths, folders):
                self._put_back(paths, folders)
                return False
            self._flushed_to(end)
            if generation != self.generation or not await self._note_copied():
                return False
            core.marks.put_durable(mark)
            if not await self._in_thread(core.marks.sync):
                return False
            try:
                await core.disk.in_thread(partial(save_checkpoint, core.disk, core.path("checkpoint"), checkpoint))
                await self.save_deletions()
            except OSError as error:
                self._refused(error, full=error.errno in NO_SPACE)
                return False
            if self._no_space in core.refusals:
                core.refusals.discard(self._no_space)
                log.info("progress can be noted again, messages are accepted", folder=core.config.folder)
            self._durable_end = mark.physical_offset
        return True

    async def _note_copied(self) -> bool:
        """Note which records stand in for lost ones, before a mark keeps a start from seeing them; False: it failed."""
        try:
            while not self._core.holes.is_saved:
                await self._core.holes.save()
        except OSError as error:
            self._refused(error, full=error.errno in NO_SPACE)
            return False
        return True

    async def save_deletions(self) -> None:
        """Have it durable which topics were deleted. Raises ``OSError``; it is tried again with the next mark."""
        core = self._core
        async with self._deletions_lock:
            if core.deletions.is_saved:
                return
            content, core.deletions.is_saved = to_json(core.deletions.by_topic), True
            path = core.path(DELETIONS_FILE)
            try:
                await core.disk.in_thread(partial(save_deletions, core.disk, path, content))
            except BaseException:
                core.deletions.is_saved = False
                raise

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Let nothing be flushed in this context: the log is cut."""
        async with self._lock:
            yield

    def note_deletion(self) -> None:
        """Note at once that queues were deleted or the log begins anew, so that a start does not miss what is gone."""
        self.generation += 1
        self._durable_end = -1
        self._core.marks.write_live(self._core.mark())
        self._core.wake()

    async def _sync(self, paths: list[str], folders: list[str]) -> bool:
        core = self._core
        one_disk = "" if core.config.commit_log_folders else core.config.folder
        missing: list[str] = []

        def sync() -> None:
            missing.extend(sync_files(core.disk, paths, folders, one_disk))

        if not await self._in_thread(sync):
            return False
        not_there = set(missing)
        lost = [item for item in core.segments.items if item.path in not_there]
        for item in lost:
            core.segments.lose(item)
        return not lost

    async def _in_thread(self, function: Callable[[], None]) -> bool:
        """Run *function* in a thread; False when the disk refused, or the process may open no file at the moment."""
        core = self._core
        try:
            await core.disk.in_thread(function)
        except OSError as error:
            self._refused(error)
            return False
        if self._short:
            self._short = False
            log.info("files can be opened again, the log is flushed", folder=core.config.folder)
        return True

    def _refused(self, error: OSError, full: bool = False) -> None:
        """Say that something could not be made durable, and refuse messages.

        Args:
            error: what the disk said.
            full: only a note could not be written for want of space: it is tried again, and messages are taken then.
        """
        core = self._core
        if full:
            if self._no_space not in core.refusals:
                log.error("the disk is full, no messages are accepted", folder=core.config.folder, why=os_reason(error))
                core.refusals.add(self._no_space)
            return
        if is_shortage(error):
            if not self._short:
                self._short = True
                log.error("flush waits: no file can be opened", folder=core.config.folder, why=os_reason(error))
            return
        reason = f"the disk failed to flush {core.config.folder} ({error.strerror}); replace it and start again"
        self.failed = True
        if reason not in core.refusals:
            log.error("flush failed, no more messages are accepted", folder=core.config.folder, error=error)
            core.refusals.add(reason)

    def _put_back(self, paths: list[str], folders: list[str]) -> None:
        """Have the next round sync what this one could not."""
        self._core.consume_queues.dirty_paths.update(paths)
        self._core.segments.unsynced_folders.update(folders)

    def _log_paths(self, end: int) -> list[str]:
        start = self._core.flushed
        return [item.path for item in self._core.segments.items if item.end > start and item.start < end]

    def _take_log_folders(self) -> list[str]:
        folders = sorted(self._core.segments.unsynced_folders)
        self._core.segments.unsynced_folders.clear()
        return folders

    def _flushed_to(self, end: int) -> None:
        core = self._core
        core.flushed = max(core.flushed, min(end, core.log.end))
        waiters = self._waiters
        while waiters and waiters[0][0] <= core.flushed:
            waiters.popleft()[1].set()
        if core.held:
            core.show_held()
            for hidden in core.hidden_grew:
                hidden()
