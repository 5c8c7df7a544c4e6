"""Delete the queues of topics, by a request here or at the master, and keep their old messages out for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from understudy.format.names import LIGHT_PREFIX, is_system_topic
from understudy.store.core import StoreCore
from understudy.store.deletions import Deletion
from understudy.store.flush import Flusher
from understudy.store.walk import parse


def is_system(topic: str) -> bool:
    """Whether a topic may have messages although no table of topics has it."""
    return is_system_topic(topic) or topic.startswith(LIGHT_PREFIX)


def drop_queues(core: StoreCore, topic: str) -> None:
    """Delete the queues of *topic* with their files."""
    for queue in [queue for queue in core.consume_queues if queue.topic == topic]:
        core.consume_queues.delete(queue)
    if topic in core.batch_queues.topics:
        core.batch_queues.delete_topic(topic)
    core.compacted.delete_topic(topic)


def drop_deleted_queues(core: StoreCore, topics: Iterable[str]) -> list[str]:
    """Delete what is left of the queues of *topics* that were deleted; return the topics that had something left.

    A queue that has messages of a later life stays: the former one went when the first of them came. One that has no
    unit (a power loss may leave the name of its last file) goes: it must not say where the next message stands.
    """
    wanted = set(topics)
    doomed = set()
    for queue in [queue for queue in core.consume_queues if queue.topic in wanted and queue.next_offset]:
        unit = core.consume_queues.unit(queue, queue.next_offset - 1)
        if unit is None or _was_deleted(core, queue.topic, unit[0]):
            core.consume_queues.delete(queue)
            doomed.add(queue.topic)
    for (topic, queue_id), batch in list(core.batch_queues.by_key.items()):
        if topic in wanted and ((last := batch.last_unit()) is None or _was_deleted(core, topic, last.physical)):
            core.batch_queues.delete(topic, queue_id)
            doomed.add(topic)
    for topic in doomed.difference(topic for topic, _ in core.consume_queues.by_key):
        core.compacted.delete_logs(topic)
    return sorted(doomed)


def _was_deleted(core: StoreCore, topic: str, physical: int) -> bool:
    segment = core.segments.find(physical)
    if segment is None or physical >= core.deletions.until:
        return False
    head = parse(core.segments.view(segment), physical - segment.start, segment.start, check_crc=False)
    return head is not None and core.deletions.covers(topic, physical, head.store_ms)


class TopicDeletion:
    """Deletes topics of one store."""

    def __init__(self, core: StoreCore, flusher: Flusher) -> None:
        self._core = core
        self._flusher = flusher

    def delete(self, topic: str) -> None:
        """See :meth:`understudy.store.message_store.MessageStore.delete_topic`."""
        core = self._core
        if core.segments.items:
            core.deletions.add(topic, Deletion(core.log.end, max(core.last_store_ms, core.clock.wall_ms())))
        drop_queues(core, topic)
        self._flusher.note_deletion()

    def learn(self, deletions: Mapping[str, Deletion]) -> list[str]:
        """See :meth:`understudy.store.message_store.MessageStore.learn_deletions`."""
        core = self._core
        news = [topic for topic, each in deletions.items() if core.deletions.by_topic.get(topic) != each]
        for topic in news:
            core.deletions.add(topic, deletions[topic])
        dropped = drop_deleted_queues(core, news)
        if news:
            self._flusher.note_deletion()
        return dropped

    def clean_unused(self, retain: set[str]) -> list[str]:
        """See :meth:`understudy.store.message_store.MessageStore.clean_unused`."""
        core = self._core
        topics = {topic for topic, _ in [*core.consume_queues.by_key, *core.batch_queues.by_key]}
        unused = sorted(topic for topic in topics if topic not in retain and not is_system(topic))
        for topic in unused:
            self.delete(topic)
        return unused
