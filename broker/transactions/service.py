"""The transactions of one broker while it is a master: takes decisions, writes op messages, checks what is undecided.

The decisions are pure (see the package); this shell reads the queues, appends what follows and keeps the progress: the
consumer offsets of ``CID_RMQ_SYS_TRANS`` in the half topic and the op topic, which slaves copy as those of any group.

Source: TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java, TransactionalOpBatchService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from understudy.broker.transactions.checking import Verdict, rules_of, verdict
from understudy.broker.transactions.counts import TransactionCounts
from understudy.broker.transactions.evidence import taken_before, was_committed, was_given_up
from understudy.broker.transactions.half import ESCAPED_FROM, UNIQUE, Half, to_half
from understudy.broker.transactions.judgement import Choice, Decision, Refusal, refusal
from understudy.broker.transactions.reading import HalfQueue, HalfReader, half_at
from understudy.format import names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import Record
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.connection import Connection
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected, PutStatus

log = get_logger("broker.transactions")

ROUND_SECONDS = 60.0
"""Longest look at one half queue (MAX_PROCESS_TIME_LIMIT in TransactionalMessageServiceImpl.java)."""
UNWRITTEN_MOST = 20_000
"""Decisions that may wait for an op message when none can be written; more are refused."""
RETRY_SECONDS = 1.0
_PERM = names.PERM_READ | names.PERM_WRITE


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
        self._reader = HalfReader(parts.store, parts.offsets, parts.topics)
        self._queues: dict[int, HalfQueue] = {}
        self._wake = Signal()
        self.counts = TransactionCounts(parts.clock.wall_ms)
        self.opened = trio.Event()

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn the queues, then write op messages and check, until cancelled; what is decided by then is written."""
        clock, began, handled = self._parts.clock, self._parts.clock.monotonic(), self._wake.count
        queues, found = await self._reader.learn()
        self._queues = queues
        self.counts.recount(found)
        self.opened.set()
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

    def taken_before(self, pairs: Mapping[str, str], born_ms: int) -> Appended | None:
        """Return where a half message stands that a slave of another group brought before; ``None`` when it is new.

        Args:
            pairs: properties of the message that comes in.
            born_ms: its birth.
        """
        origin = pairs.get(ESCAPED_FROM)
        if origin is None:
            return None
        now_ms = self._parts.clock.wall_ms()
        return taken_before(self._parts.store, (pairs.get(UNIQUE, ""), born_ms), origin, now_ms)

    def take(self, message: InnerMessage) -> Appended:
        """Store a half message that a slave of another group brings, once; return where it stands.

        Raises ``PutRejected``.
        """
        pairs = parse_properties(message.properties)
        known = self.taken_before(pairs, message.born_ms)
        if known is not None:
            return known
        topic, queue_id, sys_flag = to_half(message.topic, message.queue_id, pairs, message.sys_flag)
        properties = format_properties(pairs).encode()
        half = attrs.evolve(message, topic=topic, queue_id=queue_id, sys_flag=sys_flag, properties=properties)
        put = append(self._parts.store, half)
        self.count_of(message.topic)(queue_id, 1, put.size_bytes)
        return put

    def decide(self, decision: Decision, *, at_once: bool) -> int | Refusal:
        """Carry a producer's decision out; call it while :attr:`opened` is set.

        The first decision about a half message counts; one that comes later is answered as if it did.

        Args:
            decision: what came in.
            at_once: its sender waits for the answer, which must not be lost.

        Returns:
            The byte of the log before which the outcome stands, or why it does not count. Raises ``PutRejected``:
            the committed message could not be stored, nothing is decided.
        """
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        half = half_at(self._parts.store, decision.physical_offset, names.HALF_TOPIC)
        refused = refusal(decision, half, self._config.transaction_time_out, now_ms)
        if refused is not None or half is None:
            return refused or Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        queue = self._queues.get(half.record.queue_id)
        if queue is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if len(queue.batch.offsets) >= UNWRITTEN_MOST:
            return Refusal(ResponseCode.SYSTEM_BUSY, "no op message can be written; see the log of the broker")
        self._reader.catch_up(queue)
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

    async def undecided(self, most: int, group: str | None = None) -> list[Half]:
        """Return what nobody has decided; see :meth:`~understudy.broker.transactions.reading.HalfReader.undecided`."""
        return await self._reader.undecided((await self._known()).values(), most, group)

    async def undecided_at(self, places: Sequence[tuple[int, int]]) -> list[Half]:
        """Return what nobody has decided of what stands at *places*: half queue and offset in it."""
        return await self._reader.undecided_at(await self._known(), places)

    async def _known(self) -> dict[int, HalfQueue]:
        return self._queues if self.opened.is_set() else (await self._reader.learn())[0]

    def resume(self, physical_offset: int) -> Refusal | None:
        """Have a half message that was given up checked again; call it while :attr:`opened` is set.

        Args:
            physical_offset: where it begins in the log, in the topic of those that were given up.

        Returns:
            Why it cannot be. Raises ``PutRejected``: it could not be stored.
        """
        half, queue = half_at(self._parts.store, physical_offset, names.CHECK_TIMES_TOPIC), self._queues.get(0)
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

    def _may_be_late(self, half: Half, now_ms: int) -> bool:
        """Return whether *half*, which is done, was given up only."""
        store = self._parts.store
        return was_given_up(store, half, now_ms) and not was_committed(store, half, now_ms)

    def _commit(self, half: Half, now_ms: int) -> None:
        """Give *half* to consumers. Raises ``PutRejected``."""
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
        self._reader.catch_up(queue)
        end = self._parts.store.max_queue_offset(names.HALF_TOPIC, queue.number)
        ends_at = clock.monotonic() + ROUND_SECONDS
        at, waits = ledger.done, False
        try:
            while not waits and clock.monotonic() < ends_at and self._parts.may_store():
                while ledger.is_decided(at):
                    at += 1
                records, following = self._reader.read(names.HALF_TOPIC, queue.number, at)
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
            if await self._parts.own_log.until_safe(log_end, log_end):
                ledger.advance(at)
        self._reader.move(queue)

    def _look(self, queue: HalfQueue, record: Record, end: int) -> bool:
        """Do what is due about an undecided half message; return whether the next one may be looked at."""
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        half = Half.of(record)
        if half is None:
            log.error("no half message, skipped", queue=queue.number, offset=record.queue_offset)
            queue.ledger.decide(record.queue_offset)
            return True
        rules = rules_of(self._config, parts.options.store)
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
