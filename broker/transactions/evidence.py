"""What the log says of a half message whose op message may be lost.

Decisions are gathered for a while before an op message names them. A broker that dies meanwhile leaves the committed
message in its log, and in the logs of its slaves; who takes over finds it by its unique key and commits nothing twice.
"""

from __future__ import annotations

from understudy.broker import delay
from understudy.broker.timer.request import asks
from understudy.broker.transactions.half import ESCAPED_FROM, UNIQUE, Half, Identity
from understudy.format import names
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_MASK, Record, decode_records
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
    topics = [half.topic]
    if delay.level_of(half.pairs) > 0:
        topics.append(names.SCHEDULE_TOPIC)
    elif asks(half.pairs):
        topics.append(names.TIMER_TOPIC)
    return any(
        record.sys_flag & FLAG_TRANSACTION_MASK == FLAG_TRANSACTION_COMMIT
        for topic in topics
        for record in _same(store, topic, half.identity)
    )


def was_given_up(store: MessageStore, half: Half) -> bool:
    """Return whether nobody decided about *half*, by the log of *store*; see :func:`was_committed`.

    One that was checked again afterwards has a copy behind what is kept of it, and was decided then.
    """
    kept, copies = (
        [record.physical_offset for record in _same(store, topic, half.identity)]
        for topic in (names.CHECK_TIMES_TOPIC, names.HALF_TOPIC)
    )
    return bool(kept) and max(kept) > max(copies, default=0)


def was_decided(store: MessageStore, half: Half) -> bool:
    """Return whether the log of *store* shows that *half* was committed, given up, or stands in a later copy.

    Of one that was rolled back it shows nothing; who asks about that is told so again.
    """
    copies = [record.physical_offset for record in _same(store, names.HALF_TOPIC, half.identity)]
    later = max(copies, default=0) > half.record.physical_offset
    return later or was_committed(store, half) or was_given_up(store, half)


def taken_before(store: MessageStore, identity: Identity, origin: str) -> Appended | None:
    """Return where a half message stands that escaped to this broker before; ``None`` when it has not.

    Args:
        store: see :func:`was_committed`.
        identity: of the half message.
        origin: which copy of which group it was made from, see ``ESCAPED_FROM``.
    """
    for record in _same(store, names.HALF_TOPIC, identity):
        if record.properties.get(ESCAPED_FROM) == origin:
            return Appended(record.physical_offset, record.size_bytes, record.queue_offset)
    return None


def _same(store: MessageStore, topic: str, identity: Identity | None) -> list[Record]:
    if identity is None:
        return []
    unique, born_ms = identity
    found = store.query(topic, unique, _SAME_KEY_MOST, 0, _ANY_TIME_MS)
    records = [record for part in found.records for record in decode_records(part)]
    return [
        record
        for record in records
        if record.topic == topic and record.born_ms == born_ms and record.properties.get(UNIQUE) == unique
    ]
