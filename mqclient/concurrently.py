"""Consuming several batches at a time: tasks that take what was pulled from one line.

Most listeners do not wait for each message, and then nothing has to be done around their call: while it lasts nobody
else runs, so nobody can see that they have a message, or how far they are. A task therefore awaits the listener
without anything around it, batch after batch, and counts what was consumed before others have their turn. Only when the
listener waits, which is noticed around all these calls together, does the task leave the rest of what it took to
others, show that it is busy, and have the time watched.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from operator import attrgetter
from typing import Any

import trio

from understudy.mqclient.assigned import Batch
from understudy.mqclient.consumption import Consumption
from understudy.mqclient.errors import InvalidOptionError
from understudy.mqclient.listener import INTERRUPTS, ConsumeContext, ConsumeResult, PushConsumerOptions, checked_result
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.waiting_batches import WaitingBatches, Watchdog
from understudy.runtime.clock import Clock

_TURN_SECONDS, _TURN_CALLS = 0.001, 256
"""After so long, or so many calls of a listener that does not wait, other tasks have their turn."""


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
                        self._count(work)
                    await self._consumption.settle(work.held, work.context, work.result)
            finally:
                work.let_go()

    async def _consume(self, work: _Work, scope: trio.CancelScope) -> None:
        """Consume until no batch is left, or one is held that needs more than its listener."""
        waits = functools.partial(self._waits, work, scope)
        while work.batch is not None:
            work.waited = False
            try:
                await _noticed(self._have_turn(work), waits)
            finally:
                in_time = self._watchdog.end(scope)
            if work.held is None:
                if work.batch is not None:
                    await trio.lowlevel.checkpoint()
                    work.now = self._clock.monotonic()
                continue
            if not work.waited:
                self._line.give_back(work.rest())
                return
            if not in_time or not work.good:
                return
            self._consumption.finish(work.held, work.held.messages)
            work.let_go()
            work.take(self._line.take_now())

    def _waits(self, work: _Work, scope: trio.CancelScope) -> None:
        """Do what is due when the listener waits: others may run now, and take the rest."""
        work.waited = True
        work.hold()
        self._count_consumed(work)
        self._line.give_back(work.rest())
        self._watchdog.begin(scope, work.now)

    async def _have_turn(self, work: _Work) -> None:
        """Call the listener until a part is held, no batch is left, or others have their turn."""
        consumption, most = self._consumption, self._most
        listener, success = consumption.listener, ConsumeResult.SUCCESS
        loop_time = trio.lowlevel.current_clock().current_time  # what a turn may take is the event loop's, not a host's
        ends, calls = loop_time() + _TURN_SECONDS, _TURN_CALLS
        try:
            while (batch := work.batch) is not None:
                assigned, window, messages = batch.assigned, batch.window, batch.messages
                queue, size, at = assigned.queue, len(messages), work.at
                while at < size and window is assigned.window and not assigned.dropped:  # as long as it is wanted
                    end = at + 1 if most == 1 else end_of_part(messages, at, most)
                    part = work.part = messages[at:end]
                    context = work.context = ConsumeContext(queue)
                    if part[0].damage and consumption.refuses(part, context):
                        work.hold()
                        return
                    try:
                        answer = await listener(part, context)
                    except Exception as error:
                        self._failed(error, work)
                        return
                    except INTERRUPTS as error:
                        work.hold()
                        consumption.interrupted(error, context)
                        self._count(work)
                        return
                    good = (answer is None or answer is success) and context.succeeded is None
                    if work.waited or not good:
                        self._answered(answer, work)
                        return
                    at = work.at = end
                    calls -= 1
                    if not calls or loop_time() >= ends:
                        return
                self._count_consumed(work)
                work.take(self._line.take_now())
        finally:  # before others run, whatever the listener does
            self._count_consumed(work)

    def _answered(self, answer: object, work: _Work) -> None:
        try:
            result = checked_result(answer)
        except InvalidOptionError as error:
            self._failed(error, work)
        else:
            work.hold()
            work.result = result
            self._count(work)

    def _failed(self, error: Exception, work: _Work) -> None:
        held = work.hold()
        self._consumption.failed("listener failed", error, held.messages[0], work.context)
        self._count(work)

    def _count(self, work: _Work) -> None:
        """Count what the listener has answered that is held, after what was consumed before it."""
        self._count_consumed(work)
        held, began = work.hold(), work.now
        work.now = self._clock.monotonic()
        good, topic = work.result is ConsumeResult.SUCCESS, held.messages[0].topic
        self._consumption.statistics.consumed(topic, len(held.messages), good, began, work.now)

    def _count_consumed(self, work: _Work) -> None:
        """Count what was consumed without waiting since the last count."""
        batch, first = work.batch, work.counted
        if batch is None or first == work.at:
            return
        work.counted = work.at
        consumed = batch.messages[first : work.at] if work.at - first < len(batch.messages) else batch.messages
        topics = {message.topic for message in consumed}
        began, work.now = work.now, self._clock.monotonic()
        if len(topics) == 1:
            self._consumption.statistics.consumed(topics.pop(), len(consumed), True, began, work.now)
        else:  # a retry topic has messages of several
            for topic, some in itertools.groupby(consumed, attrgetter("topic")):
                self._consumption.statistics.consumed(topic, len(list(some)), True, began, work.now)
                began = work.now
        self._consumption.finish(batch, consumed)
        batch.assigned.wake()


class _Work:
    """What one task does.

    Attributes:
        batch: what it has taken of the line.
        at: how many of its messages are consumed.
        counted: how many of these are counted, and have moved the progress of their queue.
        part, context: what the listener was called with last.
        held: that part, if the listener waits with it, or has not wanted it; its queue is busy as long as it is held.
        waited: whether the listener has waited since the turn began.
        result: what the listener says of it.
        now: when the last call that is counted ended (monotonic seconds).
    """

    __slots__ = ("at", "batch", "context", "counted", "held", "now", "part", "result", "waited")
    part: list[ReceivedMessage]
    context: ConsumeContext

    def __init__(self, batch: Batch, now: float) -> None:
        self.take(batch)
        self.now = now
        self.held: Batch | None = None
        self.waited = False

    def take(self, batch: Batch | None) -> None:
        self.batch = batch
        self.at = self.counted = 0

    def hold(self) -> Batch:
        """Hold the part that the listener was called with last, and return it."""
        if self.held is None:
            assert self.batch is not None
            self.held = Batch(self.batch.assigned, self.batch.window, self.part)
            self.held.assigned.busy += 1
            self.result = ConsumeResult.LATER
        return self.held

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
            self.held = None


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
def _noticed(calls: Coroutine[Any, Any, None], waits: Callable[[], None]) -> Generator[Any, Any, None]:
    """Run *calls* to their end, and call *waits* when they wait for the first time."""
    try:
        wish = calls.send(None)
    except StopIteration:
        return
    waits()
    while True:
        try:
            came = yield wish
        except BaseException as error:  # theirs, also when they are cancelled
            step = functools.partial(calls.throw, error)
        else:
            step = functools.partial(calls.send, came)
        try:
            wish = step()
        except StopIteration:
            return
