"""Pops in order: what each queue handed out, and whether it may hand out more. Pure.

The laws:

* While a message that was handed out is neither acknowledged nor visible again, its queue gives nothing to anybody
  else. The same attempt (a client that did not get its answer and asks again) always gets what it got.
* An acknowledgement counts only for the newest pop of its queue: it says so by the pop's time.
* The group's offset is the first message that is not acknowledged. Of a queue whose record was lost with the process
  only an acknowledgement of that one counts: what is in front of another is out, too.
* When the clock is set, what is out is visible later or sooner by as much.

Source: ConsumerOrderInfoManager.java, QueueLevelConsumerManager.java (format of ``consumerOrderInfo.json``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from understudy.broker.merge import Limit
from understudy.broker.pop.stepped_clock import Step
from understudy.format.json_values import list_of
from understudy.format.numbers import LONG_MAX, LONG_MIN, whole_number
from understudy.format.receipts import LONGEST_MS

FORGOTTEN_MS = 24 * 3600 * 1000
"""A queue that nobody popped for so long is forgotten."""
MOST_MESSAGES = 64
"""Bits of the bitmap of acknowledgements; a pop takes fewer messages."""
UNKNOWN, STALE = -1, -2
"""Of an acknowledgement: its message was not handed out; it is of an older pop, or of one that is not known."""


@attrs.frozen
class OrderRecord:
    """What one queue handed out last.

    Attributes:
        pop_ms, invisible_ms: when, and for how long.
        offsets: queue offsets of the messages.
        consumed_ms: wall time of the pop, for forgetting.
        acked: which of them (by index, a bit each) are acknowledged.
        visible_ms: for some offsets another time when they are visible again.
        counts: by offset, how often a message was handed out before.
        attempt_id: the client's name for its attempt.
    """

    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    consumed_ms: int
    acked: int = 0
    visible_ms: Mapping[int, int] = attrs.field(factory=dict)
    counts: Mapping[int, int] = attrs.field(factory=dict)
    attempt_id: str | None = None

    @property
    def next_offset(self) -> int:
        """The first message that is not acknowledged, or the one behind all of them."""
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1

    def visible_at(self, now_ms: int) -> int:
        """Return the wall time until which the queue is closed; *now_ms* or less when it is open."""
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                visible = self.visible_ms.get(offset, self.pop_ms + self.invisible_ms)
                if visible > now_ms:
                    return visible
        return now_ms

    def stepped(self, step: Step) -> OrderRecord:
        """Return it after the clock was set: what is out is visible later or sooner by as much."""
        visible = dict(self.visible_ms)
        for index, offset in enumerate(self.offsets):
            ends_ms = self.visible_ms.get(offset, self.pop_ms + self.invisible_ms)
            moved_ms = step.moved(self.pop_ms, ends_ms)
            if moved_ms != ends_ms and not self.acked >> index & 1:
                visible[offset] = moved_ms
        return self if visible == self.visible_ms else attrs.evolve(self, visible_ms=visible)

    def blocks(self, attempt_id: str | None, now_ms: int) -> bool:
        """Tell whether the queue is closed for *attempt_id*."""
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        return self.visible_at(now_ms) > now_ms

    @property
    def least_count(self) -> int:
        """How often each of the messages was handed out before at least."""
        return min(self.counts.values()) if len(self.counts) == len(self.offsets) else 0

    def to_json(self) -> dict[str, Any]:
        """Return its form in the file."""
        first = self.offsets[0]
        value: dict[str, Any] = {} if self.attempt_id is None else {"a": self.attempt_id}
        value |= {"cm": self.acked - (1 << 64) if self.acked >> 63 else self.acked, "i": self.invisible_ms}
        value |= {"l": self.consumed_ms, "o": [first, *(offset - first for offset in self.offsets[1:])]}
        if self.counts:
            value["oc"] = dict(self.counts)
        if self.visible_ms:
            value["ot"] = dict(self.visible_ms)
        return {**value, "popTime": self.pop_ms}


def next_record(
    before: OrderRecord | None,
    attempt_id: str | None,
    pop_ms: int,
    invisible_ms: int,
    offsets: Sequence[int],
    now_ms: int,
) -> OrderRecord:
    """Return the record of a queue after a pop that took *offsets* (not empty).

    Args:
        before: record of the queue before the pop; ``None`` for a queue that was never popped.
        attempt_id: of the pop; a repeated one has the same.
        pop_ms: moment of the pop (wall time).
        invisible_ms: for how long its messages are hidden.
        offsets: queue offsets that it took.
        now_ms: wall time.
    """
    counts: dict[int, int] = {}
    if before is not None:
        if before.attempt_id is not None and before.attempt_id == attempt_id:
            counts = dict(before.counts)
        else:
            had = set(before.offsets)
            counts = {offset: before.counts.get(offset, 0) + 1 for offset in offsets if offset in had}
    return OrderRecord(pop_ms, invisible_ms, tuple(offsets), now_ms, counts=counts, attempt_id=attempt_id)


def newest(own: OrderRecord, other: OrderRecord) -> OrderRecord:
    """Return what is known of a queue when two replicas know something."""
    if own.pop_ms != other.pop_ms:
        return max(own, other, key=lambda record: record.pop_ms)
    later = max(own, other, key=lambda record: record.consumed_ms)
    visible = {
        offset: max(record.visible_ms[offset] for record in (own, other) if offset in record.visible_ms)
        for offset in own.visible_ms.keys() | other.visible_ms.keys()
    }
    return attrs.evolve(later, acked=own.acked | other.acked, visible_ms=visible)


class OrderTable:
    """What every queue handed out in order. Keys are ``topic@group``, then the queue id.

    Args:
        now_ms: wall clock in milliseconds.

    Attributes:
        rows: the records.
        revision: grows with every change, since the start.
        on_change: called after every change.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.rows: dict[str, dict[int, OrderRecord]] = {}
        self.revision = 0
        self.on_change: list[Callable[[], None]] = []

    def get(self, topic: str, group: str, queue_id: int) -> OrderRecord | None:
        """Return the record of a queue."""
        queues = self.rows.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def put(self, topic: str, group: str, queue_id: int, record: OrderRecord) -> None:
        """Note what a queue handed out.

        Args:
            topic: of the queue.
            group: that popped.
            queue_id: of the queue.
            record: of what is out.
        """
        self.rows.setdefault(f"{topic}@{group}", {})[queue_id] = record
        self._changed()

    def blocks(self, topic: str, group: str, queue_id: int, attempt_id: str | None) -> bool:
        """Tell whether a queue is closed for *attempt_id*.

        Args:
            topic: of the queue.
            group: that pops.
            queue_id: of the queue.
            attempt_id: of the pop; who repeats one is let in.
        """
        now_ms, record = self._now_ms(), self.get(topic, group, queue_id)
        return record is not None and record.blocks(attempt_id, now_ms)

    def opens_in(self, topic: str, group: str, queue_id: int, most_ms: int) -> int:
        """Return in how many milliseconds a closed queue opens by itself.

        Args:
            topic, group: whose queues.
            queue_id: one of them; -1 for the first that opens.
            most_ms: the answer when none is closed.
        """
        now_ms, queues = self._now_ms(), self.rows.get(f"{topic}@{group}", {})
        records = [record for each, record in queues.items() if queue_id in (-1, each)]
        times = [record.visible_at(now_ms) for record in records]
        return min((each - now_ms for each in times if each > now_ms), default=most_ms)

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, committed: int) -> int:
        """Acknowledge a message.

        Args:
            topic: of the queue.
            group: that popped.
            queue_id: of the queue.
            offset: queue offset of the message.
            pop_ms: moment of the pop that handed it out (wall time).
            committed: what the group's offset is.

        Returns:
            What the group's offset is now; :data:`STALE` or :data:`UNKNOWN` when the acknowledgement does not count.
        """
        record = self.get(topic, group, queue_id)
        if record is None:
            return offset + 1 if offset == committed else STALE
        if record.pop_ms != pop_ms:
            return STALE
        if offset not in record.offsets:
            return UNKNOWN
        acked = record.acked | 1 << record.offsets.index(offset)
        record = attrs.evolve(record, acked=acked)
        self.put(topic, group, queue_id, record)
        return record.next_offset

    def change_visible(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """Change when a message is visible again; return whether it was the newest pop's.

        Args:
            topic: of the queue.
            group: that popped.
            queue_id: of the queue.
            offset: queue offset of the message.
            pop_ms: moment of the pop that handed it out (wall time).
            visible_ms: when it is visible again (wall time).
        """
        record = self.get(topic, group, queue_id)
        if record is None or record.pop_ms != pop_ms or offset not in record.offsets:
            return False
        visible = {**record.visible_ms, offset: visible_ms}
        self.put(topic, group, queue_id, attrs.evolve(record, visible_ms=visible))
        return True

    def stepped(self, step: Step) -> None:
        """Let what is out be visible when it would have been: the clock was set."""
        for queues in self.rows.values():
            for queue_id, record in queues.items():
                queues[queue_id] = record.stepped(step)
        self._changed()

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget a queue: its offset was reset."""
        queues = self.rows.get(f"{topic}@{group}")
        if queues is not None and queues.pop(queue_id, None) is not None:
            self._changed()

    def forget(self, keeps: Callable[[str, str, int], bool]) -> None:
        """Forget the queues that *keeps* (asked with topic, group and queue id) does not, and those long unused."""
        old_ms = self._now_ms() - FORGOTTEN_MS
        for key in list(self.rows):
            topic, _, group = key.partition("@")
            queues = self.rows[key]
            for queue_id, record in list(queues.items()):
                if record.consumed_ms < old_ms or not keeps(topic, group, queue_id):
                    del queues[queue_id]
            if not queues:
                del self.rows[key]
        self._changed()

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``consumerOrderInfo.json``."""
        table = {
            key: {queue_id: record.to_json() for queue_id, record in queues.items()}
            for key, queues in self.rows.items()
            if queues
        }
        return {"orderedConsumptionLevel": "QUEUE", "table": table}

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Put a saved table over what is there. Raises ``ValueError`` naming an entry that is none."""
        self.rows.update(read_order_table(value))

    def leave_out(self, queues: Iterable[tuple[str, int]]) -> None:
        """Forget the records of *queues* (``topic@group`` and queue id), which another replica has forgotten."""
        for key, queue_id in queues:
            if self.rows.get(key, {}).pop(queue_id, None) is not None:
                self._changed()

    def join(self, rows: Mapping[str, Mapping[int, OrderRecord]], limit: Limit) -> None:
        """Know what another replica knows, too: of each queue the newest pop counts, with everything acknowledged.

        Args:
            rows: of the other replica.
            limit: ``topic@group`` and queue id to the offset from which on its log is another one, ``None``: it is not.
        """
        changed = False
        for key, queues in rows.items():
            for queue_id, theirs in queues.items():
                own, most = self.rows.get(key, {}).get(queue_id), limit(key, queue_id)
                merged = theirs if own is None else newest(own, theirs)
                if merged != own and (most is None or max(theirs.offsets) < most):
                    self.rows.setdefault(key, {})[queue_id] = merged
                    changed = True
        if changed:
            self._changed()

    def _changed(self) -> None:
        self.revision += 1
        for listener in self.on_change:
            listener()


def read_order_table(value: Mapping[str, Any]) -> dict[str, dict[int, OrderRecord]]:
    """Read the content of the file. Raises ``ValueError`` naming an entry that is none."""
    table = value.get("table", {})
    if not isinstance(table, Mapping):
        raise ValueError("table is no JSON object")
    found: dict[str, dict[int, OrderRecord]] = {}
    for key, queues in table.items():
        if not isinstance(queues, Mapping) or "@" not in key:
            raise ValueError(f"table entry {key}: not topic@group with a JSON object")
        records = {
            int(queue_id): _read(each, f"table entry {key}, queue {queue_id}") for queue_id, each in queues.items()
        }
        found[str(key)] = {queue_id: record for queue_id, record in records.items() if record is not None}
    return found


def _read(value: object, what: str) -> OrderRecord | None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is no JSON object")
    listed = [
        whole_number(each, f"{what}: o", -LONGEST_MS, LONGEST_MS) for each in list_of(value.get("o"), f"{what}: o")
    ]
    if not listed:
        return None
    if len(listed) > MOST_MESSAGES:
        raise ValueError(f"{what}: o has {len(listed)} entries, more than {MOST_MESSAGES}")
    attempt_id = value.get("a")
    return OrderRecord(
        whole_number(value.get("popTime", 0), f"{what}: popTime", 0, LONGEST_MS),
        whole_number(value.get("i") or 0, f"{what}: i", 0, LONGEST_MS),
        (listed[0], *(listed[0] + each for each in listed[1:])),
        whole_number(value.get("l", 0), f"{what}: l", 0, LONGEST_MS),
        whole_number(value.get("cm", 0), f"{what}: cm", LONG_MIN, LONG_MAX) & ((1 << 64) - 1),
        _numbers(value.get("ot"), f"{what}: ot"),
        _numbers(value.get("oc"), f"{what}: oc"),
        attempt_id if isinstance(attempt_id, str) else None,
    )


def _numbers(value: object, what: str) -> dict[int, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is no JSON object")
    return {
        whole_number(key, what, -LONGEST_MS, LONGEST_MS): whole_number(each, what, 0, LONGEST_MS)
        for key, each in value.items()
    }
