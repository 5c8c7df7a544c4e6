"""Transactions: messages that consumers see only when their sender has decided so.

A half message is sent, the sender does its own part, and decides. Who does not decide, or dies, is asked: any member of
the producer group is, so that the answer must come from what all of them know, a database for example.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum

import attrs

from understudy.format.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_NONE,
    FLAG_TRANSACTION_ROLLBACK,
    decode_offset_message_id,
)
from understudy.mqclient.errors import ClientError, InvalidMessageError, InvalidOptionError, RecordDamagedError
from understudy.mqclient.listener import Role, check_listener
from understudy.mqclient.message import DELAY, PREPARED, PRODUCER_GROUP, UNIQUE_KEY, Message, ReceivedMessage
from understudy.mqclient.producer import Producer, ProducerOptions, open_producer
from understudy.mqclient.records import decode_records
from understudy.mqclient.sending import SendResult, SendStatus
from understudy.mqclient.session import accepted
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import required, required_int
from understudy.remoting.limits import LaneLimits
from understudy.runtime.background import interruptible
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("mqclient.transactions")

CHECKS_AT_ONCE, CHECKS_WAITING = 8, 2_000
"""How many questions of brokers are answered at a time, and how many may wait; brokers ask again about the others."""
LANE = "transaction checks"


class TransactionState(IntEnum):
    """What a sender decides, in the bits of system flags."""

    COMMIT = FLAG_TRANSACTION_COMMIT
    ROLLBACK = FLAG_TRANSACTION_ROLLBACK
    UNKNOWN = FLAG_TRANSACTION_NONE


Check = Callable[[ReceivedMessage], Awaitable[TransactionState]]
"""Says what was decided about a half message, perhaps by another member of the group; ``UNKNOWN`` to be asked again."""
Execute = Callable[[Message, SendResult], Awaitable[TransactionState]]
"""Does the sender's own part once the half message is stored, and decides."""


@attrs.frozen
class TransactionResult:
    """What became of a transaction.

    Attributes:
        sent: where the half message is.
        state: the decision.
        told: the broker has confirmed it; it asks back otherwise.
    """

    sent: SendResult
    state: TransactionState
    told: bool


