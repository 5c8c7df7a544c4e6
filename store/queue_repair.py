"""Units of a consume queue that were lost: found by their zeros, and entered again from the log.

A block of zeros in a queue file is what a file system leaves of a block that it could not keep. Whatever lies there is
in the log still, between the messages around the gap. What is not (its file has grown too old) gets a unit that readers
pass over.

A unit that is no zeros, but does not fit what it points to, is *doubted*: it has rotted, or its record has. The log is
searched for the record in the same way; where it is not found, it is the record that is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum

import attrs
import trio

from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.consume_queue import FILLER, FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.walk import Walk

log = get_logger("store.queue_repair")

#: So much of the log is walked before others get their turn.
_STEP_BYTES = 256 << 10
#: Units on either side of a doubted one among which one is looked for that fits its record: a block of a disk.
_NEIGHBOURS_MAX = 256
#: Doubted units of which it is remembered that their record was not found.
_GIVEN_UP_MAX = 1_000


class Doubt(Enum):
    """What came of a unit that does not fit what it points to."""

    ENTERED = 0
    """It points to its record now."""
    LATER = 1
    """The log is being searched; readers are told."""
    DAMAGED = 2
    """The record itself is damaged, which is noted."""


@attrs.frozen
class Gap:
    """Lost units of one queue that lie side by side, with their neighbours: blocks end in the middle of a unit.

    Args:
        queue: where they are.
        first, after: queue offset of the first unit, and after the last one.
        begin, end: physical offsets between which their records are.
    """

    queue: ConsumeQueue
    first: int
    after: int
    begin: int
    end: int


def gap_around(core: StoreCore, queue: ConsumeQueue, offset: int) -> Gap | None:
    """Return the lost units around queue offset *offset*; ``None`` when there is a unit."""

    def is_lost(number: int) -> bool:
        unit = core.consume_queues.unit(queue, number)
        return unit is not None and not unit[1]

    if offset >= queue.next_offset or not is_lost(offset):
        return None
    bottom = queue.starts[0] // UNIT_BYTES
    first, after = offset, offset + 1
    while first > bottom and is_lost(first - 1):
        first -= 1
    while after < queue.next_offset and is_lost(after):
        after += 1
    first, after = max(first - 1, bottom), min(after + 1, queue.next_offset)
    begin, end = max(core.segments.min_offset, 0), core.dispatched
    before = core.consume_queues.unit(queue, first - 1) if first > bottom else None
    if before is not None and before[1] != FILLER_SIZE:
        begin = max(begin, before[0])
    following = core.consume_queues.unit(queue, after) if after < queue.next_offset else None
    if following is not None and following[1] != FILLER_SIZE:
        end = min(end, following[0])
    return Gap(queue, first, after, begin, end)


def fill_gaps(core: StoreCore, dispatcher: Dispatcher, gaps: Sequence[Gap]) -> Iterator[None]:
    """Enter what the log has into *gaps*; yields now and then, so that the caller can let others run."""
    by_queue: dict[tuple[bytes, int], list[Gap]] = {}
    for gap in gaps:
        by_queue.setdefault((gap.queue.topic.encode(), gap.queue.queue_id), []).append(gap)
    position = min((gap.begin for gap in gaps), default=0)
    end = max((gap.end for gap in gaps), default=0)
    step_end = position + _STEP_BYTES
    for head in Walk(core.segments, position, check_crc=False) if position < end else ():
        physical = head.physical_offset
        if physical >= end:
            break
        for topic, queue_id, offset, code in dispatcher.units(head):
            for gap in by_queue.get((topic, queue_id), ()):
                if gap.begin <= physical < gap.end and gap.first <= offset < gap.after:
                    _put(core, gap.queue, offset, UNIT.pack(physical, head.size_bytes, code))
        if physical >= step_end:
            step_end = physical + _STEP_BYTES
            yield
    for gap in gaps:
        _close(core, gap)


def _close(core: StoreCore, gap: Gap) -> None:
    """Let what is still lost be passed over: by a filler before the first message, else by the message after it."""
    queue, queues = gap.queue, core.consume_queues
    lost = []
    for offset in range(gap.first, gap.after):
        unit = queues.unit(queue, offset)
        if unit is not None and not unit[1]:
            lost.append(offset)
    leading = queue.starts[0] // UNIT_BYTES
    for offset in lost:
        if offset == leading:
            leading += 1
    for offset in reversed(lost):
        following = bytes(queues.units(queue, offset + 1, 1)) if offset + 1 < queue.next_offset else FILLER
        _put(core, queue, offset, FILLER if offset < leading else following)
    queue.min_checked_for = -2
    log.warning(
        "lost units of a queue were entered again from the log",
        topic=queue.topic,
        queue=queue.queue_id,
        first=gap.first,
        after=gap.after,
        without_message=len(lost),
    )


def _put(core: StoreCore, queue: ConsumeQueue, offset: int, unit: bytes) -> None:
    core.consume_queues.units(queue, offset, 1)[:UNIT_BYTES] = unit
    core.consume_queues.dirty_paths.add(queue.path(queue.start_of(offset)))


def _fits(core: StoreCore, dispatcher: Dispatcher, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
    """Return the unit at *offset* if the record that it points to, whose body is not looked at, says that place."""
    unit = core.consume_queues.unit(queue, offset)
    head = core.log.parse_at(unit[0], check_crc=False) if unit is not None and unit[0] >= 0 else None
    if unit is None or head is None or head.size_bytes != unit[1]:
        return None
    place = (queue.topic.encode(), queue.queue_id, offset)
    return unit if place in [each[:3] for each in dispatcher.units(head)] else None


def _gap_of(core: StoreCore, dispatcher: Dispatcher, queue: ConsumeQueue, offset: int) -> Gap:
    """Return one unit as a gap, with the records of the nearest units around it that fit theirs."""
    lowest = max(queue.starts[0] // UNIT_BYTES, offset - _NEIGHBOURS_MAX)
    highest = min(queue.next_offset, offset + 1 + _NEIGHBOURS_MAX)
    before = (_fits(core, dispatcher, queue, each) for each in range(offset - 1, lowest - 1, -1))
    following = (_fits(core, dispatcher, queue, each) for each in range(offset + 1, highest))
    begin = next((unit[0] for unit in before if unit is not None), max(core.segments.min_offset, 0))
    end = next((unit[0] for unit in following if unit is not None), core.dispatched)
    return Gap(queue, offset, offset + 1, begin, end)


def _enter_doubted(core: StoreCore, dispatcher: Dispatcher, gap: Gap) -> Generator[None, None, bool]:
    """Look in the log for the record of the one unit of *gap*, and enter it.

    Yields:
        Now and then, so that others have their turn.

    Returns:
        Whether it was found.
    """
    place = (gap.queue.topic.encode(), gap.queue.queue_id, gap.first)
    step_end = gap.begin + _STEP_BYTES
    for head in Walk(core.segments, gap.begin):
        physical = head.physical_offset
        if physical >= gap.end:
            break
        for topic, queue_id, offset, code in dispatcher.units(head):
            if (topic, queue_id, offset) == place:
                if gap.first < gap.queue.next_offset:  # else it was cut off meanwhile
                    _put(core, gap.queue, offset, UNIT.pack(physical, head.size_bytes, code))
                return True
        if physical >= step_end:
            step_end = physical + _STEP_BYTES
            yield
    return False


class QueueRepair:
    """Fills the gaps that readers of one store come upon.

    Args:
        core, dispatcher: of the store.
        note_damage: told where a record begins that has rotted (physical offset).
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher, note_damage: Callable[[int], None]) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._note_damage = note_damage
        self._gaps: list[Gap] = []
        self._doubted: list[Gap] = []
        self._given_up: dict[tuple[str, int, int], tuple[int, int, int] | None] = {}
        self._found = Signal()
        core.on_lost_unit = self._note

    def doubt(self, queue: ConsumeQueue, offset: int) -> Doubt:
        """Enter a unit again that does not fit what it points to: at once if its neighbours are near in the log.

        Args:
            queue, offset: where it is.
        """
        unit = self._core.consume_queues.unit(queue, offset)
        if self._given_up.get((queue.topic, queue.queue_id, offset)) == unit:
            return Doubt.DAMAGED
        if any(gap.queue is queue and gap.first == offset for gap in self._doubted):
            return Doubt.LATER
        if _fits(self._core, self._dispatcher, queue, offset) is not None:  # only its body has rotted
            self._give_up(queue, offset, unit)
            return Doubt.DAMAGED
        gap = _gap_of(self._core, self._dispatcher, queue, offset)
        if gap.end - gap.begin > _STEP_BYTES:
            self._doubted.append(gap)
            self._found.set()
            return Doubt.LATER
        search = _enter_doubted(self._core, self._dispatcher, gap)
        while True:
            try:
                next(search)
            except StopIteration as stop:
                return self._settle(gap, found=stop.value)

    def _settle(self, gap: Gap, *, found: bool) -> Doubt:
        queue, offset = gap.queue, gap.first
        if found:
            log.warning(
                "a unit of a queue had rotted and was entered again from the log",
                topic=queue.topic,
                queue=queue.queue_id,
                offset=offset,
            )
            queue.min_checked_for = -2
            return Doubt.ENTERED
        unit = self._core.consume_queues.unit(queue, offset)
        self._give_up(queue, offset, unit if unit is not None and gap.begin <= unit[0] < gap.end else None)
        return Doubt.DAMAGED

    def _give_up(self, queue: ConsumeQueue, offset: int, unit: tuple[int, int, int] | None) -> None:
        if len(self._given_up) >= _GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]
        present = self._core.consume_queues.unit(queue, offset)
        self._given_up[queue.topic, queue.queue_id, offset] = present
        if unit is not None:
            self._note_damage(unit[0])

    def _note(self, queue: ConsumeQueue, offset: int) -> None:
        if any(gap.queue is queue and gap.first <= offset < gap.after for gap in self._gaps):
            return
        gap = gap_around(self._core, queue, offset)
        if gap is not None:
            log.error("units of a queue are lost", topic=queue.topic, queue=queue.queue_id, first=gap.first)
            self._gaps.append(gap)
            self._found.set()

    async def run(self) -> None:
        """Fill gaps until cancelled; asleep while none is known. Readers that wait are told of what is there again."""
        core, handled = self._core, 0
        while True:
            handled = await self._found.wait(handled)
            gaps, doubted = list(self._gaps), list(self._doubted)
            for _ in fill_gaps(core, self._dispatcher, gaps):
                await trio.lowlevel.checkpoint()
            for gap in doubted:
                await self._search(gap)
            self._gaps, self._doubted = self._gaps[len(gaps) :], self._doubted[len(doubted) :]
            for gap in [*gaps, *doubted]:
                queue = gap.queue
                for code in {code for _, _, code in UNIT.iter_unpack(core.consume_queues.units(queue, gap.first, 256))}:
                    for callback in core.arrived:
                        callback(queue.topic, queue.queue_id, queue.max_offset, code, core.last_store_ms, None)

    async def _search(self, gap: Gap) -> None:
        search = _enter_doubted(self._core, self._dispatcher, gap)
        while True:
            try:
                next(search)
            except StopIteration as stop:
                self._settle(gap, found=stop.value)
                return
            await trio.lowlevel.checkpoint()
