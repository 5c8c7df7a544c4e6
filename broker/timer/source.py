"""The timer as a deferred queue: its position is a second, and in that second a place in the timer log.

What was stored in one second is delivered in the order it came. A second is delivered when it is over and everything
that was stored meanwhile is in its slot. Progress moves with each batch, so that a crash repeats one batch at most.

Source: TimerMessageStore.java (dequeue).
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import attrs

from understudy.broker import deferred
from understudy.broker.deferred import NEVER, Item
from understudy.broker.delay import REAL_TOPIC
from understudy.broker.inner import InnerMessage
from understudy.broker.left_out import LeftOut
from understudy.broker.timer import rules
from understudy.broker.timer.done import Read
from understudy.broker.timer.slot import Found, SlotReading
from understudy.broker.timer.timer import Timer
from understudy.format.names import TIMER_TOPIC
from understudy.format.properties import parse_properties
from understudy.format.record import Record
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("broker.timer")

QUEUE = 0
LATER_MS = 60_000
"""What an operator has wait once more is due again so much later."""
AGAIN_MS = 1_000
"""Pause after a disk that refused, or while ``timerStopDequeue`` holds."""
_PLACES = 1 << 64
"""In-slot places are twice the position of a unit that is next, and one more behind it."""


@attrs.frozen
class Overdue:
    """A message that was due.

    Attributes:
        second_ms: that it was due after.
        position: of it in the queue.
        record: as the timer topic has it.
    """

    second_ms: int
    position: int
    record: Record


class TimerSource:
    """Reads what is due from *timer*.

    Args:
        clock: wall time decides what is due.
        timer: the wheel.
        delivered: called with topic, queue id and length of each delivered message, for statistics.
        stopped: whether nothing shall be delivered now (``timerStopDequeue``).

    Attributes:
        left_out: what an operator decided, by queue and offset of the timer topic.
    """

    def __init__(
        self,
        clock: Clock,
        timer: Timer,
        delivered: Callable[[str, int, int], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._delivered = delivered
        self._stopped = stopped
        self._reading: SlotReading | None = None
        self._at = 0
        self.left_out = LeftOut()

    def queues(self) -> list[int]:
        """Return the one queue; the timer delivers from now on."""
        self._timer.begin(True)
        self.left_out.forget()
        self._reading, self._at = None, 0
        return [QUEUE]

    def position(self, queue: int) -> int:
        """Return second and place in it as one number that grows."""
        return self._timer.progress.read.second_ms * _PLACES + self._at

    def move(self, queue: int, position: int) -> None:
        """Note that everything before *position* is delivered."""
        second_ms, self._at = divmod(position, _PLACES)
        reading, physical = self._reading, 0
        if self._at and reading is not None and reading.regular:
            unit = self._timer.files.log.unit(self._at // 2)
            physical = 0 if unit is None else unit.physical + self._at % 2
        if not self._at or physical:
            self._timer.move(Read(second_ms, physical))
        self.left_out.moved(QUEUE, position)

    def undo(self, queue: int) -> None:
        """Have what was read last read once more."""
        self._reading = None

    def stored(self, message: InnerMessage) -> None:
        """Count a delivered message."""
        if message.topic == TIMER_TOPIC:
            self._timer.left(parse_properties(message.properties).get(REAL_TOPIC, ""))
        else:
            self._timer.left(message.topic)
            self._timer.delivered.add(message.topic)
            self._delivered(message.topic, message.queue_id, len(message.body))

    def read(self, queue: int, position: int) -> deferred.Found:
        """Do one bounded step; see :class:`~understudy.broker.deferred_service.Source`."""
        try:
            if self._timer.enqueue():
                return deferred.Found((), position, None)
        except OSError as error:
            log.error("timer messages not put into their slots yet", error=error)
            return deferred.Found((), position, self._clock.wall_ms() + AGAIN_MS)
        now_ms = self._clock.wall_ms()
        if self._stopped():
            return deferred.Found((), position, now_ms + AGAIN_MS)
        due_ms = self._timer.next_due_ms()
        over_ms = NEVER if due_ms is None else due_ms + self._timer.precision_ms
        if due_ms is None or over_ms > now_ms:
            self._timer.rest(now_ms)
            return deferred.Found((), position, over_ms)
        return self._read_slot(due_ms, position, now_ms)

    def _read_slot(self, second_ms: int, position: int, now_ms: int) -> deferred.Found:
        slot = self._timer.files.slot(second_ms)
        assert slot is not None  # it was found just now
        reading = self._reading
        if reading is None or reading.second_ms != second_ms or reading.newest != slot.last:
            reading = self._reading = SlotReading(self._timer, second_ms, slot.last)
        if not reading.ready:
            reading.prepare()
            return deferred.Found((), position, None)
        start = second_ms * _PLACES
        at = max(position - start, 0)
        read = self._timer.progress.read
        done = read.physical if read.second_ms == second_ms else 0
        found = reading.batch((at + 1) // 2, done)
        if not found:
            self._reading = None
            return deferred.Found((), start + self._timer.precision_ms * _PLACES, None)
        items = tuple(Item(start + 2 * each.position, self._message(each, reading, now_ms)) for each in found)
        return deferred.Found(items, start + 2 * found[-1].position + 1, None)

    def _message(self, found: Found, reading: SlotReading, now_ms: int) -> InnerMessage | None:
        """Return what is to be put for one unit; ``None`` when nothing is."""
        unit, record = found.unit, found.record
        if record is None:
            log.error("a timer message is not in the commit log any more", position=unit.physical, size=unit.size)
            self._timer.topic.note_rotten(unit)
            return None
        decided = self.left_out.meets(QUEUE, record.queue_offset)
        if decided is not None:
            return rules.later(record, self._timer.floor(now_ms + LATER_MS), now_ms) if decided.again else None
        if unit.rolls:
            return rules.rolled(record, unit.write_ms, now_ms)
        if unit.deletes:
            return None
        if record in reading.taken_back:
            return None
        message = rules.delivered(record, unit.write_ms, now_ms)
        if message is None:
            log.error("timer message without its real place skipped", position=unit.physical)
        return message

    def overdue(self, before_ms: int, most: int) -> Generator[None, None, list[Overdue]]:
        """Find what is due and not delivered, in steps of bounded work.

        Args:
            before_ms: seconds before this wall time.
            most: messages at most.

        Returns:
            What nobody has decided about.
        """
        timer, found = self._timer, list[Overdue]()
        read, at = timer.progress.read, (self._at + 1) // 2
        second_ms = timer.next_due_ms(before_ms)
        while second_ms is not None and len(found) < most:
            slot = timer.files.slot(second_ms)
            if slot is None:  # it was delivered meanwhile
                break
            reading = SlotReading(timer, second_ms, slot.last)
            while not reading.ready:
                reading.prepare()
                yield
            is_first = second_ms == read.second_ms
            position, physical = (at, read.physical) if is_first else (0, 0)
            while (batch := reading.batch(position, physical)) and len(found) < most:
                for each in batch:
                    record = each.record
                    if record is None or each.unit.deletes or record in reading.taken_back:
                        continue
                    if (QUEUE, record.queue_offset) not in self.left_out:
                        found.append(Overdue(second_ms, second_ms * _PLACES + 2 * each.position, record))
                position = batch[-1].position + 1
                yield
            second_ms = timer.files.next_due_ms(second_ms + timer.precision_ms, before_ms)
        return found[:most]
