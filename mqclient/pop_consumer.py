"""Consuming by pops: the brokers hand out messages for a time, and keep those that nobody acknowledged for the next.

Two ways: :class:`PopConsumer` is asked and acknowledges when the application says so; :func:`run_pop_listener` gives
each message to a listener and acknowledges what it has done. Neither holds queues: any number of consumers share all of
them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs

from understudy.mqclient import pop as requests
from understudy.mqclient.allocation import AVERAGELY
from understudy.mqclient.errors import BrokerError, InvalidMessageError, NotConnectedError, RouteNotFoundError
from understudy.mqclient.heartbeat import ConsumeFrom, ConsumeType, MessageModel
from understudy.mqclient.listener import OnError, Role, check_listener
from understudy.mqclient.membership import Membership
from understudy.mqclient.options import at_least
from understudy.mqclient.pop_listening import PopListener, PopListening
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.route import READ
from understudy.mqclient.session import Session, SessionOptions, open_session
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import bare_errors, open_shielded
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

MOST_MESSAGES = 32
_GIVE_UP = -1
"""The delay level that sends a message to the dead letter topic."""


@attrs.frozen
class PopConsumerOptions:
    """How a pop consumer works.

    Attributes:
        consume_from: where a new group starts: ``FIRST_OFFSET``, anything else is the newest message.
        invisible_ms: how long messages belong to this consumer.
        hold_ms: how long a broker keeps a pop when there is nothing.
        max_messages: most messages of one pop, 32 at most.
        in_order: a queue's next messages are handed out when those before are acknowledged.
        consume_tasks: of :func:`run_pop_listener`: messages that are consumed at the same time.
        retry_ms: of :func:`run_pop_listener`: when a message that failed comes again.
        max_reconsume_times: of :func:`run_pop_listener`: failures after which a message goes to the dead letter topic.
        pause_ms: of :func:`run_pop_listener`: pause after a pop that failed.
        close_timeout_ms: of :func:`run_pop_listener`: how long its end waits for listeners.
        take_damaged: of :func:`run_pop_listener`: give the listener also messages whose bytes cannot be read, with the
            raw body and :attr:`~understudy.mqclient.message.ReceivedMessage.damage`; otherwise they count as failed,
            and go to the dead letter topic at once when messages are popped *in_order*.
        on_error: of :func:`run_pop_listener`: called with what went wrong and the message: a listener that raised or
            answered something else than it may; a message that cannot be read. Must not wait.
        session: see :class:`SessionOptions`.
    """

    consume_from: ConsumeFrom = ConsumeFrom.FIRST_OFFSET
    invisible_ms: int = attrs.field(default=60_000, validator=at_least(1))
    hold_ms: int = attrs.field(default=15_000, validator=at_least(0))
    max_messages: int = attrs.field(default=MOST_MESSAGES, validator=at_least(1))
    in_order: bool = False
    consume_tasks: int = attrs.field(default=20, validator=at_least(1))
    retry_ms: int = attrs.field(default=10_000, validator=at_least(0))
    max_reconsume_times: int = attrs.field(default=16, validator=at_least(0))
    pause_ms: float = attrs.field(default=3_000, validator=at_least(1))
    close_timeout_ms: float = attrs.field(default=5_000, validator=at_least(0))
    take_damaged: bool = False
    on_error: OnError | None = None
    session: SessionOptions = attrs.field(factory=SessionOptions)


class PopConsumer:
    """A consumer that pops when it is asked. Make it with :func:`open_pop_consumer`; any number of tasks may use it.

    Attributes:
        session: the client below.
        group: consumer group.
        options: see :class:`PopConsumerOptions`.
        membership: what the brokers are told of this consumer.
    """

    def __init__(self, session: Session, group: str, options: PopConsumerOptions) -> None:
        self.session = session
        self.group = group
        self.options = options
        self.membership = Membership(
            session, group, ConsumeType.POP, MessageModel.CLUSTERING, options.consume_from, AVERAGELY, 20_000
        )
        self._turns: dict[str, int] = {}
        self._listening: set[PopListening] = set()
        self._listened = Signal()

    async def subscribe(self, subscriptions: Mapping[str, str]) -> None:
        """Say what is consumed: ``*`` or ``TagA || TagB`` by topic. Raises :class:`InvalidMessageError`."""
        self.membership.subscribe_all(subscriptions)
        await self.membership.join()

    async def brokers(self, topic: str) -> list[str]:
        """Return the names of the brokers that have *topic*. Raises :class:`RouteNotFoundError`."""
        route = await self.session.route(topic)
        return sorted(
            {group.broker_name for group in route.queue_groups if group.permission & READ and group.read_queues}
        )

    async def pop(
        self, topic: str, *, broker_name: str | None = None, hold_ms: int | None = None, max_messages: int | None = None
    ) -> list[PoppedMessage]:
        """Return messages of *topic*, none when there are none; one whose bytes cannot be read says so (``damage``).

        Args:
            topic: one that was subscribed to.
            broker_name: from which brokers; the brokers of the topic take turns when ``None``.
            hold_ms: instead of that of the options.
            max_messages: instead of that of the options.

        Raises:
            InvalidMessageError: the topic is not subscribed to.
            RouteNotFoundError: no broker has the topic, or none lets it be read.
            ClientError: see :func:`~understudy.mqclient.pop.pop`.
        """
        wanted = self.membership.subscriptions.get(topic)
        if wanted is None:
            raise InvalidMessageError(f"{topic} is not subscribed to by {self.group}")
        if broker_name is None:
            names = await self.brokers(topic)
            if not names:
                raise RouteNotFoundError(f"topic {topic} has no readable queue; check its permission")
            turn = self._turns[topic] = self._turns.get(topic, -1) + 1
            broker_name = names[turn % len(names)]
        options = self.options
        wish = PopRequest(
            self.group,
            wanted,
            broker_name,
            max_messages=min(max_messages or options.max_messages, MOST_MESSAGES),
            invisible_ms=options.invisible_ms,
            hold_ms=options.hold_ms if hold_ms is None else hold_ms,
            from_first=options.consume_from is ConsumeFrom.FIRST_OFFSET,
            in_order=options.in_order,
        )
        try:
            return await requests.pop(self.session, wish)
        except (NotConnectedError, BrokerError):  # a slave that acts no more refuses
            await self.session.renew_route(topic)  # for the next pop: another broker may serve the queues by now
            raise

    async def ack(self, *popped: PoppedMessage) -> None:
        """Say that messages are consumed; they do not come again. Raises :class:`ClientError`: they may."""
        if len(popped) == 1:
            await requests.ack(self.session, popped[0])
        elif popped:
            await requests.ack_all(self.session, popped)

    async def change_invisible(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Let a message belong to this consumer for *invisible_ms* from now on; return it with its new receipt."""
        return await requests.change_invisible(self.session, popped, invisible_ms)

    async def give_up(self, popped: PoppedMessage) -> None:
        """Put a message into the group's dead letter topic, then acknowledge it. Raises :class:`ClientError`."""
        message, address = popped.message, self.session.master_address(popped.receipt.broker_name)
        ext = {
            "offset": message.commit_log_offset,
            "group": self.group,
            "delayLevel": _GIVE_UP,
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": False,
            "maxReconsumeTimes": self.options.max_reconsume_times,
            "bname": popped.receipt.broker_name,
        }
        await self.session.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        await self.ack(popped)

    async def listen(self, listening: PopListening) -> None:
        """Run *listening* until it is cancelled, or until this consumer is closed."""
        self._listening.add(listening)
        try:
            await listening.run()
        finally:
            self._listening.discard(listening)
            self._listened.set()

    async def close(self) -> None:
        """Stop what listens, wait a bounded time for that, and sign off."""
        for listening in self._listening:
            listening.stop()
        with self.session.world.clock.move_on_after(self.options.close_timeout_ms / 1000):
            while self._listening:
                await self._listened.wait()
        await self.session.sign_off(consumer_group=self.group)


