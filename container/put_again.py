"""Lost messages that came back to a master, and that nobody would find where they are.

A master that lost the last messages of a queue, and whose slaves were away, takes messages, which get the queue offsets
of the lost ones. When those come back into their places of the log, no consumer would find them. They are put at the
ends of their queues once more, as a message is that is sent again, and a group that has read them gets them twice.

Delayed and half messages may have their places, but were passed while they were missing
(:mod:`~understudy.container.passed`). Such a delayed one is delivered unless the log shows that it was; about a half
one, of which it shows nothing, its producer is asked again. Of those without a place as little is put that is done;
nor is a timer message whose delivered one the log has, or what was acknowledged of a check point, or came back.

What is put says where it came from (property ``PUT_AGAIN_FROM``), and before the first of them ``recovery.hole`` says
where the log ends: a start that finds that there looks behind it for what was put.

Left out are messages of topics that were deleted since, or keep only the newest of each key, of batch queues and light
topics, what transactions note of halves: it names them by queue offsets, which others have; and what the timer passed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.inner import PUT_AGAIN_FROM, InnerMessage, append, copy_of
from understudy.broker.pop.evidence import what_is_open_in_steps
from understudy.broker.pop.revive_log import CheckPoint, ReviveLogError, read_entry
from understudy.broker.schedule import due_message
from understudy.broker.timer.rules import delivered
from understudy.broker.transactions.evidence import was_decided_in_steps
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.lost import Named
from understudy.container.escape.parts import escape_parts
from understudy.container.escape.recognition import delivered_before_in_steps
from understudy.container.passed import HALVES, LEVEL, comes, ended, reached, was_passed
from understudy.format import light_queues, names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import (
    BLANK,
    BLANK_MAGIC,
    FLAG_INNER_BATCH,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_PREPARED,
    FLAG_TRANSACTION_ROLLBACK,
    Record,
    RecordError,
    decode_record,
)
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace
from understudy.store.holes import Spans
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected, PutStatus

log = get_logger("container.holes")

_EVER_MS = 1 << 62
"""Whenever it was due, the log is asked whether it was delivered."""
_NOTES_OF_HALVES = (names.HALF_OPERATION_TOPIC, names.ROCKSDB_HALF_OPERATION_TOPIC)
_NOTHING_NOW = frozenset(
    {PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.OS_PAGE_CACHE_BUSY}
)
"""With these a store refuses every message; with others it refuses this one."""


async def put_again(broker: Broker) -> None:
    """Put what came back and has no place at the end of its queue; what is refused is left for the next call.

    It goes on to its end when it is cancelled. Who dies meanwhile finds in the log what was put already.

    Args:
        broker: a master.
    """
    store, holes, spans = broker.store, broker.store.holes, broker.store.came_back()
    if not spans:
        return
    with trio.CancelScope(shield=True):
        if holes.putting is None and not await store.flush():
            return  # a log that loses its end would have other records there
        try:
            await holes.begin_putting(store.max_physical_offset)
        except OSError as error:
            log.error("messages that came back are not put again yet, for that cannot be noted", why=error)
            return
        putting = Putting(broker, spans)
        async with Pace(broker.world) as pace:
            await putting.run(pace)
        if putting.count:
            log.warning("messages that came back were put again", count=putting.count)
        if not holes.put or await store.flush():
            try:
                await holes.placed(spans, putting.left)
            except OSError as error:
                log.error("it is not noted that messages that came back were put again", why=error)


@attrs.frozen
class Again:
    """A message that is to be put.

    Attributes:
        message: as it is without the mark.
        then: called when it was put, with where it stands.
    """

    message: InnerMessage
    then: Callable[[Appended], None] = lambda put: None


class Putting:
    """One go through what came back.

    Args:
        broker: a master.
        spans: what came back.

    Attributes:
        count: so many were put.
        left: what was refused.
    """

    def __init__(self, broker: Broker, spans: Spans) -> None:
        self._broker = broker
        self._spans = spans
        self._passed = ended(broker.store.holes.passed, reached(broker))
        self._named: dict[int, Named] = {}
        self.count = 0
        self.left: list[tuple[int, int]] = []

    async def run(self, pace: Pace) -> None:
        """Put what has no place, with a breath after each record."""
        store, holes = self._broker.store, self._broker.store.holes
        if not holes.is_put_known and holes.putting is not None:
            for _, data in _records(store, ((holes.putting, store.max_physical_offset),)):
                holes.put |= _put_before(data)
                await pace.breathe()
            holes.is_put_known = True
        for position, data in _records(store, self._spans):
            await pace.breathe()
            found = await pace.run(self._to_put(data))
            if found is None or _name(found.message, position) in holes.put:
                continue
            message = found.message
            try:
                put = append(store, _marked(message, position))
            except PutRejected as error:
                if error.status in _NOTHING_NOW:
                    log.error("messages that came back are not put again yet", next=position, why=error)
                    self.left += [(max(first, position), after) for first, after in self._spans if after > position]
                    return
                self._refuse(position, len(data), message, error)
            else:
                found.then(put)
                holes.put.add(_name(message, position))
                self.count += 1

    def _refuse(self, position: int, size: int, message: InnerMessage, error: PutRejected) -> None:
        """Leave one message that cannot be stored as it is; said once, for then it has a span of its own."""
        span = position, position + size
        self.left.append(span)
        if span not in self._spans:
            log.error("a message that came back is refused", position=position, topic=message.topic, why=error)

    def _to_put(self, data: bytes) -> Generator[None, None, Again | None]:
        """Return what is to be put for a record that came back; ``None``: who should have it has it, or gets it."""
        broker = self._broker
        try:
            record = decode_record(data)
        except RecordError:
            return None
        place = record.topic, record.queue_id, record.queue_offset
        if not _would_be_read(broker, record):
            return None
        in_place = broker.store.is_in_place(*place, record.physical_offset)
        if record.topic == names.SCHEDULE_TOPIC:
            return (yield from self._delayed(record, in_place=in_place))
        if record.topic == names.HALF_TOPIC:
            return (yield from self._half(record, in_place=in_place))
        if in_place:
            return None
        if record.topic == names.TIMER_TOPIC:
            timed = yield from self._timer(record)
            return None if timed is None else Again(timed)
        found = (yield from self._entry(record)) if record.topic == broker.pops.log.topic else _copy(record)
        return None if found is None else Again(found)

    def _timer(self, record: Record) -> Generator[None, None, InnerMessage | None]:
        message = delivered(record, record.store_ms, record.store_ms)
        if message is None:
            return _copy(record)
        if (yield from delivered_before_in_steps(escape_parts(self._broker), message, _EVER_MS)):
            return None
        return (yield from self._entry(record)) if message.topic == self._broker.pops.log.topic else _copy(record)

    def _entry(self, record: Record) -> Generator[None, None, InnerMessage | None]:
        """Put of a check point what is open: it may have come out, and been done, before it was lost."""
        pops, own_name = self._broker.pops, self._broker.identity.name
        try:
            point = read_entry(record.properties.get("TAGS"), record.body, own_name)
        except ReviveLogError:
            return _copy(record)
        if not isinstance(point, CheckPoint):
            return _copy(record)
        retry = pops.queues.returns_to(point)
        point = yield from what_is_open_in_steps(self._broker.store, point, pops.log.topic, retry, own_name)
        return attrs.evolve(_copy(record), body=point.body) if point.open_offsets else None

    def _delayed(self, record: Record, *, in_place: bool) -> Generator[None, None, Again | None]:
        level, offset = record.queue_id + 1, record.queue_offset
        if in_place and not was_passed(self._passed, LEVEL, level, offset):
            return None
        message = due_message(level, record)
        if message is None or message.topic not in self._broker.topics.rows:
            return None
        if (yield from delivered_before_in_steps(escape_parts(self._broker), message, _EVER_MS)):
            return None
        if not in_place:
            return Again(_copy(record))
        if comes(self._broker, LEVEL, level, offset):
            return None
        return Again(message, lambda put: self._broker.schedule.settled(level, offset))

    def _half(self, record: Record, *, in_place: bool) -> Generator[None, None, Again | None]:
        number, lost = record.queue_id, self._broker.transactions.lost
        if in_place and not was_passed(self._passed, HALVES, number, record.queue_offset):
            return None
        half = Half.of(record)
        if half is None or (yield from was_decided_in_steps(self._broker.store, half)):
            return None
        if number not in self._named:
            self._named[number] = yield from lost.named_in_steps(number, min(first for first, _ in self._spans))
        if lost.is_named(self._named[number], half, in_place=in_place):
            return None
        if in_place and comes(self._broker, HALVES, number, record.queue_offset):
            return None
        return Again(_copy(record), lambda put: lost.was_put(half, put.queue_offset, in_place=in_place))


def _records(store: MessageStore, spans: Spans) -> Iterator[tuple[int, bytes]]:
    """Go through the records of parts of the log: where each is, and its bytes."""
    position = store.min_physical_offset
    for first, after in sorted(spans):
        position = max(first, position)
        while position < after:
            head = store.slice(position, BLANK.size)
            size, magic = BLANK.unpack(head) if len(head) == BLANK.size else (0, 0)
            if size < BLANK.size:
                break
            if magic != BLANK_MAGIC:
                yield position, bytes(store.slice(position, size))
            position += size


def _name(message: InnerMessage, position: int) -> Hashable:
    """Return what a message that is put again has in common with the record that it becomes."""
    return position, message.topic, message.queue_id, message.born_ms


def _put_before(data: bytes) -> set[Hashable]:
    """Return the name of what was put again as the record *data*; nothing for any other record."""
    if PUT_AGAIN_FROM.encode() not in data:
        return set()
    try:
        record = decode_record(data)
    except RecordError:
        return set()
    origin = record.properties.get(PUT_AGAIN_FROM, "")
    if not (origin.isascii() and origin.isdecimal()):
        return set()
    return {(int(origin), record.topic, record.queue_id, record.born_ms)}


def _copy(record: Record) -> InnerMessage:
    properties = record.properties_text.encode()
    return copy_of(record, record.topic, record.queue_id, properties, record.reconsume_times)


def _marked(message: InnerMessage, position: int) -> InnerMessage:
    """Return *message* as it is put for the record at *position*."""
    pairs = {**parse_properties(message.properties.decode("utf-8", "replace")), PUT_AGAIN_FROM: str(position)}
    pairs.pop("__CRC32#", None)
    return attrs.evolve(message, properties=format_properties(pairs).encode())


def _would_be_read(broker: Broker, record: Record) -> bool:
    """Whether somebody would read it in its queue."""
    store = broker.store
    deletion = store.deletions.get(record.topic)
    deleted = (
        deletion is not None and record.physical_offset < deletion.position and record.store_ms <= deletion.store_ms
    )
    return not (
        deleted
        or record.topic not in broker.topics.rows
        or record.topic in _NOTES_OF_HALVES
        or record.topic in store.compacted_topics
        or record.topic in store.batch_topics
        or record.sys_flag & FLAG_INNER_BATCH
        or record.sys_flag & FLAG_TRANSACTION_MASK in (FLAG_TRANSACTION_PREPARED, FLAG_TRANSACTION_ROLLBACK)
        or light_queues.NAMES in record.properties_text.encode()
        or record.queue_offset < store.min_queue_offset(record.topic, record.queue_id)
    )
