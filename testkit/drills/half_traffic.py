"""Half messages while a ring loses a master: sent, decided at once, late or never, and what came of them.

An application of its own, with its own producer, topic and consumers, so that the other traffic of a seed stays what it
is without it. What it decides about a message stands in its books, which it asks when a broker asks it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import ProducerOptions
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.sending import SendResult
from understudy.mqclient.transactions import TransactionProducer, TransactionState, open_transaction_producer
from understudy.runtime.world import World
from understudy.testkit.drills.acting_allowances import explained
from understudy.testkit.drills.acting_kinds import HALVES, Kind
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.met_faults import Met

TOPIC, READERS, WRITERS = "halves", "half-readers", "half-writers"
CHECK_SECONDS = 3.0
BROKER_KEYS = {"transactionCheckInterval": "3000", "transactionTimeOut": "3000", "transactionCheckMax": "1000"}
_SENDERS = 2
_DRAIN_SECONDS = 90.0
_CHOICES = (TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK)
_TOLD = (True, True, False)
"""Whether the broker is told what is decided, or has to ask."""


class HalfTraffic:
    """The application.

    Args:
        seed: what it does is drawn from it.
        pause_seconds: how long each sender waits between its messages.

    Attributes:
        books: what is decided about each message whose half message was acknowledged.
        sent_at: when it was acknowledged, in virtual seconds, which is when it was decided.
        stored: which group of brokers took its half message.
        came: when each message came, each time, and from where: group of brokers, queue, offset.
    """

    topic = TOPIC

    def __init__(self, seed: int, pause_seconds: float) -> None:
        self._source = random.Random(seed)
        self._pause_seconds = pause_seconds
        self._sending = True
        self.books: dict[str, TransactionState] = {}
        self.sent_at: dict[str, float] = {}
        self.stored: dict[str, str] = {}
        self.came: dict[str, list[tuple[float, tuple[str, int, int]]]] = {}

    @asynccontextmanager
    async def playing(
        self, world_of: Callable[[str], World], servers: str, groups: Sequence[str]
    ) -> AsyncIterator[None]:
        """Send and consume inside the block; its end is not waited for.

        Args:
            world_of: gives a client of some name its world.
            servers: the name servers.
            groups: of brokers, which have the topic.
        """
        options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            open_transaction_producer(
                world_of("half-writer"), servers, WRITERS, self._check, ProducerOptions(attempts=1)
            ) as producer,
            open_push_consumer(world_of("half-reader"), servers, READERS, {TOPIC: "*"}, self._listen, options),
            trio.open_nursery() as nursery,
        ):
            for number in range(_SENDERS):
                nursery.start_soon(self._send, producer, number)
            yield
            nursery.cancel_scope.cancel()

    async def _send(self, producer: TransactionProducer, sender: int) -> None:
        number = 0
        while self._sending:
            key, number = f"half-{sender}-{number}", number + 1
            state, told = self._source.choice(_CHOICES), self._source.choice(_TOLD)

            async def execute(
                message: Message, sent: SendResult, key: str = key, state: TransactionState = state, told: bool = told
            ) -> TransactionState:
                self.books[key], self.sent_at[key] = state, trio.current_time()
                self.stored[key] = sent.queue.broker_name
                return state if told else TransactionState.UNKNOWN

            try:
                await producer.send(Message(TOPIC, key.encode(), {}), execute)
            except ClientError:
                self.books.setdefault(key, TransactionState.ROLLBACK)
            await trio.sleep(self._pause_seconds)

    async def _check(self, half: ReceivedMessage) -> TransactionState:
        return self.books.get(half.body.decode(), TransactionState.UNKNOWN)

    async def _listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for each in batch:
            place = (each.broker_name, each.queue_id, each.queue_offset)
            self.came.setdefault(each.body.decode(), []).append((trio.current_time(), place))

    @property
    def missing(self) -> set[str]:
        """What was committed and has not come."""
        return {key for key, state in self.books.items() if state is TransactionState.COMMIT} - self.came.keys()

    async def drain(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> None:
        """Send no more, and wait until everything that was committed has come, for a bounded time."""
        self._sending = False
        with trio.move_on_after(_DRAIN_SECONDS):
            while self.missing:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.5)
        await trio.sleep(20)  # checks that would commit once more

    def counts(self) -> Counter[str]:
        """Return how much was prepared, committed, delivered and delivered again."""
        return Counter(
            {
                "half prepared": len(self.books),
                "half committed": sum(state is TransactionState.COMMIT for state in self.books.values()),
                "half delivered": len(self.came),
                "half repeated": len(self._again()),
            }
        )

    def _again(self) -> list[str]:
        """Return what was stored more than once: a consumer that reads one place twice is another matter."""
        return [key for key, came in self.came.items() if len({place for _, place in came}) > 1]

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """Return what was committed more than once: due when it was decided, when it came, or a round of checks before.

        In each round a half message that nobody decides is put back at the end of its queue, by whoever asks.
        """
        found = []
        for key in self._again():
            times = tuple(seconds for seconds, _ in self.came[key])
            met, members = met_by(self.stored.get(key)), hosts(self.stored.get(key))
            dues = (self.sent_at.get(key, times[0]), *times, *(each - CHECK_SECONDS for each in times))
            found.append(explained([Repeat(key, True, due, times[:2], met, members) for due in dues]))
        return found

    @property
    def wrong(self) -> list[str]:
        """What came although it was not committed."""
        return sorted(key for key in self.came if self.books.get(key) is not TransactionState.COMMIT)

    def lost(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> set[str]:
        """Return what was committed and has not come; nothing is asked of logs that power took unwritten bytes of."""
        return set() if any(met.kind == "power" and not met.flushed for met in met_by(None)) else self.missing

    def problems(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> list[str]:
        """Return what must not be: lost, or delivered although it was not committed."""
        lost = sorted(self.lost(met_by))
        return [
            *(f"{key} was committed and has not come, sent at {self.sent_at[key]:.1f} s" for key in lost),
            *(f"{key} came although it was not committed" for key in self.wrong),
        ]

    def kind(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> Kind:
        """Return its figures; it was due when it was decided."""
        committed = {key for key, state in self.books.items() if state is TransactionState.COMMIT}
        late = tuple(self.came[key][0][0] - self.sent_at[key] for key in committed & self.came.keys())
        lost, wrong = len(self.lost(met_by)), len(self.wrong)
        return Kind(HALVES, len(committed), len(late), len(self._again()), lost, wrong, late)
