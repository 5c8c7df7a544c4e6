"""Bring log, queues and index to one state after any kind of stop.

The log is the truth. With a recovery mark that holds, only what was written after the mark is walked. Without one (the
reference wrote the folder, or files were damaged or removed), the last files are walked, however many may not have been
durable, and every unit that points there is compared. What was durable before that is trusted until it is read
(:mod:`understudy.store.integrity`), and units that are missing for older messages stay missing, except for blocks of
zeros (:mod:`understudy.store.queue_repair`). Only a log without any queue is walked from its beginning.

A start never fails because of what is in the files:

* the log ends at the first damage behind which nothing whole follows; the rest of its file is zeroed;
* damage with whole records behind it becomes a *void* record (a rolled back transaction, which no reader sees); the
  units that pointed there point to a neighbour, so that no reader waits for what is gone;
* messages of topics that were deleted stay out of the queues (:mod:`understudy.store.deletions`), and of a queue that
  was deleted and made again only its last life is entered; what is as old in other queues of its topic goes as well
  (:mod:`understudy.store.former_lives`);
* what was there before is kept in the folder ``damaged``, and where the first of it lies is noted: a slave gets its
  messages from its master again.
"""

from __future__ import annotations

import os.path
from functools import partial

from understudy.format import light_queues
from understudy.runtime.log import get_logger
from understudy.store.batch_queue import BatchQueue, BatchUnit
from understudy.store.batch_repair import fits
from understudy.store.batch_topics import QueueKinds
from understudy.store.checkpoint import Checkpoint, load_checkpoint
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.damage import keep_damaged_tail, void
from understudy.store.deletions import FILE_NAME as DELETIONS_FILE
from understudy.store.deletions import Deletion, LivingTopics, load_deletions
from understudy.store.dispatch import Dispatcher
from understudy.store.mark import Mark
from understudy.store.queue_recovery import recover_all, recover_below
from understudy.store.queue_repair import fill_gaps, gap_around
from understudy.store.segments import Segment
from understudy.store.topic_deletion import drop_deleted_queues, is_system
from understudy.store.truncation import finish_truncation
from understudy.store.walk import RecordHead, Walk, parse

log = get_logger("store.recovery")

#: Without a mark at least so many files are walked when queues exist. The reference goes back to the file that its
#: checkpoint names, but never further than this (commitLogRecoverMaxNum): older bytes that a loss of power took are
#: served there.
FILES_WALKED = 10
#: A process that dies leaves at most one record half written.
_TORN_BYTES = 5 << 20
_WIPE_BYTES = 1 << 16