class TransactionProducer:
    """A member of a producer group that sends transactions. Make it with :func:`open_transaction_producer`.

    Attributes:
        producer: sends ordinary messages for the same group.
    """

    def __init__(self, producer: Producer, check: Check) -> None:
        self.producer = producer
        self._check = check
        self._session = producer.session
        remoting = self._session.remoting
        remoting.lane(LANE, LaneLimits(CHECKS_AT_ONCE, CHECKS_WAITING))
        remoting.register_async(RequestCode.CHECK_TRANSACTION_STATE, self._checked, LANE)

    async def send(self, message: Message, execute: Execute) -> TransactionResult:
        """Send *message* as a half message, call *execute* once it is stored, and tell the broker its decision.

        When *execute* raises, the broker is told nothing and asks back later, and the error goes on. A half message
        that was stored, but not as safely as asked, is rolled back without *execute*.

        Raises:
            ClientError: as :meth:`Producer.send`; *execute* was not called. No other broker is tried once one may have
                stored it, since it would be asked about twice.
        """
        sent = await self.prepare(message)
        if sent.status is not SendStatus.OK:
            return await self.decide(message, sent, TransactionState.ROLLBACK)
        return await self.decide(message, sent, await execute(message, sent))

    async def prepare(self, message: Message) -> SendResult:
        """Send *message* as a half message only; :meth:`decide` about it later. Raises as :meth:`send`."""
        if DELAY in message.properties:
            raise InvalidMessageError("a transactional message cannot be delayed: brokers may lose it")
        message.properties |= {PREPARED: "true", PRODUCER_GROUP: self.producer.group}
        return await self.producer.send_half(message)

    async def decide(self, message: Message, sent: SendResult, state: TransactionState) -> TransactionResult:
        """Tell the broker what is decided about a half message.

        Args:
            message: as it was sent.
            sent: where it is.
            state: the decision; ``UNKNOWN`` has the broker ask back.

        Raises:
            InvalidOptionError: *state* is no decision; the broker asks back.
        """
        _checked_state(state)
        if state is TransactionState.UNKNOWN:
            return TransactionResult(sent, state, False)
        _, _, physical_offset = decode_offset_message_id(sent.offset_message_id)
        unique, name = message.properties[UNIQUE_KEY], sent.queue.broker_name
        fields = {"topic": message.topic, "msgId": unique, "transactionId": sent.transaction_id or unique}
        command = self._decision(fields, name, sent.queue_offset, physical_offset, state, checked=False)
        try:
            address = self._session.master_address(name)
            answer = await self._session.remoting.invoke(address, command, self.producer.options.send_timeout_ms)
            accepted(answer, address, (ResponseCode.SUCCESS,))
        except (ClientError, RemotingError) as error:
            log.warning("decision not confirmed, the broker will ask", message=unique, state=state.name, why=error)
            return TransactionResult(sent, state, False)
        self._trace(message, name, fields["transactionId"], state, checked=False)
        return TransactionResult(sent, state, True)

    def _trace(
        self, about: Message | ReceivedMessage, broker_name: str, transaction: str, state: TransactionState, *,
        checked: bool,
    ) -> None:  # fmt: skip
        if self.producer.tracer is not None:
            self.producer.tracer.decided(about, broker_name, transaction, state.name, checked=checked)

    async def _checked(self, connection: Connection, command: Command) -> Answer:
        """Answer a broker that asks about a half message (39)."""
        fields = {name: required(command, name) for name in ("topic", "msgId", "transactionId")}
        name = (command.ext or {}).get("bname") or ""
        try:
            (message,) = decode_records(command.body, name)
        except (RecordDamagedError, ValueError) as error:
            log.warning("a check that cannot be read", peer=connection.address, why=error)
            return None
        if message.properties.get(PRODUCER_GROUP) != self.producer.group:
            return None
        try:
            state = _checked_state(await interruptible(self._check, message))
        except Exception as error:  # the application's; the broker asks again
            log.error("the check of a transaction failed", exc=error, message=fields["msgId"], error=error)
            state = TransactionState.UNKNOWN
        offset = required_int(command, "tranStateTableOffset")
        physical_offset = required_int(command, "commitLogOffset")
        connection.notify(self._decision(fields, name, offset, physical_offset, state, checked=True))
        self._trace(message, name, fields["transactionId"], state, checked=True)
        return None

    def _decision(
        self,
        fields: dict[str, str],
        broker_name: str,
        offset: int,
        physical_offset: int,
        state: TransactionState,
        *,
        checked: bool,
    ) -> Command:
        ext = {
            **fields,
            "producerGroup": self.producer.group,
            "tranStateTableOffset": str(offset),
            "commitLogOffset": str(physical_offset),
            "commitOrRollback": str(int(state)),
            "fromTransactionCheck": "true" if checked else "false",
            "bname": broker_name,
        }
        return request(RequestCode.END_TRANSACTION, ext)


def _checked_state(returned: object) -> TransactionState:
    if not isinstance(returned, TransactionState):
        raise InvalidOptionError(f"decided {returned!r}: expected a TransactionState; the broker asks again")
    return returned


@asynccontextmanager
async def open_transaction_producer(
    world: World,
    name_servers: str | Sequence[str],
    group: str,
    check: Check,
    options: ProducerOptions | None = None,
) -> AsyncIterator[TransactionProducer]:
    """Open a producer of transactions; leaving the block signs it off and ends its connections.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        group: producer group.
        options: see :class:`~understudy.mqclient.sending.ProducerOptions`.
        check: answers brokers that ask what was decided.

    Raises:
        InvalidOptionError: *check* cannot be called as it will be.
    """
    check_listener(check, Role.CHECK)
    async with open_producer(world, name_servers, group, options) as producer:
        yield TransactionProducer(producer, check)
