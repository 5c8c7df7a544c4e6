"""Consuming several batches at a time: tasks that take what was pulled from one line.

Most listeners do not wait for each message, and then nothing has to be done around their call: while it lasts nobody
else runs, so nobody can see that they have a message, or how far they are. A task therefore begins the listener
without anything around it, batch after batch, and counts what was consumed before others have their turn. Only when the
listener waits does the task leave the rest of what it took to others, show that it is busy, and have the time watched.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Generator, Sequence
from operator import attrgetter
from typing import Any

import trio

from understudy.mqclient.assigned import Batch
from understudy.mqclient.consumption import Consumption
from understudy.mqclient.errors import InvalidOptionError
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, PushConsumerOptions, checked_result
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.waiting_batches import WaitingBatches, Watchdog
from understudy.runtime.clock import Clock

_TURN_SECONDS, _TURN_CALLS = 0.001, 32
"""After so long, or so many calls of a listener that does not wait, other tasks have their turn."""
_TOPIC = attrgetter("topic")

Listening = Generator[Any, Any, ConsumeResult | None]
"""A call of the listener that has begun."""


class Concurrently:
    """The tasks of one consumer that call its listener at the same time.

    Args:
        consumption: what becomes of a batch.
        line: what was pulled.
        options: see :class:`PushConsumerOptions`.
        clock: of the world.
    """

    def __init__(
        self, consumption: Consumption, line: WaitingBatches, options: PushConsumerOptions, clock: Clock
    ) -> None:
        self._consumption = consumption
        self._line = line
        self._most = options.consume_batch
        self._clock = clock
        self._watchdog = Watchdog(clock, options.consume_timeout_ms / 1000)

    async def watch(self) -> None:
        """End listeners that take too long, for ever; beside :meth:`run`."""
        await self._watchdog.run()

    async def run(self) -> None:
        """Consume what is in the line, for ever; run several of these tasks."""
        while True:
            work = _Work(await self._line.take(), self._clock.monotonic())
            try:
                # One scope for all batches that are there: one for each would cost as much as the rest.
                with trio.CancelScope() as scope:
                    await self._consume(work, scope)
                if work.held is not None:
                    if scope.cancelled_caught:
                        self._consumption.was_late(work.held.messages[0], work.context)
                        self._count(work.held, work)
                    await self._consumption.settle(work.held, work.context, work.result)
            finally:
                work.let_go()

    async def _consume(self, work: _Work, scope: trio.CancelScope) -> None:
        """Consume until no batch is left, or one is held that needs more than its listener."""
        while work.batch is not None:
            calls = self._have_turn(work)
            if work.held is None:
                if not calls:
                    await trio.lowlevel.checkpoint()
                    work.now = self._clock.monotonic()
                continue
            self._line.give_back(work.rest())
            if work.listening is None:
                return
            self._watchdog.begin(scope, work.now)
            try:
                await self._hear(work.held, work, *work.listening)
            finally:
                in_time = self._watchdog.end(scope)
            if not in_time or not work.good:
                return
            self._consumption.finish(work.held, work.held.messages)
            work.let_go()
            work.take(self._line.take_now())

    async def _hear(self, held: Batch, work: _Work, listening: Listening, wish: object) -> None:
        """Wait for a listener that waits."""
        try:
            answer = await _go_on(listening, wish)
        except Exception as error:
            self._failed(error, held, work)
        else:
            self._answered(answer, held, work)

    def _have_turn(self, work: _Work) -> int:
        """Call the listener until a batch is held, none is left, or others have their turn; then return 0."""
        ends, calls = work.now + _TURN_SECONDS, _TURN_CALLS
        while (batch := work.batch) is not None:
            first, began = work.at, work.now
            try:
                calls = self._call(batch, work, ends, calls)
            finally:  # before others run, whatever the listener does
                if work.at > first:
                    work.now = self._clock.monotonic()
                    self._consumed(batch, batch.messages[first : work.at], began, work.now)
            if work.held is not None or not calls:
                return calls
            work.take(self._line.take_now())
        return calls

    def _call(self, batch: Batch, work: _Work, ends: float, calls: int) -> int:
        """Call the listener with one part of *batch* after the other, until one is held or others have their turn.

        Args:
            batch: what the task has taken.
            work: of the task.
            ends: monotonic seconds at which others have their turn.
            calls: how many calls are left until then.

        Returns:
            Those that are left now, 0 when others have their turn.
        """
        assigned, window, messages, most = batch.assigned, batch.window, batch.messages, self._most
        listener, monotonic, size = self._consumption.listener, self._clock.monotonic, len(messages)
        while work.at < size and window is assigned.window and not assigned.dropped:  # as long as it is wanted
            end = work.at + 1 if most == 1 else end_of_part(messages, work.at, most)
            part, context = messages[work.at : end], ConsumeContext(assigned.queue)
            if part[0].damage and self._consumption.refuses(part, context):
                work.hold(part, context)
                return calls
            try:
                listening: Listening = listener(part, context).__await__()
            except Exception as error:
                self._failed(error, work.hold(part, context), work)
                return calls
            try:
                wish = next(listening)
            except StopIteration as answered:
                good = answered.value is None or answered.value is ConsumeResult.SUCCESS
                if not good or context.succeeded is not None:
                    self._answered(answered.value, work.hold(part, context), work)
                    return calls
            except Exception as error:
                self._failed(error, work.hold(part, context), work)
                return calls
            else:
                work.hold(part, context)
                work.listening = listening, wish
                work.now = monotonic()
                return calls
            work.at = end
            calls -= 1
            work.now = monotonic()
            if not calls or work.now >= ends:
                return 0
        return calls

    def _answered(self, answer: object, held: Batch, work: _Work) -> None:
        try:
            work.result = checked_result(answer)
        except InvalidOptionError as error:
            self._failed(error, held, work)
        else:
            self._count(held, work)

    def _failed(self, error: Exception, held: Batch, work: _Work) -> None:
        self._consumption.failed("listener failed", error, held.messages[0], work.context)
        self._count(held, work)

    def _count(self, held: Batch, work: _Work) -> None:
        began, work.now = work.now, self._clock.monotonic()
        good, topic = work.result is ConsumeResult.SUCCESS, held.messages[0].topic
        self._consumption.statistics.consumed(topic, len(held.messages), good, began, work.now)

    def _consumed(self, batch: Batch, messages: list[ReceivedMessage], began: float, now: float) -> None:
        for topic, some in itertools.groupby(messages, _TOPIC):  # a retry topic has messages of several
            self._consumption.statistics.consumed(topic, len(list(some)), True, began, now)
            began = now
        self._consumption.finish(batch, messages)
        batch.assigned.wake()


class _Work:
    """What one task does.

    Attributes:
        batch: what it has taken of the line.
        at: how many of its messages are consumed.
        held: the part of it that the listener has, or has not wanted; its queue is busy as long as it is held.
        context: of that part.
        result: what the listener says of it.
        listening: the call that waits, and what it waits for.
        now: when the last call ended (monotonic seconds).
    """

    __slots__ = ("at", "batch", "context", "held", "listening", "now", "result")

    def __init__(self, batch: Batch, now: float) -> None:
        self.take(batch)
        self.now = now
        self.held: Batch | None = None
        self.listening: tuple[Listening, object] | None = None

    def take(self, batch: Batch | None) -> None:
        self.batch = batch
        self.at = 0

    def hold(self, part: list[ReceivedMessage], context: ConsumeContext) -> Batch:
        assert self.batch is not None
        self.held = held = Batch(self.batch.assigned, self.batch.window, part)
        self.context = context
        self.result = ConsumeResult.LATER
        held.assigned.busy += 1
        return held

    def rest(self) -> Batch:
        assert self.batch is not None and self.held is not None
        return Batch(self.batch.assigned, self.batch.window, self.batch.messages[self.at + len(self.held.messages) :])

    @property
    def good(self) -> bool:
        return self.result is ConsumeResult.SUCCESS and self.context.succeeded is None

    def let_go(self) -> None:
        if self.held is not None:
            self.held.assigned.busy -= 1
            self.held.assigned.wake()
            self.held = self.listening = None


def end_of_part(messages: Sequence[ReceivedMessage], begin: int, most: int) -> int:
    """Return where a part of at most *most* messages ends; one that cannot be read is alone.

    Args:
        messages: of one queue.
        begin: where the part begins.
        most: of its messages.
    """
    end = begin + 1
    if not messages[begin].damage:
        while end < min(begin + most, len(messages)) and not messages[end].damage:
            end += 1
    return end


@types.coroutine
def _go_on(listening: Listening, wish: object) -> Generator[Any, Any, ConsumeResult | None]:
    """Wait as a call that has begun wishes, until it answers."""
    while True:
        try:
            came = yield wish
        except BaseException as error:  # the call's, also when it is cancelled
            step = functools.partial(listening.throw, error)
        else:
            step = functools.partial(listening.send, came)
        try:
            wish = step()
        except StopIteration as answered:
            answer: ConsumeResult | None = answered.value
            return answer