class Recovery:
    """One start of one store. Blocking; call :meth:`run` in a worker thread."""

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, living: LivingTopics | None = None) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._mark: Mark | None = None
        self._living = living
        #: Topics that nothing says were deleted: they have queues, are in the table, or were made after it was written.
        self._known: set[bytes] = set()
        #: Of the others: where the last of their messages ends, and the greatest store time.
        self._lacking: dict[bytes, Deletion] = {}
        #: Queue offsets of units that are only zeros: at least one of each block of them that was found.
        self._lost: list[tuple[ConsumeQueue, int]] = []
        #: Units of records from here on may lack what was written with them; None when the power was not lost.
        self.doubtful_from: int | None = None

    def run(self) -> None:
        """Recover everything; afterwards the log can be written to."""
        core = self._core
        unclean = core.disk.exists(core.path("abort"))
        core.segments.load()
        finish_truncation(core)
        core.consume_queues.load()
        core.batch_queues.load()
        core.index.load()
        core.checkpoint = checkpoint = load_checkpoint(core.disk, core.path("checkpoint"))
        core.holes.load()
        core.deletions = load_deletions(core.disk, core.path(DELETIONS_FILE))
        started = core.clock.wall_ms()
        newest, durable, intact = core.marks.best()
        if core.holes.again is not None:
            newest = durable = None  # whatever a mark says, queues and index may lack what is behind that
        core.kept_all = intact or not unclean
        if not core.segments.items:
            core.kept_all &= newest is None or newest.physical_offset == 0
            self._start_empty()
            return
        # A process of this boot wrote here last: then nothing it wrote is lost, not even what was never synced.
        if newest is not None and self._restore(newest, intact or not unclean):
            start, index_from, compare = newest.physical_offset, newest.physical_offset, False
            self._mark = newest
        else:
            earliest = self._earliest_doubtful(unclean and not intact, checkpoint, durable)
            start, index_from = self._start_without_mark(earliest, unclean, checkpoint)
            compare = True
            start, index_from = self._start_again(start, index_from)
        self.doubtful_from = start if unclean and not intact else None
        for _ in drop_deleted_queues(core, core.deletions.by_topic):
            pass  # nobody waits for a turn
        if self._living is not None:
            core.batch_queues.topics |= self._living.batch - core.consume_queues.by_topic.keys()
        self._known = {topic.encode() for topic in (*core.consume_queues.by_topic, *core.batch_queues.by_topic)}
        index_known = core.index.last.end_offset if compare and core.index.last is not None else -1

        # What is recovered is shown when all is done.
        show_at_once, core.show_at_once = core.show_at_once, True
        walk = Walk(
            core.segments,
            start,
            check_crc=core.config.check_crc_on_recover,
            intact=intact,
            power_lost=unclean and not intact,
        )
        for head in walk:
            physical = head.physical_offset
            self._dispatcher.dispatch(
                head,
                to_queues=not self._lacks(head),
                to_index=physical >= index_from,
                once=physical == index_known,
            )
        core.show_at_once = show_at_once
        self._finish(walk, unclean, intact, durable)
        core.trusted_from = start if core.config.check_crc_on_recover else walk.end
        if self._living is not None:
            QueueKinds(core, self._dispatcher).declare(self._living.batch, self._living.names - self._living.batch)
        if unclean or walk.holes or compare:
            log.info(
                "recovered",
                folder=core.config.folder,
                records=walk.count,
                start=start,
                end=walk.end,
                holes=len(walk.holes),
                ms=core.clock.wall_ms() - started,
            )

    def _start_empty(self) -> None:
        # As the reference: without a log the queues mean nothing.
        core = self._core
        for topic in list(core.consume_queues.by_topic):
            core.consume_queues.delete_topic(topic)
        for topic in list(core.batch_queues.topics):
            core.batch_queues.delete_topic(topic)
        core.index.clear()
        core.holes.forget_from(0)
        core.holes.keep(())
        core.deletions.clear()
        core.save_deletions()
        core.log.continue_at(0)
        if self._living is not None:
            core.batch_queues.topics |= self._living.batch

    def _restore(self, mark: Mark, trusted_index: bool) -> bool:
        core = self._core
        limit = mark.physical_offset
        first, last = core.segments.items[0], core.segments.items[-1]
        if not first.start <= limit <= last.end:
            log.warning("the recovery mark does not fit the log; everything is checked", mark=limit, end=last.end)
            return False
        queues = core.consume_queues
        for queue in queues:
            self._lost += [(queue, offset) for offset in recover_below(core.disk, queue, limit, self._matches)]
        total = sum(queue.next_offset for queue in queues)
        for batch in core.batch_queues.by_key.values():
            batch.recover(limit)
        total += core.batch_queues.next_offsets_total()
        if total != mark.next_offsets_total:
            log.warning(
                "queue files do not hold what the recovery mark says; everything is checked",
                folder=core.config.folder,
                found=total,
                expected=mark.next_offsets_total,
            )
            return False
        if core.config.message_index_enable and not core.index.rewind(
            mark.index_name, mark.index_count, mark.index_used_slots, limit, mark.store_ms, trusted=trusted_index
        ):
            log.warning("the index is not the one the recovery mark names; it is built again", name=mark.index_name)
            core.index.clear()
            return False
        return True

    def _earliest_doubtful(self, power_lost: bool, checkpoint: Checkpoint, durable: Mark | None) -> int:
        """Return where the file begins from which on a walk finds whatever is not as it was written.

        Args:
            power_lost: bytes may be missing that were not durable.
            checkpoint: says up to which store time everything was durable; of the reference, or ours.
            durable: says it exactly, though it may not fit the queues.
        """
        core = self._core
        items = core.segments.items
        number = max(0, len(items) - FILES_WALKED)
        while power_lost and number and not self._was_durable_before(items[number], checkpoint, durable):
            number -= 1
        if len(items) - number > FILES_WALKED:
            log.warning(
                "the power was lost before these files were known to be durable; all of them are checked",
                folder=core.config.folder,
                files=len(items) - number,
            )
        return items[number].start

    def _was_durable_before(self, segment: Segment, checkpoint: Checkpoint, durable: Mark | None) -> bool:
        """Whether everything before *segment* is known to have been durable."""
        if durable is not None:
            return segment.start <= durable.physical_offset
        first = parse(self._core.segments.view(segment), 0, segment.start, check_crc=False)
        return first is not None and 0 < first.store_ms <= checkpoint.safe_ms

    def _start_without_mark(self, earliest: int, unclean: bool, checkpoint: Checkpoint) -> tuple[int, int]:
        """Return (where to start the walk, where to start indexing); *earliest* when queues exist."""
        core = self._core
        items = core.segments.items
        have_queues = False
        for queue in core.consume_queues:
            self._lost += [(queue, offset) for offset in recover_all(core.disk, queue, self._matches)]
            have_queues |= queue.next_offset > 0
        torn_from = items[-1].end
        for batch in core.batch_queues.by_key.values():
            batch.recover_all(torn_from, partial(self._matches_batch, batch, earliest))
            have_queues |= batch.next_offset > 0
            if batch.torn:
                last = batch.last_unit()
                earliest = min(earliest, max(items[0].start, last.physical if last is not None else 0))
        if unclean:
            core.index.keep_until(checkpoint.index_ms)
        newest = core.index.last
        if not core.config.message_index_enable:
            index_from = items[-1].end
        elif newest is None:
            index_from = earliest
        else:
            index_from = max(newest.end_offset, earliest)
        start = earliest if have_queues else items[0].start
        return start, max(index_from, start)

    def _start_again(self, start: int, index_from: int) -> tuple[int, int]:
        """Return where to start the walk and indexing when messages that had come back were being entered.

        Batch queues and index are in the order of the log, so whatever they have of it goes first.
        """
        core = self._core
        if core.holes.again is None:
            return start, index_from
        again = max(core.holes.again, core.segments.min_offset)
        core.index.cut(again, core.clock.wall_ms())
        for batch in core.batch_queues.by_key.values():
            batch.cut(again)
        log.warning("messages that had come back were being entered when the process ended; it is done now", at=again)
        return min(start, again), min(index_from, again)

    def _lacks(self, head: RecordHead) -> bool:
        """Whether a message is of a topic that was deleted, as far as the table of topics says; note it then."""
        living, topic = self._living, head.topic
        if living is None or topic in self._known:
            return False
        name = topic.decode("utf-8", "replace")
        if is_system(name) or not living.lacks(name, head.store_ms):
            self._known.add(topic)
            return False
        before = self._lacking.get(topic, Deletion(0, 0))
        end = head.physical_offset + head.size_bytes
        self._lacking[topic] = Deletion(end, max(before.store_ms, head.store_ms))
        return True

    def _note_deletions(self, end: int) -> None:
        """Make durable, for every later start, which topics were found to be deleted."""
        core = self._core
        for topic, deletion in self._lacking.items():
            name = topic.decode("utf-8", "replace")
            log.info("messages of a topic that was deleted stay out", topic=name, until=deletion.position)
            core.deletions.add(name, deletion)
        former = self._dispatcher.former_lives.take()
        for name, deletion in former.items():
            core.deletions.add(name, deletion)
        for _ in drop_deleted_queues(core, former):
            pass  # nobody waits for a turn
        # What was lost may come back from a replica, and must not bring back what was deleted behind it.
        core.deletions.fit(core.segments.min_offset, end if core.kept_all else max(end, core.deletions.until))
        core.save_deletions()

    def _finish(self, walk: Walk, unclean: bool, intact: bool, durable: Mark | None) -> None:
        core = self._core
        end, mark = walk.end, self._mark
        core.last_store_ms = walk.store_ms or (mark.store_ms if mark is not None else 0)
        core.last_dispatched_ms = walk.dispatched_ms or core.checkpoint.logics_ms or core.last_store_ms
        core.holes.forget_from(end)
        found = [*core.holes.noted, *(start for start, _ in walk.holes)]
        core.holes.keep(
            (start for start in found if start < end), core.holes.again
        )  # what is entered is not durable yet
        for hole in walk.holes:
            void(core, *hole)
        if unclean or mark is None or walk.count or walk.holes:
            self._end_log(end, intact)
        core.log.continue_at(end)
        self._note_deletions(end)
        for queue in core.consume_queues:
            if mark is None:
                core.consume_queues.cut(queue, end)
            if (unclean and not intact) or self._has_unit_after_end(queue):
                core.consume_queues.clear_after_end(queue)
            queue.max_offset = queue.next_offset
        for batch in core.batch_queues.by_key.values():
            if unclean or mark is None:
                batch.cut(end)
            batch.max_offset = batch.next_offset
        core.index.cut(end, core.last_store_ms)
        core.dispatched = end
        self._fill_gaps()
        if unclean and intact:
            # Only the process died: what it wrote last may still be on its way to the disk.
            core.flushed = min(end, durable.physical_offset if durable is not None else core.segments.min_offset)
            core.segments.unsynced_folders.update(os.path.dirname(item.path) for item in core.segments.items)
            for queue in core.consume_queues:
                core.consume_queues.doubt_after(queue, core.flushed)
            core.index.doubt_after(core.flushed)
            for batch in core.batch_queues.by_key.values():
                batch.doubt()
        else:
            core.flushed = end
        if unclean and core.hole is not None:
            # A repair that was killed may have written units from the hole on.
            for queue in core.consume_queues:
                core.consume_queues.doubt_after(queue, core.hole)

    def _fill_gaps(self) -> None:
        """Enter the lost units that were found and that the walk has not come by."""
        core, gaps = self._core, {}
        for queue, offset in self._lost:
            if core.consume_queues.by_key.get((queue.topic, queue.queue_id)) is queue and offset < queue.next_offset:
                gap = gap_around(core, queue, offset)
                if gap is not None:
                    gaps[queue.topic, queue.queue_id, gap.first] = gap
        for _ in fill_gaps(core, self._dispatcher, list(gaps.values())):
            continue

    def _end_log(self, end: int, intact: bool) -> None:
        core = self._core
        segment = core.segments.find(end)
        if segment is not None:
            keep_damaged_tail(core, end)
        if not intact or segment is None or segment is not core.segments.items[-1]:
            core.segments.cut(end)
            return
        # Quicker than cutting the file, which waits for the disk: only what the dying process began can be there.
        view = core.segments.view(segment)
        at = end - segment.start
        limit = min(len(view), at + _TORN_BYTES)
        while at < limit:
            length = min(_WIPE_BYTES, limit - at)
            part = bytes(view[at : at + length])
            if part.count(0) != length:
                view[at : at + length] = bytes(length)
            at += length

    def _matches(self, queue: ConsumeQueue, physical: int, size: int) -> bool:
        core = self._core
        if physical < core.segments.min_offset:
            return True  # its file is gone, as it should be after a while
        segment = core.segments.find(physical)
        if segment is None:
            return False
        head = parse(core.segments.view(segment), physical - segment.start, segment.start, check_crc=False)
        if head is None or head.size_bytes != size:
            return False
        same = head.queue_id == queue.queue_id and head.topic == queue.topic.encode()
        return same or light_queues.NAMES in head.properties

    def _matches_batch(self, batch: BatchQueue, earliest: int, unit: BatchUnit) -> bool:
        """Whether a unit is that of a record of its queue; one that points before *earliest* was durable."""
        return unit.physical < earliest or fits(self._core, self._dispatcher, batch, unit)

    def _has_unit_after_end(self, queue: ConsumeQueue) -> bool:
        if queue.starts and queue.starts[-1] > queue.start_of(queue.next_offset):
            return True
        raw = self._core.consume_queues.units(queue, queue.next_offset, 1)
        return bytes(raw).count(0) != len(raw)
