"""All batch queues of one store. A topic has such queues when its attribute ``queue.type`` is ``BatchCQ``, which shows
as a folder here once it has a message."""

from __future__ import annotations

import os.path

from understudy.runtime.disk import Disk
from understudy.store.batch_queue import UNIT_BYTES, BatchQueue, Changes
from understudy.store.discarded import Discarded
from understudy.store.mapped_files import MappedFiles


class BatchQueues:
    """The batch queues of one store.

    Args:
        disk: where they are.
        folder: ``batchconsumequeue`` of the store.
        file_size: bytes of one file, rounded up to a multiple of 46.
        mapped: the queue files that the store has mapped.
        discarded: where the files of deleted queues go.

    Attributes:
        by_key, by_topic: the queues; change them through methods only.
        topics: those that have batch queues, with or without a message.
    """

    def __init__(self, disk: Disk, folder: str, file_size: int, mapped: MappedFiles, discarded: Discarded) -> None:
        self._disk = disk
        self._folder = folder
        self._file_size = -(-file_size // UNIT_BYTES) * UNIT_BYTES
        self._mapped = mapped
        self._discarded = discarded
        self._changes = Changes()
        self.by_key: dict[tuple[str, int], BatchQueue] = {}
        self.by_topic: dict[str, list[BatchQueue]] = {}
        self.topics: set[str] = set()

    def load(self) -> None:
        """Find the queues; every topic with a folder here has batch queues."""
        for topic in self._disk.listdir(self._folder):
            for name in self._disk.listdir(os.path.join(self._folder, topic)):
                if name.isascii() and name.isdigit():
                    self.create(topic, int(name))

    def create(self, topic: str, queue_id: int) -> BatchQueue:
        """Return the queue, added (without files) if it is new; from then on the topic has batch queues."""
        self.topics.add(topic)
        key = (topic, queue_id)
        queue = self.by_key.get(key)
        if queue is None:
            folder = os.path.join(self._folder, topic, str(queue_id))
            queue = self.by_key[key] = BatchQueue(
                self._disk, topic, queue_id, folder, self._file_size, self._mapped, self._changes
            )
            self.by_topic.setdefault(topic, []).append(queue)
        return queue

    def next_offsets_total(self) -> int:
        """Return the sum of the next offsets."""
        return sum(queue.next_offset for queue in self.by_key.values())

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return (files, folders) that changed since the last call."""
        paths, folders = set(self._changes.paths), set(self._changes.folders)
        self._changes.paths.clear()
        self._changes.folders.clear()
        return paths, folders

    def delete(self, queue: BatchQueue) -> None:
        """Delete one queue, whose files go later; its topic still has batch queues."""
        of_topic = self.by_topic[queue.topic]
        of_topic.remove(queue)
        if not of_topic:
            del self.by_topic[queue.topic]
        self._forget([queue], queue.folder, os.path.dirname(queue.folder))

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic, which has no batch queues any more; their files go later."""
        self.topics.discard(topic)
        self._forget(self.by_topic.pop(topic, []), os.path.join(self._folder, topic), self._folder)

    def _forget(self, queues: list[BatchQueue], folder: str, parent: str) -> None:
        """Know nothing more of *queues*, whose files are all that is in *folder*, which lies in *parent*."""
        for queue in queues:
            del self.by_key[queue.topic, queue.queue_id]
        if any(queue.starts for queue in queues):
            self._changes.folders.add(parent)
        for queue in queues:
            queue.starts = []
        self._discarded.take(folder, self._mapped.take_all(set(queues)), queues)
