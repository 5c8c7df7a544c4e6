"""Takes messages out of queues for one pop: reads from where the group is, and says what must be noted.

Nothing is noted here but where a new group begins: the caller writes the check points first and moves the offsets then.

Source: PopMessageProcessor.java (popMsgFromQueue, getPopOffset).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.offsets import OffsetTable
from understudy.broker.parked_pulls import Wanted
from understudy.broker.pop import choice
from understudy.broker.pop.choice import Queue
from understudy.broker.pop.moving import Moving
from understudy.broker.pop.order import OrderTable
from understudy.broker.pop.revive_log import CheckPoint
from understudy.broker.property_filter import PropertyFilter
from understudy.format.light_queues import is_light, offset_in
from understudy.format.properties import format_properties
from understudy.format.receipts import RECEIPT, Receipt, retry_mark
from understudy.format.record import Record, decode_records
from understudy.format.record_layout import layout
from understudy.store.message_store import MessageStore
from understudy.store.status import GetResult, GetStatus

MOST_BYTES = 16 << 20
"""Of one answer; the store's own bounds are below it."""
_SIZE_AND_OFFSET = layout("size", "queue_offset")
_CORRECTED = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL})
_PASSED = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


@attrs.frozen
class Wish:
    """What one pop asks for.

    Attributes:
        group, topic: who, and what.
        queue_id: one queue, or -1 for all.
        most: messages at most.
        invisible_ms: how long they belong to the consumer.
        from_min: a new group begins with the oldest message.
        wanted: tags codes that are wanted, or a condition; ``None`` is every message.
        in_order: one pop at a time for each queue.
        attempt_id: the client's name for its attempt.
    """

    group: str
    topic: str
    queue_id: int
    most: int
    invisible_ms: int
    from_min: bool
    wanted: Wanted
    in_order: bool
    attempt_id: str | None


@attrs.frozen
class Taken:
    """What one queue gave.

    Attributes:
        queue: the queue.
        start: where reading began.
        next: where the group goes on.
        offsets: of the messages; empty when the queue was only passed.
        parts: their records.
        size_bytes: length of *parts*.
    """

    queue: Queue
    start: int
    next: int
    offsets: Sequence[int] = ()
    parts: Sequence[bytes | memoryview] = ()
    size_bytes: int = 0


@attrs.frozen
class Taking:
    """What a pop gave.

    Attributes:
        taken: for each queue that gave something or was passed.
        rest: how many messages are left in the queues that were looked at.
    """

    taken: Sequence[Taken]
    rest: int

    @property
    def found(self) -> bool:
        """Whether there is a message."""
        return any(each.offsets for each in self.taken)

    @property
    def passed(self) -> bool:
        """Whether a queue was only passed: the next pop begins behind what is not wanted there."""
        return not all(each.offsets for each in self.taken)


