"""Where what nobody acknowledged goes: it is read where it is, and its copy is put into the group's retry topic.

Source: PopReviveService.java (reviveRetry).
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.broker.inner import InnerMessage
from understudy.broker.pop.popped import Popped, ReadAway
from understudy.broker.pop.returned import Returned, retry_copy
from understudy.broker.pop.revive import Revival, ReviveParts
from understudy.broker.pop.revive_log import MOST_LOOKS, CheckPoint, again
from understudy.broker.pop.taking import offset_of
from understudy.broker.redelivery import Redelivery
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_records
from understudy.runtime.log import get_logger
from understudy.runtime.pace import run_beside
from understudy.store.status import PutRejected, PutStatus

log = get_logger("broker.revive")

_MESSAGE_BYTES = 8 << 20
_SAME_KEY_MOST = 32
_ANY_TIME_MS = (1 << 63) - 1


class ReviveTarget:
    """Where revivals go: reads each message where it is and puts its copy.

    Args:
        parts: of the broker.
        target: takes the copies.
        read_away: reads messages of other groups.
        returned: what came back already.
    """

    def __init__(self, parts: ReviveParts, target: Redelivery, read_away: ReadAway, returned: Returned) -> None:
        self._returned = returned
        self._store = parts.store
        self._topics = parts.catalog.topics
        self._identity = parts.node.identity
        self._clock = parts.node.world.clock
        self._offsets, self._log = parts.state.offsets, parts.state.log
        self._in_flight = parts.state.moving.in_flight
        self._target = target
        self._read_away = read_away

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Put *messages*, all of them revivals; see :class:`~understudy.broker.redelivery.Redelivery`.

        A message that exists no more is done.
        """
        statuses = [PutStatus.PUT_OK] * len(messages)
        copies: dict[int, InnerMessage] = {}
        for number, revival in enumerate(messages):
            assert isinstance(revival, Revival)
            try:
                copy = await self._copy(revival)
            except PutRejected as error:
                log.warning("a check point cannot go around again yet", topic=revival.topic, why=error)
                statuses[number] = error.status
                continue
            if copy is not None:
                copies[number] = copy
        if copies:
            for number, status in zip(copies, await self._target.put(list(copies.values())), strict=True):
                statuses[number] = status
        for number, revival in enumerate(messages):
            assert isinstance(revival, Revival)
            status = statuses[number]
            comes_back = number in copies and copies[number].topic == revival.topic
            if comes_back:
                self._log.counts.returned[revival.point.group, revival.topic, status.value] += 1
            is_gone = number not in copies and revival.offset is not None
            if status is PutStatus.PUT_OK and (comes_back or is_gone):  # what waits once more is still out
                point = revival.point
                self._in_flight.add(point.topic, point.group, point.queue_id, -1)
        return statuses

    async def _copy(self, revival: Revival) -> InnerMessage | None:
        """Return what is to be put for *revival*; ``None`` when nothing is."""
        point, offset = revival.point, revival.offset
        if offset is None:
            return self._log.timed(self._log.check_point(point, revival.queue))
        popped = await self._read(point, offset)
        if popped.record is None and not popped.retry:
            log.info("a popped message is gone", topic=point.topic, queue=point.queue_id, offset=offset)
            return None
        if popped.record is None or not self._prepare(point.group, revival.topic):
            later = again(point, offset, self._clock.wall_ms())
            log.info("a popped message cannot come back now", topic=point.topic, offset=offset, tries=later.re_puts)
            return self._log.timed(self._log.check_point(later, revival.queue))
        if revival.again and self._returned.has(revival.topic, popped.record, point.revive_ms):
            log.info("a popped message came back already", topic=point.topic, offset=offset)
            return None
        return retry_copy(popped.record, point, revival.topic, self._log.host)

    def _prepare(self, group: str, topic: str) -> bool:
        """Make the retry topic that is needed; return whether it is there."""
        if self._topics.rows.get(topic) is None:
            if self._topics.ensure(topic, 1) is None:
                return False
            if self._offsets.query(group, topic, 0) < 0:
                self._offsets.commit(group, topic, 0, 0)
        return True

    async def _read(self, point: CheckPoint, offset: int) -> Popped:
        """Return the message of *point* at queue offset *offset*; where one is missing, a read finds the next one."""
        store, looks_again = self._store, point.re_puts < MOST_LOOKS
        if point.broker_name != self._identity.name:
            popped = await self._read_away(point.broker_name, point.topic, point.queue_id, offset)
            is_other = popped.record is not None and offset_of(popped.record, point.topic) != offset
            lacks = is_other or popped.lacks
            return Popped(None, retry=popped.retry or looks_again) if lacks else popped
        found = store.get(point.topic, point.queue_id, offset, 1, _MESSAGE_BYTES)
        for part in found.parts:
            try:
                for record in decode_records(part):
                    if offset_of(record, point.topic) == offset:
                        return Popped(None if await self._came_later(record, point) else record)
            except RecordError as error:
                log.error("a popped message cannot be read", topic=point.topic, offset=offset, error=error)
                store.note_rotten(point.topic, point.queue_id, offset)
        lacks = store.hole is not None or store.holes.behind
        may_come_back = lacks and offset >= store.min_queue_offset(point.topic, point.queue_id)
        return Popped(None, retry=may_come_back and looks_again)

    async def _came_later(self, record: Record, point: CheckPoint) -> bool:
        """Return whether *record* was stored after *point*, so that it is not what was popped.

        Power took what was popped from the end of its queue, and another message got the queue offset. What was popped
        is put again as a new message if it ever comes back. Clocks are set, so a time alone shows nothing: what was
        popped lies before its check point in the log.
        """
        if record.store_ms <= point.pop_ms and self._store.hole is None:
            return False
        for topic in (names.TIMER_TOPIC, self._log.topic):
            looked = self._store.query_in_steps(topic, point.unique_key, _SAME_KEY_MOST, 0, _ANY_TIME_MS)
            found = (await run_beside(self._clock, looked)).records
            written = (each for part in found for each in decode_records(part))
            if any(
                each.physical_offset < record.physical_offset and each.properties.get("UNIQ_KEY") == point.unique_key
                for each in written
            ):
                return True
        return False
