"""What the log says of a half message whose op message may be lost.

Decisions are gathered for a while before an op message names them. A broker that dies meanwhile leaves the committed
message in its log, and in the logs of its slaves; who takes over finds it by its unique key and commits nothing twice.
"""

from __future__ import annotations

from collections.abc import Generator

from understudy.broker import delay
from understudy.broker.timer.request import asks
from understudy.broker.transactions.half import ESCAPED_FROM, UNIQUE, Half, Identity
from understudy.format import names
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_MASK, Record, decode_records
from understudy.runtime.pace import run_steps
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended

_SAME_KEY_MOST = 32
_ANY_TIME_MS = (1 << 63) - 1  # who stored it may go by a clock that is ahead of ours


def was_committed(store: MessageStore, half: Half) -> bool:
    """Return whether the log of *store* holds the committed message of *half*.

    Args:
        store: needs its index (``messageIndexEnable``); without one nothing is found.
        half: any copy.
    """
    return run_steps(_was_committed(store, half))


def _was_committed(store: MessageStore, half: Half) -> Generator[None, None, bool]:
    topics = [half.topic]
    if delay.level_of(half.pairs) > 0:
        topics.append(names.SCHEDULE_TOPIC)
    elif asks(half.pairs):
        topics.append(names.TIMER_TOPIC)
    for topic in topics:
        found = yield from _same(store, topic, half.identity)
        if any(record.sys_flag & FLAG_TRANSACTION_MASK == FLAG_TRANSACTION_COMMIT for record in found):
            return True
    return False


def is_left(store: MessageStore, half: Half, *, indexed: bool) -> bool | None:
    """Return whether *half*, which is done, was given up, and not committed since; ``None``: nothing tells.

    Args:
        store: the log.
        half: any copy.
        indexed: the log has an index. Without one it is known only as long as nothing was given up behind *half*.
    """
    if indexed and half.identity is not None:
        return run_steps(_was_given_up(store, half)) and not was_committed(store, half)
    given_up = names.CHECK_TIMES_TOPIC
    low, high = store.min_queue_offset(given_up, 0), store.max_queue_offset(given_up, 0)
    if half.identity is None:  # it cannot be told from others, so neither can a copy of it that is open
        return None
    return None if low < high and store.queue_offset_at(given_up, 0, half.record.physical_offset) < high else False


def _was_given_up(store: MessageStore, half: Half) -> Generator[None, None, bool]:
    # One that was checked again afterwards has a copy behind what is kept of it, and was decided then.
    kept = yield from _last(store, names.CHECK_TIMES_TOPIC, half.identity)
    return kept is not None and kept > ((yield from _last(store, names.HALF_TOPIC, half.identity)) or 0)


def was_decided_in_steps(store: MessageStore, half: Half) -> Generator[None, None, bool]:
    """Return whether the log of *store* shows that *half* was committed, given up, or stands in a later copy.

    Of one that was rolled back only an op message tells, which is not looked for here. A key may have many messages.
    """
    last = yield from _last(store, names.HALF_TOPIC, half.identity)
    if last is not None and last > half.record.physical_offset:
        return True
    return (yield from _was_committed(store, half)) or (yield from _was_given_up(store, half))


def taken_before(store: MessageStore, identity: Identity, origin: str) -> Appended | None:
    """Return where a half message stands that escaped to this broker before; ``None`` when it has not.

    Args:
        store: see :func:`was_committed`.
        identity: of the half message.
        origin: which copy of which group it was made from, see ``ESCAPED_FROM``.
    """
    for record in run_steps(_same(store, names.HALF_TOPIC, identity)):
        if record.properties.get(ESCAPED_FROM) == origin:
            return Appended(record.physical_offset, record.size_bytes, record.queue_offset)
    return None


def _last(store: MessageStore, topic: str, identity: Identity | None) -> Generator[None, None, int | None]:
    """Return where the last copy in *topic* begins in the log; ``None`` when there is none."""
    found = yield from _same(store, topic, identity)
    return max((record.physical_offset for record in found), default=None)


def _same(store: MessageStore, topic: str, identity: Identity | None) -> Generator[None, None, list[Record]]:
    if identity is None:
        return []
    unique, born_ms = identity
    found = yield from store.query_in_steps(topic, unique, _SAME_KEY_MOST, 0, _ANY_TIME_MS)
    records = [record for part in found.records for record in decode_records(part)]
    return [
        record
        for record in records
        if record.topic == topic and record.born_ms == born_ms and record.properties.get(UNIQUE) == unique
    ]
