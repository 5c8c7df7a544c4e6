"""Check points and acknowledgements, and their bytes in the revive topic. Pure.

All are JSON objects in messages whose tag says what they are. A check point and its acknowledgements have the same
:attr:`~CheckPoint.key` and go into the same queue, the check point a second before the others.

Source: PopCheckPoint.java, AckMsg.java, BatchAckMsg.java, PopAckConstants.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from understudy.broker.delay import REAL_QUEUE, REAL_TOPIC, TIMER_DELIVER
from understudy.broker.inner import InnerMessage
from understudy.format import json_dialect, names
from understudy.format.json_values import list_of
from understudy.format.numbers import whole_number
from understudy.format.properties import format_properties, parse_properties
from understudy.format.receipts import LONGEST_MS

CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
"""Tags."""
AHEAD_MS = 1_000
"""A check point comes into the revive topic this much earlier than its acknowledgements."""
MOST_MESSAGES = 32
"""Messages of one pop, and so bits of a check point."""
_SMALLEST_OFFSET = -(1 << 53)

Key = tuple[str, str, int, int, int, str]
"""Topic, group, queue id, start offset, pop time, broker name."""


class ReviveLogError(ValueError):
    """Bytes in the revive topic that are neither a check point nor an acknowledgement."""


@attrs.frozen
class CheckPoint:
    """What one pop took from one queue.

    Attributes:
        topic: where it was read, a retry topic included.
        group: who popped.
        queue_id, start_offset: where the pop began to read.
        pop_ms: wall time of the pop.
        invisible_ms: how long the messages belong to their consumer.
        broker_name: the group of brokers whose log has the messages; empty in old ones, the reading broker's own then.
        offsets: queue offsets of the messages.
        done: of which of them (by index, a bit each) it is known that nothing remains to do.
        re_puts: how often it was put back because a message could not be read.
        overtakes: it was written while an earlier pop of its queue waited in memory, so it does not say that the group
            had come so far.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    broker_name: str
    offsets: tuple[int, ...]
    done: int = 0
    re_puts: int = 0
    overtakes: bool = False

    @property
    def key(self) -> Key:
        """What its acknowledgements have too."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker_name

    @property
    def revive_ms(self) -> int:
        """Wall time when what was not acknowledged may be given to somebody else."""
        return self.pop_ms + self.invisible_ms

    @property
    def open_offsets(self) -> list[int]:
        """The messages that nobody acknowledged."""
        return [offset for index, offset in enumerate(self.offsets) if not self.done >> index & 1]

    @property
    def unique_key(self) -> str:
        """The key under which the message can be found."""
        return _unique_key(self.key, self.start_offset, CHECK_POINT)

    @property
    def body(self) -> bytes:
        """The content of the message."""
        value: dict[str, Any] = {
            "bm": self.done - (1 << 32) if self.done >> 31 else self.done,  # Java's int has a sign
            "bn": self.broker_name,
            "c": self.group,
            "d": [offset - self.start_offset for offset in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "pt": self.pop_ms,
            "q": self.queue_id,
            "reviveTime": self.revive_ms,
            "ro": 0,
        }
        if self.re_puts:
            value["rp"] = str(self.re_puts)
        ours = {"wm": True} if self.overtakes else {}
        return json_dialect.dumps({**value, "so": self.start_offset, "t": self.topic, **ours})

    def acked(self, offset: int) -> CheckPoint:
        """Return it with the message at *offset* done; a stranger's offset changes nothing."""
        try:
            index = self.offsets.index(offset)
        except ValueError:
            return self
        return attrs.evolve(self, done=self.done | 1 << index)


@attrs.frozen
class Ack:
    """Acknowledgements of messages of one check point.

    Attributes:
        key: of the check point.
        offsets: queue offsets of the messages.
        batch: they came together, in the form for several.
    """

    key: Key
    offsets: tuple[int, ...]
    batch: bool = False

    @property
    def tag(self) -> str:
        """Which form it has."""
        return BATCH_ACK if self.batch else ACK

    @property
    def unique_key(self) -> str:
        """The key under which the message can be found."""
        return _unique_key(self.key, -1 if self.batch else self.offsets[0], ACK)

    @property
    def body(self) -> bytes:
        """The content of the message."""
        topic, group, queue_id, start_offset, pop_ms, broker_name = self.key
        value: dict[str, Any] = {"ao": -1, "aol": list(self.offsets)} if self.batch else {"ao": self.offsets[0]}
        value |= {"bn": broker_name, "c": group, "pt": pop_ms, "q": queue_id, "so": start_offset, "t": topic}
        return json_dialect.dumps(value)


Entry = CheckPoint | Ack


def _unique_key(key: Key, offset: int, kind: str) -> str:
    topic, group, queue_id, _, pop_ms, broker_name = key
    return f"{topic}@{queue_id}@{offset}@{group}@{pop_ms}@{broker_name}@{kind}"


def message_of(
    entry: Entry, revive_topic: str, revive_queue: int, deliver_ms: int, now_ms: int, host: bytes
) -> InnerMessage:
    """Return *entry* as a timer message for the revive topic.

    Args:
        entry: what to write.
        revive_topic, revive_queue: where it shall come out.
        deliver_ms: wall time when it shall come out.
        now_ms: wall time.
        host: the writing broker, as records have it.
    """
    tag = CHECK_POINT if isinstance(entry, CheckPoint) else entry.tag
    pairs = {TIMER_DELIVER: str(deliver_ms), "TAGS": tag, "UNIQ_KEY": entry.unique_key}
    return InnerMessage(revive_topic, revive_queue, entry.body, format_properties(pairs).encode(), now_ms, host)


