"""In which slot a message waits, which ones take each other back, and what is delivered. Pure.

A slot is found from the record alone (its second and the time it was stored), so that every replica, and every start
that reads the topic again, finds the same one (differs because the reference takes the time at which it reads).

Source: TimerMessageStore.java (doEnqueue, convert), RecallMessageProcessor.java.
"""

from __future__ import annotations

import attrs

from understudy.broker import delay
from understudy.broker.inner import InnerMessage, copy_of
from understudy.format.java_hash import java_hash
from understudy.format.names import TIMER_TOPIC, topic_name_error
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import MAX_PROPERTIES_BYTES, Record
from understudy.format.remembered import remembered
from understudy.store.timer_wheel import WINDOW_SLOTS

ROLL_TIMES = "TIMER_ROLL_TIMES"
ENQUEUED = "TIMER_ENQUEUE_MS"
DEQUEUED = "TIMER_DEQUEUE_MS"
UNIQUE = "UNIQ_KEY"
PRECISIONS_MS = (100, 200, 500, 1000)
_BLANK_SLOTS = 60
_LAST_MS = 1 << 62


@attrs.frozen
class Waits:
    """Where a message of the timer topic waits.

    Attributes:
        slot_ms: the second in whose slot it is.
        second_ms: the second that it shall be delivered after.
        write_ms: the second in which it was stored.
        rolls: it must be put into the timer topic again then, because its own second is too far away.
        deletes: it takes another message back.
        topic: where it belongs; ``""`` when it does not say.
    """

    slot_ms: int
    second_ms: int
    write_ms: int
    rolls: bool
    deletes: bool
    topic: str


def slot_length_ms(configured: int) -> int:
    """Return the length of a slot (``timerPrecisionMs``): the longest of 100, 200, 500 and 1000 that is not longer."""
    return max((each for each in PRECISIONS_MS if each <= configured), default=PRECISIONS_MS[0])


def window_slots(configured: int) -> int:
    """Return how many slots ahead a message may wait (``timerRollWindowSlot``)."""
    most = WINDOW_SLOTS - _BLANK_SLOTS
    return configured if 2 <= configured <= most else most


@remembered  # every check point and acknowledgement of a pop belongs to the same topic
def topic_hash(topic: str) -> int:
    """Return what a unit of the timer log holds of the topic where its message belongs; 0 when it does not say."""
    return java_hash(topic) if topic else 0


def waits(record: Record, precision_ms: int, window: int) -> Waits | None:
    """Return where *record* waits; ``None`` for one that does not say for when it is.

    Args:
        record: of the timer topic.
        precision_ms: length of a slot.
        window: from :func:`window_slots`.
    """
    pairs = record.properties
    text = pairs.get(delay.TIMER_OUT, "")
    if not text.isascii() or not text.isdigit():
        return None
    write_ms = record.store_ms // precision_ms * precision_ms
    second_ms = min(int(text[:20]), _LAST_MS) // precision_ms * precision_ms
    slot_ms = max(second_ms, write_ms)
    beyond = (slot_ms - write_ms) // precision_ms - window
    rolls = beyond >= 0
    if rolls:  # a short rest would leave the next roll too little time
        slot_ms = write_ms + (window // 2 if beyond < window // 3 else window) * precision_ms
    return Waits(slot_ms, second_ms, write_ms, rolls, delay.TIMER_DELETE in pairs, pairs.get(delay.REAL_TOPIC, ""))


class TakenBack:
    """The messages that others of the same second take back.

    A request names the unique key alone, or topic and key, as ``appendTopicForTimerDeleteKey`` of its broker says; it
    only ever counts for messages of the topic it was made for (differs because the reference takes the key of the first
    form for every topic).
    """

    def __init__(self) -> None:
        self._keys: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, request: Record) -> None:
        """Take note of one request."""
        pairs = request.properties
        topic, key = pairs.get(delay.REAL_TOPIC, ""), pairs.get(delay.TIMER_DELETE, "")
        if key:
            self._keys.add((topic, key))

    def __contains__(self, record: Record) -> bool:
        if not self._keys:
            return False
        pairs = record.properties
        topic, key = pairs.get(delay.REAL_TOPIC, ""), pairs.get(UNIQUE, "")
        return (topic, key) in self._keys or (topic, delete_key(topic, key, with_topic=True)) in self._keys


