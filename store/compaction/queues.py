"""All compaction logs of one store, and which topics are served from them."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.batch_queue import BatchUnit
from understudy.store.compaction.files import CompactedFile, CompactedQueue
from understudy.store.compaction.layout import FOLDER, LOG_FOLDER, QUEUE_FOLDER, file_lengths, whole
from understudy.store.compaction.opening import cut_queue, open_queue
from understudy.store.compaction.swaps import Positions, carry_out, noted_swap
from understudy.store.config import StoreConfig
from understudy.store.consume_queue import FILLER_SIZE, ConsumeQueue
from understudy.store.consume_queues import ConsumeQueues
from understudy.store.deletions import Deletions
from understudy.store.mapped_files import MappedFiles

log = get_logger("store.compaction")

_MAPPED_FILES = 64


class CompactedQueues:
    """The compaction logs of one store.

    Args:
        disk: where they are.
        config: settings.
        consume_queues: the ordinary queues.
        log_min: tells where the log of the store begins.

    Attributes:
        topics: those that are served from here: compaction topics of which the broker has said so.
        by_key: what there is, served or not.
        doomed: topics whose files are to be removed before anything else is written.
        positions: up to where queues are compacted.
        changed: set when there is something to do that no new message tells of.
        on_change: called then, too.
    """

    def __init__(
        self, disk: Disk, config: StoreConfig, consume_queues: ConsumeQueues, log_min: Callable[[], int]
    ) -> None:
        self._disk = disk
        self._log_min = log_min
        self._lengths = file_lengths(config.compaction_file_bytes, config.compaction_queue_file_bytes)
        self._ordinary = consume_queues
        self._mapped = MappedFiles(disk, _MAPPED_FILES)
        self.folder = os.path.join(config.folder, FOLDER)
        self._folders = os.path.join(self.folder, LOG_FOLDER), os.path.join(self.folder, QUEUE_FOLDER)
        self.topics: set[str] = set()
        self.by_key: dict[tuple[str, int], CompactedQueue] = {}
        self.doomed: set[str] = set()
        self.positions = Positions(disk, config.folder)
        self.changed = Signal()
        self.on_change: Callable[[], None] = lambda: None
        self._damaged: set[tuple[str, int]] = set()

    def load(self, deletions: Deletions, *, unclean: bool) -> None:
        """Find what is on the disk and make it fit the ordinary queues, which are recovered. Blocking.

        Args:
            deletions: which topics were deleted.
            unclean: the process that wrote it did not end as it should.
        """
        self._ordinary.on_changed, self._ordinary.on_deleted = self.changed_from, self._lost_all
        self.positions.load()
        swap = noted_swap(self._disk, self.positions)
        if swap is not None:
            log.info("a swap of compacted files is finished", topic=swap.topic, queueId=swap.queue_id)
            carry_out(self._disk, self.positions, self._queue(swap.topic, swap.queue_id), swap)
        for topic in self._disk.listdir(self._folders[0]):
            for name in self._disk.listdir(os.path.join(self._folders[0], topic)):
                if name.isascii() and name.isdigit():
                    queue = self._queue(topic, int(name))
                    open_queue(self._disk, queue, unclean=unclean)
                    self._settle(queue, deletions)
        for topic in sorted(self.doomed):
            self.remove_files(topic)

    def _settle(self, queue: CompactedQueue, deletions: Deletions) -> None:
        """Keep a queue that was found, or what of it the ordinary one has had."""
        deletion = deletions.by_topic.get(queue.topic)
        newest = next((file.unit(file.count - 1) for file in reversed(queue.files) if file.count), None)
        queue.give_back()
        if deletion is not None and newest is not None and newest.store_ms <= deletion.store_ms:
            self.doomed.add(queue.topic)
            return
        ordinary = self._ordinary.by_key.get((queue.topic, queue.queue_id))
        end = 0 if ordinary is None else ordinary.next_offset
        self.by_key[queue.topic, queue.queue_id] = queue
        if queue.copied_to > end:
            log.warning(
                "a compaction log is longer than its queue and is cut back", topic=queue.topic, queueId=queue.queue_id
            )
            self._shorten(queue, end)
            self.cut(queue)

    def _queue(self, topic: str, queue_id: int) -> CompactedQueue:
        return CompactedQueue(topic, queue_id, self._folders, self._lengths, self._mapped)

    # Which topics

    def declare(self, compacted: Iterable[str], others: Iterable[str]) -> None:
        """Serve the topics *compacted* from here from now on, and *others* no more, whose files go."""
        before = set(self.topics)
        self.topics.update(compacted)
        for topic in self.topics.intersection(others):
            self.delete_topic(topic)
        if before != self.topics:
            self._tell()

    def served(self, topic: str, queue_id: int) -> CompactedQueue | None:
        """Return what readers of a queue get its older messages from; ``None`` for an ordinary one."""
        return self.by_key.get((topic, queue_id)) if topic in self.topics else None

    def logs(self) -> set[str]:
        """Return the topics that have compaction logs here, read from or not."""
        return {topic for topic, _ in self.by_key}

    def copies_at(self, topic: str, position: int) -> list[memoryview]:
        """Return the records of a topic that begin at *position* of the compaction log of one of its queues."""
        found = []
        for queue in [queue for (name, _), queue in self.by_key.items() if name == topic]:
            for file in queue.files:
                at = position - file.start
                if 0 <= at < file.end and (head := whole(file.log_view(), at, file.start)) is not None:
                    found.append(file.log_view()[at : at + head.size_bytes])
        return found

    def delete_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        self.topics.discard(topic)
        self.delete_logs(topic)

    def delete_logs(self, topic: str) -> None:
        """Forget what there is of a topic; its files go soon."""
        gone = [key for key in self.by_key if key[0] == topic]
        for key in gone:
            queue = self.by_key.pop(key)
            queue.shorten(0)
            queue.give_back()
        if gone:
            self.doomed.add(topic)
            self._tell()

    def changed_from(self, ordinary: ConsumeQueue, offset: int) -> None:
        """Take note that an ordinary queue has not what it had from queue offset *offset* on: it is copied again."""
        queue = self.by_key.get((ordinary.topic, ordinary.queue_id))
        if queue is not None and offset < queue.copied_to:
            self._shorten(queue, offset)
            self._tell()

    def _lost_all(self, topic: str) -> None:
        """Take note that all ordinary queues of a topic were deleted."""
        queues = [queue for key, queue in self.by_key.items() if key[0] == topic]
        for queue in queues:
            self._shorten(queue, 0)
        if queues:
            self._tell()

    def _shorten(self, queue: CompactedQueue, offset: int) -> None:
        """Let readers see nothing of *queue* from queue offset *offset* on.

        What superseded older messages may be among it. So all of it is copied again where the log still has it.
        """
        ordinary = self._ordinary.by_key.get((queue.topic, queue.queue_id))
        anew = ordinary is None or self._ordinary.correct_min(ordinary, self._log_min()) == 0
        queue.shorten(0 if anew else offset)

    def _tell(self) -> None:
        self.changed.set()
        self.on_change()

    # What the copying needs

    def wanted(self) -> list[tuple[CompactedQueue, ConsumeQueue]]:
        """Return the queues to copy into, each with the one to copy from; those that are new are made."""
        found = []
        for (topic, queue_id), ordinary in list(self._ordinary.by_key.items()) if self.topics else ():
            if topic in self.topics and topic not in self.doomed:
                queue = self.by_key.get((topic, queue_id))
                if queue is None:
                    queue = self.by_key[topic, queue_id] = self._queue(topic, queue_id)
                found.append((queue, ordinary))
        return found

    def needed_from(self) -> int | None:
        """Return the physical offset from which on the log must stay, for it is not copied yet; ``None``: none."""
        lowest, log_min = None, self._log_min()
        for queue, ordinary in self.wanted():
            at = max(queue.copied_to, self._ordinary.correct_min(ordinary, log_min))
            if at < ordinary.next_offset:
                unit = self._ordinary.unit(ordinary, at)
                physical = log_min if unit is None or unit[1] == FILLER_SIZE else unit[0]
                lowest = physical if lowest is None else min(lowest, physical)
        return lowest

    def cut(self, queue: CompactedQueue) -> None:
        """Remove what readers may not see of *queue* any more, to which nobody adds meanwhile. Blocking."""
        cut_queue(self._disk, queue, queue.copied_to)
        queue.copied_to = min(queue.copied_to, queue.last + 1)
        if self.positions.of(queue.topic, queue.queue_id) > queue.last:
            self.positions.set(queue.topic, queue.queue_id, queue.last if queue.last >= 0 else None)
            self.positions.save()

    def remove_files(self, topic: str) -> None:
        """Remove the files of a topic that was deleted. Blocking."""
        for folder in self._folders:
            for name in self._disk.listdir(os.path.join(folder, topic)):
                if name.isdigit():
                    self.positions.set(topic, int(name), None)
            self._disk.remove_tree(os.path.join(folder, topic))
            if self._disk.exists(folder):
                self._disk.sync_folder(folder)
        self.positions.save()
        self.doomed.discard(topic)

    def note_damage(self, file: CompactedFile, unit: BatchUnit) -> None:
        """Say once that a record cannot be read."""
        place = file.paths[0], unit.physical
        if place not in self._damaged:
            self._damaged.add(place)
            log.error("a message of a compaction log is damaged and left out", path=place[0], at=unit.physical)

    def close(self) -> None:
        """Give every file back."""
        self._mapped.close()
