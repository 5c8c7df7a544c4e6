"""Timer messages while a ring loses a master: sent for a moment within the next seconds, and when they came.

An application of its own, with its own producer, topic and consumers, beside the senders of plain and delayed messages.
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
from understudy.mqclient.producer import Producer, open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.sending import ProducerOptions
from understudy.runtime.world import World
from understudy.testkit.drills.acting_kinds import TIMED, Kind
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.acting_traffic import SHORT_DELAYS
from understudy.testkit.drills.met_faults import LONGEST_DELAY_SECONDS, Met

TOPIC, READERS = "timers", "timer-readers"
EARLY_SECONDS = 0.05
_SENDERS = 2
_DRAIN_SECONDS = 90.0


class TimerTraffic:
    """The application.

    Args:
        seed: how long each message waits is drawn from it.
        pause_seconds: how long each sender waits between its messages.

    Attributes:
        due: when each message was due by its sender's clock, whether it was acknowledged or not.
        stored: which group of brokers acknowledged it.
        came: when each message came, each time.
    """

    topic = TOPIC

    def __init__(self, seed: int, pause_seconds: float) -> None:
        self._source = random.Random(f"timers {seed}")
        self._pause_seconds = pause_seconds
        self._sending = True
        self.due: dict[str, float] = {}
        self.stored: dict[str, str] = {}
        self.came: dict[str, list[float]] = {}

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
            open_producer(world_of("timer-writer"), servers, "timer-writers", ProducerOptions(attempts=1)) as producer,
            open_push_consumer(world_of("timer-reader"), servers, READERS, {TOPIC: "*"}, self._listen, options),
            trio.open_nursery() as nursery,
        ):
            for number in range(_SENDERS):
                nursery.start_soon(self._send, producer, number)
            yield
            nursery.cancel_scope.cancel()

    async def _send(self, producer: Producer, sender: int) -> None:
        number = 0
        while self._sending:
            key, number = f"timer-{sender}-{number}", number + 1
            milliseconds = round(self._source.uniform(*SHORT_DELAYS.timers) * 1000)
            self.due[key] = trio.current_time() + milliseconds / 1000
            try:
                sent = await producer.send(Message(TOPIC, key.encode(), {"TIMER_DELAY_MS": str(milliseconds)}))
                self.stored[key] = sent.queue.broker_name
            except ClientError:
                pass  # nobody promised anything
            await trio.sleep(self._pause_seconds)

    async def _listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for each in batch:
            self.came.setdefault(each.body.decode(), []).append(trio.current_time())

    @property
    def missing(self) -> set[str]:
        """What was acknowledged and has not come."""
        return self.stored.keys() - self.came.keys()

    async def drain(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> None:
        """Send no more, and wait until everything has come, for a bounded time, and for what comes again."""
        self._sending = False
        with trio.move_on_after(_DRAIN_SECONDS):
            while self.missing:  # noqa: ASYNC110 - other tasks hear of it
                await trio.sleep(0.5)
        await trio.sleep(LONGEST_DELAY_SECONDS)

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """Return what came more than once."""
        found = []
        for key, came in self.came.items():
            group = self.stored.get(key)
            if len(came) > 1:
                found.append(Repeat(key, True, self.due.get(key, came[0]), tuple(came), met_by(group), hosts(group)))
        return found

    def problems(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> list[str]:
        """Return what must not be: lost, early or never sent."""
        early = [key for key in self.due.keys() & self.came.keys() if self._late(key) < -EARLY_SECONDS]
        return [
            *(f"{key} was acknowledged and has not come" for key in sorted(self.missing)),
            *(f"{key} came {-self._late(key):.3f} s early" for key in sorted(early)),
            *(f"{key} came and was never sent" for key in sorted(self.came.keys() - self.due.keys())),
        ]

    def _late(self, key: str) -> float:
        return self.came[key][0] - self.due[key]

    def counts(self) -> Counter[str]:
        """Return how much was sent, and came."""
        return Counter({"timer sent": len(self.stored), "timer delivered": len(self.came)})

    def kind(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> Kind:
        """Return its figures."""
        came = self.stored.keys() & self.came.keys()
        late = tuple(self._late(key) for key in came)
        again = sum(len(times) - 1 for times in self.came.values())
        wrong = sum(seconds < -EARLY_SECONDS for seconds in late)
        return Kind(TIMED, len(self.stored), len(came), again, len(self.missing), wrong, late)
