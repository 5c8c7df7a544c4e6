"""Pops while a ring loses a master: messages sent, popped, acknowledged or left, and what came of them.

An application of its own, with its own producer, topic and consumers, so that the other traffic of a seed stays what it
is without it. Each message that was sent must come until it is acknowledged, and not once more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from understudy.broker.pop.window import PATIENCE_MS
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.message import Message
from understudy.mqclient.pop_consumer import PopConsumer, PopConsumerOptions, open_pop_consumer
from understudy.mqclient.popped import PoppedMessage
from understudy.mqclient.producer import Producer, ProducerOptions, open_producer
from understudy.runtime.world import World
from understudy.testkit.drills.acting_allowances import explained
from understudy.testkit.drills.acting_kinds import POPPED, POPPED_IN_ORDER, Kind
from understudy.testkit.drills.acting_losses import may_be_lost
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.met_faults import Met

INVISIBLE_MS = 6_000
_BACK_SECONDS = (INVISIBLE_MS + PATIENCE_MS) / 1000
_SENDERS = 2
_HOLD_MS = 1_000
_LONGEST_SECONDS = 2.0
_DRAIN_SECONDS = 120.0
_AFTERWARDS_SECONDS = 30.0
_ACKED, _CHANGED = 0.6, 0.8
"""Of what was popped so much is acknowledged, so much of the rest gets more time first; the rest is left."""


class PopTraffic:
    """The application.

    Args:
        seed: what it does is drawn from it.
        pause_seconds: how long each sender waits between its messages.
        in_order: a queue's next messages are handed out when those before are acknowledged.

    Attributes:
        topic: what it sends to.
        sent: when each message was acknowledged to its sender, in virtual seconds, and by which group of brokers.
        came: when each message came.
        acked: when each message was acknowledged to the brokers, the last time.
        prolonged: when more time was asked for each, whether that was answered or not.
        tried: messages of which an acknowledgement was sent: one without an answer may count.
        again: each message that came although it was acknowledged: when it was, and when it came.
        overtaken: in order: what came for the first time after a later one of its queue.
    """

    def __init__(self, seed: int, pause_seconds: float, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._name = "ordered-pop" if in_order else "pop"
        self.topic = f"{self._name}s"
        self._source = random.Random(seed)
        self._pause_seconds = pause_seconds
        self.sent: dict[str, tuple[float, str]] = {}
        self.came: dict[str, list[float]] = {}
        self.acked: dict[str, float] = {}
        self.prolonged: dict[str, list[float]] = {}
        self.tried: set[str] = set()
        self.again: list[tuple[str, float, float]] = []
        self.overtaken: list[str] = []
        self._newest: dict[tuple[str, int], int] = {}
        self._sending = True

    @asynccontextmanager
    async def playing(
        self, world_of: Callable[[str], World], servers: str, groups: Sequence[str]
    ) -> AsyncIterator[None]:
        """Send and pop inside the block; its end is not waited for.

        Args:
            world_of: gives a client of some name its world.
            servers: the name servers.
            groups: of brokers, to pop from.
        """
        options = PopConsumerOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_messages=8,
            invisible_ms=INVISIBLE_MS,
            hold_ms=_HOLD_MS,
            in_order=self._in_order,
        )
        name, topics = self._name, {self.topic: "*"}
        async with (
            open_producer(
                world_of(f"{name}-writer"), servers, f"{name}-writers", ProducerOptions(attempts=1)
            ) as producer,
            open_pop_consumer(world_of(f"{name}per"), servers, f"{name}pers", topics, options) as consumer,
            trio.open_nursery() as nursery,
        ):
            for number in range(_SENDERS):
                nursery.start_soon(self._send, producer, number)
            for group in groups:
                nursery.start_soon(self._pop, consumer, group, nursery)
            yield
            nursery.cancel_scope.cancel()

    async def _send(self, producer: Producer, sender: int) -> None:
        number = 0
        while self._sending:
            key, number = f"{self._name}-{sender}-{number}", number + 1
            try:
                sent = await producer.send(Message(self.topic, key.encode(), {}))
                self.sent[key] = trio.current_time(), sent.queue.broker_name
            except ClientError:
                pass  # nobody promised anything
            await trio.sleep(self._pause_seconds)

    async def _pop(self, consumer: PopConsumer, group: str, nursery: trio.Nursery) -> None:
        while True:
            try:
                popped = await consumer.pop(self.topic, broker_name=group)
            except ClientError:
                popped = []
                await trio.sleep(0.3)
                await consumer.session.renew_route(self.topic)
            now = trio.current_time()
            for each in popped:
                key = each.message.body.decode()
                if key not in self.came:
                    self._note_order(key, each)
                self.came.setdefault(key, []).append(now)
                if key in self.acked:
                    self.again.append((key, self.acked.pop(key), now))  # until that is acknowledged it comes rightly
            # In order, what stands behind a message that is left comes again with it.
            for batch in [popped] if self._in_order and popped else [[each] for each in popped]:
                nursery.start_soon(self._consume, consumer, batch, self._source.random())

    def _note_order(self, key: str, popped: PoppedMessage) -> None:
        queue, offset = (popped.message.broker_name, popped.message.queue_id), popped.message.queue_offset
        if self._in_order and offset < self._newest.get(queue, -1):
            self.overtaken.append(key)
        self._newest[queue] = max(offset, self._newest.get(queue, -1))

    async def _consume(self, consumer: PopConsumer, popped: list[PoppedMessage], drawn: float) -> None:
        if self._sending and drawn > _CHANGED:
            return
        try:
            await trio.sleep(self._source.uniform(0, _LONGEST_SECONDS))
            if self._sending and drawn > _ACKED:
                for each in popped:
                    self.prolonged.setdefault(each.message.body.decode(), []).append(trio.current_time())
                popped = [await consumer.change_invisible(each, INVISIBLE_MS) for each in popped]
                await trio.sleep(self._source.uniform(0, _LONGEST_SECONDS))
            keys = [each.message.body.decode() for each in popped]
            self.tried.update(keys)
            await consumer.ack(*popped)
            self.acked.update(dict.fromkeys(keys, trio.current_time()))
        except ClientError:
            pass  # it comes again

    @property
    def missing(self) -> set[str]:
        """What was sent and its consumer did not even try to acknowledge yet."""
        return self.sent.keys() - self.tried

    async def drain(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> None:
        """Send no more, and wait until everything was acknowledged that must come, for a bounded time."""
        self._sending = False
        gone = self.lost_by_promise(met_by)
        with trio.move_on_after(_DRAIN_SECONDS):
            while self.missing - gone:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.5)
        await trio.sleep(_AFTERWARDS_SECONDS)  # what comes once more

    def lost_by_promise(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> set[str]:
        """Return what may be missing; *met_by* gives the faults as a group of brokers met them."""
        return {key for key, (seconds, group) in self.sent.items() if may_be_lost(seconds, None, met_by(group))}

    def counts(self) -> Counter[str]:
        """Return how much was sent, came, was acknowledged, and came after that."""
        return Counter(
            {
                f"{self._name} sent": len(self.sent),
                f"{self._name} delivered": len(self.came),
                f"{self._name} acknowledged": len(self.acked),
                f"{self._name} again after that": len(self.again),
            }
        )

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """Return what came after it was acknowledged.

        It was due when it was acknowledged, whenever it was handed out before or given more time, and whenever it came
        back then: a fault that explains a repeat met one of these.
        """
        found = []
        for key, acked, came in self.again:
            popped = [each for each in (*self.came[key], *self.prolonged.get(key, ())) if each < came]
            group = self.sent[key][1] if key in self.sent else None
            met, members = met_by(group), hosts(group)
            times = [acked, *popped, *(each + _BACK_SECONDS for each in popped)]
            found.append(explained([Repeat(key, True, due, (acked, came), met, members) for due in times]))
        return found

    def problems(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> list[str]:
        """Return what must not be: lost, or out of order."""
        left = self.missing - self.lost_by_promise(met_by)
        cut = any(met.kind == "power" and not met.flushed for met in met_by(None))  # offsets are given once more
        overtaken = () if cut else self.overtaken
        return [f"{key} was overtaken in its queue" for key in overtaken] + [
            f"{key} was sent at {self.sent[key][0]:.1f} s and popped at "
            f"{', '.join(f'{each:.1f}' for each in self.came.get(key, ())) or 'no time'}, and does not come any more"
            for key in sorted(left)
        ]

    def kind(self, met_by: Callable[[str | None], tuple[Met, ...]]) -> Kind:
        """Return its figures; each was due when it was sent."""
        name, came = POPPED_IN_ORDER if self._in_order else POPPED, self.sent.keys() & self.came.keys()
        late = tuple(self.came[key][0] - self.sent[key][0] for key in came)
        lost = len(self.missing - self.lost_by_promise(met_by))
        return Kind(name, len(self.sent), len(came), len(self.again), lost, len(self.overtaken), late)
