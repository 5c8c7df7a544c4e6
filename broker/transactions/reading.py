"""Reads what is undone in the half queues of a log: by the master that kept it, or by the slave that acts for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import trio

from understudy.broker.offsets import OffsetTable
from understudy.broker.topics import TopicTable
from understudy.broker.transactions.half import OF_COPIES, UNIQUE, Half
from understudy.broker.transactions.ledger import HalfLedger
from understudy.broker.transactions.ops import OpBatch, decided_of
from understudy.broker.whole_records import whole_records
from understudy.format import names
from understudy.format.properties import find_property
from understudy.format.record import Record, RecordError, decode_record
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import GetStatus

log = get_logger("broker.transactions")

BATCH = 32
"""Messages that are read at once, between two turns of the event loop."""
BATCH_BYTES = 4 << 20
_UNIQUE = f"{UNIQUE}\x01".encode()
_OF_COPIES = tuple(f"{name}\x01".encode() for name in OF_COPIES)


@attrs.define(eq=False)
class HalfQueue:
    """One half queue at work.

    Attributes:
        number: its queue id, and that of its op queue.
        ledger: what is decided.
        batch: decisions without an op message.
        inherited: half messages before this queue offset were there when they were read.
        reached: queue offset up to which a round of checks that is under way has read; 0 between them.
    """

    number: int
    ledger: HalfLedger
    inherited: int = 0
    reached: int = 0
    batch: OpBatch = attrs.Factory(OpBatch)


class HalfReader:
    """Reads the half queues and op queues of one broker.

    Args:
        store: the messages.
        offsets: how far they are done, as offsets of ``CID_RMQ_SYS_TRANS``.
        topics: how many half queues there are.
    """

    def __init__(self, store: MessageStore, offsets: OffsetTable, topics: TopicTable) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics

    async def learn(self) -> tuple[dict[int, HalfQueue], Counter[str]]:
        """Return every half queue with what is decided in it, and how many half messages of each topic are open.

        Returns in the same turn of the event loop in which it saw the end of all queues.
        """
        row = self._topics.rows.get(names.HALF_TOPIC)
        queues, found = {}, Counter[str]()
        for number in range(row.read_queue_nums if row is not None else 1):
            op_done = self._progress(names.HALF_OPERATION_TOPIC, number)
            known = self.noted(number)
            passed = known, self._store.max_physical_offset
            ledger = HalfLedger(self._progress(names.HALF_TOPIC, number), op_done, passed)
            queues[number] = HalfQueue(number, ledger)
            await self._learn_ops(ledger, number, op_done)
        await self._learn_halves(queues, found)
        return queues, found

    async def undecided(self, queues: Iterable[HalfQueue], most: int, group: str | None) -> list[Half]:
        """Return the newest copies of half messages that nobody has decided, in the order of their queues.

        What comes in while this reads is left to the next question: however much does, this comes to its end.

        Args:
            queues: what is known of each.
            most: how many at the most.
            group: only those of this producer group; ``None`` for all.
        """
        found: list[Half] = []
        for queue in list(queues):
            at, end = queue.ledger.done, self._store.max_queue_offset(names.HALF_TOPIC, queue.number)
            while at < end and len(found) < most:
                records, following = self.read(names.HALF_TOPIC, queue.number, at, min(BATCH, end - at))
                if not records and following <= at:
                    break
                for half in filter(None, map(Half.of, records)):
                    if group not in (None, half.group):
                        continue
                    newest: Half | None = half
                    if queue.ledger.has_decided(half.record):  # perhaps only stored anew, since the reading began
                        copy = queue.ledger.newest(half.identity)
                        newest = None if copy is None or copy < end else self._undecided_at(queue, copy)
                    if newest is not None:
                        found.append(newest)
                at = following
                await trio.lowlevel.checkpoint()
        return found[:most]

    async def undecided_at(self, queues: dict[int, HalfQueue], places: Sequence[tuple[int, int]]) -> list[Half]:
        """Return the half messages that stand at *places* (half queue and offset in it), and that nobody has decided.

        What is no place of one is left out.
        """
        found = []
        for number, offset in places:
            queue = queues.get(number)
            half = None if queue is None else self._undecided_at(queue, offset)
            found += [] if half is None else [half]
            await trio.lowlevel.checkpoint()
        return found

    def _undecided_at(self, queue: HalfQueue, offset: int) -> Half | None:
        if queue.ledger.is_decided(offset):
            return None
        records, _ = self.read(names.HALF_TOPIC, queue.number, offset, 1)
        if not records or records[0].queue_offset != offset or queue.ledger.has_decided(records[0]):
            return None
        return Half.of(records[0])

    def read(self, topic: str, number: int, at: int, most: int = BATCH) -> tuple[list[Record], int]:
        """Return messages of a queue from offset *at* on, and where those that follow begin.

        Args:
            topic: of the queue.
            number: of the queue.
            at: first queue offset.
            most: most messages.
        """
        found = self._store.get(topic, number, at, most, BATCH_BYTES)
        if found.status is not GetStatus.FOUND:
            return [], max(found.next_begin_offset, at)
        return whole_records(self._store, topic, number, at, found), found.next_begin_offset

    def noted(self, number: int) -> int:
        """Return up to which queue offset half queue *number* is done, as offsets tell; -1 when they say nothing."""
        return self._offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, number)

    def catch_up(self, queue: HalfQueue) -> None:
        """Take progress over that *queue* has made elsewhere: what a slave took to another master is done here."""
        known = self.noted(queue.number)
        if known > queue.ledger.done:
            queue.ledger.advance(min(known, self._store.max_queue_offset(names.HALF_TOPIC, queue.number)))

    def move(self, queue: HalfQueue) -> None:
        """Note the progress of *queue* in the table of offsets; it never goes back."""
        self.catch_up(queue)
        for topic, offset in (
            (names.HALF_TOPIC, queue.ledger.done),
            (names.HALF_OPERATION_TOPIC, queue.ledger.op_done),
        ):
            if self._offsets.query(names.TRANSACTION_GROUP, topic, queue.number) != offset:
                self._offsets.commit(names.TRANSACTION_GROUP, topic, queue.number, offset)

    def _progress(self, topic: str, number: int) -> int:
        """Return the progress in a queue, brought into what it holds.

        Beyond its end it was made in messages that are lost: others will get their queue offsets.
        """
        store = self._store
        low, high = store.min_queue_offset(topic, number), store.written_queue_offset(topic, number)
        known = self._offsets.query(names.TRANSACTION_GROUP, topic, number)
        if known >= 0 and not low <= known <= high:
            log.warning("progress of transactions corrected", topic=topic, was=known, now=min(max(known, low), high))
        if known > high:
            self._offsets.commit(names.TRANSACTION_GROUP, topic, number, high)
        return min(max(known, low), high)

    async def _learn_ops(self, ledger: HalfLedger, number: int, at: int) -> None:
        while True:
            records, following = self.read(names.HALF_OPERATION_TOPIC, number, at)
            if not records and following <= at:
                return
            for record in records:
                ledger.claim(record.queue_offset, record.physical_offset, decided_of(record))
            at = following
            await trio.lowlevel.checkpoint()

    async def _learn_halves(self, queues: dict[int, HalfQueue], found: Counter[str]) -> None:
        """Find the copies of each half message, of which at most the newest is open, and count what is open.

        There may be hundreds of thousands, nearly all decided and stored once: of those no more is kept than where they
        stand, and nothing is read but what tells them from copies.
        """
        newest: dict[tuple[int, bytes, int], int] = {}  # queue, unique key and birth to the queue offset
        at = {number: queue.ledger.done for number, queue in queues.items()}
        while True:
            more = False
            for number, queue in queues.items():
                begin = at[number]
                records, at[number] = self.read(names.HALF_TOPIC, number, at[number])
                more = more or at[number] > begin  # though what was read may be lost
                for record in records:
                    properties, before = record.properties_text.encode(), None
                    decided = queue.ledger.has_decided(record)
                    unique = find_property(properties, _UNIQUE)
                    if unique is not None:
                        key = number, unique, record.born_ms
                        before, newest[key] = newest.get(key), record.queue_offset
                    if before is None and decided and not _is_copy(properties):
                        continue
                    half = Half.of(record)
                    if half is not None:
                        was_open, is_open = _enter(queue.ledger, half, before)
                        found[half.topic] += is_open - was_open
            if not more:
                break  # in the same turn as the end of the queues was seen: no send was overlooked
            await trio.lowlevel.checkpoint()
        for number, queue in queues.items():
            # What not all replicas had yet is shown later, and was stored in a former life as well.
            queue.inherited = max(at[number], self._store.written_queue_offset(names.HALF_TOPIC, number))
            queue.ledger.believe(at[number])


def _enter(ledger: HalfLedger, half: Half, before: int | None) -> tuple[bool, bool]:
    """Enter a half message that was found; return whether the copy before it was open, and whether it is itself.

    Args:
        ledger: of its queue.
        half: the message.
        before: queue offset of the newest copy of it that stands before it; ``None`` when there is none.
    """
    was_open = before is not None and not ledger.is_decided(before)
    if before is not None:
        ledger.decide(before if was_open else half.offset)  # what was decided about one copy was decided about all
    is_open = not ledger.is_decided(half.offset)
    if was_open or half.was_renewed:
        ledger.copied(half, half.offset)
    return was_open, is_open


def _is_copy(properties: bytes) -> bool:
    """Return whether a half message with this properties string is a copy of one that stood before it."""
    return any(find_property(properties, name) is not None for name in _OF_COPIES)


def half_at(store: MessageStore, physical_offset: int, topic: str) -> Half | None:
    """Return the half message that begins at byte *physical_offset* of the log, if there is one in *topic*.

    One whose queue offset another one got while it was lost is none any more: what is decided would count for that one.
    """
    raw = store.read(physical_offset) if physical_offset >= 0 else None
    try:
        half = None if raw is None else Half.of(decode_record(raw))
    except RecordError:
        return None  # to its producer it is no message either way
    if half is None or half.record.topic != topic:
        return None
    place = topic, half.record.queue_id, half.offset
    return half if store.is_in_place(*place, physical_offset) else None
