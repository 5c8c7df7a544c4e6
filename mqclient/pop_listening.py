"""Giving to a listener what a consumer pops, and telling the brokers what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from understudy.mqclient.errors import ClientError, RecordDamagedError
from understudy.mqclient.listener import INTERRUPTS, ConsumeResult, checked_result, tell_error
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.popped import PoppedMessage
from understudy.runtime.background import ShieldedTasks, bare_errors, interruptible, open_shielded
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

if TYPE_CHECKING:
    from understudy.mqclient.pop_consumer import PopConsumer

log = get_logger("mqclient.pop_listening")

PopListener = Callable[[ReceivedMessage], Awaitable[ConsumeResult | None]]
"""Consumes one message; returning nothing means success, raising means later."""


class PopListening:
    """One listener of one consumer.

    Pops end as soon as they are cancelled; listeners have the consumer's ``close_timeout_ms`` then, and the brokers are
    told what they say.

    Args:
        consumer: pops.
        listener: gets each message.
    """

    def __init__(self, consumer: PopConsumer, listener: PopListener) -> None:
        self._consumer = consumer
        self._options = consumer.options
        self._clock = consumer.session.world.clock
        self._listener = listener
        self._room = trio.Semaphore(consumer.options.consume_tasks)
        self._pops = trio.CancelScope()
        self._busy = 0
        self._ended = Signal()
        self._closing = False

    async def run(self) -> None:
        """Pop and consume until cancelled, or stopped.

        Raises:
            KeyboardInterrupt: it hit the listener; the other listeners have ended by then.
        """
        with bare_errors():
            async with open_shielded() as tasks:
                try:
                    with self._pops:
                        async with trio.open_nursery() as nursery:
                            for topic in list(self._consumer.membership.subscriptions):
                                nursery.start_soon(self._pop_topic, topic, tasks)
                finally:
                    self._closing = True
                    with self._clock.move_on_after(self._options.close_timeout_ms / 1000) as scope:
                        scope.shield = True
                        while self._busy:
                            await self._ended.wait()

    def stop(self) -> None:
        """Pop no more; :meth:`run` returns when the listeners have ended."""
        self._pops.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _pop_topic(self, topic: str, tasks: ShieldedTasks) -> None:
        """Keep one task for each broker that has *topic*."""
        running = set[str]()
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    names = await self._consumer.brokers(topic)
                except ClientError as error:
                    log.warning("no route to pop from yet", group=self._consumer.group, topic=topic, why=error)
                    names = []
                for name in set(names) - running:
                    running.add(name)
                    nursery.start_soon(self._pop_broker, topic, name, tasks)
                await self._clock.sleep(self._options.pause_ms / 1000)

    @trio.lowlevel.enable_ki_protection
    async def _pop_broker(self, topic: str, broker_name: str, tasks: ShieldedTasks) -> None:
        while True:
            try:
                popped = await self._consumer.pop(topic, broker_name=broker_name)
            except ClientError as error:
                log.warning("pop failed", group=self._consumer.group, topic=topic, broker=broker_name, why=error)
                await self._clock.sleep(self._options.pause_ms / 1000)
                continue
            for each in popped:
                await self._room.acquire()
                self._busy += 1
                tasks.start_soon(self._consume, each, tasks)

    async def _consume(self, popped: PoppedMessage, tasks: ShieldedTasks) -> None:
        try:
            if not self._closing:  # else it comes again when its time is over
                await self._settle(popped, await self._ask(popped.message, tasks))
        except ClientError as error:
            topic = popped.message.topic
            log.warning("it comes again: the broker was not told", group=self._consumer.group, topic=topic, why=error)
        finally:
            self._busy -= 1
            self._ended.set()
            self._room.release()

    def _refuses(self, message: ReceivedMessage) -> bool:
        return bool(message.damage) and not self._options.take_damaged

    async def _ask(self, message: ReceivedMessage, tasks: ShieldedTasks) -> ConsumeResult:
        if self._refuses(message):
            where = f"queue {message.queue_id} of {message.topic} at {message.broker_name}, {message.queue_offset}"
            self._failed("message cannot be read", RecordDamagedError(f"{where}: {message.damage}"), message)
            return ConsumeResult.LATER
        try:
            return checked_result(await interruptible(self._listener, message))
        except Exception as error:
            self._failed("listener failed", error, message)
        except INTERRUPTS as error:
            log.warning("listener interrupted", group=self._consumer.group, topic=message.topic, error=repr(error))
            self.stop()
            tasks.fail(error)
        return ConsumeResult.LATER

    def _failed(self, what: str, error: Exception, message: ReceivedMessage) -> None:
        log.error(what, exc=error, group=self._consumer.group, topic=message.topic, error=repr(error))
        tell_error(self._options.on_error, error, message)

    async def _settle(self, popped: PoppedMessage, result: ConsumeResult) -> None:
        if result is not ConsumeResult.LATER:
            await self._consumer.ack(popped)
        elif popped.message.reconsume_times >= self._options.max_reconsume_times or (
            self._options.in_order and self._refuses(popped.message)  # it would hold up those behind it
        ):
            await self._consumer.give_up(popped)
        else:
            await self._consumer.change_invisible(popped, self._options.retry_ms)
