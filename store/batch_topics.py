"""Topics with batch queues: known by their attribute, not only by the folder that the first message makes.

A real broker does not start on a folder where a topic has queues of the other kind. So the queues of a topic are of its
kind as soon as the attribute is known, and those that were made before are made anew from what they say.

What stands in queues of the other kind is rare: messages that a slave took in the seconds before it knew the topic, or
another life of it, or that a version which did not look at the attribute has left. All the same there may be many. So
their records are read in steps, while the old queues serve readers and take what comes; the new queues take their place
in one step, once there is next to nothing that was not read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import attrgetter, itemgetter

from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_reason
from understudy.runtime.pace import run_beside, run_steps
from understudy.runtime.signal import Signal
from understudy.store.batch_queue import BatchQueue, BatchUnit
from understudy.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.status import UNKNOWN_TAGS
from understudy.store.walk import RecordHead, parse

log = get_logger("store.batch_topics")

#: Records that are read in one step.
RECORDS_IN_A_STEP = 64
#: Records that may be left for the step in which queues change places.
RECORDS_AT_ONCE = 256
_TRIES = 5

Queue = ConsumeQueue | BatchQueue
Units = dict[tuple[bytes, int], list[BatchUnit]]
"""By topic and queue id; a unit of a simple queue holds one message."""


class QueueKinds:
    """The kinds of the queues of one store's topics.

    Args:
        core: the store.
        dispatcher: of the store.

    Attributes:
        changing: topics whose queues are being made anew beside other work, and whether they become batch queues.
        generation: returns a number that grows whenever queues are deleted, or the log is cut or begins anew.
        on_changed: called when queues have changed places.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._more = Signal()
        self.changing: dict[str, bool] = {}
        self.generation: Callable[[], int] = lambda: 0
        self.on_changed: Callable[[], None] = lambda: None

    def declare(self, batch: Iterable[str], simple: Iterable[str] = (), *, beside: bool = False) -> None:
        """Let topics have batch queues, or simple ones, from now on.

        Args:
            batch: topics that have batch queues.
            simple: topics that have none; others stay what they are.
            beside: queues of the other kind that there are stay until :meth:`run` or :meth:`settle` has made new ones.
                Whoever appends to such topics must not have them told apart by then: a slave, which copies records.
        """
        core, known = self._core, self._core.batch_queues.topics
        for topic in sorted(batch):
            if topic in core.consume_queues.by_topic:
                self._change(topic, True, beside)
            else:
                self.changing.pop(topic, None)
                known.add(topic)
        for topic in sorted((known | self.changing.keys()).intersection(simple)) if known or self.changing else ():
            if topic in core.batch_queues.by_topic:
                self._change(topic, False, beside)
            else:
                self.changing.pop(topic, None)
                known.discard(topic)

    def _change(self, topic: str, batch: bool, beside: bool) -> None:
        if self.changing.get(topic) is not batch:
            self.changing[topic] = batch
            self._more.set()
        if not beside:
            run_steps(self.steps(topic))

    async def run(self) -> None:
        """Make queues anew that are to have another kind, until cancelled; what is left then the next start does."""
        handled = 0
        while True:
            await self.settle()
            handled = await self._more.wait(handled)

    async def settle(self) -> None:
        """Return when no queues are left to be made anew; others have their turns meanwhile."""
        while self.changing:
            topic = next(iter(self.changing))
            try:
                await run_beside(self._core.clock, self.steps(topic))
            except OSError as error:
                self.changing.pop(topic, None)
                log.error("queues could not be made anew, the next start does it", topic=topic, why=os_reason(error))

    def steps(self, topic: str) -> Generator[None, None, None]:
        """Make the queues of one topic anew, unless it is to stay as it is by then."""
        batch = self.changing[topic]
        for tries in range(_TRIES + 1):
            reading, generation = _Reading(self._core, self._dispatcher, topic, batch), self.generation()
            for _ in reading.steps() if tries < _TRIES else ():
                yield
                if self.changing.get(topic) is not batch:
                    return
                if generation != self.generation():
                    break
            else:
                if reading.finish():
                    self._replace(topic, batch, reading.units)
                    self.changing.pop(topic, None)
                    return

    def _replace(self, topic: str, batch: bool, units: Units) -> None:
        """Delete the queues of *topic*, of whatever kind, and enter *units* in new ones."""
        core = self._core
        gone: set[Queue] = {*core.consume_queues.by_topic.get(topic, ()), *core.batch_queues.by_topic.get(topic, ())}
        held = [each for each in core.held if each[1] not in gone]
        core.consume_queues.delete_topic(topic)
        core.batch_queues.delete_topic(topic)
        if batch:
            core.batch_queues.topics.add(topic)
        limit, shown = core.show_limit(), list[tuple[Queue, int]]()
        for (name, queue_id), found in units.items():
            found.sort()  # by their places in the log
            del found[: bisect_left(found, core.segments.min_offset, key=itemgetter(0))]
            queue = self._batch_queue(topic, queue_id, found) if batch else self._simple_queue(name, queue_id, found)
            count = bisect_right(found, limit, key=attrgetter("end"))
            if count:
                queue.max_offset = found[count - 1].next_offset
                shown.append((queue, found[count - 1].store_ms))
            held += [(unit.end, queue, unit.next_offset, unit.code, unit.store_ms, None) for unit in found[count:]]
        core.held.clear()
        core.held.extend(sorted(held, key=itemgetter(0)))
        self.on_changed()
        log.warning(
            "the queues of a topic are made anew, as its queue.type says",
            topic=topic,
            kind="BatchCQ" if batch else "SimpleCQ",
            messages=sum(map(len, units.values())),
        )
        for queue, store_ms in shown:
            for callback in core.arrived:
                callback(queue.topic, queue.queue_id, queue.max_offset, UNKNOWN_TAGS, store_ms, None)

    def _batch_queue(self, topic: str, queue_id: int, found: list[BatchUnit]) -> BatchQueue:
        queue = self._core.batch_queues.create(topic, queue_id)
        queue.extend(_of_last_life(found))
        return queue

    def _simple_queue(self, name: bytes, queue_id: int, found: list[BatchUnit]) -> ConsumeQueue:
        queue, queues, values = self._dispatcher.queue(name, queue_id), self._core.consume_queues, list[int]()
        for physical, size, code, _, offset, _ in found:
            if offset == queue.next_offset + len(values) // 3:  # those that follow each other are written all at once
                values += (physical, size, code)
                continue
            queues.append_units(queue, values)
            values.clear()
            queues.put(queue, offset, physical, size, code)
        queues.append_units(queue, values)
        return queue


