"""The transactions of one broker while it is a master: takes half messages and decisions, and runs what follows.

The decisions are pure (see the package); this shell reads the queues, appends what follows and keeps the progress: the
consumer offsets of ``CID_RMQ_SYS_TRANS`` in the half topic and the op topic, which slaves copy as those of any group.

Source: TransactionalMessageServiceImpl.java, TransactionalOpBatchService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from understudy.broker.delay_rules import DelayRules
from understudy.broker.inner import InnerMessage, append, keep_if_asked
from understudy.broker.node import Node
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.timer.request import TimerRefusedError
from understudy.broker.topic_counters import TRANSACTION
from understudy.broker.transactions.checks import HalfChecks
from understudy.broker.transactions.evidence import is_left, taken_before, was_committed
from understudy.broker.transactions.half import ESCAPED_FROM, UNIQUE, Half, to_half
from understudy.broker.transactions.judgement import NOT_FOUND, OUTCOME_UNKNOWN, Choice, Decision, Refusal, refusal
from understudy.broker.transactions.ledger import Outcome
from understudy.broker.transactions.log import HalfLog
from understudy.broker.transactions.lost import LostHalves
from understudy.broker.transactions.reading import HalfQueue, half_at
from understudy.format import names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import Record
from understudy.remoting.codes import ResponseCode
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected

log = get_logger("broker.transactions")

UNWRITTEN_MOST = 20_000
"""Decisions that may wait for an op message when none can be written; more are refused."""
RETRY_SECONDS = 1.0


Count = Callable[[int, int, int], None]
"""Counts a send: queue id, messages, their bytes."""


@attrs.frozen
class TransactionParts:
    """What of a broker is needed for its transactions.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        stats: counts.
        delays: which committed messages wait, and where.
        halves: half messages and their op messages.
        checks: looks after those that are undecided.
    """

    node: Node
    store: MessageStore
    stats: BrokerStatistics
    delays: DelayRules
    halves: HalfLog
    checks: HalfChecks


class Transactions:
    """See the module.

    Attributes:
        counts: what is open, and what was decided.
        opened: set while the queues are known; decisions wait for it.
        lost: half messages that were missing in the log, and are back.
    """

    def __init__(self, parts: TransactionParts) -> None:
        node, halves = parts.node, parts.halves
        self._parts = parts
        self._config = node.options.broker
        self._clock = node.world.clock
        self._store = parts.store
        self._halves, self._reader = halves, halves.reader
        self.counts = halves.counts
        self.lost = LostHalves(parts.store, halves)
        self.opened = trio.Event()

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn the queues, then write op messages and check, until cancelled; what is decided by then is written."""
        clock, began, handled = self._clock, self._clock.monotonic(), self._halves.wake.count
        queues, found = await self._reader.learn()
        self._halves.queues = queues
        self.counts.recount(found)
        self.opened.set()
        settled = began
        try:
            while True:
                checks_at = began + self._config.transaction_check_interval / 1000
                due_at = min(checks_at, self._ops_due_at(), self._settle_due_at(settled))
                with clock.move_on_after(max(due_at - clock.monotonic(), 0)):
                    handled = await self._halves.wake.wait(handled)
                interval_ms = self._config.transaction_op_batch_interval
                ops_due = any(
                    each.batch.due_at(interval_ms) <= clock.monotonic() for each in self._halves.queues.values()
                )
                if ops_due or clock.monotonic() >= self._settle_due_at(settled):
                    settled = clock.monotonic()
                    await self._parts.checks.settle_all()
                if clock.monotonic() >= checks_at:
                    began = clock.monotonic()
                    await self._parts.checks.check_all()
        finally:
            self.opened = trio.Event()
            for queue in self._halves.queues.values():
                self._halves.write_ops(queue)
            self._halves.queues = {}
            self._halves.recent.clear()

    def settings_changed(self) -> None:
        """Take note that a key of the configuration may have another value."""
        self._halves.wake.set()

    def _ops_due_at(self) -> float:
        """Return when the next op message is to be written, in monotonic seconds."""
        now, interval_ms = self._clock.monotonic(), self._config.transaction_op_batch_interval
        due_at = min((queue.batch.due_at(interval_ms) for queue in self._halves.queues.values()), default=float("inf"))
        return due_at if due_at > now else now + RETRY_SECONDS  # it could not be written just now

    def _settle_due_at(self, settled: float) -> float:
        """Return when the progress of a queue is to move next, in monotonic seconds; *settled*: when it did last.

        Where op messages fill within their interval they are never due, and the progress would wait for the next check.
        """
        moves = any(queue.ledger.moves for queue in self._halves.queues.values())
        return settled + self._config.transaction_op_batch_interval / 1000 if moves else float("inf")

    # --- decisions ---------------------------------------------------------------------------------------------

    def count_of(self, topic: str) -> Count:
        """Return what counts a half message of *topic* that is stored in this turn of the event loop."""
        stored = self._parts.stats.topic(names.HALF_TOPIC).of(TRANSACTION)
        if not self.opened.is_set():  # it is counted when the queues are learnt
            return stored

        def count(queue_id: int, messages: int, size_bytes: int) -> None:
            stored(0, messages, size_bytes)
            self.counts.add(topic, messages)

        return count

    def note_stored(self, record: Record, pairs: dict[str, str]) -> None:
        """Remember a half message of a producer, which will mostly decide soon; see :class:`RecentHalves`."""
        if self.opened.is_set():
            self._halves.recent.keep(record, pairs)

    def taken_before(self, pairs: Mapping[str, str], born_ms: int) -> Appended | None:
        """Return where a half message stands that a slave of another group brought before; ``None`` when it is new.

        Args:
            pairs: properties of the message that comes in.
            born_ms: its birth.
        """
        origin = pairs.get(ESCAPED_FROM)
        if origin is None:
            return None
        return taken_before(self._store, (pairs.get(UNIQUE, ""), born_ms), origin)

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
        put = append(self._store, half)
        self.count_of(message.topic)(queue_id, 1, put.size_bytes)
        return put

    def decide(self, decision: Decision, *, at_once: bool) -> int | Refusal:
        """Carry a producer's decision out; call it while :attr:`opened` is set.

        The first decision about a half message counts; one that comes later is answered as if it did. What was given
        up is decided by the first commit that comes after all.

        Args:
            decision: what came in.
            at_once: its sender waits for the answer, which must not be lost.

        Returns:
            The byte of the log before which the outcome stands, or why it does not count. Raises ``PutRejected``:
            the committed message could not be stored, nothing is decided.
        """
        now_ms = self._clock.wall_ms()
        half = self._halves.recent.take(decision.physical_offset)
        if half is None:
            half = half_at(self._store, decision.physical_offset, names.HALF_TOPIC)
        refused = refusal(decision, half, self._config.transaction_time_out, now_ms)
        if refused is not None or half is None:
            return refused or NOT_FOUND
        queue = self._halves.queues.get(half.record.queue_id)
        if queue is None:
            return NOT_FOUND
        if len(queue.batch.offsets) >= UNWRITTEN_MOST:
            return Refusal(ResponseCode.SYSTEM_BUSY, "no op message can be written; see the log of the broker")
        self._reader.catch_up(queue)
        renewed = queue.ledger.newest(half.identity)
        newest = half.offset if renewed is None else renewed
        commits = decision.choice is Choice.COMMIT
        is_decided = queue.ledger.has_decided(half.record) if renewed is None else queue.ledger.is_decided(newest)
        if is_decided:
            refused = self._commit_late(queue, newest, half, now_ms) if commits else None
            return refused or self._store.max_physical_offset
        if not (newest < queue.inherited and was_committed(self._store, half)):
            if commits:
                self._commit(half, now_ms)
            else:
                self.counts.rollbacks[half.topic] += 1
        self._halves.note_decided(queue, newest, half)
        if at_once and not commits:  # a rollback leaves nothing else in the log
            self._halves.write_ops(queue)
        return self._store.max_physical_offset

    async def undecided(self, most: int, group: str | None = None) -> list[Half]:
        """Return what nobody has decided; see :meth:`~understudy.broker.transactions.reading.HalfReader.undecided`."""
        return await self._reader.undecided((await self._known()).values(), most, group)

    async def undecided_at(self, places: Sequence[tuple[int, int]]) -> list[Half]:
        """Return what nobody has decided of what stands at *places*: half queue and offset in it."""
        return await self._reader.undecided_at(await self._known(), places)

    async def _known(self) -> dict[int, HalfQueue]:
        return self._halves.queues if self.opened.is_set() else (await self._reader.learn())[0]

    def resume(self, physical_offset: int) -> Refusal | None:
        """Have a half message that was given up checked again; call it while :attr:`opened` is set.

        Args:
            physical_offset: where it begins in the log, in the topic of those that were given up.

        Returns:
            Why it cannot be. Raises ``PutRejected``: it could not be stored.
        """
        half, queue = half_at(self._store, physical_offset, names.CHECK_TIMES_TOPIC), self._halves.queues.get(0)
        if half is None or queue is None:
            remark = f"no message of {names.CHECK_TIMES_TOPIC} begins at byte {physical_offset} of the log"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if queue.ledger.newest(half.identity) is not None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "it is being checked already")
        if was_committed(self._store, half):
            return Refusal(ResponseCode.SYSTEM_ERROR, "it was committed")
        put = self._halves.append(half.resumed())
        queue.ledger.copied(half, put.queue_offset)
        self.counts.add(half.topic)
        log.info("half message is checked again", topic=half.topic, half=put.queue_offset)
        return None

    def _commit_late(self, queue: HalfQueue, newest: int, half: Half, now_ms: int) -> Refusal | None:
        """Commit a half message that is done, if it was given up; return why that is not known.

        Args:
            queue: it is in.
            newest: where its newest copy stands.
            half: the message.
            now_ms: wall time.
        """
        outcome = queue.ledger.outcome(newest)
        left: bool | None = outcome is Outcome.GIVEN_UP
        if outcome is Outcome.UNKNOWN:
            left = is_left(self._store, half, indexed=self._parts.node.options.store.message_index_enable)
        if left:
            self._commit(half, now_ms)
            if outcome is Outcome.GIVEN_UP:  # a start before the progress has passed it would give it up again
                self._halves.note_op(queue, newest)
            log.info("committed after it was given up", topic=half.topic, half=half.offset)
        return OUTCOME_UNKNOWN if left is None else None

    def _commit(self, half: Half, now_ms: int) -> None:
        """Give *half* to consumers. Raises ``PutRejected``."""
        parts = self._parts
        message = half.committed(half.record.physical_offset, parts.delays.levels)
        try:
            message = keep_if_asked(message, now_ms, parts.delays.timer_door)
        except TimerRefusedError as error:
            raise PutRejected(error.status, str(error)) from None
        put = append(self._store, message)
        parts.stats.topic(half.topic).of(TRANSACTION)(half.queue_id, 1, put.size_bytes)
        self.counts.commits[half.topic] += 1
        seconds = max(now_ms - half.record.born_ms, 0) // 1000
        self.counts.latency.observe(seconds, (("topic", half.topic),))
