"""Which messages went with their topic, as the log itself tells, where nobody says that the topic was deleted.

A topic is deleted with all its queues, each of which begins with queue offset 0 again. So a record with that offset
behind an older one of the same queue says that the topic was deleted somewhere between the two, and every other queue
of it that has a record before the older one is of the former life as well: what continues its numbering was stored
before the deletion, wherever it lies. A queue whose first record lies between the two may be of either life; it stays.

A live message must never go that way, and something else looks alike: the reference lets a queue begin anew, too, when
the files of its last messages have grown too old, while the others go on. It was not so where these messages are in the
same file of the log as the new ones: files go from the front, the last one never. Elsewhere nothing is concluded, for a
log may be a copy, whole or in part, of one that had other files. Nor was the topic deleted there if any queue goes on
behind the new beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from understudy.runtime.log import get_logger
from understudy.store.batch_queue import BatchQueue
from understudy.store.consume_queue import FILLER_SIZE, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.deletions import Deletion
from understudy.store.topic_deletion import is_system
from understudy.store.walk import RecordHead

log = get_logger("store.former_lives")


class FormerLives:
    """What one store has seen of former lives of its queues since it was asked last.

    Attributes:
        learn: told which topics were deleted, and where in the log.
    """

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        #: Of queues that began anew: where the last record of a former life begins.
        self._last: dict[ConsumeQueue | BatchQueue, int] = {}
        self.learn: Callable[[Mapping[str, Deletion]], None] = lambda found: None

    def note(self, queue: ConsumeQueue | BatchQueue, physical: int, size: int) -> None:
        """Note a record that has no place in its queue any more; it counts if the queue begins anew behind it.

        Args:
            queue: that the record was of.
            physical, size: where it lies in the log (bytes).
        """
        if self._beginning(queue) >= physical + size:
            self._last[queue] = max(physical, self._last.get(queue, 0))

    def settle(self) -> None:
        """Have deleted what is certain to be of former lives, once all queues have what the log holds of them."""
        if self._last:
            found = self.take()
            if found:
                self.learn(found)

    def take(self) -> dict[str, Deletion]:
        """Return which topics were deleted for certain, by what was noted since the last time."""
        noted, self._last = self._last, {}
        by_topic: dict[str, list[tuple[ConsumeQueue | BatchQueue, int]]] = {}
        for queue, physical in noted.items():
            if not is_system(queue.topic):
                by_topic.setdefault(queue.topic, []).append((queue, physical))
        found = {}
        for topic, reborn in by_topic.items():
            lives = self._lives(topic)
            deletions = [self._deletion(queue, physical, lives) for queue, physical in reborn]
            newest = max((each for each in deletions if each is not None), default=None)
            known = self._core.deletions.by_topic.get(topic)
            if newest is not None and (known is None or newest.position > known.position):
                found[topic] = newest
                log.info("a topic was deleted and made again, its log says", topic=topic, until=newest.position)
        return found

    # Inside

    def _deletion(
        self, queue: ConsumeQueue | BatchQueue, physical: int, lives: list[tuple[int, RecordHead]]
    ) -> Deletion | None:
        """Return the deletion between a former life and the beginning of *queue*; ``None`` where that is not certain.

        Args:
            queue: has begun anew.
            physical: where its last record before that begins.
            lives: what :meth:`_lives` says of its topic.
        """
        old, new = self._head(queue, physical), self._head(queue, self._beginning(queue))
        if old is None or new is None or not self._outlives(old, new):
            return None
        if isinstance(queue, ConsumeQueue) and new.queue_offset:
            return None  # it stands in for a lost one
        end, store_ms = old.physical_offset + old.size_bytes, max(old.store_ms, new.store_ms)
        for first, last in lives:
            if first >= end:
                break
            if last.physical_offset > new.physical_offset:
                return None
            end, store_ms = max(end, last.physical_offset + last.size_bytes), max(store_ms, last.store_ms)
        return Deletion(end, store_ms)

    def _outlives(self, old: RecordHead, new: RecordHead) -> bool:
        """Whether the file of *old* was there for certain when *new* was numbered, whichever broker did that."""
        segments = self._core.segments
        return segments.find(old.physical_offset) is segments.find(new.physical_offset)

    def _lives(self, topic: str) -> list[tuple[int, RecordHead]]:
        """Return where each queue of *topic* begins in the log, and its last record, in the order of the beginnings."""
        core, found = self._core, []
        log_min = max(core.segments.min_offset, 0)
        spans: list[tuple[ConsumeQueue | BatchQueue, int, int]] = []
        for queue in core.consume_queues.by_topic.get(topic, ()):
            offset = core.consume_queues.first_at_or_after(queue, log_min)
            if offset < queue.next_offset:
                first = core.consume_queues.unit(queue, offset)
                last = core.consume_queues.unit(queue, queue.next_offset - 1)
                if first is not None and last is not None and FILLER_SIZE not in (first[1], last[1]):
                    spans.append((queue, first[0], last[0]))
        for batch in core.batch_queues.by_topic.get(topic, ()):
            number = batch.number_at(log_min)
            unit, newest = batch.unit(number) if number < batch.end else None, batch.last_unit()
            if unit is not None and newest is not None:
                spans.append((batch, unit.physical, newest.physical))
        for each, begin, end in spans:
            head = self._head(each, end)
            if head is not None and self._head(each, begin) is not None:  # else it has rotted, and says nothing
                found.append((begin, head))
        return sorted(found)

    def _beginning(self, queue: ConsumeQueue | BatchQueue) -> int:
        """Return where the record with queue offset 0 begins; -1 when none is known."""
        if isinstance(queue, BatchQueue):
            first = queue.unit(queue.first) if queue.end > queue.first else None
            return first.physical if first is not None and first.first == 0 else -1
        unit = self._core.consume_queues.unit(queue, 0) if queue.next_offset else None
        return unit[0] if unit is not None and unit[1] != FILLER_SIZE else -1

    def _head(self, queue: ConsumeQueue | BatchQueue, physical: int) -> RecordHead | None:
        """Return the record of *queue* at *physical*; ``None`` when there is another one, or none."""
        head = self._core.log.parse_at(physical, check_crc=False) if physical >= 0 else None
        same = head is not None and head.queue_id == queue.queue_id and head.topic == queue.topic.encode()
        return head if same else None
