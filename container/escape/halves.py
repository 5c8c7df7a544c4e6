"""The half messages of a slave that acts: what is due goes to a master that lives, with its decision when there is one.

The slave may not write, so it can neither ask producers nor keep decisions. It takes each half message whose check is
due, in order, to a master of another group as a half message of the same identity, and that master asks. A producer
that decides at the slave has its half message taken there at once, and the decision carried out there.

* Progress is the consumer offset of the half topic, which a returning master takes over. It passes a half message only
  when the other master has it, and is in its file before the next one leaves. So what escaped is done for the own
  group, and what did not is still open there. What only a slave knew that died comes again if another one takes over.
* The other master takes one copy once (:func:`~understudy.broker.transactions.evidence.taken_before`): a put whose
  answer was lost, or whose progress was not saved, is repeated without harm while the same master is chosen.
* Whether the slave still acts is asked right before anything leaves it: after a pause it puts nothing more.
* What is under way when it stops acting gets a moment to end. Its master reads the progress after that.

Source: TransactionalMessageServiceImpl.java (check), EscapeBridge.java.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.deferred_service import GRACE_SECONDS
from understudy.broker.transactions.checking import Verdict, rules_of, verdict
from understudy.broker.transactions.evidence import is_left, was_committed
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.judgement import OUTCOME_UNKNOWN, Choice, Decision, Refusal, refusal
from understudy.broker.transactions.ledger import Outcome
from understudy.broker.transactions.reading import HalfQueue, HalfReader, half_at
from understudy.container.escape.bridge import Bridge
from understudy.container.escape.neighbour import Neighbour, Prepared
from understudy.container.lost_bytes import may_come
from understudy.format import names
from understudy.format.record import Record
from understudy.remoting.codes import ResponseCode
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("container.escape.halves")

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
"""Pause before a half message that no master takes is tried again; it doubles up to the second one."""
LOOK_SECONDS = 1.0
"""Longest time until one that has become due is seen."""
PLACES_MOST = 10_000
"""Escaped half messages about which a decision can still be passed on; the others are decided where they are."""
DECISIONS_MOST = 10_000
"""Decisions that may wait; more are refused, and asked for later."""


@attrs.define(eq=False)
class _Asked:
    """A decision that waits for its turn."""

    decision: Decision
    done: trio.Event = attrs.Factory(trio.Event)
    refused: Refusal | None = None


class HalfEscapes:
    """The half messages of one slave while it acts.

    Args:
        broker: the slave.
        bridge: knows the masters that live.
        may: returns whether the slave acts now, and was not away.
    """

    def __init__(self, broker: Broker, bridge: Bridge, may: Callable[[], bool]) -> None:
        self._broker = broker
        self._bridge = bridge
        self._may = may
        self._clock = broker.world.clock
        self._reader = HalfReader(broker.store, broker.offsets, broker.topics)
        self._queues: dict[int, HalfQueue] = {}
        self._places: OrderedDict[tuple[int, int], tuple[Neighbour, Prepared]] = OrderedDict()
        self._asked: list[_Asked] = []
        self._wake = Signal()

    async def run(self) -> None:
        """Take out what is due until cancelled; decisions that wait then are refused."""
        try:
            self._queues, _ = await self._reader.learn()
            pause, handled = PAUSE_SECONDS, self._wake.count
            while True:
                asked, self._asked = self._asked, []
                try:
                    for each in asked:
                        each.refused = await self._end_safely(each.decision)
                        each.done.set()
                        await trio.lowlevel.checkpoint()
                finally:
                    _refuse(asked)
                taken = all([await self._take_due(queue) for queue in self._queues.values()])
                pause = PAUSE_SECONDS if taken else min(pause * 2, LONGEST_PAUSE_SECONDS)
                with self._clock.move_on_after(LOOK_SECONDS if taken else pause):
                    handled = await self._wake.wait(handled)
        finally:
            _refuse(self._asked)
            self._asked, self._queues = [], {}

    async def decide(self, decision: Decision) -> Refusal | None:
        """Have a producer's decision carried out by the master that has, or gets, its half message."""
        if len(self._asked) >= DECISIONS_MOST:
            return Refusal(ResponseCode.SYSTEM_BUSY, "too many decisions wait for other masters; the check asks again")
        asked = _Asked(decision)
        self._asked.append(asked)
        self._wake.set()
        await asked.done.wait()
        return asked.refused

    async def _end_safely(self, decision: Decision) -> Refusal | None:
        try:
            return await self._end(decision)
        except Exception as error:  # nothing of one decision may end the service
            log.error("decision not carried out", exc=error, half=decision.offset, error=error)
            return _NOT_NOW

    async def _end(self, decision: Decision) -> Refusal | None:
        broker, now_ms = self._broker, self._clock.wall_ms()
        half = half_at(broker.store, decision.physical_offset, names.HALF_TOPIC)
        refused = refusal(decision, half, broker.options.broker.transaction_time_out, now_ms)
        queue = None if half is None else self._queues.get(half.record.queue_id)
        if refused is not None or half is None or queue is None:
            return refused or _NOT_NOW
        renewed = queue.ledger.newest(half.identity)
        newest = half.offset if renewed is None else renewed
        is_decided = queue.ledger.has_decided(half.record) if renewed is None else queue.ledger.is_decided(newest)
        if not is_decided and not await self._take(queue, newest + 1):
            return _NOT_NOW
        place = self._places.get((queue.number, newest))
        if place is None:
            return self._not_committed(queue, newest, half) if decision.choice is Choice.COMMIT else None
        neighbour, prepared = place
        return None if await self._pass_on(neighbour, half, prepared, decision.choice) else _NOT_NOW

    def _not_committed(self, queue: HalfQueue, newest: int, half: Half) -> Refusal | None:
        """Return why a commit does not count of which nothing is left to be done here.

        There is no reason when the half message was decided before the slave acted, or is asked about where it is. Only
        its master may commit what it gave up: it would not know of the message that another one delivers.
        """
        if queue.ledger.outcome(newest) is Outcome.DECIDED:
            return None
        left = is_left(self._broker.store, half, indexed=self._broker.options.store.message_index_enable)
        if left is None:
            return OUTCOME_UNKNOWN
        return _GIVEN_UP if left else None

    async def _take_due(self, queue: HalfQueue) -> bool:
        """Take out everything of *queue* whose time has come; return whether all of it is taken."""
        try:
            return await self._take(queue, 0)
        except Exception as error:  # nothing of one queue may end the service
            log.error("half messages not taken to another master yet", exc=error, queue=queue.number, error=error)
            return False

    async def _take(self, queue: HalfQueue, at_once: int) -> bool:
        """Take the half messages of *queue* out, in order: those before offset *at_once*, and what is due behind them.

        Returns:
            Whether nothing that was to be taken is left.
        """
        ledger = queue.ledger
        while self._may():
            while ledger.is_decided(ledger.done) and ledger.done < queue.inherited:
                ledger.advance(ledger.done + 1)
            records, following = self._reader.read(names.HALF_TOPIC, queue.number, ledger.done)
            self._reader.move(queue)
            if may_come(self._broker):
                return False  # the master has what was found to be damaged
            if not records:
                if following <= ledger.done:
                    return True
                ledger.advance(following)
            for record in records:
                ledger.advance(record.queue_offset)
                taken = ledger.has_decided(record) or await self._look(queue, record, at_once)
                if not taken:
                    return taken is None
                ledger.advance(record.queue_offset + 1)
                await self._record(queue)
            await trio.lowlevel.checkpoint()
        return False

    async def _record(self, queue: HalfQueue) -> None:
        """Have the progress of *queue* in its file before anything more leaves. Raises ``OSError``."""
        self._reader.move(queue)
        with trio.CancelScope(shield=True):
            await self._broker.persistence.save(self._broker.tables.offsets.name)

    async def _look(self, queue: HalfQueue, record: Record, at_once: int) -> bool | None:
        """Return whether the half message *record* is done now; ``None`` when its time has not come."""
        broker, now_ms = self._broker, self._clock.wall_ms()
        half = Half.of(record)
        if half is None:
            log.error("no half message, skipped", queue=queue.number, offset=record.queue_offset)
            return True
        if was_committed(broker.store, half):
            return True
        rules = rules_of(broker.options.broker, broker.options.store)
        due = verdict(half, rules, half.offset + 1, now_ms) is not Verdict.WAIT
        if not due and half.offset >= at_once:
            return None
        found = await self._prepare(half)
        if found is None:
            return False
        self._places[queue.number, half.offset] = found
        if len(self._places) > PLACES_MOST:
            self._places.popitem(last=False)
        return True

    async def _prepare(self, half: Half) -> tuple[Neighbour, Prepared] | None:
        """Put *half* to a master that lives; ``None`` when none took it."""
        with self._clock.move_on_after(GRACE_SECONDS) as scope:
            scope.shield = True
            return await self._bridge.prepare(half.escaped(self._broker.identity.name), self._may)
        return None

    async def _pass_on(self, neighbour: Neighbour, half: Half, prepared: Prepared, choice: Choice) -> bool:
        """Have a decision carried out where *half* is now; return whether that is certain."""
        with self._clock.move_on_after(GRACE_SECONDS) as scope:
            scope.shield = True
            return self._may() and await neighbour.decide(half, prepared, choice)
        return False


_NOT_NOW = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: no other master takes it; the check asks again"
)

_GIVEN_UP = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now: it was given up, and only its master can commit it; decide again when that is back",
)


def _refuse(asked: list[_Asked]) -> None:
    for each in asked:
        if not each.done.is_set():
            each.refused = _NOT_NOW
            each.done.set()
