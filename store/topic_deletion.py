"""Delete the queues of topics, by a request here or at the master, and keep their old messages out for good.

In the tables a topic goes at once, and its files go later (:mod:`understudy.store.discarded`). Where it must be looked
up for each queue whether it goes, that is done in steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Set

from understudy.format.names import LIGHT_PREFIX, is_system_topic
from understudy.runtime.pace import run_beside
from understudy.runtime.signal import Signal
from understudy.store.batch_queue import BatchQueue
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.deletions import Deletion
from understudy.store.flush import Flusher
from understudy.store.walk import parse

#: So many queues are looked at in one step, each of which may have to be mapped for it.
QUEUES_IN_A_STEP = 16
#: So many names of topics.
_NAMES_IN_A_STEP = 1024


def is_system(topic: str) -> bool:
    """Whether a topic may have messages although no table of topics has it."""
    return is_system_topic(topic) or topic.startswith(LIGHT_PREFIX)


def drop_deleted_queues(core: StoreCore, topics: Iterable[str]) -> Generator[list[str], None, None]:
    """Delete what is left of the queues of *topics* that were deleted, step by step.

    A queue that has messages of a later life stays: the former one went when the first of them came. One that has no
    unit (a power loss may leave the name of its last file) goes: it must not say where the next message stands. What
    becomes of a queue is found out and done in one step, so one that gets messages between two of them keeps these.

    Yields:
        The topics that had something left, as far as this step found it.
    """
    dropped, left = list[str](), QUEUES_IN_A_STEP
    for topic in topics:
        queues = [*core.consume_queues.by_topic.get(topic, ()), *core.batch_queues.by_topic.get(topic, ())]
        for first in range(0, len(queues), QUEUES_IN_A_STEP):
            some = queues[first : first + QUEUES_IN_A_STEP]
            if _drop_some(core, topic, some):
                dropped.append(topic)
            left -= len(some)
            if left <= 0:
                yield dropped
                dropped, left = [], QUEUES_IN_A_STEP
    yield dropped


def _drop_some(core: StoreCore, topic: str, queues: list[ConsumeQueue | BatchQueue]) -> bool:
    """Delete those of *queues*, all of *topic*, that were deleted; return whether there were any."""
    simple = [queue for queue in queues if isinstance(queue, ConsumeQueue) and _is_gone(core, queue)]
    if simple and simple == core.consume_queues.by_topic.get(topic):
        core.consume_queues.delete_topic(topic)
    else:
        for queue in simple:
            core.consume_queues.delete(queue)
    batch = [queue for queue in queues if isinstance(queue, BatchQueue) and _is_gone_batch(core, queue)]
    for each in batch:
        core.batch_queues.delete(each)
    if (simple or batch) and topic not in core.consume_queues.by_topic:
        core.compacted.delete_logs(topic)
    return bool(simple or batch)


def _is_gone(core: StoreCore, queue: ConsumeQueue) -> bool:
    if not queue.next_offset or core.consume_queues.by_key.get((queue.topic, queue.queue_id)) is not queue:
        return False
    unit = core.consume_queues.unit(queue, queue.next_offset - 1)
    return unit is None or _was_deleted(core, queue.topic, unit[0])


def _is_gone_batch(core: StoreCore, queue: BatchQueue) -> bool:
    if core.batch_queues.by_key.get((queue.topic, queue.queue_id)) is not queue:
        return False
    last = queue.last_unit()
    return last is None or _was_deleted(core, queue.topic, last.physical)


def _was_deleted(core: StoreCore, topic: str, physical: int) -> bool:
    if physical >= core.deletions.until:
        return False
    if physical < core.segments.min_offset:
        deletion = core.deletions.by_topic.get(topic)
        return deletion is not None and physical < deletion.position
    segment = core.segments.find(physical)
    if segment is None:
        return False
    head = parse(core.segments.view(segment), physical - segment.start, segment.start, check_crc=False)
    return head is not None and core.deletions.covers(topic, physical, head.store_ms)


class TopicDeletion:
    """Deletes topics of one store.

    Attributes:
        dropped: called with topics of which :meth:`learn` had something deleted.
    """

    def __init__(self, core: StoreCore, flusher: Flusher) -> None:
        self._core = core
        self._flusher = flusher
        self._unfinished: deque[Generator[list[str], None, None]] = deque()
        self._more = Signal()
        self.dropped: list[Callable[[Set[str]], None]] = []

    def delete(self, topic: str) -> None:
        """Delete the queues of a topic; its records stay in the log until their files go, and count no more."""
        self._delete(topic)
        self._flusher.note_deletion()

    def learn(self, deletions: Mapping[str, Deletion]) -> None:
        """Delete what our master deleted, by the physical offsets in its log, which ours continues.

        A few queues at once, the others while :meth:`run` runs: each has to be looked at, for it may have messages of a
        later life.
        """
        core = self._core
        news = [topic for topic, each in deletions.items() if core.deletions.by_topic.get(topic) != each]
        for topic in news:
            core.deletions.add(topic, deletions[topic])
        if news:
            steps = drop_deleted_queues(core, news)
            self._note_dropped(next(steps))
            self._unfinished.append(steps)
            self._more.set()

    def delete_beside(self, topics: Iterable[str]) -> None:
        """Delete the queues of *topics*, as :meth:`learn` does, with what is before this moment in the log."""
        if self._core.segments.items:
            self.learn(dict.fromkeys(topics, self._here()))

    async def run(self) -> None:
        """Go on with what :meth:`learn` has not come to, until cancelled; what is left then the next start does."""
        while True:
            while self._unfinished:
                await run_beside(self._core.clock, self._go_on(self._unfinished.popleft()))
            await self._more.wait()

    def _go_on(self, steps: Iterable[list[str]]) -> Generator[None, None, None]:
        for dropped in steps:
            if dropped:
                self._note_dropped(dropped)
            yield

    def clean_unused(self, retain: Container[str]) -> Generator[None, None, list[str]]:
        """Delete the queues of every topic that is no system topic, one topic in each step.

        Args:
            retain: topics that stay; asked in the step in which one would be deleted.

        Returns:
            The deleted topics.
        """
        core, unused = self._core, list[str]()
        simple, batch = core.consume_queues.by_topic, core.batch_queues.by_topic
        try:
            for number, topic in enumerate([*simple, *batch], 1):
                if (topic in simple or topic in batch) and not is_system(topic) and topic not in retain:
                    self._delete(topic)
                    self._flusher.generation += 1
                    unused.append(topic)
                    yield
                elif number % _NAMES_IN_A_STEP == 0:
                    yield
        finally:
            if unused:
                self._flusher.note_deletion()
        return sorted(unused)

    def _note_dropped(self, topics: list[str]) -> None:
        self._flusher.note_deletion()
        for tell in self.dropped:
            tell(frozenset(topics))

    def _here(self) -> Deletion:
        core = self._core
        return Deletion(core.log.end, max(core.last_store_ms, core.clock.wall_ms()))

    def _delete(self, topic: str) -> None:
        """Delete the queues of *topic*, and what is before this moment in the log."""
        core = self._core
        if core.segments.items:
            core.deletions.add(topic, self._here())
        core.consume_queues.delete_topic(topic)
        if topic in core.batch_queues.topics:
            core.batch_queues.delete_topic(topic)
        core.compacted.delete_topic(topic)
