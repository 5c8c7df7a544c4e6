"""What the parts of one store share: files, queues, index, and which messages readers may see."""

from __future__ import annotations

import os.path
from collections import deque
from collections.abc import Callable

import attrs

from understudy.format.record import encode_host
from understudy.runtime.clock import Clock
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.batch_queue import BatchQueue
from understudy.store.batch_queues import BatchQueues
from understudy.store.checkpoint import Checkpoint
from understudy.store.commit_log import CommitLog
from understudy.store.compaction.queues import CompactedQueues
from understudy.store.config import SYNC_FLUSH, StoreConfig
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.consume_queues import ConsumeQueues
from understudy.store.deletions import FILE_NAME as DELETIONS_FILE
from understudy.store.deletions import Deletions, save_deletions, to_json
from understudy.store.discarded import FOLDER as DISCARDED_FOLDER
from understudy.store.discarded import Discarded
from understudy.store.extensions import Extensions, Held
from understudy.store.holes import Holes
from understudy.store.index import Index
from understudy.store.index_keys import Keys, index_hashes
from understudy.store.mapped_files import MappedFiles
from understudy.store.mark import FILE_NAME, Mark, MarkFile
from understudy.store.segments import Segment, Segments

BEING_CUT = "the log is being cut back to what it has in common with its master's"
"""Why nothing is appended, by anybody, until a cut has come to its end."""

BEING_ENTERED = "lost messages have come back and are entered into queues and index"
"""Why nothing is appended, by anybody: batch queues end in the middle of what is entered again."""

SHOWN_AT_ONCE = 500
"""Messages that were held back and are shown between two turns of others."""

log = get_logger("store")

#: Called for every message that becomes readable, with topic, queue id, queue offset after it, tags code, store time in
#: milliseconds, and the raw properties. Messages with one tags code that lie side by side in their queue may be told
#: together: then it is called for the last of them, without properties. For an inner batch it is called once, with
#: ``UNKNOWN_TAGS`` for a tags code.
Arrival = Callable[[str, int, int, int, int, bytes | None], None]


