"""A broker of this process as a neighbour of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.inner import InnerMessage, keep_if_asked
from understudy.broker.redelivery import OwnLog
from understudy.broker.timer.request import Door, TimerRefusedError
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.container.escape.neighbour import Found, first_record
from understudy.format import names
from understudy.store.message_store import MessageStore
from understudy.store.status import PutStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

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
        timer_door: lets timer messages in.
        now_ms: its wall time.
    """

    broker_name: str
    takes: Callable[[], bool]
    topics: TopicTable
    store: MessageStore
    log: OwnLog
    timer_door: Door
    now_ms: Callable[[], int]

    @property
    def takes_messages(self) -> bool:
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

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        now_ms = self.now_ms()
        try:
            kept = [keep_if_asked(each, now_ms, self.timer_door) for each in messages]
        except TimerRefusedError:
            return [PutStatus.WHEEL_TIMER_FLOW_CONTROL] * len(messages)
        return await self.log.put(kept)

    async def read(self, topic: str, queue_id: int, offset: int) -> Found:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        return first_record(self.store.get(topic, queue_id, offset, 1, _READ_BYTES).parts, "getMessageResult is null")


def neighbour_of(broker: Broker) -> LocalNeighbour:
    """Return *broker*, which has started, as its neighbours see it."""
    return LocalNeighbour(
        broker.identity.name,
        lambda: not broker.role.is_slave and not broker.registration.isolated,
        broker.topics,
        broker.store,
        broker.own_log,
        broker.timer.door,
        broker.world.clock.wall_ms,
    )
