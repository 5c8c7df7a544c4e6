"""A broker of this process as a neighbour of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.inner import InnerMessage, keep_if_asked
from understudy.broker.redelivery import OwnLog
from understudy.broker.timer.request import Door, TimerRefusedError
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.judgement import Choice, Decision, Refusal
from understudy.broker.transactions.service import Transactions
from understudy.container.escape.neighbour import Found, Prepared, first_record
from understudy.format import names
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("container.escape.local")

_READ_BYTES = 8 << 20


@attrs.frozen
class LocalNeighbour:
    """The parts of one broker that its neighbours may use.

    Attributes:
        broker_name: the name of its group.
        takes: returns whether it is a master that name servers know.
        topics: its topics.
        store: its messages.
        log: puts messages into them.
        transactions: its half messages.
        timer_door: lets timer messages in.
        now_ms: its wall time.
    """

    broker_name: str
    takes: Callable[[], bool]
    topics: TopicTable
    store: MessageStore
    log: OwnLog
    transactions: Transactions
    timer_door: Door
    now_ms: Callable[[], int]

    async def takes_messages(self) -> bool:
        """See :class:`~understudy.container.escape.neighbour.Beside`."""
        return self.takes()

    async def write_queues(self, topic: str) -> int:
        """See :class:`~understudy.container.escape.neighbour.Beside`."""
        row = self.topics.rows.get(topic)
        return row.write_queue_nums if row is not None and row.perm & names.PERM_WRITE else 0

    async def learn(self, row: TopicConfig) -> bool:
        """See :class:`~understudy.container.escape.neighbour.Beside`."""
        queues = max(row.write_queue_nums, 1)
        return self.topics.ensure(row.name, queues, sys_flag=row.sys_flag, order=row.order) is not None

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        if not may():
            return [PutStatus.SERVICE_NOT_AVAILABLE] * len(messages)
        now_ms = self.now_ms()
        kept: dict[int, InnerMessage] = {}
        statuses = [PutStatus.PUT_OK] * len(messages)
        for number, message in enumerate(messages):
            try:
                kept[number] = keep_if_asked(message, now_ms, self.timer_door)
            except TimerRefusedError as error:
                log.debug("a timer message must rest elsewhere", topic=message.topic, why=error)
                statuses[number] = error.status
        for number, status in zip(kept, await self.log.put(list(kept.values()), may), strict=True):
            statuses[number] = status
        return statuses

    async def read(self, topic: str, queue_id: int, offset: int) -> Found:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        found = self.store.get(topic, queue_id, offset, 1, _READ_BYTES)
        return first_record(found.parts, "getMessageResult is null", lacks=offset >= found.min_offset)

    async def prepare(self, half: InnerMessage, may: Callable[[], bool]) -> Prepared | None:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        if not (may() and self.takes() and self.transactions.opened.is_set()):
            return None
        try:
            put = self.transactions.take(half)
        except PutRejected as error:
            log.warning("half message refused", topic=half.topic, why=error)
            return None
        end = put.physical_offset + put.size_bytes
        await self.log.until_safe(end, end)
        return Prepared(put.queue_offset, put.physical_offset)

    async def decide(self, half: Half, prepared: Prepared, choice: Choice) -> bool:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        if not (self.takes() and self.transactions.opened.is_set()):
            return False
        decision = Decision(choice, half.group or "", prepared.queue_offset, prepared.physical_offset, True)
        try:
            result = self.transactions.decide(decision, at_once=True)
        except PutRejected as error:
            log.warning("decision refused", topic=half.topic, why=error)
            return False
        if isinstance(result, Refusal):
            log.warning("decision refused", topic=half.topic, why=result.remark)
            return False
        await self.log.until_safe(result, result)
        return True


def neighbour_of(broker: Broker) -> LocalNeighbour:
    """Return *broker*, which has started, as its neighbours see it."""
    return LocalNeighbour(
        broker.identity.name,
        lambda: not broker.role.is_slave and not broker.registration.isolated,
        broker.topics,
        broker.store,
        broker.own_log,
        broker.transactions,
        broker.timer.door,
        broker.world.clock.wall_ms,
    )
