"""Getting a message stored: which queue, which broker next, how often and how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

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
from understudy.mqclient.route import TopicRoute
from understudy.mqclient.sending import STATUS, ProducerOptions
from understudy.mqclient.session import Session, accepted
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import ConnectFailedError, RemotingError

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
        ResponseCode.NOT_LEADER_FOR_QUEUE,  # Java's producer learns of a moved queue by the next look at its route
    }
)


@attrs.define
class Course:
    """How far one send has come.

    Attributes:
        message: for its topic, and for *select*.
        code: what is asked of brokers.
        prepared: header and body.
        queue: the sender's choice, if any.
        select: chooses for the sender, if he wants to.
        limit_ms: for everything.
        began: monotonic seconds.
        attempts: how many brokers are asked at most.
        asked: how many have been.
        started: monotonic seconds of the last attempt.
        last_broker: the group that was asked last.
        last_error: why it did not store the message.
        stored: what the last broker that stored it said.
        doubtful: whether the topic's route is to be asked for before another attempt.
        moved: whether another group takes messages for the queue that was tried last.
    """

    message: Message
    code: RequestCode
    prepared: Prepared
    queue: MessageQueue | None
    select: Select | None
    limit_ms: float
    began: float
    attempts: int
    asked: int = 0
    started: float = 0.0
    last_broker: str | None = None
    last_error: Exception | None = None
    stored: Stored | None = None
    doubtful: bool = False
    moved: bool = False

    def end(self) -> Stored:
        """Return what was stored last when no more brokers are asked, or raise why nothing was."""
        if self.stored is not None:
            return self.stored
        if isinstance(self.last_error, BrokerError) and self.attempts == 1:
            raise self.last_error
        why = self.last_error or f"no time left of {self.limit_ms:g} ms"
        raise SendFailedError(f"message for {self.message.topic} not sent: {why}") from self.last_error


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
            raise RouteNotFoundError(_why_none_takes(topic, self._session.known_route(topic)))
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
        return self._chosen(message.topic, queues, last_broker)

    def _chosen(self, topic: str, queues: tuple[MessageQueue, ...], last_broker: str | None) -> MessageQueue:
        chooser = self._choosers.get(topic)
        if chooser is None:
            start = self._session.world.random.randrange(len(queues))
            chooser = self._choosers[topic] = QueueChooser(start)
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
        return await self.go_on(self.course(message, code, prepared, queue, select, timeout_ms))

    def course(
        self,
        message: Message,
        code: RequestCode,
        prepared: Prepared,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: float | None = None,
    ) -> Course:
        """Return a send that begins now.

        Args:
            message: as of :meth:`send`.
            code: what is asked of the broker.
            prepared: header and body.
            queue: see :meth:`target`.
            select: see :meth:`target`.
            timeout_ms: for everything; that of the options when ``None``.
        """
        limit_ms = self._options.send_timeout_ms if timeout_ms is None else timeout_ms
        attempts = 1 if queue is not None or select is not None else self._options.attempts
        return Course(message, code, prepared, queue, select, limit_ms, self._clock.monotonic(), attempts)

    async def go_on(self, course: Course) -> Stored:
        """Try as many brokers as *course* has left; see :meth:`send`."""
        left_seconds = course.limit_ms / 1000 - (self._clock.monotonic() - course.began)
        if left_seconds > 0:
            with self._clock.move_on_after(left_seconds):
                return await self._go_on_in_time(course)
        raise SendFailedError(f"message for {course.message.topic} not sent: no answer within {course.limit_ms:g} ms")

    async def _go_on_in_time(self, course: Course) -> Stored:
        while course.asked < course.attempts:
            if course.doubtful:
                course.doubtful = False
                if course.moved and course.asked > 1:  # the route was asked for too early
                    await self._clock.sleep(self._session.options.route_retry_ms / 1000)
                await self._session.renew_route(course.message.topic)
            if course.limit_ms <= (self._clock.monotonic() - course.began) * 1000:
                break
            target = await self.target(course.message, course.queue, course.select, course.last_broker)
            left_ms = self.attempt(course, target)
            try:
                answer, address = await self._asked(target, command_for(target, course.code, course.prepared), left_ms)
            except NotConnectedError as error:
                self.unanswered(course, error)
            else:
                if self.answered(course, target, answer, address):
                    break
        if course.doubtful:
            await self._session.renew_route(course.message.topic)  # for the next send
        return course.end()

    def known_target(self, topic: str) -> MessageQueue | None:
        """Return the queue that a message for *topic* goes to next, ``None`` when a name server must be asked first."""
        route = self._session.known_route(topic)
        return None if route is None or not route.write_queues else self._chosen(topic, route.write_queues, None)

    def attempt(self, course: Course, target: MessageQueue) -> float:
        """Note that the broker of *target* is asked now; return for how many milliseconds it is waited for."""
        course.asked += 1
        course.last_broker = target.broker_name
        course.started = self._clock.monotonic()
        left_ms = course.limit_ms - (course.started - course.began) * 1000
        if course.asked < course.attempts and self._has_others(target):
            left_ms /= course.attempts - course.asked + 1  # one that does not answer must leave some for the others
        return left_ms

    def unanswered(self, course: Course, error: NotConnectedError) -> None:
        """Note that the broker that was asked last did not answer, because of *error*."""
        assert course.last_broker is not None  # noted by :meth:`attempt`
        self._health.failed(course.last_broker, self._clock.monotonic())
        course.last_error = error
        course.doubtful = True

    def answered(self, course: Course, target: MessageQueue, answer: Command, address: str) -> bool:
        """Note what a broker has answered.

        Args:
            course: of the send.
            target: what it was sent to.
            answer: of the broker.
            address: of the broker.

        Returns:
            Whether the send is over; else :meth:`go_on` is next.

        Raises:
            BrokerError: the message is refused for a reason that other brokers share.
        """
        now = self._clock.monotonic()
        last = course.asked >= course.attempts
        try:
            accepted(answer, address, STATUS)
        except BrokerError as error:
            if error.code in TRY_ANOTHER:
                self._health.failed(target.broker_name, now)
                course.last_error = error
                course.moved = error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
                course.doubtful = course.moved or not self._has_others(target)  # its group may have another master
                return last and not course.doubtful
            self._health.sent(target.broker_name, (now - course.started) * 1000, now)
            raise
        self._health.sent(target.broker_name, (now - course.started) * 1000, now)
        course.stored = answer, target
        return last or answer.code == ResponseCode.SUCCESS or not self._options.retry_when_not_ok

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
        answer, address = await self._asked(target, command, timeout_ms)
        return accepted(answer, address, STATUS)

    async def _asked(self, target: MessageQueue, command: Command, timeout_ms: float) -> tuple[Command, str]:
        """Return the answer, whatever its code, and whose it is. Raises :class:`NotConnectedError`."""
        address = self._session.master_address(target.broker_name)
        try:
            return await self._session.remoting.invoke(address, command, timeout_ms), address
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error


def _why_none_takes(topic: str, route: TopicRoute | None) -> str:
    """Return why no queue of *route* takes messages: who may not write asks for something else than who must wait."""
    if route is not None:
        known = {group.broker_name: route.brokers.get(group.broker_name) for group in route.queue_groups}
        headless = sorted(name for name, broker in known.items() if broker is None or broker.master is None)
        if headless:
            return f"topic {topic} takes no messages now: {', '.join(headless)} has no master at the moment; try again"
    return f"topic {topic} has no writable queue; check its permission, and whether a slave acts for its master"


def never_sent(error: SendFailedError) -> bool:
    """Return whether a send failed before anything left this client, so that no broker can have the message."""
    cause = error.__cause__
    return isinstance(cause, NotConnectedError) and isinstance(cause.__cause__, ConnectFailedError | None)


def command_for(target: MessageQueue, code: RequestCode, prepared: Prepared) -> Command:
    """Return the request that sends what is *prepared* to *target*.

    Args:
        target: the queue.
        code: what is asked of its broker.
        prepared: header and body.
    """
    ext, body = prepared
    return request(code, {**ext, "e": str(target.queue_id), "n": target.broker_name}, body)
