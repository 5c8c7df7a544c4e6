"""What the log says of a check point that was lost, and came back when another one had its place.

It came out of the timer then, or its acknowledgements did, or its messages came back, in a life that had it.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import reduce

from understudy.broker.pop.revive_log import Ack, CheckPoint, ReviveLogError, read_entry
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_records
from understudy.store.message_store import MessageStore

_SAME_KEY_MOST = 32
_ANY_TIME_MS = (1 << 63) - 1
_UNIQUE = "UNIQ_KEY"


def what_is_open_in_steps(
    store: MessageStore, point: CheckPoint, revive_topic: str, retry_topic: str, own_broker: str
) -> Generator[None, None, CheckPoint]:
    """Return *point* with everything done that was acknowledged, or came back.

    Args:
        store: needs its index (``messageIndexEnable``); without one nothing is found.
        point: the check point.
        revive_topic: of the cluster.
        retry_topic: where its messages come back.
        own_broker: whose log *store* is; what was popped elsewhere and came back is not recognised.
    """
    for offset in point.open_offsets:
        if offset not in point.open_offsets:
            continue  # an acknowledgement of several named it
        acked = yield from _acknowledged(store, point, offset, revive_topic, own_broker)
        if not acked and point.broker_name == own_broker:
            acked = [offset] if (yield from _came_back(store, point, offset, retry_topic)) else []
        point = reduce(CheckPoint.acked, acked, point)
    return point


def _acknowledged(
    store: MessageStore, point: CheckPoint, offset: int, revive_topic: str, own_broker: str
) -> Generator[None, None, list[int]]:
    """Return what the acknowledgements name that speak of *offset*."""
    for ack in (Ack(point.key, (offset,)), Ack(point.key, (offset,), True)):
        for topic in (revive_topic, names.TIMER_TOPIC):
            for record in (yield from _same(store, topic, ack.unique_key)):
                try:
                    entry = read_entry(record.properties.get("TAGS"), record.body, own_broker)
                except ReviveLogError:
                    continue
                if isinstance(entry, Ack) and entry.key == point.key and offset in entry.offsets:
                    return list(entry.offsets)
    return []


def _came_back(store: MessageStore, point: CheckPoint, offset: int, topic: str) -> Generator[None, None, bool]:
    found = store.get(point.topic, point.queue_id, offset, 1, 1)
    for popped in (each for part in found.parts for each in _whole(part)):
        key = popped.properties.get(_UNIQUE, "")
        if popped.queue_offset == offset and key:
            times = popped.reconsume_times + 1
            copies = yield from _same(store, topic, key)
            return any((each.born_ms, each.reconsume_times) == (popped.born_ms, times) for each in copies)
    return False


def _same(store: MessageStore, topic: str, key: str) -> Generator[None, None, list[Record]]:
    result = yield from store.query_in_steps(topic, key, _SAME_KEY_MOST, 0, _ANY_TIME_MS)
    found = (each for part in result.records for each in _whole(part))
    return [each for each in found if each.topic == topic and each.properties.get(_UNIQUE) == key]


def _whole(part: memoryview) -> list[Record]:
    try:
        return decode_records(part)
    except RecordError:
        return []
