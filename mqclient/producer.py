"""Sending messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from understudy.format.recall_handle import decode_handle
from understudy.format.record import FLAG_TRANSACTION_PREPARED
from understudy.format.unique_id import UniqueIds
from understudy.mqclient.delivery import TRY_ANOTHER, Delivery, Select, Stored, command_for, never_sent
from understudy.mqclient.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    NoReplyError,
    NotConnectedError,
    SendFailedError,
)
from understudy.mqclient.message import MSG_REGION, UNIQUE_KEY, Message, ReceivedMessage
from understudy.mqclient.outgoing import Outgoing, send_result
from understudy.mqclient.queue import MessageQueue, check_group
from understudy.mqclient.replies import Replies, reply_message
from understudy.mqclient.sending import BatchesFailedError, ProducerOptions, SendResult, SendStatus
from understudy.mqclient.session import Session, open_session
from understudy.mqclient.tracing import Tracer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import bare_errors, open_shielded
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

__all__ = ["Producer", "ProducerOptions", "Select", "SendResult", "SendStatus", "open_producer"]


class Producer:
    """A member of a producer group. Make it with :func:`open_producer`; any number of tasks may send at the same time.

    Attributes:
        session: the client below.
        group: producer group.
        options: see :class:`ProducerOptions`.
        outgoing: what is put on the wire.
        delivery: how it gets stored.
        tracer: tells what was sent, if it is asked to.
    """

    def __init__(self, session: Session, group: str, options: ProducerOptions) -> None:
        check_group(group)
        self.session = session
        self.group = group
        self.options = options
        self._clock = session.world.clock
        self.outgoing = Outgoing(group, options, UniqueIds.of_producer(session.world.random))
        self._replies: Replies | None = None
        self.delivery = Delivery(session, options)
        self.tracer = Tracer(session, group, options.trace_topic) if options.enable_message_trace else None

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send *message* and wait until a broker has stored it.

        Args:
            message: what to send; gets its unique id unless it has one.
            queue: where to; without it a queue is chosen and other brokers are tried when one fails.
            select: chooses the queue from all queues of the topic; no other broker is tried.
            timeout_ms: longest time for everything, looking for the topic's brokers included;
                :attr:`ProducerOptions.send_timeout_ms` when ``None``.

        Raises:
            InvalidMessageError: the message breaks a rule; nothing was sent.
            InvalidOptionError: *queue* is not of the message's topic, or *select* is given, too.
            RouteNotFoundError: no broker has the topic and none would create it.
            BrokerError: the broker refused it for a reason that others share.
            SendFailedError: no broker took it in time.
        """
        began_ms = self._clock.wall_ms()
        prepared = self.outgoing.prepare(message, began_ms)
        stored = await self.delivery.send(
            message, RequestCode.SEND_MESSAGE_V2, prepared, queue=queue, select=select, timeout_ms=timeout_ms
        )
        return self.sent(message, stored, began_ms)

    def sent(self, message: Message, stored: Stored, began_ms: int) -> SendResult:
        """Return what the sender of *message* is told, and trace it if that is wanted.

        Args:
            message: that was sent.
            stored: where it is.
            began_ms: wall time when it was to be sent.
        """
        result = send_result(*stored, message.properties[UNIQUE_KEY])
        if self.tracer is not None:
            self.tracer.sent([message], result, began_ms)
        return result

    async def send_half(self, message: Message) -> SendResult:
        """Send *message*, whose properties say so, as a half message; see :mod:`understudy.mqclient.transactions`.

        Another broker is tried when one refuses it or cannot be reached, and none when one may have stored it. Raises
        as :meth:`send`.
        """
        began_ms = self._clock.wall_ms()
        prepared = self.outgoing.prepare(message, began_ms)
        ext = prepared[0]
        ext["f"] = str(int(ext["f"]) | FLAG_TRANSACTION_PREPARED)
        last_broker: str | None = None
        for attempt in range(1, self.options.attempts + 1):
            target = await self.delivery.target(message, last_broker=last_broker)
            last_broker = target.broker_name
            try:
                stored = await self.delivery.send(message, RequestCode.SEND_MESSAGE_V2, prepared, queue=target)
            except BrokerError as error:
                if attempt == self.options.attempts or error.code not in TRY_ANOTHER:
                    raise
            except SendFailedError as error:
                if attempt == self.options.attempts or not never_sent(error):
                    raise
            else:
                result = send_result(*stored, message.properties[UNIQUE_KEY])
                if self.tracer is not None:
                    self.tracer.sent([message], result, began_ms, half=True)
                return result
        raise SendFailedError(f"message for {message.topic} not sent: no attempt is allowed")

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """Send *messages* of one topic in one request to one queue, see :meth:`send`. Batches are never compressed."""
        began_ms = self._clock.wall_ms()
        prepared = self.outgoing.prepare_batch(messages, began_ms)
        stored = await self.delivery.send(
            messages[0], RequestCode.SEND_BATCH_MESSAGE, prepared, queue=queue, timeout_ms=timeout_ms
        )
        result = send_result(*stored, ",".join(message.properties[UNIQUE_KEY] for message in messages))
        if self.tracer is not None:
            self.tracer.sent(messages, result, began_ms)
        return result

    async def send_batches(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        """Send any number of *messages* of one topic, in as few batches as their size allows, one after the other.

        Args:
            messages: what to send.
            queue: where to; without it each batch goes to a queue of its own.
            timeout_ms: longest time for each batch.

        Returns:
            The result of each batch; the ids in them tell which messages it holds.

        Raises:
            InvalidMessageError: a message breaks a rule, or is too large by itself; nothing was sent.
            BatchesFailedError: a batch was not stored; the error has the results of those before it.
        """
        results: list[SendResult] = []
        for piece in self.outgoing.split(messages, self._clock.wall_ms()):
            try:
                results.append(await self.send_batch(piece, queue=queue, timeout_ms=timeout_ms))
            except ClientError as error:
                raise BatchesFailedError(results, str(error)) from error
        return results

    async def request(self, message: Message, *, timeout_ms: float | None = None) -> ReceivedMessage:
        """Send *message* and wait until a consumer has replied to it (``DefaultMQProducer.request`` in Java).

        Args:
            message: what to ask; gets the properties by which its reply is known.
            timeout_ms: longest time until the reply is there; :attr:`ProducerOptions.send_timeout_ms` when ``None``.

        Returns:
            The reply.

        Raises:
            NoReplyError: the message is stored, and nobody replied in time.
            SendFailedError: no broker said in time that it has stored the message; one may have all the same.
            ClientError: as :meth:`send`.
        """
        limit_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        if self._replies is None:
            self._replies = Replies(self.session)
        with self._replies.expected(message, limit_ms) as expected:
            sent = False
            with self._clock.move_on_after(limit_ms / 1000):
                await self.delivery.queues(message.topic)
                # A broker passes replies to clients that it knows; one that is silent leaves time to ask another.
                with self._clock.move_on_after(limit_ms / 3000):
                    await self.session.greet(message.topic)
                await self.send(message, timeout_ms=limit_ms)
                sent = True
                return await expected.reply()
        if not sent:
            raise SendFailedError(f"request for {message.topic} not sent: no answer within {limit_ms:g} ms")
        raise NoReplyError(f"nobody replied to the request for {message.topic} within {limit_ms:g} ms")

    async def reply(self, request: ReceivedMessage, body: bytes, *, timeout_ms: float | None = None) -> SendResult:
        """Reply to *request*, a message that was received.

        Args:
            request: what was asked, by our client or the real ones.
            body: of the reply.
            timeout_ms: as for :meth:`send`.

        Raises:
            InvalidMessageError: the message asks for no reply.
            BrokerError: the requester is not connected to the broker any more.
            ClientError: as :meth:`send`.
        """
        answer = reply_message(request, body)
        prepared = self.outgoing.prepare(answer, self._clock.wall_ms())
        # The requester is known where its request came from.
        near = [queue for queue in await self.delivery.queues(answer.topic) if queue.broker_name == request.broker_name]
        queue = near[0] if near else None
        stored = await self.delivery.send(
            answer, RequestCode.SEND_REPLY_MESSAGE_V2, prepared, queue=queue, timeout_ms=timeout_ms
        )
        return send_result(*stored, answer.properties[UNIQUE_KEY])

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> None:
        """Send *message* without asking whether it was stored. Raises as :meth:`send` where no broker is reached."""
        prepared = self.outgoing.prepare(message, self._clock.wall_ms())
        target = await self.delivery.target(message, queue, select)
        command = command_for(target, RequestCode.SEND_MESSAGE_V2, prepared)
        try:
            await self.session.remoting.invoke_oneway(
                self.session.master_address(target.broker_name), command, self.options.send_timeout_ms
            )
        except RemotingError as error:
            raise SendFailedError(f"message for {message.topic} not sent: {error}") from error

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* to which messages can be sent. Raises :class:`RouteNotFoundError`."""
        return await self.delivery.queues(topic)

    async def recall(self, topic: str, handle: str, *, timeout_ms: float | None = None) -> str:
        """Take back a timer message before its time has come.

        Args:
            topic: where it would be delivered.
            handle: from its :class:`~understudy.mqclient.sending.SendResult`.
            timeout_ms: as for :meth:`send`.

        Returns:
            The id of the message. It is delivered all the same if its time comes before the broker has seen this.

        Raises:
            InvalidMessageError: it is no handle of a message of *topic*; nothing was asked.
            RouteNotFoundError: no broker has the topic.
            BrokerError: the broker refused, because recalls are switched off or the time has come.
            SendFailedError: the broker that keeps the message was not reached.
        """
        try:
            wanted = decode_handle(handle, topic)
        except ValueError as error:
            raise InvalidMessageError(f"{error}; use the recall handle of a send result, with its topic") from None
        await self.session.route(topic)
        ext = {"producerGroup": self.group, "topic": topic, "recallHandle": handle, "bname": wanted.broker_name}
        limit_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        command = request(RequestCode.RECALL_MESSAGE, ext)
        try:
            answer = await self.delivery.invoke(MessageQueue(topic, wanted.broker_name, 0), command, limit_ms)
        except NotConnectedError as error:
            raise SendFailedError(f"message of {topic} not taken back: {error}") from error
        except BrokerError:
            if self.tracer is not None:
                self.tracer.recalled(topic, wanted.unique_key, "", success=False)
            raise
        told = answer.ext or {}
        if self.tracer is not None:
            self.tracer.recalled(topic, wanted.unique_key, told.get(MSG_REGION) or "", success=True)
        return told.get("msgId") or ""


@asynccontextmanager
async def open_producer(
    world: World, name_servers: str | Sequence[str], group: str, options: ProducerOptions | None = None
) -> AsyncIterator[Producer]:
    """Open a producer; leaving the block signs it off and ends its connections.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        group: producer group.
        options: see :class:`ProducerOptions`.
    """
    chosen = options or ProducerOptions()
    with bare_errors():
        async with open_session(world, name_servers, chosen.session) as session, open_shielded() as tasks:
            producer = Producer(session, group, chosen)
            session.producer_groups.add(group)
            greeter = _Greeter(session)
            session.on_route_change.append(greeter.route_changed)
            tasks.start_soon(greeter.run)
            tasks.start_soon(session.refresh_routes)
            tasks.start_soon(session.keep_alive)
            if producer.tracer is not None:
                tasks.start_soon(producer.tracer.run)
            try:
                yield producer
            finally:
                with world.clock.move_on_after(2) as scope:
                    scope.shield = True
                    if producer.tracer is not None:
                        await producer.tracer.close()
                    await session.sign_off(producer_group=group)


class _Greeter:
    """Sends heartbeats as soon as a route brings new brokers, so that they know the producer's group."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._changed = Signal()

    def route_changed(self, topic: str) -> None:
        self._changed.set()

    async def run(self) -> None:
        handled = 0
        while True:
            handled = await self._changed.wait(handled)
            await self._session.send_heartbeats()
