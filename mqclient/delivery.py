"""Getting a message stored: which queue, which broker next, how often and how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.mqclient.broker_health import BrokerHealth, QueueChooser
from understudy.mqclient.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidOptionError,
    NotConnectedError,
    RouteNotFoundError,
    SendFailedError,
)
from understudy.mqclient.message import Message
from understudy.mqclient.outgoing import Prepared
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sending import STATUS, ProducerOptions
from understudy.mqclient.session import Session, accepted
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError

Stored = tuple[Command, MessageQueue]
"""The answer of a broker that has stored a message, and where it was sent."""
Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses a queue from those of the message's topic."""

# Refusals that another broker may not share (DefaultMQProducer.java, retryResponseCodes).
TRY_ANOTHER = frozenset(
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


class Delivery:
    """How one producer gets its messages stored.

    Args:
        session: the client.
        options: see :class:`ProducerOptions`.
    """

    def __init__(self, session: Session, options: ProducerOptions) -> None:
        self._session = session
        self._options = options
        self._clock = session.world.clock
        self._health = BrokerHealth()
        self._choosers: dict[str, QueueChooser] = {}

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* to which messages can be sent. Raises :class:`RouteNotFoundError`."""
        route = await self._session.route(topic, new_topic_queues=self._options.new_topic_queues)
        queues = route.write_queues
        if not queues:
            queues = (await self._session.fresh_route(topic)).write_queues
        if not queues:
            raise RouteNotFoundError(f"topic {topic} has no writable queue with a master; check its permission")
        return queues

    async def target(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        last_broker: str | None = None,
    ) -> MessageQueue:
        """Return the queue that *message* goes to.

        Args:
            message: to be sent.
            queue: the sender's choice.
            select: chooses for the sender.
            last_broker: the broker group that just failed, avoided where there is another.

        Raises:
            InvalidMessageError: *select* returned no queue of the topic.
            InvalidOptionError: *queue* is of another topic, or *select* is given, too.
            RouteNotFoundError: no broker has the topic and none would create it.
        """
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
            start = self._session.world.random.randrange(len(queues))
            chooser = self._choosers[message.topic] = QueueChooser(start)
        return chooser.choose(queues, self._health, self._clock.monotonic(), last_broker)

    async def send(
        self,
        message: Message,
        code: RequestCode,
        prepared: Prepared,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: float | None = None,
    ) -> Stored:
        """Try brokers until one has stored the message, at most so often and so long as the options say.

        Args:
            message: for its topic, and for *select*.
            code: what is asked of the broker.
            prepared: header and body.
            queue: see :meth:`target`.
            select: see :meth:`target`.
            timeout_ms: for everything; that of the options when ``None``.

        Raises:
            BrokerError: the broker refused it for a reason that others share.
            SendFailedError: no broker took it in time.
            ClientError: as :meth:`target`.
        """
        limit_ms = self._options.send_timeout_ms if timeout_ms is None else timeout_ms
        with self._clock.move_on_after(limit_ms / 1000) as scope:
            return await self._send_in_time(message, code, prepared, queue, select, limit_ms)
        assert scope.cancelled_caught
        raise SendFailedError(f"message for {message.topic} not sent: no answer within {limit_ms:g} ms")

    async def _send_in_time(
        self,
        message: Message,
        code: RequestCode,
        prepared: Prepared,
        queue: MessageQueue | None,
        select: Select | None,
        limit_ms: float,
    ) -> Stored:
        begin = self._clock.monotonic()
        attempts = 1 if queue is not None or select is not None else self._options.attempts
        last_broker: str | None = None
        last_error: Exception | None = None
        stored: Stored | None = None
        for attempt in range(attempts):
            left_ms = limit_ms - (self._clock.monotonic() - begin) * 1000
            if left_ms <= 0:
                break
            target = await self.target(message, queue, select, last_broker)
            last_broker = target.broker_name
            started = self._clock.monotonic()
            left_ms = limit_ms - (started - begin) * 1000
            if attempt + 1 < attempts and self._has_others(target):
                left_ms /= attempts - attempt  # one that does not answer must leave some for the others
            try:
                answer = await self.invoke(target, command_for(target, code, prepared), left_ms)
            except NotConnectedError as error:
                self._health.failed(target.broker_name, self._clock.monotonic())
                last_error = error
                await self._session.renew_route(message.topic)
                continue
            except BrokerError as error:
                now = self._clock.monotonic()
                if error.code not in TRY_ANOTHER:
                    self._health.sent(target.broker_name, (now - started) * 1000, now)
                    raise
                self._health.failed(target.broker_name, now)
                last_error = error
                if not self._has_others(target):  # perhaps its group has another master by now
                    await self._session.renew_route(message.topic)
                continue
            now = self._clock.monotonic()
            self._health.sent(target.broker_name, (now - started) * 1000, now)
            stored = answer, target
            enough = answer.code == ResponseCode.SUCCESS or not self._options.retry_when_not_ok
            if enough or attempt + 1 == attempts:
                return stored
        if stored is not None:
            return stored
        if isinstance(last_error, BrokerError) and attempts == 1:
            raise last_error
        why = last_error or f"no time left of {limit_ms:g} ms"
        raise SendFailedError(f"message for {message.topic} not sent: {why}") from last_error

    def _has_others(self, target: MessageQueue) -> bool:
        route = self._session.known_route(target.topic)
        return route is not None and any(each.broker_name != target.broker_name for each in route.write_queues)

    async def invoke(self, target: MessageQueue, command: Command, timeout_ms: float) -> Command:
        """Ask the master of *target*'s broker group and return its answer.

        Args:
            target: whose broker is asked.
            command: the request.
            timeout_ms: longest wait.

        Raises:
            BrokerError: it refused.
            NotConnectedError: there is none, or it did not answer.
        """
        address = self._session.master_address(target.broker_name)
        try:
            answer = await self._session.remoting.invoke(address, command, timeout_ms)
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error
        return accepted(answer, address, STATUS)


def command_for(target: MessageQueue, code: RequestCode, prepared: Prepared) -> Command:
    """Return the request that sends what is *prepared* to *target*.

    Args:
        target: the queue.
        code: what is asked of its broker.
        prepared: header and body.
    """
    ext, body = prepared
    return request(code, {**ext, "e": str(target.queue_id), "n": target.broker_name}, body)
