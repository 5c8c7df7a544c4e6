"""Units of batch queues that have rotted: made again from their records.

A unit *fits* when the record that it points to says its place, size and queue offsets. One that does not is searched
for in the log between its neighbours that fit: what lies there in its queue goes into the units there. Where there is
less, records have rotted: a unit that is in order stays as it is, until its record comes again from a replica; any
other repeats the one before it, so that searches find their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.runtime.log import get_logger
from understudy.store.batch_queue import BatchQueue, BatchUnit
from understudy.store.core import StoreCore
from understudy.store.dispatch import Dispatcher
from understudy.store.queue_repair import Doubt
from understudy.store.walk import RecordHead, Walk

log = get_logger("store.batch_repair")

#: So much of the log is searched at once; for what lies further apart the whole log is compared.
_SEARCH_BYTES = 16 << 20
#: Units of which it is remembered that their record was not found.
_GIVEN_UP_MAX = 1_000


def fits(core: StoreCore, dispatcher: Dispatcher, queue: BatchQueue, unit: BatchUnit) -> bool:
    """Whether a unit says the same as the record that it points to, whose body is not looked at.

    Args:
        core, dispatcher: of the store.
        queue, unit: the unit and its queue.
    """
    head = core.log.parse_at(unit.physical, check_crc=False) if unit.physical >= 0 else None
    if head is None or head.queue_id != queue.queue_id or head.topic != queue.topic.encode():
        return False
    expected = dispatcher.batch_unit(head, unit.code)
    return (unit.size, unit.first, unit.messages) == (expected.size, expected.first, expected.messages)


class Scrub(Protocol):
    """A comparison of the whole log."""

    @property
    def running(self) -> bool: ...


class BatchRepair:
    """Makes units of one store's batch queues anew.

    Args:
        core, dispatcher: of the store.

    Attributes:
        mended: how many units were.
    """

    def __init__(self, core: StoreCore, dispatcher: Dispatcher) -> None:
        self._core = core
        self._dispatcher = dispatcher
        self._scrubs: dict[tuple[str, int], Scrub] = {}
        self._given_up: dict[tuple[str, int, int], BatchUnit] = {}
        self.mended = 0

    def is_right(self, queue: BatchQueue, number: int) -> bool:
        """Whether unit *number* fits its record, or belongs to one whose file is gone."""
        unit = queue.unit(number)
        if unit is None:
            return True
        log_min = self._core.segments.min_offset
        if 0 <= unit.physical < log_min:
            before = queue.unit(number - 1) if number > queue.first else None
            return before is None or before.physical <= unit.physical
        return fits(self._core, self._dispatcher, queue, unit)

    def settle(self, head: RecordHead) -> bool | None:
        """Compare a whole record with its unit, and mend that; records must come in the order of the log.

        Returns:
            ``None`` when its queue has no unit for it: it is of a former life of the queue, or says the wrong one.
        """
        core = self._core
        if not self._dispatcher.has_batch_unit(head):
            return True
        queue = core.batch_queues.by_key.get((head.topic.decode("utf-8", "replace"), head.queue_id))
        if queue is None:
            return None
        unit = self._dispatcher.batch_unit(head)
        places = [queue.number_from(unit.first), queue.number_at(unit.physical)]
        if any(queue.unit(number) == unit for number in places if number < queue.end):
            return True
        for number in places:
            place = self._place_for(queue, number, unit) if number < queue.end else None
            if place is not None:
                self._put(queue, place, unit)
                return True
        return None

    def doubt(
        self, queue: BatchQueue, number: int, start_scrub: Callable[[], Scrub], note_damage: Callable[[int], None]
    ) -> Doubt:
        """Mend unit *number* of *queue*, which does not fit its record.

        Args:
            queue, number: which it is.
            start_scrub: has the whole log compared, and with it every unit.
            note_damage: told where a record begins that has rotted (physical offset).
        """
        core = self._core
        if self._given_up.get((queue.topic, queue.queue_id, number)) == queue.unit(number):
            return Doubt.DAMAGED
        low, high = self._around(queue, number)
        before = queue.unit(low) if low >= queue.first else None
        after = queue.unit(high) if high < queue.end else None
        begin = max(core.segments.min_offset, 0, before.end if before is not None else 0)
        end = after.physical if after is not None else core.dispatched
        units = []
        if end - begin <= _SEARCH_BYTES:
            units = self._found(queue, begin, end)
        else:
            key = queue.topic, queue.queue_id
            if key not in self._scrubs:
                self._scrubs[key] = start_scrub()
            if self._scrubs[key].running:
                return Doubt.LATER
            del self._scrubs[key]
        if len(units) == high - low - 1:
            for place, unit in enumerate(units, low + 1):
                self._put(queue, place, unit)
        else:
            for unit in units:
                place_of = self._place_for(queue, low + 1, unit)
                if place_of is not None:
                    self._put(queue, place_of, unit)
        for place in range(low + 1, high):
            self._close(queue, place, after, note_damage)
        return Doubt.ENTERED if self.is_right(queue, number) else Doubt.DAMAGED

    # Inside

    def _around(self, queue: BatchQueue, number: int) -> tuple[int, int]:
        """Return the numbers of the nearest units around *number* that fit, that one left out if it does not."""
        low, high = number, number
        while low >= queue.first and not self.is_right(queue, low):
            low -= 1
        while high < queue.end and not self.is_right(queue, high):
            high += 1
        return low, high

    def _place_for(self, queue: BatchQueue, number: int, unit: BatchUnit) -> int | None:
        """Return which of the units around *number* that do not fit is that of a record, if any is.

        Those before it were mended by the records before it, so it is the first of them, unless another one says so.
        """
        low, high = self._around(queue, number)
        before = queue.unit(low) if low >= queue.first else None
        after = queue.unit(high) if high < queue.end else None
        if low == high:  # it fits: then only tags code or time have rotted
            return number if before is not None and before[:2] == unit[:2] else None
        if before is not None and (before.physical >= unit.physical or before.next_offset > unit.first):
            return None
        if after is not None and (unit.physical >= after.physical or unit.next_offset > after.first):
            return None
        present = [(place, queue.unit(place)) for place in range(low + 1, high)]
        for place, other in present:
            if other is not None and (other.first == unit.first or other.physical == unit.physical):
                return place
        return low + 1 if low + 1 < high else None

    def _close(
        self, queue: BatchQueue, number: int, after: BatchUnit | None, note_damage: Callable[[int], None]
    ) -> None:
        """Let searches find their way past a unit whose record has rotted."""
        unit = queue.unit(number)
        if unit is None or self.is_right(queue, number):
            return
        before = queue.unit(number - 1) if number > queue.first else None
        begin, first = (before.end, before.next_offset) if before is not None else (0, 0)
        end, next_offset = (
            (after.physical, after.first)
            if after is not None
            else (
                self._core.dispatched,
                queue.next_offset,
            )
        )
        is_in_order = begin <= unit.physical < unit.end <= end and first <= unit.first < unit.next_offset <= next_offset
        if is_in_order:
            note_damage(unit.physical)
            if len(self._given_up) >= _GIVEN_UP_MAX:
                del self._given_up[next(iter(self._given_up))]
            self._given_up[queue.topic, queue.queue_id, number] = unit
        elif (copy := before if before is not None else after) is not None:
            self._put(queue, number, copy)

    def _found(self, queue: BatchQueue, begin: int, end: int) -> list[BatchUnit]:
        """Return the units of the records of *queue* between two bytes of the log."""
        found, topic = [], queue.topic.encode()
        for head in Walk(self._core.segments, begin, check_crc=False):
            if head.physical_offset >= end:
                break
            same = head.topic == topic and head.queue_id == queue.queue_id
            if same and self._dispatcher.has_batch_unit(head):
                found.append(self._dispatcher.batch_unit(head))
        return found

    def _put(self, queue: BatchQueue, number: int, unit: BatchUnit) -> None:
        queue.put(number, unit)
        self.mended += 1
        log.warning(
            "a unit of a batch queue had rotted and was entered again from the log",
            topic=queue.topic,
            queue=queue.queue_id,
            offset=unit.first,
        )
