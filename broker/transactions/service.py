"""The transactions of one broker while it is a master: takes decisions, writes op messages, checks what is undecided.

The decisions are pure (see the package); this shell reads the queues, appends what follows and keeps the progress: the
consumer offsets of ``CID_RMQ_SYS_TRANS`` in the half topic and the op topic, which slaves copy as those of any group.

Source: TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java, TransactionalOpBatchService.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from understudy.broker.clients import ProducerTable
from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity, host_bytes
from understudy.broker.inner import InnerMessage, append, keep_if_asked
from understudy.broker.offsets import OffsetTable
from understudy.broker.redelivery import OwnLog
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.timer.request import Door, TimerRefusedError
from understudy.broker.topics import TopicTable
from understudy.broker.transactions.checking import CheckRules, Verdict, verdict
from understudy.broker.transactions.counts import TransactionCounts
from understudy.broker.transactions.evidence import was_committed, was_given_up
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.half import Identity as HalfIdentity
from understudy.broker.transactions.judgement import Choice, Decision, Refusal, refusal
from understudy.broker.transactions.ledger import HalfLedger
from understudy.broker.transactions.ops import OpBatch, decided_of
from understudy.format import names
from understudy.format.record import Record, RecordError, decode_record, decode_records
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.connection import Connection
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, GetStatus, PutRejected, PutStatus

log = get_logger("broker.transactions")

BATCH = 32
"""Messages that are read at once, between two turns of the event loop."""
BATCH_BYTES = 4 << 20
ROUND_SECONDS = 60.0
"""Longest look at one half queue (MAX_PROCESS_TIME_LIMIT in TransactionalMessageServiceImpl.java)."""
UNWRITTEN_MOST = 20_000
"""Decisions that may wait for an op message when none can be written; more are refused."""
RETRY_SECONDS = 1.0
_PERM = names.PERM_READ | names.PERM_WRITE
_HOUR_MS = 3_600_000


Count = Callable[[int, int, int], None]
"""Counts a send: queue id, messages, their bytes."""


@attrs.frozen
class TransactionParts:
    """What of a broker is needed for its transactions.

    Attributes:
        identity: names, addresses and role.
        options: read at each use.
        clock: wall and monotonic time.
        store: the messages.
        own_log: says when they are safe.
        offsets: the progress.
        topics, producers: the tables.
        stats: counts.
        delay_levels: how many there are.
        timer_door: lets committed messages into the timer.
        may_store: returns whether what is decided now belongs into the own log.
    """

    identity: Identity
    options: BrokerOptions
    clock: Clock
    store: MessageStore
    own_log: OwnLog
    offsets: OffsetTable
    topics: TopicTable
    producers: ProducerTable[Connection]
    stats: BrokerStatistics
    delay_levels: int
    timer_door: Door
    may_store: Callable[[], bool]


@attrs.define(eq=False)
class HalfQueue:
    """One half queue at work.

    Attributes:
        number: its queue id, and that of its op queue.
        ledger: what is decided.
        batch: decisions without an op message.
        inherited: half messages before this queue offset were there when the service began.
    """

    number: int
    ledger: HalfLedger
    inherited: int = 0
    batch: OpBatch = attrs.Factory(OpBatch)


class Transactions:
    """See the module.

    Attributes:
        counts: what is open, and what was decided.
        opened: set while the queues are known; decisions wait for it.
    """

    def __init__(self, parts: TransactionParts) -> None:
        self._parts = parts
        self._config = parts.options.broker
        self._host = host_bytes(parts.identity.ip, parts.identity.port)
        self._queues: dict[int, HalfQueue] = {}
        self._wake = Signal()
        self.counts = TransactionCounts(parts.clock.wall_ms)
        self.opened = trio.Event()

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn the queues, then write op messages and check, until cancelled; what is decided by then is written."""
        clock, began, handled = self._parts.clock, self._parts.clock.monotonic(), self._wake.count
        await self._learn()
        try:
            while True:
                checks_at = began + self._config.transaction_check_interval / 1000
                with clock.move_on_after(max(min(checks_at, self._ops_due_at()) - clock.monotonic(), 0)):
                    handled = await self._wake.wait(handled)
                for queue in self._queues.values():
                    if queue.batch.due_ms(self._config.transaction_op_batch_interval) <= clock.wall_ms():
                        self._write_ops(queue)
                if clock.monotonic() >= checks_at:
                    began = clock.monotonic()
                    await self._check_all()
        finally:
            self.opened = trio.Event()
            for queue in self._queues.values():
                self._write_ops(queue)
            self._queues = {}

    def settings_changed(self) -> None:
        """Take note that a key of the configuration may have another value."""
        self._wake.set()

    def _ops_due_at(self) -> float:
        """Return when the next op message is to be written, in monotonic seconds."""
        clock, interval_ms = self._parts.clock, self._config.transaction_op_batch_interval
        due_ms = min((queue.batch.due_ms(interval_ms) for queue in self._queues.values()), default=float("inf"))
        left_seconds = (due_ms - clock.wall_ms()) / 1000
        if left_seconds <= 0:  # it could not be written just now
            left_seconds = RETRY_SECONDS
        return clock.monotonic() + min(left_seconds, interval_ms / 1000)

    # --- beginning ---------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """Read what is undone: the op messages that are still needed, then the half messages."""
        row = self._parts.topics.rows.get(names.HALF_TOPIC)
        queues, found = {}, Counter[str]()
        for number in range(row.read_queue_nums if row is not None else 1):
            op_done = self._progress(names.HALF_OPERATION_TOPIC, number)
            ledger = HalfLedger(self._progress(names.HALF_TOPIC, number), op_done)
            queues[number] = HalfQueue(number, ledger)
            await self._learn_ops(ledger, number, op_done)
        await self._learn_halves(queues, found)
        self._queues = queues
        self.counts.recount(found)
        self.opened.set()

    def _progress(self, topic: str, number: int) -> int:
        """Return the progress in a queue, brought into what it holds."""
        store = self._parts.store
        low, high = store.min_queue_offset(topic, number), store.max_queue_offset(topic, number)
        known = self._parts.offsets.query(names.TRANSACTION_GROUP, topic, number)
        if known >= 0 and not low <= known <= high:
            log.warning("progress of transactions corrected", topic=topic, was=known, now=min(max(known, low), high))
        return min(max(known, low), high)

    async def _learn_ops(self, ledger: HalfLedger, number: int, at: int) -> None:
        while True:
            records, following = self._read(names.HALF_OPERATION_TOPIC, number, at)
            if not records and following <= at:
                return
            for record in records:
                ledger.op_message(record.queue_offset, decided_of(record))
            at = following
            await trio.lowlevel.checkpoint()

    async def _learn_halves(self, queues: dict[int, HalfQueue], found: Counter[str]) -> None:
        """Find the copies of each half message, of which at most the newest is open, and count what is open."""
        seen: dict[tuple[int, HalfIdentity], Half] = {}
        at = {number: queue.ledger.done for number, queue in queues.items()}
        while True:
            count = 0
            for number, queue in queues.items():
                records, at[number] = self._read(names.HALF_TOPIC, number, at[number])
                count += len(records)
                for half in filter(None, map(Half.of, records)):
                    before = None
                    if half.identity is not None:
                        before = seen.get((number, half.identity))
                        seen[number, half.identity] = half
                    was_open, is_open = self._enter(queue.ledger, half, before)
                    found[half.topic] += is_open - was_open
            if not count:
                break  # in the same turn as the end of the queues was seen: no send was overlooked
            await trio.lowlevel.checkpoint()
        for number, queue in queues.items():
            queue.inherited = at[number]

    def _enter(self, ledger: HalfLedger, half: Half, before: Half | None) -> tuple[bool, bool]:
        """Enter a half message that was found; return whether its copy *before* was open, and whether it is itself."""
        was_open = before is not None and not ledger.is_decided(before.offset)
        if before is not None and not was_open:
            ledger.decide(half.offset)  # what was decided about one copy was decided about all
        is_open = not ledger.is_decided(half.offset)
        if before is not None and was_open:
            ledger.renew(before, half.offset)
        elif half.was_renewed:
            ledger.copied(half, half.offset)
        return was_open, is_open

    def _read(self, topic: str, number: int, at: int, most: int = BATCH) -> tuple[list[Record], int]:
        """Return messages of a queue from offset *at* on, and where those that follow begin."""
        found = self._parts.store.get(topic, number, at, most, BATCH_BYTES)
        if found.status is not GetStatus.FOUND:
            return [], max(found.next_begin_offset, at)
        try:
            records = [record for part in found.parts for record in decode_records(part)]
        except RecordError as error:
            if most > 1:
                return self._read(topic, number, at, 1)
            log.error("damaged message of a transaction skipped", topic=topic, queue=number, offset=at, error=error)
            return [], at + 1
        return records, records[-1].queue_offset + 1

    # --- decisions ---------------------------------------------------------------------------------------------

    def count_of(self, topic: str) -> Count:
        """Return what counts a half message of *topic* that is stored in this turn of the event loop."""
        stored = self._parts.stats.topic(names.HALF_TOPIC).add
        if not self.opened.is_set():  # it is counted when the queues are learnt
            return stored

        def count(queue_id: int, messages: int, size_bytes: int) -> None:
            stored(0, messages, size_bytes)
            self.counts.add(topic, messages)

        return count

    def decide(self, decision: Decision, *, at_once: bool) -> int | Refusal:
        """Carry a producer's decision out; call it while :attr:`opened` is set.

        The first decision about a half message counts; one that comes later is answered as if it did.

        Args:
            decision: what came in.
            at_once: its sender waits for the answer, which must not be lost.

        Returns:
            The byte of the log before which the outcome stands, or why it does not count. *Errors*: ``PutRejected``:
            the committed message could not be stored, nothing is decided.
        """
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        half = self._half_at(decision.physical_offset, names.HALF_TOPIC)
        refused = refusal(decision, half, self._config.transaction_time_out, now_ms)
        if refused is not None or half is None:
            return refused or Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        queue = self._queues.get(half.record.queue_id)
        if queue is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if len(queue.batch.offsets) >= UNWRITTEN_MOST:
            return Refusal(ResponseCode.SYSTEM_BUSY, "no op message can be written; see the log of the broker")
        renewed = queue.ledger.newest(half.identity)
        newest = half.offset if renewed is None else renewed
        commits = decision.choice is Choice.COMMIT
        if queue.ledger.is_decided(newest):
            if commits and newest < queue.ledger.done and self._may_be_late(half, now_ms):
                self._commit(half, now_ms)
                log.info("committed after it was given up", topic=half.topic, half=half.offset)
            return parts.store.max_physical_offset
        if not (newest < queue.inherited and was_committed(parts.store, half, now_ms)):
            if commits:
                self._commit(half, now_ms)
            else:
                self.counts.rollbacks[half.topic] += 1
        self._close(queue, newest, half, now_ms)
        if at_once and not commits:  # a rollback leaves nothing else in the log
            self._write_ops(queue)
        return parts.store.max_physical_offset

    def resume(self, physical_offset: int) -> Refusal | None:
        """Have a half message that was given up checked again; call it while :attr:`opened` is set.

        Args:
            physical_offset: where it begins in the log, in the topic of those that were given up.

        Returns:
            Why it cannot be. *Errors*: ``PutRejected``: it could not be stored.
        """
        half, queue = self._half_at(physical_offset, names.CHECK_TIMES_TOPIC), self._queues.get(0)
        if half is None or queue is None:
            remark = f"no message of {names.CHECK_TIMES_TOPIC} begins at byte {physical_offset} of the log"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if queue.ledger.newest(half.identity) is not None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "it is being checked already")
        if was_committed(self._parts.store, half, self._parts.clock.wall_ms()):
            return Refusal(ResponseCode.SYSTEM_ERROR, "it was committed")
        put = self._append(half.resumed())
        queue.ledger.copied(half, put.queue_offset)
        self.counts.add(half.topic)
        log.info("half message is checked again", topic=half.topic, half=put.queue_offset)
        return None

    def _half_at(self, physical_offset: int, topic: str) -> Half | None:
        """Return the half message that begins at byte *physical_offset* of the log and is kept in *topic*."""
        raw = self._parts.store.read(physical_offset) if physical_offset >= 0 else None
        try:
            half = None if raw is None else Half.of(decode_record(raw))
        except RecordError:
            return None  # to its producer it is no message either way
        return half if half is not None and half.record.topic == topic else None

    def _may_be_late(self, half: Half, now_ms: int) -> bool:
        """Return whether *half*, which is done, was given up only."""
        store = self._parts.store
        return was_given_up(store, half, now_ms) and not was_committed(store, half, now_ms)

    def _commit(self, half: Half, now_ms: int) -> None:
        """Give *half* to consumers. *Errors*: ``PutRejected``."""
        parts = self._parts
        message = half.committed(half.record.physical_offset, parts.delay_levels)
        try:
            message = keep_if_asked(message, now_ms, parts.timer_door)
        except TimerRefusedError as error:
            status = PutStatus.WHEEL_TIMER_MSG_ILLEGAL if error.illegal else PutStatus.WHEEL_TIMER_FLOW_CONTROL
            raise PutRejected(status, str(error)) from None
        put = append(parts.store, message)
        parts.stats.topic(half.topic).add(half.queue_id, 1, put.size_bytes)
        self.counts.commits[half.topic] += 1
        seconds = max(now_ms - half.record.born_ms, 0) // 1000
        self.counts.latency.observe(seconds, (("topic", half.topic),))

    def _close(self, queue: HalfQueue, offset: int, half: Half, now_ms: int) -> None:
        """Note that nothing is left to be done about *half*, whose newest copy stands at *offset*."""
        queue.ledger.decide(offset)
        self.counts.add(half.topic, -1)
        if not queue.batch.offsets:
            self._wake.set()
        if queue.batch.add(offset, now_ms, self._config.transaction_op_msg_max_size):
            self._write_ops(queue)

    def _write_ops(self, queue: HalfQueue) -> None:
        if not queue.batch.offsets:
            return
        message = queue.batch.message(queue.number, self._parts.clock.wall_ms(), self._host)
        try:
            put = self._append(message)
        except PutRejected as error:
            log.error("op message not written yet", queue=queue.number, decisions=len(queue.batch.offsets), why=error)
            return
        queue.ledger.op_message(put.queue_offset, queue.batch.offsets)
        queue.batch.clear()

    def _append(self, message: InnerMessage) -> Appended:
        put = append(self._parts.store, message)
        self._parts.stats.topic(message.topic).add(message.queue_id, 1, put.size_bytes)
        return put

    # --- checks ------------------------------------------------------------------------------------------------

    async def _check_all(self) -> None:
        """Look at every half queue; what goes wrong with one is tried again at the next look."""
        for queue in self._queues.values():
            try:
                await self._check(queue)
            except PutRejected as error:
                log.warning("half messages not checked to the end", queue=queue.number, why=error)
            except Exception as error:  # nothing of one queue may end the service of the others
                log.error("half messages not checked to the end", exc=error, queue=queue.number, error=error)

    async def _check(self, queue: HalfQueue) -> None:
        """Do what is due in *queue*, and move its progress once all of it is safe."""
        clock, ledger = self._parts.clock, queue.ledger
        end = self._parts.store.max_queue_offset(names.HALF_TOPIC, queue.number)
        ends_at = clock.monotonic() + ROUND_SECONDS
        at, waits = ledger.done, False
        try:
            while not waits and clock.monotonic() < ends_at and self._parts.may_store():
                while ledger.is_decided(at):
                    at += 1
                records, following = self._read(names.HALF_TOPIC, queue.number, at)
                if not records and following <= at:
                    break
                for record in records:
                    at = record.queue_offset
                    if not ledger.is_decided(at) and not self._look(queue, record, end):
                        waits = True
                        break
                else:
                    at = following
                await trio.lowlevel.checkpoint()
        finally:
            self._write_ops(queue)
        if at > ledger.done and not queue.batch.offsets:
            log_end = self._parts.store.max_physical_offset
            await self._parts.own_log.until_safe(log_end, log_end)
            ledger.advance(at)
        self._move(names.HALF_TOPIC, queue.number, ledger.done)
        self._move(names.HALF_OPERATION_TOPIC, queue.number, ledger.op_done)

    def _move(self, topic: str, number: int, offset: int) -> None:
        if self._parts.offsets.query(names.TRANSACTION_GROUP, topic, number) != offset:
            self._parts.offsets.commit(names.TRANSACTION_GROUP, topic, number, offset)

    def _look(self, queue: HalfQueue, record: Record, end: int) -> bool:
        """Do what is due about an undecided half message; return whether the next one may be looked at."""
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        half = Half.of(record)
        if half is None:
            log.error("no half message, skipped", queue=queue.number, offset=record.queue_offset)
            queue.ledger.decide(record.queue_offset)
            return True
        keys = parts.options.store
        rules = CheckRules(
            self._config.transaction_time_out, self._config.transaction_check_max, keys.file_reserved_time * _HOUR_MS
        )
        found = verdict(half, rules, end, now_ms)
        if found is Verdict.WAIT:
            return False
        if half.offset < queue.inherited and was_committed(parts.store, half, now_ms):
            self._close(queue, half.offset, half, now_ms)
        elif found is Verdict.CHECK:
            checked = half.checked(half.checks + 1)
            put = self._append(checked.renewed())
            queue.ledger.renew(half, put.queue_offset)
            self._ask(checked, put)
        elif found is Verdict.POSTPONE:
            queue.ledger.renew(half, self._append(half.postponed()).queue_offset)
        else:
            parts.topics.ensure(names.CHECK_TIMES_TOPIC, 1, _PERM)
            self._append(half.given_up())
            queue.ledger.decide(half.offset)
            self.counts.add(half.topic, -1)
            log.error("half message given up", topic=half.topic, half=half.offset, group=half.group, why=found.value)
        return True

    def _ask(self, half: Half, put: Appended) -> None:
        """Ask a live producer of the group of *half*, whose newest copy was put there."""
        connections = self._parts.producers.in_turn(half.group or "")
        connection = next((each for each in connections if each.alive and not each.choked), None)
        if connection is None:
            log.warning("no producer to ask about a half message", group=half.group, topic=half.topic)
            return
        header, body = half.check(put, self._host, self._parts.identity.name)
        connection.notify(request(RequestCode.CHECK_TRANSACTION_STATE, header, body))
