"""What a former master has put of the delayed messages, as the log of its successor tells it.

How far a master has come is copied to slaves twice a second, from a real one even less often. So what it put last is
due once more for the slave that is elected after it, and would be put a second time, although nothing was lost. The
log knows better: it has the copies. A copy counts once it is as safe as what a master puts itself; until then progress
must not move past its message, for a log that is elected later may lack it.

A master puts the messages of a level in their order, so the first one without a copy ends the look at its level.

Differs: the reference puts all of it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from understudy.broker.delay import REAL_TOPIC, level_of
from understudy.broker.inner import InnerMessage
from understudy.broker.redelivery import Redelivery
from understudy.format import names
from understudy.format.properties import parse_properties
from understudy.format.record import Record, decode_record
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import PutStatus

log = get_logger("broker.schedule")

_UNIQUE = "UNIQ_KEY"
_MOST_COPIES = 32
_ALL_TIMES_MS = (0, 1 << 62)


class FormerCopies:
    """Takes due messages of delay levels for a new master: those that its log has already are not put again.

    Args:
        store: the log; the schedule topic in it ends where the former master stopped.
        target: takes all others.
        until_safe: returns when there are as many copies of the log up to two offsets (bytes on disk, bytes that
            replicas have) as a send of this moment needs, and whether there are: not when the broker is replaced.
        levels: the delay levels, from 1.
    """

    def __init__(
        self,
        store: MessageStore,
        target: Redelivery,
        until_safe: Callable[[int, int], Awaitable[bool]],
        levels: int,
    ) -> None:
        self._store = store
        self._target = target
        self._until_safe = until_safe
        queues = ((level, level - 1) for level in range(1, levels + 1))
        self._looked_at = {level for level, queue in queues if store.has_queue(names.SCHEDULE_TOPIC, queue)}

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """Put what has no copy in the log; see :class:`Redelivery`."""
        ends: list[int] = []
        for message in messages:
            end = self._copied_until(message) if self._looked_at else None
            if end is None:
                break
            ends.append(end)
        if ends:
            log.info("the former master has put these delayed messages", topic=messages[0].topic, count=len(ends))
            if not await self._until_safe(max(ends), max(ends)):
                return [PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH] * len(messages)
        rest = messages[len(ends) :]
        return [PutStatus.PUT_OK] * len(ends) + (await self._target.put(rest) if rest else [])

    def _copied_until(self, message: InnerMessage) -> int | None:
        """Return where the copy of *message* ends in the log (bytes); ``None`` when there is none."""
        pairs = parse_properties(message.properties)
        level, unique = level_of(pairs), pairs.get(_UNIQUE)
        if level not in self._looked_at:
            return None
        if unique and pairs.get(REAL_TOPIC) == message.topic:
            found = self._store.query(message.topic, unique, _MOST_COPIES, *_ALL_TIMES_MS)
            for record in map(decode_record, found.records):
                if _is_copy(record, message, unique):
                    return record.physical_offset + record.size_bytes
        self._looked_at.discard(level)
        return None


def _is_copy(record: Record, message: InnerMessage, unique: str) -> bool:
    """Return whether *record* is what a master makes of *message*; one that was sent back once more is not."""
    return (
        record.topic == message.topic
        and record.queue_id == message.queue_id
        and record.born_ms == message.born_ms
        and record.born_host == message.born_host
        and record.reconsume_times == message.reconsume_times
        and record.properties.get(_UNIQUE) == unique
    )