def _of_last_life(found: list[BatchUnit]) -> list[BatchUnit]:
    """Return *found*, in the order of the log, without those whose queue offsets were given again later."""
    units = list[BatchUnit]()
    for unit in found:
        while units and units[-1].first >= unit.first:
            units.pop()
        units.append(unit)
    return units


class _Reading:
    """What the queues of one topic say of its records; these are read anew, a few in each step.

    Attributes:
        units: what the new queues get.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, topic: str, batch: bool) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._topic, self._name = topic, topic.encode()
        self._batch = batch
        self._read_to: dict[Queue, tuple[int, int]] = {}
        self._places: set[int] = set()
        self.units: Units = {}

    def steps(self) -> Generator[None, None, None]:
        """Read until little is left; more may come between two steps."""
        while sum(_end(queue) - self._at(queue) for queue in self._queues()) > RECORDS_AT_ONCE:
            for queue in self._queues():
                while self._read(queue, RECORDS_IN_A_STEP):
                    yield

    def finish(self) -> bool:
        """Read the rest; return whether the queues still hold what was read of them first."""
        for queue, (at, last) in self._read_to.items():
            if at > _end(queue) or self._physical(queue, at - 1) != last:
                return False  # a former life of it went when a message came that stands in its place
        for queue in self._queues():
            while self._read(queue, RECORDS_AT_ONCE):
                pass
        return True

    def _queues(self) -> list[Queue]:
        core, topic = self._core, self._topic
        return [*core.consume_queues.by_topic.get(topic, ()), *core.batch_queues.by_topic.get(topic, ())]

    def _at(self, queue: Queue) -> int:
        """Return the number of the first unit that was not read."""
        if queue in self._read_to:
            return self._read_to[queue][0]
        log_min = max(self._core.segments.min_offset, 0)
        if isinstance(queue, BatchQueue):
            return queue.number_at(log_min)
        return self._core.consume_queues.correct_min(queue, log_min)

    def _read(self, queue: Queue, most: int) -> bool:
        """Read the records of the next units, at most so many; return whether there were any units."""
        at = self._at(queue)
        end = min(_end(queue), at + most)
        if at >= end:
            return False
        for physical in self._places_of(queue, at, end):
            self._note(physical)
        self._read_to[queue] = end, self._physical(queue, end - 1)
        return True

    def _places_of(self, queue: Queue, at: int, end: int) -> Iterator[int]:
        """Return where the records of units lie in the log (physical offsets)."""
        if isinstance(queue, BatchQueue):
            yield from [unit.physical for number in range(at, end) if (unit := queue.unit(number)) is not None]
            return
        while at < end:
            units = self._core.consume_queues.units(queue, at, end - at)
            yield from [place for place, size, _ in UNIT.iter_unpack(units) if 0 < size < FILLER_SIZE]
            at += len(units) // UNIT_BYTES or end - at  # a file that is missing

    def _physical(self, queue: Queue, number: int) -> int:
        if isinstance(queue, BatchQueue):
            unit = queue.unit(number)
            return -1 if unit is None else unit.physical
        found = self._core.consume_queues.unit(queue, number)
        return -1 if found is None else found[0]

    def _note(self, physical: int) -> None:
        """Note what the new queues get of the record at *physical*."""
        head = None if physical in self._places else self._head(physical)
        if head is None or head.topic != self._name:
            return
        self._places.add(physical)
        dispatcher = self._dispatcher
        if not self._batch:
            for name, queue_id, offset, code in dispatcher.simple_units(head):
                unit = BatchUnit(physical, head.size_bytes, code, head.store_ms, offset, 1)
                self.units.setdefault((name, queue_id), []).append(unit)
        elif dispatcher.has_batch_unit(head):
            self.units.setdefault((head.topic, head.queue_id), []).append(dispatcher.batch_unit(head))

    def _head(self, physical: int) -> RecordHead | None:
        segments = self._core.segments
        segment = segments.find(physical)
        if segment is None:
            return None
        return parse(segments.view(segment), physical - segment.start, segment.start, check_crc=False)


def _end(queue: Queue) -> int:
    """Return the number behind the last unit of *queue*."""
    return queue.end if isinstance(queue, BatchQueue) else queue.next_offset
