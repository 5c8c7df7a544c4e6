"""Finds the single messages and check points behind the rows of what waits: those that were due. Reads only."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import attrs

from understudy.broker import delay
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.pop.revive import ReviveQueues
from understudy.broker.pop.revive_log import CheckPoint
from understudy.broker.pops import Pops
from understudy.broker.schedule import DelayLevels
from understudy.broker.stuck_work import DELAY, POP, TIMER, Look, Waiting, place_of
from understudy.broker.timer.request import TIMER_QUEUE
from understudy.broker.timer.service import TimerService
from understudy.broker.timer.source import TimerSource
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_records
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

MOST_ENTRIES = 1_000
_READ, _READ_BYTES = 32, 1 << 20


@attrs.frozen
class DeferredParts:
    """What of a broker holds messages and check points until they are due.

    Attributes:
        keys: read at each request.
        store: the messages.
        pops: what was popped.
        timing: the timer.
        levels: the delay levels.
    """

    keys: MessageStoreConfig
    store: MessageStore
    pops: Pops
    timing: TimerService
    levels: DelayLevels


def deferred_parts(broker: Broker) -> DeferredParts:
    """Return what holds messages and check points until they are due."""
    return DeferredParts(
        keys=broker.options.store,
        store=broker.store,
        pops=broker.pops,
        timing=broker.timing,
        levels=broker.delay_levels,
    )


@attrs.frozen
class StuckEntry:
    """One message, or one check point.

    Attributes:
        row: what is said of it.
        queue: its revive queue, or delay level; 0 for the timer's.
        offset: in the queue of the topic that holds it.
        position: in the measure of the queue's progress.
        holds: topic and queue id that hold it.
        what: the message as it is kept there, or the check point as far as it is not done.
        returns_to: the topic where what is open of a check point comes again.
    """

    row: Waiting
    queue: int
    offset: int
    position: int
    holds: tuple[str, int]
    what: Record | CheckPoint
    returns_to: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as an answer has it."""
        (topic, queue_id), point = self.holds, self.what
        found = {**self.row.to_json(), "holds": {"topic": topic, "queueId": queue_id, "offset": self.offset}}
        if isinstance(point, CheckPoint):
            found["open"] = {
                "brokerName": point.broker_name,
                "topic": point.topic,
                "queueId": point.queue_id,
                "offsets": list(point.open_offsets),
                "returnsTo": self.returns_to,
            }
        return found


def source_of(parts: DeferredParts, kind: str) -> ReviveQueues | TimerSource | DelayLevels:
    """Return what reads the deferred queues of *kind*."""
    if kind == POP:
        return parts.pops.queues
    return parts.timing.source if kind == TIMER else parts.levels


def entries_of(
    parts: DeferredParts, look: Look, kind: str, group: str | None = None
) -> Generator[None, None, list[StuckEntry]]:
    """Find what of *kind* was due before *look*, :data:`MOST_ENTRIES` at the most, in steps of bounded work.

    Args:
        parts: of the broker that is asked.
        look: makes the rows.
        kind: any but half messages.
        group: only check points of this one; other kinds have none.
    """
    if kind == POP:
        return _pops(parts, look, group)
    found = yield from (_timer if kind == TIMER else _levels)(parts, look)
    return found[:MOST_ENTRIES]


def _pops(parts: DeferredParts, look: Look, group: str | None) -> list[StuckEntry]:
    queues, found = parts.pops.queues, list[StuckEntry]()
    for queue in range(parts.pops.log.queues):
        for each in queues.open_points(queue):
            point = each.point
            if group not in (None, point.group):
                continue
            if point.revive_ms <= look.now_ms and len(found) < MOST_ENTRIES:
                place = place_of(POP, queue, each.position)
                row = look.single(POP, place, point.topic, point.group, point.revive_ms)
                holds, returns_to = (parts.pops.log.topic, queue), queues.returns_to(point)
                found.append(StuckEntry(row, queue, each.position, each.position, holds, point, returns_to))
    return found


def _timer(parts: DeferredParts, look: Look) -> Generator[None, None, list[StuckEntry]]:
    timer = parts.timing.timer
    overdue = yield from parts.timing.source.overdue(look.now_ms - timer.precision_ms, MOST_ENTRIES)
    return [
        _message(look, TIMER, TIMER_QUEUE, each.position, each.record, each.second_ms + timer.precision_ms)
        for each in overdue
    ]


def _levels(parts: DeferredParts, look: Look) -> Generator[None, None, list[StuckEntry]]:
    store, levels, found = parts.store, parts.levels, list[StuckEntry]()
    for level, level_ms in enumerate(levels.levels_ms, 1):
        queue, at = delay.queue_of_level(level), levels.position(level)
        holds, waits = (names.SCHEDULE_TOPIC, queue), False
        while not waits and len(found) < MOST_ENTRIES:
            got = store.get(*holds, at, _READ, _READ_BYTES)
            for record in _records(got.parts):
                due_ms = record.store_ms + level_ms
                waits |= due_ms > look.now_ms
                if not waits and (level, record.queue_offset) not in levels.left_out:
                    found.append(_message(look, DELAY, level, record.queue_offset, record, due_ms))
            if got.next_begin_offset <= at:
                break
            at = got.next_begin_offset
            yield
    return found


def _records(parts: list[memoryview]) -> list[Record]:
    found = list[Record]()
    for part in parts:
        try:
            found += decode_records(part, check_crc=False)
        except RecordError:
            continue  # told by whoever delivers
    return found


def _message(look: Look, kind: str, queue: int, position: int, record: Record, due_ms: int) -> StuckEntry:
    place = place_of(kind, queue, record.queue_offset)
    row = look.single(kind, place, record.properties.get(delay.REAL_TOPIC, ""), "", due_ms)
    return StuckEntry(row, queue, record.queue_offset, position, (record.topic, record.queue_id), record)
