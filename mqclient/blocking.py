"""The client for programs without an event loop: the same calls, which wait.

    with open_producer("127.0.0.1:9876", "my_producers") as producer:
        producer.send(message("Orders", b"..."))

All of them share one thread, in which the trio client runs; results, errors and time-outs are its own. Any number of
threads may use one producer or consumer, except that one polls. An interrupt while a call waits cancels that call; what
a ``poll`` had taken comes with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from understudy.mqclient import pop_consumer as trio_pop_consumer
from understudy.mqclient import producer as trio_producer
from understudy.mqclient import pull_consumer as trio_pull_consumer
from understudy.mqclient import push_consumer as trio_push_consumer
from understudy.mqclient import transactions as trio_transactions
from understudy.mqclient.doors import in_threads, now
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions, Role, check_plain_listener
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop_consumer import PopConsumerOptions
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import ProducerOptions, Select, SendResult, SendStatus
from understudy.mqclient.pull import PullResult
from understudy.mqclient.pull_consumer import PullConsumerOptions
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sends import Sends
from understudy.mqclient.transactions import TransactionResult, TransactionState
from understudy.runtime.portal import Portal, shared_portal
from understudy.runtime.portal_held import opened
from understudy.runtime.world import real_world

__all__ = [
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "open_pop_consumer",
    "open_producer",
    "open_pull_consumer",
    "open_push_consumer",
    "open_transaction_producer",
]

Listener = Callable[[Sequence[ReceivedMessage], ConsumeContext], ConsumeResult | None]
PopListener = Callable[[ReceivedMessage], ConsumeResult | None]
Check = Callable[[ReceivedMessage], TransactionState]
Execute = Callable[[Message, SendResult], TransactionState]


class Producer:
    """See :class:`understudy.mqclient.producer.Producer`; make it with :func:`open_producer`."""

    def __init__(self, portal: Portal, inner: trio_producer.Producer) -> None:
        self._portal = portal
        self._inner = inner
        self._sends = Sends(inner, portal.after_this_look)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send *message* and wait until a broker has stored it; errors as with trio.

        Args:
            message: to be sent.
            queue: where to; chosen by the producer if neither this nor *select* is given.
            select: chooses a queue from those of the topic.
            timeout_ms: for the whole send; that of the options if not given.
        """
        if queue is None and select is None and timeout_ms is None:
            return self._portal.call(self._inner.send, message, at_once=partial(self._sends.begin, message))
        return self._portal.call(partial(self._inner.send, message, queue=queue, select=select, timeout_ms=timeout_ms))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> SendResult:
        """Send *messages* of one topic in one request; errors as with trio."""
        return self._portal.call(partial(self._inner.send_batch, messages, queue=queue, timeout_ms=timeout_ms))

    def send_batches(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        """Send any number of *messages* of one topic, in as few batches as their size allows; errors as with trio."""
        return self._portal.call(partial(self._inner.send_batches, messages, queue=queue, timeout_ms=timeout_ms))

    def request(self, message: Message, *, timeout_ms: float | None = None) -> ReceivedMessage:
        """Send *message* and wait until a consumer has replied to it; errors as with trio."""
        return self._portal.call(partial(self._inner.request, message, timeout_ms=timeout_ms))

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout_ms: float | None = None) -> SendResult:
        """Reply to *request*, a message that was received; errors as with trio."""
        return self._portal.call(partial(self._inner.reply, request, body, timeout_ms=timeout_ms))

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None) -> None:
        """Send *message* without asking whether it was stored; errors as with trio."""
        self._portal.call(partial(self._inner.send_oneway, message, queue=queue, select=select))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* to which messages can be sent; errors as with trio."""
        return self._portal.call(self._inner.queues, topic)

    def recall(self, topic: str, handle: str, *, timeout_ms: float | None = None) -> str:
        """Take back a timer message of *topic* before its time has come, by the handle of its send result.

        Returns its id; errors as with trio.
        """
        return self._portal.call(partial(self._inner.recall, topic, handle, timeout_ms=timeout_ms))


class TransactionProducer:
    """See :mod:`understudy.mqclient.transactions`; make it with :func:`open_transaction_producer`.

    Attributes:
        producer: sends ordinary messages for the same group.
    """

    def __init__(self, portal: Portal, inner: trio_transactions.TransactionProducer) -> None:
        self.producer = Producer(portal, inner.producer)
        self._portal = portal
        self._inner = inner

    def send(self, message: Message, execute: Execute) -> TransactionResult:
        """Send *message* as a half message, call *execute* in this thread, and tell the broker its decision.

        Errors as with trio; when *execute* raises, or the thread is interrupted, the broker asks back.
        """
        sent = self.prepare(message)
        state = execute(message, sent) if sent.status is SendStatus.OK else TransactionState.ROLLBACK
        return self.decide(message, sent, state)

    def prepare(self, message: Message) -> SendResult:
        """Send *message* as a half message only; :meth:`decide` about it later. Errors as with trio."""
        return self._portal.call(self._inner.prepare, message)

    def decide(self, message: Message, sent: SendResult, state: TransactionState) -> TransactionResult:
        """Tell the broker what is decided about a half message.

        Args:
            message: as it was sent.
            sent: where it is.
            state: the decision; ``UNKNOWN`` has the broker ask back.
        """
        return self._portal.call(self._inner.decide, message, sent, state)


class PullConsumer:
    """See :class:`understudy.mqclient.pull_consumer.PullConsumer`; make it with :func:`open_pull_consumer`."""

    def __init__(self, portal: Portal, inner: trio_pull_consumer.PullConsumer) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues read now."""
        return self._portal.call(now(lambda: self._inner.queues))

    def subscribe(self, subscriptions: Mapping[str, str]) -> None:
        """Share the queues of some topics with the other members of the group."""
        self._portal.call(self._inner.subscribe, subscriptions)

    def assign(self, queues: Iterable[MessageQueue], expression: str = "*") -> None:
        """Read exactly *queues*, whoever else reads them."""
        self._portal.call(self._inner.assign, list(queues), expression)

    def topic_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of *topic* that can be read."""
        return self._portal.call(self._inner.topic_queues, topic)

    def poll(self, timeout_ms: float = 5_000) -> list[ReceivedMessage]:
        """Return the next messages of one queue, none after *timeout_ms* milliseconds."""
        return self._portal.call(self._inner.poll, timeout_ms, unclaimed=self._inner.give_back)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Return the messages of all queues one after the other, for ever."""
        while True:
            yield from self.poll()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read *queue* from *offset* on."""
        self._portal.call(self._inner.seek, queue, offset)

    def commit(self) -> None:
        """Store the progress of everything that :meth:`poll` returned so far."""
        self._portal.call(self._inner.commit)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of the group."""
        return self._portal.call(self._inner.committed, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling *queues*; what was pulled ahead is still returned."""
        self._portal.call(now(partial(self._inner.pause, list(queues))))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull *queues* again."""
        self._portal.call(now(partial(self._inner.resume, list(queues))))

    def pull(
        self, queue: MessageQueue, offset: int, *, expression: str = "*", max_messages: int = 32, hold_ms: int = 0
    ) -> PullResult:
        """Ask once for messages of *queue* without any book-keeping; errors as with trio.

        Args:
            queue: to be asked for.
            offset: queue offset of the first message.
            expression: tags, as in a subscription.
            max_messages: of one answer.
            hold_ms: how long the broker may wait for a message; 0 for not at all.
        """
        ask = partial(self._inner.pull, expression=expression, max_messages=max_messages, hold_ms=hold_ms)
        return self._portal.call(ask, queue, offset)


class PopConsumer:
    """See :class:`understudy.mqclient.pop_consumer.PopConsumer`; make it with :func:`open_pop_consumer`."""

    def __init__(self, portal: Portal, inner: trio_pop_consumer.PopConsumer) -> None:
        self._portal = portal
        self._inner = inner

    def subscribe(self, subscriptions: Mapping[str, str]) -> None:
        """Say what is consumed: ``*`` or ``TagA || TagB`` by topic; errors as with trio."""
        self._portal.call(self._inner.subscribe, subscriptions)

    def brokers(self, topic: str) -> list[str]:
        """Return the names of the brokers that have *topic*; errors as with trio."""
        return self._portal.call(self._inner.brokers, topic)

    def pop(
        self, topic: str, *, broker_name: str | None = None, hold_ms: int | None = None, max_messages: int | None = None
    ) -> list[PoppedMessage]:
        """Return messages of *topic*, none when there are none; errors as with trio.

        Args:
            topic: one that was subscribed to.
            broker_name: from which brokers; the brokers of the topic take turns when ``None``.
            hold_ms: instead of that of the options.
            max_messages: instead of that of the options.
        """
        pop = partial(self._inner.pop, broker_name=broker_name, hold_ms=hold_ms, max_messages=max_messages)
        return self._portal.call(pop, topic)

    def ack(self, *popped: PoppedMessage) -> None:
        """Say that messages are consumed; they do not come again. Errors as with trio: they may."""
        self._portal.call(self._inner.ack, *popped)

    def change_invisible(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Let a message belong to this consumer for *invisible_ms* from now on; return it with its new receipt."""
        return self._portal.call(self._inner.change_invisible, popped, invisible_ms)

    def give_up(self, popped: PoppedMessage) -> None:
        """Put a message into the group's dead letter topic, then acknowledge it. Errors as with trio."""
        self._portal.call(self._inner.give_up, popped)

    def run_listener(self, listener: PopListener) -> None:
        """Give what is subscribed to to *listener*, a plain function, in threads, until this thread is interrupted.

        Else as :func:`understudy.mqclient.pop_consumer.run_pop_listener`.
        """
        check_plain_listener(listener, Role.POP_LISTENER)
        self._portal.call(self._run, listener)

    async def _run(self, listener: PopListener) -> None:
        listen = in_threads(listener, self._inner.options.consume_tasks)
        await trio_pop_consumer.run_pop_listener(self._inner, listen)


class PushConsumer:
    """See :class:`understudy.mqclient.push_consumer.PushConsumer`; make it with :func:`open_push_consumer`."""

    def __init__(self, portal: Portal, inner: trio_push_consumer.PushConsumer) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues held now."""
        return self._portal.call(now(lambda: self._inner.queues))

    def pause(self) -> None:
        """Stop pulling; what was pulled is still consumed."""
        self._portal.call(now(self._inner.pause))

    def resume(self) -> None:
        """Pull again."""
        self._portal.call(now(self._inner.resume))

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = "TAG") -> None:
        """Add or replace a subscription while running; errors as with trio.

        Args:
            topic: to be consumed.
            expression: tags joined by ``||``, ``*`` for all, or a condition.
            expression_type: ``TAG``, or ``SQL92`` for a condition.
        """
        self._portal.call(self._inner.subscribe, topic, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic; its queues go back with their progress stored."""
        self._portal.call(self._inner.unsubscribe, topic)

    def persist(self) -> None:
        """Store the progress of all held queues now."""
        self._portal.call(self._inner.persist)


@contextmanager
def open_producer(
    name_servers: str | Sequence[str], group: str, options: ProducerOptions | None = None
) -> Iterator[Producer]:
    """Open a producer, see :func:`understudy.mqclient.producer.open_producer`."""
    with opened(shared_portal(), lambda: trio_producer.open_producer(real_world(), name_servers, group, options)) as (
        portal,
        inner,
    ):
        yield Producer(portal, inner)


@contextmanager
def open_transaction_producer(
    name_servers: str | Sequence[str], group: str, check: Check, options: ProducerOptions | None = None
) -> Iterator[TransactionProducer]:
    """Open a producer of transactions, see :func:`understudy.mqclient.transactions.open_transaction_producer`.

    Args:
        name_servers: addresses, as ``host:port``.
        group: producer group.
        check: a plain function that says what was decided about a half message; called in threads, up to eight at a
            time. Leaving the block does not wait for one that runs: it goes on, what it says counts for nothing, and
            the broker asks another member of the group, or this one when it is back.
        options: see :class:`ProducerOptions`.
    """
    check_plain_listener(check, Role.CHECK)
    ask = in_threads(check, trio_transactions.CHECKS_AT_ONCE, abandon=True)
    manager = partial(trio_transactions.open_transaction_producer, real_world(), name_servers, group, ask, options)
    with opened(shared_portal(), manager) as (portal, inner):
        yield TransactionProducer(portal, inner)


@contextmanager
def open_pop_consumer(
    name_servers: str | Sequence[str],
    group: str,
    subscriptions: Mapping[str, str],
    options: PopConsumerOptions | None = None,
) -> Iterator[PopConsumer]:
    """Open a consumer that pops, see :func:`understudy.mqclient.pop_consumer.open_pop_consumer`.

    Args:
        name_servers: addresses, as ``host:port``.
        group: consumer group.
        subscriptions: expression by topic.
        options: see :class:`PopConsumerOptions`.
    """
    manager = partial(trio_pop_consumer.open_pop_consumer, real_world(), name_servers, group, subscriptions, options)
    with opened(shared_portal(), manager) as (portal, inner):
        yield PopConsumer(portal, inner)


@contextmanager
def open_pull_consumer(
    name_servers: str | Sequence[str], group: str, options: PullConsumerOptions | None = None
) -> Iterator[PullConsumer]:
    """Open a consumer that is asked, see :func:`understudy.mqclient.pull_consumer.open_pull_consumer`."""
    manager = partial(trio_pull_consumer.open_pull_consumer, real_world(), name_servers, group, options)
    with opened(shared_portal(), manager) as (portal, inner):
        yield PullConsumer(portal, inner)


@contextmanager
def open_push_consumer(
    name_servers: str | Sequence[str],
    group: str,
    subscriptions: Mapping[str, str],
    listener: Listener,
    options: PushConsumerOptions | None = None,
) -> Iterator[PushConsumer]:
    """Open a consumer that calls *listener*, a plain function, in threads: up to ``consume_tasks`` at the same time.

    Errors are those of :func:`understudy.mqclient.push_consumer.open_push_consumer`. A listener that
    takes longer than ``consume_timeout_ms`` is waited for: a thread cannot be cancelled.

    Args:
        name_servers: addresses, as ``host:port``.
        group: consumer group.
        subscriptions: expression by topic.
        listener: takes batches of messages.
        options: see :class:`PushConsumerOptions`.
    """
    chosen = options or PushConsumerOptions()
    check_plain_listener(listener)
    listen = in_threads(listener, chosen.consume_tasks)
    manager = partial(
        trio_push_consumer.open_push_consumer, real_world(), name_servers, group, subscriptions, listen, chosen
    )
    with opened(shared_portal(), manager) as (portal, inner):
        yield PushConsumer(portal, inner)
