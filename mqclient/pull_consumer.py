"""Consuming by asking: queues are shared out as for push consumers, or assigned by hand, and read with ``poll``."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from understudy.format.names import RETRY_PREFIX
from understudy.mqclient.allocation import AVERAGELY, Strategy
from understudy.mqclient.errors import BrokerError, ClientError, InvalidMessageError
from understudy.mqclient.heartbeat import ConsumeFrom, ConsumeType, MessageModel
from understudy.mqclient.leaders import address_of, group_of
from understudy.mqclient.membership import Membership
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.offsets import BrokerOffsets
from understudy.mqclient.options import at_least
from understudy.mqclient.pull import (
    PullRequest,
    PullResult,
    PullStatus,
    max_offset,
    min_offset,
    offset_at,
    pull,
)
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, SessionOptions, open_session
from understudy.mqclient.subscription import Subscription, subscription
from understudy.remoting.codes import ResponseCode
from understudy.runtime.background import ShieldedTasks, bare_errors, open_shielded
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("mqclient.pull_consumer")


@attrs.frozen
class PullConsumerOptions:
    """How a pull consumer works.

    Attributes:
        consume_from: where a new group starts.
        consume_timestamp_ms: wall time for ``ConsumeFrom.TIMESTAMP``.
        strategy: who gets which queue; the same for all members.
        pull_batch: most messages of one pull.
        ahead: answers that wait for ``poll``, all queues together.
        hold_ms: how long a broker keeps a pull when there is nothing.
        auto_commit: what a ``poll`` returned counts as consumed with the next ``poll``, and with leaving the block
            without an exception; that progress is stored every *commit_ms*, and on leaving.
        commit_ms: see *auto_commit*.
        rebalance_ms: how often queues are compared although nothing happened.
        pull_retry_ms: pause after a failed pull.
        session: see :class:`SessionOptions`.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    consume_timestamp_ms: int = 0
    strategy: Strategy = AVERAGELY
    pull_batch: int = attrs.field(default=32, validator=at_least(1))
    ahead: int = attrs.field(default=8, validator=at_least(1))
    hold_ms: int = attrs.field(default=15_000, validator=at_least(0))
    auto_commit: bool = True
    commit_ms: float = attrs.field(default=5_000, validator=at_least(1))
    rebalance_ms: float = attrs.field(default=20_000, validator=at_least(1))
    pull_retry_ms: float = attrs.field(default=3_000, validator=at_least(1))
    session: SessionOptions = attrs.field(factory=SessionOptions)


@attrs.define(eq=False)
class _Reader:
    """The task that pulls one queue ahead."""

    queue: MessageQueue
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    start: int | None = None


@attrs.frozen
class _Answer:
    reader: _Reader
    messages: list[ReceivedMessage]
    next_offset: int