class Taker:
    """Reads queues for pops.

    Args:
        store: the messages.
        offsets: where groups are.
        orders: what was handed out in order.
        moving: where groups go on beyond their offsets.
        config: read at each use.
        busy: the queues (topic, group, queue id) whose check point is under way: they give nothing meanwhile.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        orders: OrderTable,
        moving: Moving,
        config: BrokerConfig,
        busy: set[tuple[str, str, int]],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._moving = moving
        self._config = config
        self._busy = busy

    def take(self, wish: Wish, queues: Sequence[Queue]) -> Taking:
        """Read *queues* in order until there is enough."""
        taken: list[Taken] = []
        rest = count = 0
        for queue in queues:
            start = self._begin(wish, queue)
            if (queue.topic, wish.group, queue.queue_id) in self._busy or self._holds_enough(wish, queue):
                rest += max(self._store.max_queue_offset(queue.topic, queue.queue_id) - start, 0)
                continue
            if wish.in_order and self._orders.blocks(queue.topic, wish.group, queue.queue_id, wish.attempt_id):
                continue
            left = self._store.max_queue_offset(queue.topic, queue.queue_id) - start
            if not left:
                continue  # nearly always, where there are very many queues: nothing to read
            if count >= wish.most:
                rest += max(left, 0)
                continue
            start, found = self._read(wish, queue, start, wish.most - count)
            rest += max(found.max_offset - found.next_begin_offset, 0)
            if found.count:
                offsets = offsets_of(found, start, queue.topic)
                taken.append(Taken(queue, start, found.next_begin_offset, offsets, found.parts, found.size_bytes))
                count += found.count
            elif found.status in _PASSED and found.next_begin_offset > start:
                taken.append(Taken(queue, start, found.next_begin_offset))
        return Taking(taken, rest)

    def _holds_enough(self, wish: Wish, queue: Queue) -> bool:
        """Tell whether so much of *queue* is out that nothing more may go out."""
        if not self._config.enable_pop_message_threshold or wish.in_order:
            return False
        out = self._moving.in_flight.get(queue.topic, wish.group, queue.queue_id)
        return out > self._config.pop_inflight_message_threshold

    def _begin(self, wish: Wish, queue: Queue) -> int:
        """Return where *wish* goes on in *queue*; a group that is new there gets its place."""
        offsets, store = self._offsets, self._store
        if offsets.reset and not offsets.following:
            reset = offsets.take_reset(wish.group, queue.topic, queue.queue_id)
            if reset is not None:
                self._orders.clear(queue.topic, wish.group, queue.queue_id)
                self._moving.reset(wish.group, queue.topic, queue.queue_id)
                offsets.commit(wish.group, queue.topic, queue.queue_id, reset)
                return reset
        offset = self._moving.position(wish.group, queue.topic, queue.queue_id)
        if offset < 0:
            low = store.min_queue_offset(queue.topic, queue.queue_id)
            high = store.max_queue_offset(queue.topic, queue.queue_id)
            in_memory = not wish.from_min and low <= 0 and high > 0 and self._has_head_in_memory(queue)
            offset = choice.initial_offset(queue.topic, wish.from_min, low, high, in_memory)
            offsets.commit(wish.group, queue.topic, queue.queue_id, offset)
        return offset

    def _has_head_in_memory(self, queue: Queue) -> bool:
        """Return whether *queue* is to be read from its beginning for its first message is in memory.

        As pulls have it: so near the end of the log (``accessMessageInMemoryMaxRatio``). Differs because the reference
        asks the system which pages it keeps, so that the same log is read otherwise after a start.
        """
        if not self._config.init_pop_offset_by_check_msg_in_mem:
            return False
        first = self._store.get(queue.topic, queue.queue_id, 0, 1, MOST_BYTES)
        return first.status is GetStatus.FOUND and not first.suggest_slave

    def _read(self, wish: Wish, queue: Queue, start: int, most: int) -> tuple[int, GetResult]:
        """Read once, and again when the group was outside of what the queue holds; return where it began, and what."""
        wanted = wish.wanted
        for _ in range(2):
            if isinstance(wanted, PropertyFilter):
                found = self._store.get(
                    queue.topic, queue.queue_id, start, most, MOST_BYTES, None, wanted.reading(), wanted.most_records
                )
            else:
                accept = None if wanted is None else wanted.__contains__
                found = self._store.get(queue.topic, queue.queue_id, start, most, MOST_BYTES, accept)
            if found.count or found.status not in _CORRECTED or found.next_begin_offset == start:
                break
            start = found.next_begin_offset
            self._moving.passed(wish.group, queue.topic, queue.queue_id, start)
        return start, found


def offset_of(record: Record, topic: str) -> int:
    """Return the queue offset of a record that was read in a queue of *topic*; -1 when it does not say one."""
    return record.queue_offset if record.topic == topic else offset_in(record.properties, topic)


def offsets_of(found: GetResult, start: int, topic: str) -> Sequence[int]:
    """Return the queue offsets of what a read of a queue of *topic* from *start* found."""
    if found.next_begin_offset - start == found.count:
        return range(start, start + found.count)
    if is_light(topic):
        return [offset_of(record, topic) for part in found.parts for record in decode_records(part)]
    offsets: list[int] = []
    for part in found.parts:
        at = 0
        while at < len(part):
            size, offset = _SIZE_AND_OFFSET.unpack_from(part, at)
            offsets.append(offset)
            at += size
    return offsets


def check_point_of(wish: Wish, taken: Taken, pop_ms: int, broker_name: str) -> CheckPoint:
    """Return the check point of what one queue gave.

    Args:
        wish: what was asked for.
        taken: what the queue gave.
        pop_ms: moment of the pop (wall time).
        broker_name: of this group of brokers.
    """
    queue = taken.queue
    return CheckPoint(
        queue.topic,
        wish.group,
        queue.queue_id,
        taken.start,
        pop_ms,
        wish.invisible_ms,
        broker_name,
        tuple(taken.offsets),
    )


def as_asked(wish: Wish, taken: Taken, pop_ms: int, revive_queue: int, broker_name: str) -> Taken:
    """Return records of a retry topic as records of the topic that was asked for, each with its receipt handle.

    Args:
        wish: what was asked for.
        taken: what a queue of the retry topic gave.
        pop_ms: moment of the pop (wall time).
        revive_queue: queue of the revive topic that its check point goes to.
        broker_name: of this group of brokers.
    """
    records: list[bytes | memoryview] = []
    for part in taken.parts:
        for record in decode_records(part):
            receipt = Receipt(
                taken.start,
                pop_ms,
                wish.invisible_ms,
                revive_queue,
                retry_mark(taken.queue.topic),
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
            properties = format_properties({**record.properties, RECEIPT: receipt.text}).encode()
            records.append(attrs.evolve(record, topic=wish.topic).encoded_with(properties))
    return attrs.evolve(taken, parts=records, size_bytes=sum(map(len, records)))