def read_entry(tag: str | None, body: bytes, own_broker: str) -> Entry:
    """Read one message of the revive topic.

    Args:
        tag: its tag.
        body: its bytes.
        own_broker: the broker name of an entry without one.

    Raises:
        ReviveLogError: it is none, or a field is no value of its kind.
    """
    if tag not in (CHECK_POINT, ACK, BATCH_ACK):
        raise ReviveLogError(f"tag {str(tag)[:32]!r} is neither of a check point nor of an acknowledgement")
    try:
        value = json_dialect.loads(body)
        if not isinstance(value, Mapping):
            raise ReviveLogError("no JSON object")
        key = _key(value, own_broker)
        if tag == CHECK_POINT:
            return _check_point(value, key)
        if tag == ACK:
            return Ack(key, (_offset(value, "ao"),))
        listed = list_of(value.get("aol"), "aol")
        return Ack(key, tuple(whole_number(each, "aol", _SMALLEST_OFFSET, LONGEST_MS) for each in listed), True)
    except (ValueError, RecursionError) as error:
        raise ReviveLogError(str(error)) from None


def _key(value: Mapping[str, Any], own_broker: str) -> Key:
    topic, group, broker_name = value.get("t"), value.get("c"), value.get("bn") or own_broker
    if not (isinstance(topic, str) and isinstance(group, str) and isinstance(broker_name, str) and topic and group):
        raise ReviveLogError("topic, group or broker name is missing or no text")
    return (
        topic,
        group,
        whole_number(value.get("q", 0), "q", 0, (1 << 31) - 1),
        _offset(value, "so"),
        whole_number(value.get("pt", 0), "pt", 0, LONGEST_MS),
        broker_name,
    )


def _offset(value: Mapping[str, Any], name: str) -> int:
    return whole_number(value.get(name, 0), name, _SMALLEST_OFFSET, LONGEST_MS)


def _check_point(value: Mapping[str, Any], key: Key) -> CheckPoint:
    topic, group, queue_id, start, pop_ms, broker_name = key
    count = whole_number(value.get("n", 0), "n", 0, MOST_MESSAGES)
    diffs = [whole_number(each, "d", _SMALLEST_OFFSET, LONGEST_MS) for each in list_of(value.get("d"), "d")]
    if len(diffs) > MOST_MESSAGES:
        raise ReviveLogError(f"d has {len(diffs)} entries, more than {MOST_MESSAGES}")
    return CheckPoint(
        topic,
        group,
        queue_id,
        start,
        pop_ms,
        whole_number(value.get("it", 0), "it", 0, LONGEST_MS),
        broker_name,
        tuple(start + diff for diff in (diffs[:count] or range(count))),
        whole_number(value.get("bm", 0), "bm", -(1 << 31), (1 << 32) - 1) & 0xFFFFFFFF,
        whole_number(value.get("rp") or 0, "rp", 0, LONGEST_MS),
        value.get("wm") is True,
    )


def entry_of(message: InnerMessage, revive_topic: str, own_broker: str) -> tuple[Entry, int, int] | None:
    """Return what a due *message* is in the revive topic, its queue, and when it is due there (wall milliseconds).

    Args:
        message: what comes out of the timer, or goes around in it once more.
        revive_topic, own_broker: the reader's.

    Returns:
        ``None`` when it is none.
    """
    pairs = parse_properties(message.properties)
    if message.topic == revive_topic:
        queue = message.queue_id
    elif message.topic == names.TIMER_TOPIC and pairs.get(REAL_TOPIC) == revive_topic:
        text = pairs.get(REAL_QUEUE, "")
        queue = int(text) if text.isdecimal() and len(text) < 4 else 0
    else:
        return None
    try:
        entry = read_entry(pairs.get("TAGS"), message.body, own_broker)
    except ReviveLogError:
        return None  # told where it comes out
    text = pairs.get(TIMER_DELIVER, "")
    deliver_ms = int(text) if text.isdecimal() and len(text) < 17 else 0
    return entry, queue, deliver_ms


# --- putting back ------------------------------------------------------------------------------------------------

_RE_PUT_SECONDS = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
MOST_LOOKS = len(_RE_PUT_SECONDS)
"""So often is looked for a message that may still come back into a hole of the log, for nearly five hours."""


def again(point: CheckPoint, offset: int, now_ms: int) -> CheckPoint:
    """Return the check point that takes the place of *point* for one message that could not be read or put.

    Each time its invisible time grows by more. Differs: it is due in the future in any case; the reference counts from
    the pop, so that after a long outage it puts and reads the same message again and again.

    Args:
        point: the one that is due.
        offset: of the message.
        now_ms: wall time.
    """
    wait_ms = _RE_PUT_SECONDS[min(point.re_puts, len(_RE_PUT_SECONDS) - 1)] * 1000
    invisible_ms = max(point.revive_ms, now_ms) + wait_ms - point.pop_ms
    return attrs.evolve(
        point, start_offset=offset, offsets=(offset,), done=0, invisible_ms=invisible_ms, re_puts=point.re_puts + 1
    )


def offsets_of_bits(start_offset: int, bits: bytes) -> Sequence[int]:
    """Return the queue offsets that the bit set of a batch acknowledgement names: bit i of byte k is start + 8k + i."""
    return [start_offset + 8 * at + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1]