class StoreCore:
    """State of one store; its parts (writer, reader, flush, recovery, retention) are written around it."""

    def __init__(self, disk: Disk, clock: Clock, config: StoreConfig, store_host: tuple[str, int]) -> None:
        self.disk = disk
        self.clock = clock
        self.config = config
        self.store_host = encode_host(*store_host)
        folder = config.folder
        self.segments = Segments(
            disk,
            config.commit_log_folders or (os.path.join(folder, "commitlog"),),
            config.read_only_commit_log_folders,
            config.mapped_file_size_commit_log,
            config.mapped_log_files_max,
            self._folder_full,
        )
        self.segments.on_lost = self._file_lost
        self.log = CommitLog(self.segments)
        self.queue_files = MappedFiles(disk, config.mapped_queue_files_max)
        self.discarded = Discarded(disk, os.path.join(folder, DISCARDED_FOLDER))
        self.consume_queues = ConsumeQueues(
            disk,
            os.path.join(folder, "consumequeue"),
            config.mapped_file_size_consume_queue,
            self.queue_files,
            self.discarded,
        )
        self.consume_queues.log_min = lambda: self.segments.min_offset
        self.batch_queues = BatchQueues(
            disk,
            os.path.join(folder, "batchconsumequeue"),
            config.mapped_file_size_batch_consume_queue,
            self.queue_files,
            self.discarded,
        )
        self.compacted = CompactedQueues(disk, config, self.consume_queues, lambda: self.segments.min_offset)
        self.compacted.on_change = self.wake
        self._index = Index(
            disk,
            os.path.join(folder, "index"),
            config.max_hash_slot_num,
            config.max_index_num,
            clock.wall_ms,
        )
        self.marks = MarkFile(disk, os.path.join(folder, FILE_NAME), disk.boot_id())
        #: What was stored and is not in the index yet: a sender need not wait for that.
        self.unindexed: list[Keys] = []
        self.arrived: list[Arrival] = []
        #: Called when bytes were written, or became durable, that readers may not see yet; replicas may need them.
        self.hidden_grew: list[Callable[[], None]] = []
        #: Called when a reader finds a unit lost, with its queue and queue offset.
        self.on_lost_unit: Callable[[ConsumeQueue, int], None] = lambda queue, offset: None
        #: The reference's checkpoint as it was found; what we do not know better is written back.
        self.checkpoint = Checkpoint()
        #: Why appends are refused now; empty when they are not.
        self.refusals: set[str] = set()
        self.last_store_ms = 0
        self.last_dispatched_ms = 0
        #: Everything before this offset is durable.
        self.flushed = 0
        #: Nothing that was ever written at the end of this log has been lost since it was last open.
        self.kept_all = True
        #: Where damage lies that recovery made void, and void records that were copied.
        self.holes = Holes(disk, folder, config.mapped_file_size_commit_log, lambda: self.segments.min_offset)
        #: Records at this offset or after it were written or compared by this process.
        self.trusted_from = 0
        #: Which topics were deleted; their messages in the log count no more.
        self.deletions = Deletions()
        #: Raw bytes after this offset (of an incomplete record that came by replication) are not dispatched yet.
        self.dispatched = 0
        #: Written but not yet shown to readers: (end, queue, queue offset after it, tags code, store time, properties).
        self.held: deque[Held] = deque()
        #: Where the last message ended that was shown after it had been held back.
        self.shown_to = 0
        #: What ends at or before this (bytes) was hidden together, when it was read from the log; the rest came since.
        self.hidden_to = 0
        #: Called when a portion was shown and the next one may be.
        self.more_to_show: Callable[[], None] = lambda: None
        self.extensions = Extensions(
            disk,
            folder,
            config.mapped_file_size_consume_queue_ext,
            self.consume_queues,
            self.queue_files,
            self.discarded,
            self.log,
            self.held,
        )
        self.sync_flush = config.flush_disk_type == SYNC_FLUSH
        #: Up to where replicas are known to have the log, where readers may see no more than that.
        self.confirmed: int | None = None
        #: What is confirmed is noted with each checkpoint: somebody knows it, or knows that it does not matter.
        self.notes_confirmed = False
        #: Whether a message is readable as soon as it is written.
        self.show_at_once = not self.sync_flush
        #: Somebody sleeps until there is work; the next append wakes them.
        self.asleep = False
        self.growth = Signal()

    def path(self, name: str) -> str:
        """Return the path of a file in the root of the store."""
        return os.path.join(self.config.folder, name)

    @property
    def hole(self) -> int | None:
        """Where the first damage lies that recovery made void; ``None`` when the log has all its messages."""
        return self.holes.first

    def save_deletions(self) -> None:
        """Have it durable which topics were deleted. Blocking; see :class:`Flusher` for the running store.

        Raises ``OSError``.
        """
        if not self.deletions.is_saved:
            save_deletions(self.disk, self.path(DELETIONS_FILE), to_json(self.deletions.by_topic))
            self.deletions.is_saved = True

    def wake(self) -> None:
        """Tell those who sleep that something changed."""
        self.asleep = False
        self.growth.set()

    @property
    def index(self) -> Index:
        """The key index, with every message that was stored."""
        if self.unindexed:
            self.enter_keys()
        return self._index

    def enter_keys(self) -> None:
        """Enter into the index what was stored since the last time; whoever asks for the index does that, too."""
        unindexed, self.unindexed = self.unindexed, []
        for queue, unique, keys, tags, physical, store_ms in unindexed:
            self._index.put(index_hashes(queue, unique, keys, tags), physical, store_ms)

    def mark(self) -> Mark:
        """Return what is complete now."""
        self.index.write_headers()
        newest = self.index.last
        total = sum(queue.next_offset for queue in self.consume_queues)
        return Mark(
            physical_offset=self.dispatched,
            next_offsets_total=total + self.batch_queues.next_offsets_total(),
            queue_count=len(self.consume_queues.by_key),
            store_ms=self.last_store_ms,
            index_name=newest.name if newest else "",
            index_count=newest.count if newest else 1,
            index_used_slots=newest.used_slots if newest else 0,
        )

    # Which messages readers see

    def show_limit(self) -> int:
        """Return the physical offset up to which readers may see messages."""
        limit = self.flushed if self.sync_flush else self.log.end
        return limit if self.confirmed is None else min(limit, self.confirmed)

    def set_confirmed(self, offset: int | None) -> None:
        """Let readers see what replicas have, before physical *offset*; ``None`` when that does not matter."""
        self.confirmed, self.notes_confirmed = offset, True
        if offset is not None:
            self.checkpoint = attrs.evolve(self.checkpoint, confirm_offset=offset)
        self.show_held()

    def confirmed_end(self, end: int) -> int:
        """Return the confirm offset for a checkpoint of the log up to *end* (bytes); 0 where there never was one."""
        known = self.checkpoint.confirm_offset
        return end if self.confirmed is None and (known or self.notes_confirmed) else known

    def hold_or_show(
        self,
        end: int,
        queue: ConsumeQueue | BatchQueue,
        next_offset: int,
        code: int,
        store_ms: int,
        properties: bytes | None,
    ) -> None:
        """Show a message that was just written, or hold it back until it is flushed.

        Args:
            end: where the record ends in the log (bytes).
            queue: that it belongs to.
            next_offset: queue offset behind it, which becomes the visible offset.
            code: its tags code.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where nobody asked for them.
        """
        if self.show_at_once or (not self.held and end <= self.show_limit()):
            if next_offset > queue.max_offset:
                queue.max_offset = next_offset
            for callback in self.arrived:
                callback(queue.topic, queue.queue_id, next_offset, code, store_ms, properties)
        else:
            self.held.append((end, queue, next_offset, code, store_ms, properties))
            for hidden in self.hidden_grew:
                hidden()

    def show_run(
        self, queue: ConsumeQueue, first: int, starts: list[int], end: int, codes: list[int], store_ms: int
    ) -> None:
        """Show messages that lie side by side in *queue* and were written together, or hold them back.

        Args:
            first: queue offset of the first of them.
            starts: physical offset of each.
            end: physical offset after the last.
            codes: tags code of each.
        """
        count = len(codes)
        if not (self.show_at_once or (not self.held and end <= self.show_limit())):
            ends = [*starts[1:], end]
            for number in range(count):
                self.hold_or_show(ends[number], queue, first + number + 1, codes[number], store_ms, None)
            return
        queue.max_offset = max(queue.max_offset, first + count)
        if not self.arrived:
            return
        alike = codes.count(codes[0]) == count
        for number in (count,) if alike else range(1, count + 1):
            for callback in self.arrived:
                callback(queue.topic, queue.queue_id, first + number, codes[number - 1], store_ms, None)

    def forget_held(self, queue: ConsumeQueue | BatchQueue, offset: int) -> None:
        """Drop what is held back of *queue* from *offset* on: other messages stand there now."""
        kept = [each for each in self.held if each[1] is not queue or each[2] <= offset]
        self.held.clear()
        self.held.extend(kept)

    def show_held(self) -> bool:
        """Show what was held back and may be seen now; of what was hidden together a portion, others see to the next.

        What comes meanwhile is held back behind it.

        Returns:
            Whether there is more that may be seen now.
        """
        limit = self.show_limit()
        held = self.held
        left = SHOWN_AT_ONCE
        while held and held[0][0] <= limit:
            if held[0][0] <= self.hidden_to:  # else it came since: as much of it is shown as comes
                if not left:
                    break
                left -= 1
            self.shown_to, queue, next_offset, code, store_ms, properties = held.popleft()
            if next_offset > queue.max_offset:
                queue.max_offset = next_offset
            for callback in self.arrived:
                callback(queue.topic, queue.queue_id, next_offset, code, store_ms, properties)
        if not held:
            self.hidden_to = 0
        self.show_at_once = not self.sync_flush and self.confirmed is None and not held
        if more := bool(held) and held[0][0] <= limit:
            self.more_to_show()
        return more

    def close(self) -> None:
        """Give every file back."""
        self.queue_files.close()
        self.compacted.close()
        self._index.close()
        self.marks.close()
        self.log.view = memoryview(b"")
        self.segments.close()

    def _file_lost(self, segment: Segment) -> None:
        """Say that a file of the log was removed by somebody else, and take no message that may be lost like it."""
        if segment.start < self.segments.min_offset:
            log.warning("the oldest file of the log was removed; its messages are gone", path=segment.path)
            return
        reason = f"{segment.path} is not there any more; put it back and start again, or start again without it"
        if reason not in self.refusals:
            log.error("a file of the log was removed, no more messages are accepted", path=segment.path)
            self.refusals.add(reason)

    def _folder_full(self, folder: str) -> bool:
        usage = self.disk.usage(folder)
        return usage.used * 100 > usage.total * self.config.disk_space_clean_forcibly_ratio
