"""Work of every kind that waits in a real broker: some for its time only, and some that is stuck."""

from __future__ import annotations

import pytest

from understudy.broker import inner, redelivery, stuck_work
from understudy.mqclient.api import message, open_producer, real_world
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.sending import SendResult
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionState, open_transaction_producer
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected, PutStatus

POISON = b"poison"
HALVES, TOPIC, READERS, PAYERS = "payments", "orders", "readers", "payers"
KEYS = {"transactionTimeOut": "1000"}
"""Of the broker: half messages are asked about early."""


def refuse_poison(patch: pytest.MonkeyPatch) -> None:
    """Have no log of this process take :data:`POISON` for a consumer, and call what is overdue stuck at once."""
    append = inner.append

    def refuse(store: MessageStore, appended: inner.InnerMessage) -> Appended:
        if appended.body == POISON and not appended.topic.startswith(("rmq_sys_", "SCHEDULE_")):
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "it is poison")
        return append(store, appended)

    patch.setattr(redelivery, "append", refuse)
    patch.setattr(stuck_work, "LATE_MS", 0)


async def pop_poison(name_servers: str, broker: str) -> None:
    """Leave a popped message behind that cannot come back."""
    async with open_producer(real_world(), name_servers, "writers") as producer:
        await producer.send(message(TOPIC, POISON))
        wanted = PopRequest(READERS, subscription(TOPIC, "*", 1), broker, invisible_ms=1_000, hold_ms=0)
        assert len(await pop(producer.session, wanted)) == 1


async def leave_the_others(name_servers: str) -> None:
    """Leave a half message, a timer and a delayed one behind that get stuck, and a delayed one that has time."""

    async def undecided(received: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def unknown(half: Message, sent: SendResult) -> TransactionState:
        return TransactionState.UNKNOWN

    async with open_producer(real_world(), name_servers, "writers") as producer:
        for properties in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}):
            await producer.send(Message(TOPIC, POISON, properties))
        await producer.send(Message(TOPIC, b"in time", {"DELAY": "18"}))
    async with open_transaction_producer(real_world(), name_servers, PAYERS, undecided) as payers:
        await payers.send(Message(HALVES, b"half", {}), unknown)
