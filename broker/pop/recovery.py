"""Where groups are, as the check points in the log tell it. Pure but for the reads of the log.

A pop moves its group's offset, and the table of offsets is saved a moment later, or copied to a slave. After a crash,
and on a slave that begins to act, the table can be older than the log: what the log says was handed out is not handed
out again. Differs: the reference pops such messages a second time, also those that were acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.revive_log import CHECK_POINT, CheckPoint, ReviveLogError, read_entry
from understudy.format import names
from understudy.format.record import BLANK, BLANK_BYTES, BLANK_MAGIC, RecordError, decode_records
from understudy.store.message_store import MessageStore

TAIL_MS = 30_000
"""Check points stored this long before the newest one are looked at: tables are saved twice a second."""
_READ, _READ_BYTES = 64, 256 << 10
"""Of one read: a millisecond or two."""

GroupQueue = tuple[str, str, int]
"""Group, topic and queue id."""


def note_handed_out(point: CheckPoint, offsets: OffsetTable, own_broker: str, found: dict[GroupQueue, int]) -> None:
    """Note where a group goes on that is further than the table says.

    Args:
        point: a check point.
        offsets: the table.
        own_broker: check points of other groups of brokers say nothing about this one's queues.
        found: what was noted before.
    """
    if point.broker_name != own_broker or not point.offsets or point.overtakes:
        return
    stamp = offsets.stamps.get(f"{point.topic}@{point.group}", {}).get(point.queue_id, 0)
    group_queue, following = (point.group, point.topic, point.queue_id), max(point.offsets) + 1
    if point.pop_ms > stamp and following > max(found.get(group_queue, 0), offsets.query(*group_queue)):
        found[group_queue] = following


def set_back(points: Iterable[CheckPoint], offsets: OffsetTable) -> dict[GroupQueue, int]:
    """Return where groups go on once *points* are lost: what they handed out has no trace then, and goes out again.

    Args:
        points: check points that are about to be cut off the log, those of this group of brokers.
        offsets: the table, which may be further.
    """
    found: dict[GroupQueue, int] = {}
    for point in points:
        if not point.offsets or point.re_puts:
            continue  # one that goes around again says nothing about where its group was
        stamp = offsets.stamps.get(f"{point.topic}@{point.group}", {}).get(point.queue_id, 0)
        group_queue, first = (point.group, point.topic, point.queue_id), min(point.offsets)
        if point.pop_ms > stamp and first < found.get(group_queue, offsets.query(*group_queue)):
            found[group_queue] = first
    return found


def points_from(store: MessageStore, position: int, own_broker: str) -> Iterator[CheckPoint | None]:
    """Return the check points that pops have written from byte *position* of the log on, ``None`` for other records.

    Those in the revive topic are left out: they have come out of the timer, into which they were written before.

    Args:
        store: that has the log; what readers may not see yet is read, too.
        position: of a record.
        own_broker: name of this group of brokers; points of others are left out.
    """
    while position < store.max_physical_offset:
        piece = store.slice(position, _READ_BYTES)
        size, magic = BLANK.unpack_from(piece) if len(piece) >= BLANK_BYTES else (0, 0)
        if size <= 0:
            return
        own = None
        if magic != BLANK_MAGIC:
            found = _points(
                piece[:size] if size <= len(piece) else store.slice(position, size), own_broker, (names.TIMER_TOPIC,)
            )
            own = next((point for point in found if point.broker_name == own_broker), None)
        yield own
        position += size


def newest_points(store: MessageStore, revive_topic: str, revive_queues: int, own_broker: str) -> Iterator[CheckPoint]:
    """Return the newest check points of the log, those that wait in the timer and those that have come out of it.

    Args:
        store: that has the log.
        revive_topic: of the cluster.
        revive_queues: how many queues that has.
        own_broker: name of this group of brokers; points of others are left out.
    """
    queues = [(names.TIMER_TOPIC, 0), *((revive_topic, queue) for queue in range(revive_queues))]
    for topic, queue_id in queues:
        at, end = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        if at >= end:
            continue
        newest_ms = store.store_time_of(topic, queue_id, end - 1)
        at = max(at, store.offset_by_time(topic, queue_id, newest_ms - TAIL_MS))
        while at < end:
            found = store.get(topic, queue_id, at, _READ, _READ_BYTES)
            for part in found.parts:
                yield from _points(part, own_broker, (topic,))
            if found.next_begin_offset <= at:
                break
            at = found.next_begin_offset


def _points(part: memoryview, own_broker: str, of_topics: tuple[str, ...]) -> Iterator[CheckPoint]:
    try:
        records = decode_records(part)
    except RecordError:
        return  # a damaged record is told by whoever reads the queue
    for record in records:
        if record.topic in of_topics and f"TAGS\x01{CHECK_POINT}\x02" in record.properties_text:
            try:
                entry = read_entry(CHECK_POINT, record.body, own_broker)
            except ReviveLogError:
                continue
            if isinstance(entry, CheckPoint):
                yield entry
