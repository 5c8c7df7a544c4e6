"""What replication needs of a store: raw bytes in, dispatched as they come."""

from __future__ import annotations

from understudy.runtime.disk import File
from understudy.runtime.log import get_logger
from understudy.store.core import BEING_CUT, BEING_ENTERED, StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.flush import Flusher
from understudy.store.run_dispatch import RunDispatcher
from understudy.store.walk import is_blank

logger = get_logger("store.replication")

#: From so many bytes on, a write to the file costs less than copying into fresh pages of the mapping.
_FILE_WRITE_BYTES = 65_536


class Replication:
    """Continues the log of one store with bytes of its master's."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, flusher: Flusher) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._runs = RunDispatcher(core, dispatcher)
        self._open: tuple[int, File] | None = None

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """See :meth:`understudy.store.message_store.MessageStore.append_raw`."""
        core, log = self._core, self._core.log
        for reason in (BEING_CUT, BEING_ENTERED):
            if reason in core.refusals:
                raise OSError(reason)
        if physical_offset >= 0 and core.segments.min_offset in (-1, log.end) and physical_offset != log.end:
            self._begin_at(physical_offset)
        if physical_offset != log.end:
            raise ValueError(f"bytes from {physical_offset} do not continue our log, which ends at {log.end}")
        rest = memoryview(data)
        while rest:
            if log.at == log.limit:
                start = log.base + log.limit
                core.segments.create(start)
                log.continue_at(start)
            room = min(len(rest), log.limit - log.at)
            if room >= _FILE_WRITE_BYTES:
                self._file().write_at(log.at, rest[:room])
            else:
                log.reserve(room)
                log.view[log.at : log.at + room] = rest[:room]
            log.at += room
            rest = rest[room:]
            self._dispatch()
        if core.asleep:
            core.wake()

    def _begin_at(self, physical_offset: int) -> None:
        """Let the log, which holds no byte, begin anywhere; its first file begins where the master's file does.

        A power loss can take the bytes of a file and leave the file: it goes, and the queues that mean nothing with it.
        """
        core, log = self._core, self._core.log
        if core.segments.items:
            logger.warning("the log is empty and begins anew", before=log.end, now=physical_offset)
            core.marks.forget()
            self.close()
            while core.segments.items:
                core.segments.delete_first()
            for topic in list(core.consume_queues.by_topic):
                core.consume_queues.delete_topic(topic)
            for topic in list(core.batch_queues.topics):
                core.batch_queues.delete_topic(topic)
            core.index.clear()
            core.held.clear()
            core.holes.forget_from(0)
            core.holes.keep(())
            core.deletions.clear()
            core.save_deletions()
        log.continue_at(physical_offset - physical_offset % core.segments.file_size)
        core.segments.create(log.base)
        log.continue_at(physical_offset)
        core.dispatched = core.flushed = core.trusted_from = physical_offset
        self._flusher.note_deletion()

    def drop_incomplete(self) -> int:
        """See :meth:`understudy.store.message_store.MessageStore.drop_incomplete`."""
        core, log = self._core, self._core.log
        self.close()
        end = max(core.dispatched, log.base)
        gone = log.end - end
        if gone > 0:
            log.view[end - log.base : log.at] = bytes(gone)
            log.at = end - log.base
            core.flushed = min(core.flushed, end)
        return max(gone, 0)

    def close(self) -> None:
        """Give the file back."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _file(self) -> File:
        """Return the file that is written now, for large writes: they cost less than fresh pages of a mapping."""
        core = self._core
        if self._open is None or self._open[0] != core.log.base:
            self.close()
            segment = core.segments.find(core.log.base)
            assert segment is not None  # the log is written to
            self._open = (core.log.base, core.disk.open(segment.path, create=False))
        return self._open[1]

    def _dispatch(self) -> None:
        core, log = self._core, self._core.log
        if core.dispatched < log.base:
            core.dispatched = log.base  # the rest of the last file was blank
        if not self._runs.dispatch(log) and log.at == log.limit:
            at = core.dispatched - log.base
            if not is_blank(log.view[: log.at], at):
                logger.error("the master's log has no record here", at=core.dispatched, skipped_to=log.end)
            core.dispatched = log.base + log.limit
        self._dispatcher.former_lives.settle()