class PullConsumer:
    """A consumer that is asked. Make it with :func:`open_pull_consumer`; one task may poll.

    Attributes:
        session: the client below.
        group: consumer group.
        membership: this consumer's place in its group.
    """

    def __init__(self, session: Session, group: str, options: PullConsumerOptions, tasks: ShieldedTasks) -> None:
        self.session = session
        self.group = group
        self.options = options
        self.membership = Membership(
            session, group, ConsumeType.ACTIVELY, MessageModel.CLUSTERING, options.consume_from, options.strategy,
            options.rebalance_ms,
        )  # fmt: skip
        self.offsets = BrokerOffsets(session, group)
        self._clock = session.world.clock
        self._tasks = tasks
        self._readers: dict[MessageQueue, _Reader] = {}
        self._returned: dict[MessageQueue, int] = {}  # by the last poll: whoever asked may still be at it
        self._last: _Answer | None = None  # that the last poll returned
        self._next: deque[_Answer] = deque()  # one, or two while what was given back overtakes
        self._paused: set[MessageQueue] = set()
        self._expressions: dict[str, Subscription] = {}
        self._resumed = Signal()
        answers, self._answers = trio.open_memory_channel[_Answer](options.ahead)
        self._deliver = answers

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues read now."""
        return tuple(sorted(self._readers))

    # --- which queues ------------------------------------------------------------------------------------------

    async def subscribe(self, subscriptions: Mapping[str, str]) -> None:
        """Share the queues of some topics with the other members of the group.

        Args:
            subscriptions: ``*`` or ``TagA || TagB`` by topic.
        """
        if self._readers and not self.membership.subscriptions:
            raise InvalidMessageError("queues are assigned by hand already; open another consumer to subscribe")
        start = not self.membership.subscriptions
        self.membership.subscribe_all(subscriptions)
        self._expressions.update(self.membership.subscriptions)
        await self.membership.join()
        if start:
            self._tasks.start_soon(self.membership.run, lambda: list(self._readers), self._revoke, self._take)
        else:
            self.membership.rebalance_soon()

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read exactly *queues*, whoever else reads them; replaces what was assigned before.

        Args:
            queues: what to read.
            expression: ``*`` or ``TagA || TagB``.
        """
        if self.membership.subscriptions:
            raise InvalidMessageError("topics are subscribed already; open another consumer to assign queues by hand")
        wanted = set(queues)
        for queue in list(self._readers):
            if queue not in wanted:
                await self._revoke(queue)
        for queue in sorted(wanted):
            self._expressions[queue.topic] = subscription(queue.topic, expression, 0)
            await self.session.route(queue.topic)
            if queue not in self._readers:
                await self._take(queue)

    async def topic_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* that can be read. Raises :class:`RouteNotFoundError`."""
        return (await self.session.route(topic)).read_queues

    async def _take(self, queue: MessageQueue, start: int | None = None) -> None:
        reader = self._readers[queue] = _Reader(queue, start=start)
        self._tasks.start_soon(self._read, reader)

    async def _revoke(self, queue: MessageQueue) -> None:
        reader = self._readers.pop(queue, None)
        if reader is not None:
            reader.scope.cancel()
            self._returned.pop(queue, None)
            if self.options.auto_commit:
                await self.offsets.persist([queue])
            self.offsets.forget(queue)

    # --- reading -----------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: float = 5_000) -> list[ReceivedMessage]:
        """Return the next messages of one queue, none after *timeout_ms* milliseconds.

        With ``auto_commit`` what the poll before returned counts as consumed now. A message whose bytes cannot be read
        has :attr:`~understudy.mqclient.message.ReceivedMessage.damage` and its raw body.
        """
        self._count_returned()
        self._last = None
        with self._clock.move_on_after(timeout_ms / 1000):
            while True:
                if not self._next:
                    self._next.append(await self._answers.receive())
                answer = self._next.popleft()
                queue = answer.reader.queue
                if self._readers.get(queue) is not answer.reader:
                    continue  # given back or moved by seek since it was pulled
                if answer.messages:
                    self._returned[queue] = answer.next_offset
                    self._last = answer
                    return answer.messages
                self.offsets.update(queue, answer.next_offset)
        return []

    def give_back(self, messages: list[ReceivedMessage]) -> None:
        """Take back what the last poll returned and nobody got: it does not count, and the next poll returns it.

        For doors into another thread, whose caller may have left before he was told.

        Args:
            messages: what that poll returned; anything else is ignored.
        """
        last = self._last
        if last is None or last.messages is not messages or self._readers.get(last.reader.queue) is not last.reader:
            return
        self._last = None
        self._next.appendleft(last)
        if self._returned.pop(last.reader.queue, None) is None:  # a commit has counted it meanwhile
            self.offsets.update(last.reader.queue, messages[0].queue_offset)

    def __aiter__(self) -> _OneByOne:
        """Return the messages of all queues one after the other, for ever; as many :meth:`poll` as are needed."""
        return _OneByOne(self)

    def _count_returned(self) -> None:
        returned, self._returned = self._returned, {}
        for queue, offset in returned.items():
            if queue in self._readers:
                self.offsets.update(queue, offset)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read *queue* from *offset* on; what was pulled ahead is dropped. Raises :class:`InvalidMessageError`."""
        reader = self._readers.get(queue)
        if reader is None:
            raise InvalidMessageError(f"{queue} is not read by this consumer; assign or subscribe first")
        reader.scope.cancel()
        self._returned.pop(queue, None)
        self.offsets.update(queue, offset)
        await self._take(queue, offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling *queues*; what was pulled ahead is still returned."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull *queues* again."""
        self._paused.difference_update(queues)
        self._resumed.set()

    async def commit(self) -> None:
        """Store the progress of everything that ``poll`` returned so far."""
        self._count_returned()
        await self.offsets.persist(list(self._readers))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of the group. Raises :class:`ClientError`."""
        await self.session.route(queue.topic)
        return await self.offsets.stored(queue)

    async def pull(
        self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32, hold_ms: int = 0
    ) -> PullResult:
        """Ask once for messages of *queue* without any book-keeping. Raises :class:`ClientError`.

        Args:
            queue: to be asked for.
            offset: queue offset of the first message.
            expression: tags, as in a subscription.
            max_messages: of one answer.
            hold_ms: how long the broker may wait for a message; 0 for not at all.
        """
        await self.session.route(queue.topic)
        wanted = PullRequest(
            self.group, queue, offset, subscription(queue.topic, expression, 0), max_messages,
            hold_ms=hold_ms, send_subscription=True,
        )  # fmt: skip
        return await pull(self.session, address_of(self.session, queue), wanted)

    async def _read(self, reader: _Reader) -> None:
        queue = reader.queue
        with reader.scope:
            offset = reader.start if reader.start is not None else await self._first_offset(queue)
            replica = 0
            while True:
                while queue in self._paused:
                    await self._resumed.wait()
                group = group_of(self.session, queue)
                address = (group.addresses.get(replica) or group.any_address()) if group else None
                if address is None:
                    await self._pause_and_renew(queue)
                    continue
                wanted = PullRequest(
                    self.group, queue, offset, self._expressions[queue.topic], self.options.pull_batch,
                    hold_ms=self.options.hold_ms, send_subscription=True, lite=True,
                )  # fmt: skip
                try:
                    result = await pull(self.session, address, wanted)
                except ClientError as error:
                    replica = 0
                    log.warning("pull failed", group=self.group, queue=queue, broker=address, why=error)
                    await self._pause_and_renew(queue)
                    if isinstance(error, BrokerError) and error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        await self.session.send_heartbeat(address)
                    continue
                replica = result.suggested_broker_id
                if result.status is PullStatus.OFFSET_ILLEGAL:
                    log.warning("offset corrected", group=self.group, queue=queue, asked=offset, now=result.next_offset)
                if result.next_offset != offset or result.messages:
                    await self._deliver.send(_Answer(reader, result.messages, result.next_offset))
                offset = result.next_offset

    async def _pause_and_renew(self, queue: MessageQueue) -> None:
        await self._clock.sleep(self.options.pull_retry_ms / 1000)
        await self.session.renew_route(queue.topic)

    async def _first_offset(self, queue: MessageQueue) -> int:
        while True:
            try:
                stored = await self.offsets.stored(queue)
                if stored is not None:
                    return stored
                if queue.topic.startswith(RETRY_PREFIX) or self.options.consume_from is ConsumeFrom.FIRST_OFFSET:
                    return await min_offset(self.session, queue)
                if self.options.consume_from is ConsumeFrom.TIMESTAMP:
                    return await offset_at(self.session, queue, self.options.consume_timestamp_ms)
                return await max_offset(self.session, queue)
            except ClientError as error:
                log.warning("start of queue unknown", group=self.group, queue=queue, why=error)
                await self._pause_and_renew(queue)

    async def commit_for_ever(self) -> None:
        """Store the progress every now and then."""
        while True:
            await self._clock.sleep(self.options.commit_ms / 1000)
            await self.offsets.persist(list(self._readers))

    async def close(self, *, consumed: bool = True) -> None:
        """Stop reading, store the progress and sign off.

        Args:
            consumed: what the last poll returned counts as consumed.
        """
        if not consumed:
            self._returned.clear()
        self._count_returned()
        for reader in self._readers.values():
            reader.scope.cancel()
        if self.options.auto_commit:
            await self.offsets.persist(list(self._readers))
        await self.session.sign_off(consumer_group=self.group)


class _OneByOne:
    """The messages of a consumer, each by itself."""

    def __init__(self, consumer: PullConsumer) -> None:
        self._consumer = consumer
        self._polled: deque[ReceivedMessage] = deque()

    def __aiter__(self) -> _OneByOne:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while not self._polled:
            self._polled.extend(await self._consumer.poll())
        return self._polled.popleft()


@asynccontextmanager
async def open_pull_consumer(
    world: World, name_servers: str | Sequence[str], group: str, options: PullConsumerOptions | None = None
) -> AsyncIterator[PullConsumer]:
    """Open a consumer for ``subscribe`` or ``assign``; leaving the block stores its progress and signs it off.

    What the last ``poll`` returned counts as consumed unless the block is left by an exception or cancelled.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        group: consumer group.
        options: see :class:`PullConsumerOptions`.
    """
    chosen = options or PullConsumerOptions()
    with bare_errors():
        async with open_session(world, name_servers, chosen.session) as session, open_shielded() as tasks:
            consumer = PullConsumer(session, group, chosen, tasks)
            tasks.start_soon(session.refresh_routes)
            tasks.start_soon(session.keep_alive)
            if chosen.auto_commit:
                tasks.start_soon(consumer.commit_for_ever)
            consumed = False
            try:
                yield consumer
                consumed = True
            finally:
                with world.clock.move_on_after(4) as scope:
                    scope.shield = True
                    await consumer.close(consumed=consumed)
