"""Looks after half messages that nobody has decided: asks their producers, and gives up those asked too often.

What is to be done about one is pure (:mod:`~understudy.broker.transactions.checking`).

Source: TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from understudy.broker.clients import ProducerTable
from understudy.broker.node import Node
from understudy.broker.redelivery import OwnLog
from understudy.broker.topics import TopicTable
from understudy.broker.transactions.checking import Verdict, rules_of, verdict
from understudy.broker.transactions.evidence import was_committed
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.log import HalfLog
from understudy.broker.transactions.reading import HalfQueue
from understudy.format import names
from understudy.format.record import Record
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.connection import Connection
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected

log = get_logger("broker.transactions")

ROUND_SECONDS = 60.0
"""Longest look at one half queue (MAX_PROCESS_TIME_LIMIT in TransactionalMessageServiceImpl.java)."""
_TURN = 4096
"""Half messages whose progress moves in one turn of the event loop."""
_PERM = names.PERM_READ | names.PERM_WRITE


@attrs.frozen
class CheckParts:
    """What of a broker is needed to check half messages.

    Attributes:
        node: who it is, its settings and its world.
        store: the messages.
        own_log: says when what was written is safe.
        topics: has one for those that are given up.
        producers: who is asked.
        may_store: returns whether what is decided now belongs into the own log.
    """

    node: Node
    store: MessageStore
    own_log: OwnLog
    topics: TopicTable
    producers: ProducerTable[Connection]
    may_store: Callable[[], bool]


class HalfChecks:
    """The checks of one broker.

    Args:
        parts: of the broker.
        halves: what is checked.
    """

    def __init__(self, parts: CheckParts, halves: HalfLog) -> None:
        self._parts = parts
        self._node = parts.node
        self._config = parts.node.options.broker
        self._halves = halves

    async def check_all(self) -> None:
        """Look at every half queue; what goes wrong with one is tried again at the next look."""
        for queue in self._halves.queues.values():
            try:
                await self._check(queue)
            except PutRejected as error:
                log.warning("half messages not checked to the end", queue=queue.number, why=error)
            except Exception as error:  # nothing of one queue may end the service of the others
                log.error("half messages not checked to the end", exc=error, queue=queue.number, error=error)

    async def _check(self, queue: HalfQueue) -> None:
        """Do what is due in *queue*, and move its progress once all of it is safe."""
        try:
            await self._advance(queue, await self._look_at_all(queue))
        finally:
            queue.reached = 0

    async def _look_at_all(self, queue: HalfQueue) -> int:
        """Do what is due in *queue*; return the queue offset before which all of it was done."""
        clock, ledger = self._node.world.clock, queue.ledger
        self._halves.reader.catch_up(queue)
        end = self._parts.store.max_queue_offset(names.HALF_TOPIC, queue.number)
        ends_at = clock.monotonic() + ROUND_SECONDS
        at, waits = ledger.done, False
        try:
            while not waits and clock.monotonic() < ends_at and self._parts.may_store():
                while ledger.is_decided(at):
                    at += 1
                records, following = self._halves.reader.read(names.HALF_TOPIC, queue.number, at)
                if self._parts.store.holes.behind or (not records and following <= at):
                    break  # damage that was found just now is passed by the next look, if it is there still
                for record in records:
                    at = record.queue_offset
                    if not ledger.has_decided(record) and not self._look(queue, record, end):
                        waits = True
                        break
                else:
                    at = following
                queue.reached = at
                await trio.lowlevel.checkpoint()
        finally:
            self._halves.write_ops(queue)
        return at

    async def settle_all(self) -> None:
        """Move the progress of every half queue past what is decided, once that is safe.

        Who takes over, or starts again, learns what lies behind it: with checks alone that are half a minute's halves.
        """
        for queue in self._halves.queues.values():
            self._halves.write_ops(queue)
            at = queue.ledger.done
            while queue.ledger.is_decided(at):
                at += 1
                if not at % _TURN:
                    await trio.lowlevel.checkpoint()
            await self._advance(queue, at)

    async def _advance(self, queue: HalfQueue, at: int) -> None:
        """Move the progress of *queue* to *at*, before which everything is done, once that is safe."""
        ledger = queue.ledger
        if at > ledger.done and not queue.batch.offsets:
            log_end = self._parts.store.max_physical_offset
            if await self._parts.own_log.until_safe(log_end, log_end):
                while ledger.done < at:
                    ledger.advance(min(ledger.done + _TURN, at))
                    await trio.lowlevel.checkpoint()
        self._halves.reader.move(queue)

    def _look(self, queue: HalfQueue, record: Record, end: int) -> bool:
        """Do what is due about an undecided half message; return whether the next one may be looked at."""
        parts, now_ms = self._parts, self._node.world.clock.wall_ms()
        half = Half.of(record)
        if half is None:
            log.error("no half message, skipped", queue=queue.number, offset=record.queue_offset)
            queue.ledger.decide(record.queue_offset)
            return True
        rules = rules_of(self._config, self._node.options.store)
        found = verdict(half, rules, end, now_ms)
        if found is Verdict.WAIT:
            return False
        if half.offset < queue.inherited and was_committed(parts.store, half):
            self._halves.note_decided(queue, half.offset, half)
        elif found is Verdict.CHECK:
            checked = half.checked(half.checks + 1)
            put = self._halves.append(checked.renewed())
            queue.ledger.renew(half, put.queue_offset)
            self._ask(checked, put)
        elif found is Verdict.POSTPONE:
            queue.ledger.renew(half, self._halves.append(half.postponed()).queue_offset)
        else:
            parts.topics.ensure(names.CHECK_TIMES_TOPIC, 1, _PERM)
            self._halves.append(half.given_up())
            queue.ledger.give_up(half.offset)
            self._halves.counts.add(half.topic, -1)
            log.error("half message given up", topic=half.topic, half=half.offset, group=half.group, why=found.value)
        return True

    def _ask(self, half: Half, put: Appended) -> None:
        """Ask a live producer of the group of *half*, whose newest copy was put there."""
        connections = self._parts.producers.in_turn(half.group or "")
        connection = next((each for each in connections if each.alive and not each.choked), None)
        if connection is None:
            log.warning("no producer to ask about a half message", group=half.group, topic=half.topic)
            return
        header, body = half.check(put, self._halves.host, self._node.identity.name)
        connection.notify(request(RequestCode.CHECK_TRANSACTION_STATE, header, body))
