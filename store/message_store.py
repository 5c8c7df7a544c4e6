"""The message store of one broker: commit log, consume queues, index, flush, recovery, retention.

One message's way: :mod:`~understudy.store.writer` puts it into the mapped log, its queue unit beside it, its index
entries soon after; :mod:`~understudy.store.flush` makes it durable; :mod:`~understudy.store.reader` answers pulls with
slices of the log; after a crash :mod:`~understudy.store.recovery` makes the three agree again;
:mod:`~understudy.store.retention` deletes what is old.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from functools import partial

import attrs
import trio

from understudy.runtime.disk import Lock
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.pace import run_steps
from understudy.runtime.world import World
from understudy.store.agreement import Agreement
from understudy.store.batch_repair import BatchRepair
from understudy.store.batch_topics import QueueKinds
from understudy.store.batch_writer import BatchWriter
from understudy.store.compaction.reading import CompactedReading
from understudy.store.compaction.service import Compaction
from understudy.store.config import StoreConfig
from understudy.store.core import Arrival, StoreCore
from understudy.store.deletions import Deletion, LivingTopics
from understudy.store.dispatch import Dispatcher
from understudy.store.flush import Flusher
from understudy.store.index_scrub import IndexScrub
from understudy.store.integrity import Integrity, ScrubReport
from understudy.store.light_writer import LightWriter
from understudy.store.lookup import Lookup
from understudy.store.opening import hold, recover
from understudy.store.queue_repair import QueueRepair
from understudy.store.reader import Reader
from understudy.store.repair import Repair, Repairs, intact_from
from understudy.store.replication import Replication
from understudy.store.retention import Retention
from understudy.store.showing import Showing
from understudy.store.status import QueryResult
from understudy.store.topic_deletion import TopicDeletion
from understudy.store.truncation import Truncation
from understudy.store.writer import Writer

__all__ = ["Arrival", "MessageStore"]

_CLOSED = "the store is closed"
_FENCED = "the store does not accept messages now"
#: How long a clean end may take before the start after it has to recover.
_CLOSE_TIMEOUT_S = 60


class MessageStore:
    """The messages of one broker on one disk: :meth:`open` it, keep :meth:`run` running, :meth:`close` it.

    All calls without ``async`` return at once and never yield, so a caller needs no lock.

    Attributes:
        append: writes one message, see :meth:`understudy.store.writer.Writer.append`. This and the other calls that are
            attributes are methods of the part that carries them out: one call less for each message.
        enter_keys: makes what was appended last quick to find by key, see
            :meth:`understudy.store.core.StoreCore.enter_keys`; a caller whose time it is may, nobody must.
        append_batch: writes a client's batch, see :meth:`understudy.store.batch_writer.BatchWriter.append_batch`.
        get: reads messages of a queue, see :meth:`understudy.store.reader.Reader.get`.
        wait_flushed, flush, syncing_seconds: see :class:`understudy.store.flush.Flusher`.
        read, record_before, note_rotten, note_rotten_record: see :class:`understudy.store.lookup.Lookup`, as the next.
        min_queue_offset, max_queue_offset, written_queue_offset, offset_by_time, queue_offset_at: queue offsets.
        store_time_of, earliest_store_time: when messages were stored.
        read_ahead: has the system read more of the log from the disk than was asked for, as it does by default, or not.
        set_confirmed: shows readers only messages that end before a physical offset; ``None``: all that are written, or
            durable with synchronous flush. What readers have seen stays visible.
        hide_after, hidden: what readers do not see of the log, see :class:`understudy.store.showing.Showing`.
        start_scrub: has every record compared with its checksum; the report grows while :meth:`run` is at it.
        delete_expired_files: deletes expired files in the next looks, whatever the hour (an operator asked for it).
        delete_topic, clean_unused, learn_deletions, delete_beside: see
            :class:`understudy.store.topic_deletion.TopicDeletion`.
        dropped: called with topics of which ``learn_deletions`` had something deleted.
        arrived: called in order for what becomes readable, see :data:`~understudy.store.core.Arrival`; must cost next
            to nothing when nobody waits.
        batch_topics: those that have batch queues; always the same object.
        declare_kinds, settle_kinds, changing_kinds: see :class:`understudy.store.batch_topics.QueueKinds`.
        compacted_topics: those that are read from their compaction logs; always the same object.
        finish_truncation: awaited, ends a cut that was stopped in between. Raises ``OSError``.
        note_stand_in: awaited, see :meth:`understudy.store.holes.Holes.note_copied`.
        compacted_copies, compaction_logs: see :class:`understudy.store.compaction.queues.CompactedQueues`.
        hidden_grew: called when bytes were written, or became durable, that readers may not see yet; as cheap.
        extensions: what extends units of queues.
    """

    def __init__(self, core: StoreCore, lock: Lock) -> None:
        """Use :meth:`open`."""
        self._core, self._lock = core, lock
        self._dispatcher = Dispatcher(core)
        self._writer = (LightWriter if core.config.light_queues else Writer)(core, self._dispatcher)
        self._batch_writer = BatchWriter(core, self._dispatcher, self._writer)
        batches = BatchRepair(core, self._dispatcher)
        agreement = Agreement(core, self._dispatcher, batches)
        self._integrity = Integrity(core, agreement, IndexScrub(core, self._dispatcher))
        self._queue_repair = QueueRepair(core, self._dispatcher, self._integrity.note)
        self._reader = Reader(core, self._integrity, self._queue_repair, batches)
        self._lookup = Lookup(core, self._dispatcher, agreement, self._integrity)
        self._showing = Showing(core, self._lookup)
        self.hide_after, self.hidden = self._showing.hide_after, self._showing.hidden
        self._flusher = flusher = Flusher(core)
        self.wait_flushed, self.flush = flusher.wait_flushed, flusher.flush
        self.syncing_seconds = flusher.syncing_seconds
        self._retention = Retention(core)
        flusher.on_progress = self._retention.guard
        self._deletion = deletion = TopicDeletion(core, self._flusher)
        self._dispatcher.former_lives.learn = deletion.learn
        self._kinds = kinds = QueueKinds(core, self._dispatcher)
        kinds.generation, kinds.on_changed = lambda: self._flusher.generation, self._flusher.note_deletion
        self._replication = Replication(core, self._dispatcher, self._flusher)
        self._compaction = Compaction(core, self._reader)
        self._repairs = Repairs(core, self._dispatcher, self._flusher, self._integrity)
        self._truncation = Truncation(core, self._flusher, self._replication, self._integrity, self._lookup)
        self._closed = False
        self.batch_topics: Set[str] = core.batch_queues.topics
        self.declare_kinds, self.settle_kinds, self.changing_kinds = kinds.declare, kinds.settle, kinds.changing
        self.compacted_topics: Set[str] = core.compacted.topics
        self.arrived, self.hidden_grew = core.arrived, core.hidden_grew
        self.append, self.append_batch = self._writer.append, self._batch_writer.append_batch
        self.enter_keys, self.read_ahead = core.enter_keys, core.segments.read_ahead
        self.set_confirmed, self.start_scrub = core.set_confirmed, self._integrity.start_scrub
        self.delete_expired_files, self.extensions = self._retention.request, core.extensions
        self.delete_topic, self.clean_unused = deletion.delete, deletion.clean_unused
        self.learn_deletions, self.delete_beside = deletion.learn, deletion.delete_beside
        self.dropped, self.get = deletion.dropped, self._reader.get
        lookup = self._lookup
        self.read, self.record_before = lookup.read, lookup.record_before
        self.min_queue_offset, self.max_queue_offset = lookup.min_queue_offset, lookup.max_queue_offset
        self.holes, self.came_back = core.holes, core.holes.came_back
        self.written_queue_offset, self.is_in_place = lookup.written_queue_offset, lookup.is_in_place
        self.offset_by_time, self.queue_offset_at = lookup.offset_by_time, lookup.queue_offset_at
        self.store_time_of, self.earliest_store_time = lookup.store_time_of, lookup.earliest_store_time
        self.note_rotten, self.note_rotten_record = lookup.note_rotten, lookup.note_rotten_record
        self.compacted_copies, self.compaction_logs = core.compacted.copies_at, core.compacted.logs
        self.finish_truncation, self.note_stand_in = self._truncation.finish, core.holes.note_copied

    @classmethod
    async def open(
        cls, world: World, config: StoreConfig, store_host: tuple[str, int], living: LivingTopics | None = None
    ) -> MessageStore:
        """Lock the folder, recover what is in it, and return a store that accepts calls.

        Args:
            world: clock, disk and process id are used.
            config: settings.
            store_host: address and port that go into each record (``brokerIP1`` and ``listenPort``).
            living: the table of topics beside the store; without it every topic in the log counts as living.

        Raises ``DiskLockedError`` when another process holds the folder; ``OSError`` naming the path when it cannot
        be written. Damaged content is repaired or cut off and logged, it never prevents the start.
        """
        disk = world.disk
        await disk.in_thread(partial(make_folder_durably, disk, config.folder))
        lock = hold(disk, config)
        try:
            core = await disk.in_thread(partial(StoreCore, disk, world.clock, config, store_host))
            store = cls(core, lock)
            await disk.in_thread(partial(recover, core, store._dispatcher, world.process_id, living))
        except BaseException:
            lock.release()
            raise
        return store

    async def run(self) -> None:
        """Flush, note progress and delete old files until cancelled; asleep while nothing changes."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._retention.run)
            nursery.start_soon(self._queue_repair.run)
            nursery.start_soon(self._integrity.run)
            nursery.start_soon(self._integrity.run_scrubs)
            nursery.start_soon(self._compaction.run)
            nursery.start_soon(self._deletion.run)
            nursery.start_soon(self._kinds.run)
            nursery.start_soon(self._core.discarded.run)
            nursery.start_soon(self._repairs.run)
            with self._showing.portions(nursery):
                await trio.sleep_forever()

    async def close(self) -> None:
        """Flush everything, write the checkpoint, remove the abort marker and give the folder back.

        A second call does nothing. Cancellation does not cut it short; the disk has a minute.
        """
        if self._closed:
            return
        self._closed = True
        core = self._core
        core.refusals.add(_CLOSED)
        try:
            with trio.CancelScope(shield=True), core.clock.move_on_after(_CLOSE_TIMEOUT_S):
                if await self._flusher.make_durable():
                    await self._compaction.settle()
                    core.disk.remove(core.path("abort"))
                    await core.disk.in_thread(partial(core.disk.sync_folder, core.config.folder))
        finally:
            self._replication.close()
            core.close()
            self._lock.release()

    @property
    def master_flushed_offset(self) -> int:
        """What a slave was told of its master's log, in bytes; kept in the checkpoint."""
        return self._core.checkpoint.master_flushed_offset

    def set_master_flushed_offset(self, offset: int) -> None:
        """Keep what a slave was told of its master's log; durable with the next checkpoint, see :meth:`checkpoint`."""
        self._core.checkpoint = attrs.evolve(self._core.checkpoint, master_flushed_offset=offset)

    async def checkpoint(self) -> bool:
        """Make everything written so far durable and write the checkpoint; False when the disk refused."""
        return await self._flusher.make_durable()

    # Durability

    @property
    def flushed_offset(self) -> int:
        """Bytes of the log before this physical offset survive a power loss."""
        return self._core.flushed

    @property
    def disk_failed(self) -> bool:
        """Whether a flush has failed: until the store is opened anew nothing counts as durable, or is accepted."""
        return self._flusher.failed

    # Reading

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, index_type: str | None = None
    ) -> QueryResult:
        """Find records by key.

        Args:
            index_type: ``T`` searches for tags, anything else for KEYS and UNIQ_KEY.
        """
        return run_steps(self.query_in_steps(topic, key, max_num, begin_ms, end_ms, index_type))

    def query_in_steps(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, index_type: str | None = None
    ) -> Generator[None, None, QueryResult]:
        """Find records as :meth:`query` does, step by step: a key may have millions of them.

        Args:
            topic: that the records belong to.
            key: one of their keys, their unique key, or their tags.
            max_num: most records; bounded by ``maxMsgsNumBatch``.
            begin_ms: earliest store time, included.
            end_ms: latest store time, included.
            index_type: ``T`` looks for tags; everything else for keys.
        """
        return self._lookup.query(topic, key, max_num, begin_ms, end_ms, index_type)

    # Queues

    def queues(self) -> Iterable[tuple[str, int]]:
        """Return every queue that has a folder."""
        return [*self._core.consume_queues.by_key, *self._core.batch_queues.by_key]

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Tell whether :meth:`queues` names this queue."""
        key = topic, queue_id
        return key in self._core.consume_queues.by_key or key in self._core.batch_queues.by_key

    def declare_compacted(self, compacted: Iterable[str], others: Iterable[str]) -> None:
        """Read the topics *compacted* from their compaction logs from now on, and *others* as any other topic."""
        self._core.compacted.declare(compacted, others)
        reading = CompactedReading(self._core, self._reader, self._lookup)
        self.get, self.offset_by_time = reading.get, reading.offset_by_time
        self.min_queue_offset = reading.min_queue_offset
        self.store_time_of, self.earliest_store_time = reading.store_time_of, reading.earliest_store_time

    @property
    def deletions(self) -> Mapping[str, Deletion]:
        """The topics that were deleted here, while the log may still hold messages of them."""
        return self._core.deletions.by_topic

    async def save_deletions(self) -> None:
        """Make the deletions durable; after this no start brings the topics back. Raises ``OSError``."""
        await self._flusher.save_deletions()

    def forget_lost_end(self) -> None:
        """Take what comes behind the end of the log for new: a topic that was deleted there may have messages."""
        self._core.deletions.fit(self._core.segments.min_offset, self._core.log.end)

    # Replication

    @property
    def max_physical_offset(self) -> int:
        """Byte after the last one written."""
        return self._core.log.end

    @property
    def min_physical_offset(self) -> int:
        """First byte of the first file; -1 for an empty log."""
        return self._core.segments.min_offset

    @property
    def kept_all(self) -> bool:
        """Whether the log holds all that it held when it was last open; after a loss of power nobody can tell."""
        return self._core.kept_all

    @property
    def hole(self) -> int | None:
        """Where the first damage lies that recovery made void (bytes); ``None`` when no message is missing."""
        return self._core.hole

    @property
    def stand_in(self) -> int | None:
        """Where the first record lies (bytes) that a master sent in place of lost ones; it may have them by now."""
        return self._core.holes.first_copied

    def intact_from(self) -> int:
        """Return a physical offset near the end of the log, behind which nothing was made void.

        It is where the last queued message begins, or later; the end of the log when there is no such place.
        """
        last = self.record_before(self.max_physical_offset)
        return self.max_physical_offset if last is None else intact_from(self._core, last)

    @property
    def confirmed_before(self) -> int:
        """The confirm offset in bytes that the checkpoint has; 0 when none was ever written."""
        return self._core.checkpoint.confirm_offset

    @property
    def confirm_offset(self) -> int:
        """Readers see messages that end at or before this physical offset."""
        return self._core.show_limit()

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return raw log bytes from *physical_offset*, at most to the end of their file; empty when there are none."""
        return self._core.log.tail_at(physical_offset, max_bytes)

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Write bytes of a master's log at the end of ours and dispatch the records that are complete now.

        Raises ``ValueError`` when *physical_offset* is not the end of our log (and the log is not empty);
        ``OSError`` when the disk has no space for all of them: what was taken is in the log, the rest may come again.
        """
        self._replication.append_raw(physical_offset, data)

    def drop_incomplete(self) -> int:
        """Cut off what follows the last whole record, so that records of our own can; return how many bytes went."""
        return self._replication.drop_incomplete()

    async def truncate(self, offset: int) -> int:
        """Cut everything from physical *offset* on, durably: log, queues and index. Nothing is appended meanwhile.

        Returns:
            How many bytes are gone; 0 when the log ends before.

        Raises:
            TruncationError: no message begins there, or the log begins after it; nothing was changed.
            OSError: the disk refused; what has begun must be ended first, here or by :attr:`finish_truncation`.
        """
        return await self._truncation.cut(offset)

    def repair(self, start: int, *, keep_note: bool = False, copy: bool = False) -> Repair:
        """Return what puts another replica's bytes into the holes of our log; see :class:`Repair`."""
        return self._repairs.begin(start, keep_note=keep_note, copy=copy)

    # State

    @property
    def writable(self) -> bool:
        """Whether appends are accepted; False when closed, fenced or the disk is above its hard limit."""
        return not self._core.refusals

    def set_writable(self, writable: bool, why_not: str = _FENCED) -> None:
        """Refuse (False) or accept (True) appends, for a role change or a fence; of several reasons each counts."""
        change = self._core.refusals.discard if writable else self._core.refusals.add
        change(why_not)

    def change_settings(self, config: StoreConfig) -> None:
        """Have what *config* says in force where that is possible while the store is open (``config.LIVE``)."""
        self._core.config = self._core.config.with_live(config)
        self._writer.settings_changed()
        self._batch_writer.settings_changed()
        self._reader.settings_changed()

    def runtime_info(self) -> dict[str, str]:
        """Return figures for the broker's runtime info, with the reference's key names."""
        core = self._core
        return {
            "commitLogMinOffset": str(core.segments.min_offset),
            "commitLogMaxOffset": str(core.log.end),
            "commitLogDiskRatio": f"{self._retention.used_ratio():.4f}",
            "consumeQueueDiskRatio": f"{self._retention.used_ratio():.4f}",
            "earliestMessageTimeStamp": str(self.earliest_store_time()),
            "dispatchBehindBytes": str(core.log.end - core.dispatched),
            "pageCacheLockTimeMills": "0",
        }

    @property
    def scrub_report(self) -> ScrubReport | None:
        """What the last scrub has found, or the one that runs; ``None`` before the first."""
        return self._integrity.report

    def set_correct_offsets(self, correct: bool) -> None:
        """Say whether reads out of range answer the right offset; a plain slave leaves the consumer's as it is."""
        self._reader.correct_offsets = correct