def delete_key(topic: str, unique_key: str, *, with_topic: bool) -> str:
    """Return how a request names the message it takes back."""
    return f"{topic}+{unique_key}" if with_topic else unique_key


def rolled(record: Record, enqueued_ms: int, now_ms: int) -> InnerMessage:
    """Return a message whose own second is still far away, as it goes into the timer topic again."""
    pairs = record.properties
    times = pairs.get(ROLL_TIMES, "0")
    count = int(times) + 1 if times.isascii() and times.isdigit() and len(times) < 9 else 1
    pairs[ROLL_TIMES] = str(count)
    return _renewed(record, pairs, TIMER_TOPIC, record.queue_id, enqueued_ms, now_ms)


def later(record: Record, second_ms: int, now_ms: int) -> InnerMessage:
    """Return a message that could not be delivered, as it goes into the timer topic once more.

    Args:
        record: of the timer topic.
        second_ms: the second after which it is due then, or its own if that comes later.
        now_ms: wall time.
    """
    pairs = record.properties
    out = pairs.get(delay.TIMER_OUT, "")
    second_ms = max(second_ms, int(out[:20]) if out.isascii() and out.isdigit() else 0)
    pairs[delay.TIMER_OUT] = str(second_ms)
    return _renewed(record, pairs, TIMER_TOPIC, record.queue_id, record.store_ms, now_ms)


def delivered(record: Record, enqueued_ms: int, now_ms: int) -> InnerMessage | None:
    """Return a message whose second is over, as it goes where it belongs; ``None`` when it belongs nowhere.

    A request to take back is done then; it is delivered to nobody.
    """
    pairs = record.properties
    topic, queue_text = pairs.get(delay.REAL_TOPIC), pairs.get(delay.REAL_QUEUE, "")
    if topic is None or delay.TIMER_DELETE in pairs:
        return None
    if not queue_text.isascii() or not queue_text.isdigit() or len(queue_text) > 9 or not _may_be_a_topic(topic):
        return None
    return _renewed(record, pairs, topic, int(queue_text), enqueued_ms, now_ms)


def _may_be_a_topic(topic: str) -> bool:
    """Whether *topic* can be one; retry topics of pop have a plus sign."""
    return topic_name_error(topic.replace("+", "_")) is None and topic != TIMER_TOPIC


def asking_again(message: InnerMessage) -> InnerMessage:
    """Return a message for the timer topic as its sender would send it now, to be kept by another broker."""
    pairs = parse_properties(message.properties)
    second, topic, queue_text = (pairs.pop(name, "") for name in (delay.TIMER_OUT, delay.REAL_TOPIC, delay.REAL_QUEUE))
    for name in delay.TIMER_REQUESTS:
        pairs.pop(name, None)
    pairs[delay.TIMER_DELIVER] = str(int(second) + 1)
    queue_id = int(queue_text) if queue_text.isascii() and queue_text.isdigit() and len(queue_text) <= 9 else 0
    return attrs.evolve(message, topic=topic, queue_id=queue_id, properties=format_properties(pairs).encode())


def _renewed(
    record: Record, pairs: dict[str, str], topic: str, queue_id: int, enqueued_ms: int, now_ms: int
) -> InnerMessage:
    pairs[ENQUEUED], pairs[DEQUEUED] = str(enqueued_ms), str(now_ms)
    properties = format_properties(pairs).encode()
    if len(properties) > MAX_PROPERTIES_BYTES:  # no room for what is only told
        properties = record.properties_text.encode()
    return copy_of(record, topic, queue_id, properties, record.reconsume_times)
