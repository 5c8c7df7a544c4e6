"""What the log says of a timer message that somebody takes back, or that is to be handed on to another group.

A message that rests on its way is in another slot than the request that takes it back, until both are in that of their
second. In between one of them may have been handed on by a slave that acts, so they would not meet any more. Both are
found by the unique key, in the timer topic; without an index (``messageIndexEnable``) neither is.
"""

from __future__ import annotations

from understudy.broker import delay
from understudy.broker.inner import InnerMessage
from understudy.broker.timer.rules import UNIQUE, TakenBack
from understudy.broker.timer.timer import Timer
from understudy.format.names import TIMER_TOPIC
from understudy.format.properties import parse_properties
from understudy.format.record import Record, RecordError, decode_records
from understudy.store.message_store import MessageStore

_SAME_KEY_MOST = 32
_ANY_TIME_MS = (1 << 63) - 1


def was_taken_back(store: MessageStore, message: InnerMessage) -> bool:
    """Return whether the log of *store* has a request that takes *message* back, which is in the timer topic.

    A request itself is none that is taken back.
    """
    pairs = parse_properties(message.properties.decode("utf-8", "replace"))
    if delay.TIMER_DELETE in pairs:
        return False
    requests, waiting = TakenBack(), list[Record]()
    for record in _of_key(store, pairs.get(delay.REAL_TOPIC, ""), pairs.get(UNIQUE, "")):
        known = record.properties
        if known.get(delay.TIMER_OUT) != pairs.get(delay.TIMER_OUT):
            continue
        if delay.TIMER_DELETE in known:
            requests.add(record)
        else:
            waiting.append(record)
    return any(record in requests for record in waiting)


def was_handed_on(store: MessageStore, timer: Timer, topic: str, unique_key: str) -> bool:
    """Return whether a message rested here, and that is over, but it has not come into the timer topic again.

    Args:
        store: that of *timer*.
        timer: knows how far it has come.
        topic: where the message would be delivered.
        unique_key: of the message.
    """
    found = [each for each in _of_key(store, topic, unique_key) if delay.TIMER_DELETE not in each.properties]
    newest = max(found, key=lambda record: record.queue_offset, default=None)
    place = None if newest is None else timer.topic.waits(newest)
    return place is not None and place.rolls and place.slot_ms < timer.progress.read.second_ms


def _of_key(store: MessageStore, topic: str, unique_key: str) -> list[Record]:
    """Return the messages of the timer topic with *unique_key* that belong into *topic*."""
    found = list[Record]()
    for part in store.query(TIMER_TOPIC, unique_key, _SAME_KEY_MOST, 0, _ANY_TIME_MS).records if unique_key else ():
        try:
            found += decode_records(part)
        except RecordError:
            continue  # told by whoever delivers
    return [
        record
        for record in found
        if record.topic == TIMER_TOPIC
        and record.properties.get(UNIQUE) == unique_key
        and record.properties.get(delay.REAL_TOPIC) == topic
    ]
