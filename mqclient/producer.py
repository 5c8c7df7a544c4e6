"""Sending messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from understudy.format.names import DEFAULT_TOPIC, RETRY_PREFIX
from understudy.format.recall_handle import decode_handle
from understudy.format.record import FLAG_COMPRESSED, FLAG_TRANSACTION_PREPARED
from understudy.format.unique_id import UniqueIds
from understudy.mqclient.broker_health import BrokerHealth, QueueChooser
from understudy.mqclient.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidOptionError,
    NotConnectedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.message import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    UNIQUE_KEY,
    WAIT,
    Message,
    encode_properties,
)
from understudy.mqclient.queue import MessageQueue, check_group, check_topic
from understudy.mqclient.records import check_properties_size, compress, encode_batch
from understudy.mqclient.sending import STATUS, ProducerOptions, SendResult, SendStatus
from understudy.mqclient.session import Session, accepted, bare_errors, open_session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.background import open_shielded
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

__all__ = ["Producer", "ProducerOptions", "SendResult", "SendStatus", "open_producer"]

_Stored = tuple[Command, MessageQueue]  # the answer of a broker that has stored it, and where it was sent
Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]


# Refusals that another broker may not share (DefaultMQProducer.java, retryResponseCodes).
_TRY_ANOTHER = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


class Producer:
    """A member of a producer group. Make it with :func:`open_producer`; any number of tasks may send at the same time.

    Attributes:
        session: the client below.
        group: producer group.
    """

    def __init__(self, session: Session, group: str, options: ProducerOptions) -> None:
        check_group(group)
        self.session = session
        self.group = group
        self.options = options
        self._clock = session.world.clock
        self._ids = UniqueIds.of_producer(session.world.random)
        self._health = BrokerHealth()
        self._choosers: dict[str, QueueChooser] = {}

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
        ext, body = self._prepare(message)
        answer = await self._send(message, RequestCode.SEND_MESSAGE_V2, ext, body, queue, select, timeout_ms)
        return _result(answer, message.properties[UNIQUE_KEY])

    async def send_half(self, message: Message) -> SendResult:
        """Send *message*, whose properties say so, as a half message; see :mod:`understudy.mqclient.transactions`.

        Another broker is tried when one refuses it, and none when one may have stored it. Raises as :meth:`send`.
        """
        ext, body = self._prepare(message)
        ext["f"] = str(int(ext["f"]) | FLAG_TRANSACTION_PREPARED)
        last_broker: str | None = None
        for attempt in range(1, self.options.attempts + 1):
            target = await self._target(message, None, None, last_broker)
            last_broker = target.broker_name
            try:
                answer = await self._send(message, RequestCode.SEND_MESSAGE_V2, ext, body, target, None, None)
            except BrokerError as error:
                if attempt == self.options.attempts or error.code not in _TRY_ANOTHER:
                    raise
            else:
                return _result(answer, message.properties[UNIQUE_KEY])
        raise SendFailedError(f"message for {message.topic} not sent: no attempt is allowed")

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """Send *messages* of one topic in one request to one queue, see :meth:`send`. Batches are never compressed."""
        first = self._check_batch(messages)
        now_ms = self._clock.wall_ms()
        for message in messages:
            message.properties.setdefault(UNIQUE_KEY, self._ids.next(now_ms))
        body = encode_batch(messages)
        if len(body) > self.options.max_message_bytes:
            raise InvalidMessageError(f"the batch has {len(body)} bytes, {self.options.max_message_bytes} are allowed")
        properties = {UNIQUE_KEY: self._ids.next(now_ms), WAIT: first.properties.get(WAIT, "true")}
        ext = self._header(first.topic, first.flag, 0, properties)
        ext["m"] = "true"
        answer = await self._send(first, RequestCode.SEND_BATCH_MESSAGE, ext, body, queue, None, timeout_ms)
        return _result(answer, ",".join(message.properties[UNIQUE_KEY] for message in messages))

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> None:
        """Send *message* without asking whether it was stored. Raises as :meth:`send` where no broker is reached."""
        ext, body = self._prepare(message)
        target = await self._target(message, queue, select, None)
        command = self._command(RequestCode.SEND_MESSAGE_V2, ext, body, target)
        try:
            await self.session.remoting.invoke_oneway(
                self.session.master_address(target.broker_name), command, self.options.send_timeout_ms
            )
        except RemotingError as error:
            raise SendFailedError(f"message for {message.topic} not sent: {error}") from error

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
            broker_name = decode_handle(handle, topic).broker_name
        except ValueError as error:
            raise InvalidMessageError(f"{error}; use the recall handle of a send result, with its topic") from None
        await self.session.route(topic)
        ext = {"producerGroup": self.group, "topic": topic, "recallHandle": handle, "bname": broker_name}
        limit_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        command = request(RequestCode.RECALL_MESSAGE, ext)
        try:
            answer = await self._invoke(MessageQueue(topic, broker_name, 0), command, limit_ms)
        except NotConnectedError as error:
            raise SendFailedError(f"message of {topic} not taken back: {error}") from error
        return (answer.ext or {}).get("msgId") or ""

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* to which messages can be sent. Raises :class:`RouteNotFoundError`."""
        route = await self.session.route(topic, new_topic_queues=self.options.new_topic_queues)
        queues = route.write_queues
        if not queues:
            queues = (await self.session.fresh_route(topic)).write_queues
        if not queues:
            raise RouteNotFoundError(f"topic {topic} has no writable queue with a master; check its permission")
        return queues

    def _check_batch(self, messages: Sequence[Message]) -> Message:
        if not messages:
            raise InvalidMessageError("the batch is empty")
        first = messages[0]
        check_topic(first.topic)
        for message in messages:
            if message.topic != first.topic:
                raise InvalidMessageError(f"a batch has one topic, this one has {first.topic} and {message.topic}")
            if message.topic.startswith(RETRY_PREFIX) or "DELAY" in message.properties:
                raise InvalidMessageError("messages of a batch can neither be delayed nor go to a retry topic")
            if message.properties.get(WAIT, "true") != first.properties.get(WAIT, "true"):
                raise InvalidMessageError("messages of a batch must agree on waiting for disk and replicas")
            _check_body(message.body)
            if not message.body:
                raise InvalidMessageError("a message needs a body of at least one byte")
        return first

    def _prepare(self, message: Message) -> tuple[dict[str, str], bytes]:
        check_topic(message.topic)
        body = message.body
        _check_body(body)
        if not body:
            raise InvalidMessageError("a message needs a body of at least one byte")
        if len(body) > self.options.max_message_bytes:
            raise InvalidMessageError(f"the body has {len(body)} bytes, {self.options.max_message_bytes} are allowed")
        message.properties.setdefault(UNIQUE_KEY, self._ids.next(self._clock.wall_ms()))
        message.properties.setdefault(WAIT, "true")
        sys_flag = 0
        if 0 < self.options.compress_above_bytes <= len(body):
            smaller = compress(body, self.options.compression, self.options.compression_level)
            if len(smaller) < len(body):
                body = smaller
                sys_flag = FLAG_COMPRESSED | self.options.compression
        ext = self._header(message.topic, message.flag, sys_flag, message.properties)
        if message.topic.startswith(RETRY_PREFIX):
            ext["j"] = message.properties.get(RECONSUME_TIME, "0")
            ext["l"] = message.properties.get(MAX_RECONSUME_TIMES, "16")
        return ext, body

    def _header(self, topic: str, flag: int, sys_flag: int, properties: dict[str, str]) -> dict[str, str]:
        encoded = encode_properties(properties)
        if len(encoded) > 8000:  # at most four bytes a character
            check_properties_size(encoded.encode())
        return {
            "a": self.group,
            "b": topic,
            "c": DEFAULT_TOPIC,
            "d": str(self.options.new_topic_queues),
            "e": "0",
            "f": str(sys_flag),
            "g": str(self._clock.wall_ms()),
            "h": str(flag),
            "i": encoded,
            "j": "0",
            "k": "false",
            "m": "false",
        }

    def _command(self, code: RequestCode, ext: dict[str, str], body: bytes, queue: MessageQueue) -> Command:
        return request(code, {**ext, "e": str(queue.queue_id), "n": queue.broker_name}, body)

    async def _target(
        self, message: Message, queue: MessageQueue | None, select: Select | None, last_broker: str | None
    ) -> MessageQueue:
        if queue is not None and (select is not None or queue.topic != message.topic):
            why = "and select= at once" if select is not None else f"of topic {queue.topic}"
            raise InvalidOptionError(f"the message for topic {message.topic} is sent with queue= {why}; leave one out")
        queues = await self.queues(message.topic)
        if queue is not None:
            return queue
        if select is not None:
            chosen = select(queues, message)
            if chosen not in queues:
                raise InvalidMessageError(f"the selector returned {chosen}, which is no queue of topic {message.topic}")
            return chosen
        chooser = self._choosers.get(message.topic)
        if chooser is None:
            start = self.session.world.random.randrange(len(queues))
            chooser = self._choosers[message.topic] = QueueChooser(start)
        return chooser.choose(queues, self._health, self._clock.monotonic(), last_broker)

    async def _send(
        self,
        message: Message,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes,
        queue: MessageQueue | None,
        select: Select | None,
        timeout_ms: float | None,
    ) -> _Stored:
        """Try brokers until one has stored the message, at most so often and so long as the options say."""
        limit_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        with self._clock.move_on_after(limit_ms / 1000) as scope:
            return await self._send_in_time(message, code, ext, body, queue, select, limit_ms)
        assert scope.cancelled_caught
        raise SendFailedError(f"message for {message.topic} not sent: no answer within {limit_ms:g} ms")

    async def _send_in_time(
        self,
        message: Message,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes,
        queue: MessageQueue | None,
        select: Select | None,
        limit_ms: float,
    ) -> _Stored:
        begin = self._clock.monotonic()
        attempts = 1 if queue is not None or select is not None else self.options.attempts
        last_broker: str | None = None
        last_error: Exception | None = None
        stored: _Stored | None = None
        for attempt in range(attempts):
            left_ms = limit_ms - (self._clock.monotonic() - begin) * 1000
            if left_ms <= 0:
                break
            target = await self._target(message, queue, select, last_broker)
            last_broker = target.broker_name
            started = self._clock.monotonic()
            left_ms = limit_ms - (started - begin) * 1000
            if attempt + 1 < attempts and self._has_others(target):
                left_ms /= attempts - attempt  # one that does not answer must leave some for the others
            try:
                answer = await self._invoke(target, self._command(code, ext, body, target), left_ms)
            except NotConnectedError as error:
                self._health.failed(target.broker_name, self._clock.monotonic())
                last_error = error
                await self.session.renew_route(message.topic)
                continue
            except BrokerError as error:
                now = self._clock.monotonic()
                if error.code not in _TRY_ANOTHER:
                    self._health.sent(target.broker_name, (now - started) * 1000, now)
                    raise
                self._health.failed(target.broker_name, now)
                last_error = error
                if not self._has_others(target):  # perhaps its group has another master by now
                    await self.session.renew_route(message.topic)
                continue
            now = self._clock.monotonic()
            self._health.sent(target.broker_name, (now - started) * 1000, now)
            stored = answer, target
            enough = answer.code == ResponseCode.SUCCESS or not self.options.retry_when_not_ok
            if enough or attempt + 1 == attempts:
                return stored
        if stored is not None:
            return stored
        if isinstance(last_error, BrokerError) and attempts == 1:
            raise last_error
        why = last_error or f"no time left of {limit_ms:g} ms"
        raise SendFailedError(f"message for {message.topic} not sent: {why}") from last_error

    def _has_others(self, target: MessageQueue) -> bool:
        route = self.session.known_route(target.topic)
        return route is not None and any(each.broker_name != target.broker_name for each in route.write_queues)

    async def _invoke(self, target: MessageQueue, command: Command, timeout_ms: float) -> Command:
        address = self.session.master_address(target.broker_name)
        try:
            answer = await self.session.remoting.invoke(address, command, timeout_ms)
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error
        return accepted(answer, address, STATUS)


def _check_body(body: object) -> None:
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidMessageError(f"the body is a {type(body).__name__}, bytes are expected: encode it")


def _result(stored: _Stored, message_id: str) -> SendResult:
    answer, target = stored
    ext = answer.ext or {}
    queue_id = int(ext.get("queueId") or target.queue_id)
    return SendResult(
        STATUS[ResponseCode(answer.code)],
        message_id,
        ext.get("msgId") or "",
        target if queue_id == target.queue_id else target._replace(queue_id=queue_id),
        int(ext.get("queueOffset") or 0),
        ext.get("transactionId"),
        ext.get("recallHandle"),
        ext.get("MSG_REGION"),
    )


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
            try:
                yield producer
            finally:
                with world.clock.move_on_after(2) as scope:
                    scope.shield = True
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