@asynccontextmanager
async def open_pop_consumer(
    world: World,
    name_servers: str | Sequence[str],
    group: str,
    subscriptions: Mapping[str, str],
    options: PopConsumerOptions | None = None,
) -> AsyncIterator[PopConsumer]:
    """Open a consumer; leaving the block signs it off. What was popped and not acknowledged comes to others in time.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        group: consumer group.
        subscriptions: ``*`` or ``TagA || TagB`` by topic.
        options: see :class:`PopConsumerOptions`.
    """
    chosen = options or PopConsumerOptions()
    with bare_errors():
        async with open_session(world, name_servers, chosen.session) as session, open_shielded() as tasks:
            consumer = PopConsumer(session, group, chosen)
            tasks.start_soon(session.refresh_routes)
            tasks.start_soon(session.keep_alive)
            await consumer.subscribe(subscriptions)
            try:
                yield consumer
            finally:
                with world.clock.move_on_after(chosen.close_timeout_ms / 1000 + 4) as scope:
                    scope.shield = True
                    await consumer.close()


async def run_pop_listener(consumer: PopConsumer, listener: PopListener) -> None:
    """Give what *consumer* subscribed to to *listener* until cancelled, or until the consumer's block is left.

    What it has consumed is acknowledged; what failed comes again after a while, and goes to the dead letter topic after
    too many failures. Listeners that run when this is cancelled, or interrupted by Ctrl-C, have ``close_timeout_ms``;
    what they do not consume by then comes again when its time is over.

    Raises:
        InvalidOptionError: the listener cannot be called as it will be.
    """
    check_listener(listener, Role.POP_LISTENER)
    await consumer.listen(PopListening(consumer, listener))
