"""Giving messages to the listener, and what happens to those it does not want now."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import trio

from understudy.format.names import retry_topic
from understudy.mqclient.assigned import AssignedQueue, Batch
from understudy.mqclient.errors import ClientError, RecordDamagedError
from understudy.mqclient.heartbeat import MessageModel
from understudy.mqclient.listener import ConsumeContext, ConsumeResult, Listener, PushConsumerOptions, checked_result
from understudy.mqclient.locks import QueueLocks
from understudy.mqclient.message import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    Message,
    ReceivedMessage,
)
from understudy.mqclient.offsets import OffsetStore
from understudy.mqclient.producer import Producer, ProducerOptions
from understudy.mqclient.session import Session
from understudy.mqclient.statistics import ConsumeStatistics
from understudy.mqclient.tracing import Tracer
from understudy.mqclient.waiting_batches import WaitingBatches, Watchdog
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import ShieldedTasks
from understudy.runtime.log import get_logger

log = get_logger("mqclient.consumption")

_LOCAL_RETRY_SECONDS = 5.0
_DEFAULT_MAX_RECONSUME_TIMES = 16
_TURN_SECONDS, _TURN_BATCHES = 0.001, 32
"""After so long, or so many batches of a listener that does not wait, other tasks have their turn."""


class Consumption:
    """The listener of one consumer with its rules for failures.

    Attributes:
        statistics: figures by topic, for reports.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        listener: Listener,
        options: PushConsumerOptions,
        offsets: OffsetStore,
        tasks: ShieldedTasks,
        tracer: Tracer | None = None,
    ) -> None:
        self.statistics = ConsumeStatistics(session.world.clock)
        self._session = session
        self._clock = session.world.clock
        self._group = group
        self._listener = listener
        self._options = options
        self._offsets = offsets
        self._tasks = tasks
        self._tracer = tracer
        self._producer: Producer | None = None
        self._watchdog = Watchdog(self._clock, options.consume_timeout_ms / 1000)
        self._together = trio.CapacityLimiter(options.consume_tasks)

    async def ask(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Call the listener. To raise, to answer anything else and to take too long is :attr:`ConsumeResult.LATER`."""
        began = self._clock.monotonic()
        result = ConsumeResult.LATER
        with self._clock.move_on_after(self._options.consume_timeout_ms / 1000) as scope:
            result = await self._hear(messages, context)
        if scope.cancelled_caught:
            self._was_late(messages[0], context)
        self.statistics.consumed(messages[0].topic, len(messages), result is ConsumeResult.SUCCESS, began)
        return result

    async def _hear(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        if self._tracer is None:
            return await self._answer(messages, context)
        with self._tracer.consuming(messages) as consuming:
            consuming.result = result = await self._answer(messages, context)
        return result

    async def _answer(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        try:
            return checked_result(await self._listener(messages, context))
        except Exception as error:
            self._failed("listener failed", error, messages[0], context)
            return ConsumeResult.LATER

    def _was_late(self, first: ReceivedMessage, context: ConsumeContext) -> None:
        limit_ms = self._options.consume_timeout_ms
        late = TimeoutError(f"the listener took longer than {limit_ms:g} ms and was cancelled")
        self._failed("listener took too long", late, first, context)

    def _failed(self, what: str, error: Exception, first: ReceivedMessage, context: ConsumeContext) -> None:
        log.error(what, exc=error, group=self._group, queue=context.queue, first=first.message_id, error=repr(error))
        if self._options.on_error is not None:
            try:
                self._options.on_error(error, first)
            except Exception as again:
                log.error("on_error failed", exc=again, group=self._group, error=repr(again))

    def _unwanted(self, messages: list[ReceivedMessage], context: ConsumeContext) -> bool:
        """Return whether one of *messages* cannot be read and the listener does not want such; tells of it."""
        damaged = next((message for message in messages if message.damage), None)
        if damaged is None or self._options.take_damaged:
            return False
        error = RecordDamagedError(f"{context.queue} at {damaged.queue_offset}: {damaged.damage}")
        self._failed("message cannot be read", error, damaged, context)
        return True

    async def _ask_for_good(self, messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Call the listener unless a message cannot be read and it does not want such."""
        return ConsumeResult.LATER if self._unwanted(messages, context) else await self.ask(messages, context)

    # --- concurrent --------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """End listeners that take too long, for ever; beside :meth:`run_concurrently`."""
        await self._watchdog.run()

    async def run_concurrently(self, batches: WaitingBatches) -> None:
        """Consume *batches* one after the other, for ever; run several of these tasks."""
        while True:
            asked = _Asked(await batches.take())
            try:
                # One scope for all batches that are there: one for each would cost as much as the rest.
                with trio.CancelScope() as scope:
                    await self._consume_at_once(asked, batches, scope)
                if scope.cancelled_caught:
                    self._was_late(asked.batch.messages[0], asked.context)
                    self._count(asked)
                if asked.busy:
                    await self._settle(asked.batch, asked.context, asked.result)
            finally:
                asked.leave()

    async def _consume_at_once(self, asked: _Asked, batches: WaitingBatches, scope: trio.CancelScope) -> None:
        """Consume until no batch is left, or one needs more than the listener; that one is left in *asked*, busy."""
        now = self._clock.monotonic()
        others_turn = now + _TURN_SECONDS
        for number in itertools.count(1):
            if asked.batch.wanted:
                asked.enter(now)
                messages, context = asked.batch.messages, asked.context
                if not self._unwanted(messages, context):
                    self._watchdog.begin(scope, now)
                    try:
                        asked.result = await self._hear(messages, context)
                    finally:
                        self._watchdog.end(scope)
                    now = self._count(asked)
                if scope.cancel_called or asked.result is ConsumeResult.LATER or context.succeeded is not None:
                    return
                self._finish(asked.batch, messages)
                asked.leave()
            if number % _TURN_BATCHES == 0 or now >= others_turn:
                await trio.lowlevel.checkpoint()
                now = self._clock.monotonic()
                others_turn = now + _TURN_SECONDS
            following = batches.take_now()
            if following is None:
                return
            asked.batch = following

    def _count(self, asked: _Asked) -> float:
        first, good = asked.batch.messages[0], asked.result is ConsumeResult.SUCCESS
        return self.statistics.consumed(first.topic, len(asked.batch.messages), good, asked.began)

    async def _consume(self, batch: Batch) -> None:
        asked = _Asked(batch)
        asked.enter(self._clock.monotonic())
        try:
            asked.result = await self._ask_for_good(batch.messages, asked.context)
            await self._settle(batch, asked.context, asked.result)
        finally:
            asked.leave()

    async def _settle(self, batch: Batch, context: ConsumeContext, result: ConsumeResult) -> None:
        """Send back what failed, and count what is off our hands as finished."""
        finished = batch.messages
        if not batch.counts:
            return
        if result is ConsumeResult.LATER or context.succeeded is not None:
            good = (context.succeeded or 0) if result is ConsumeResult.SUCCESS else 0
            finished = batch.messages[:good] + await self._put_off(batch, batch.messages[good:], context)
        self._finish(batch, finished)

    def _finish(self, batch: Batch, finished: list[ReceivedMessage]) -> None:
        batch.assigned.last_consume_ms = self._clock.wall_ms()
        if batch.counts:
            offset = batch.window.finish(finished)
            if offset >= 0:
                self._offsets.update(batch.assigned.queue, offset, only_forward=True)

    async def _put_off(
        self, batch: Batch, messages: list[ReceivedMessage], context: ConsumeContext
    ) -> list[ReceivedMessage]:
        """Send *messages* back to the broker and return those that are off our hands; the rest is tried again here."""
        if self._options.model is MessageModel.BROADCASTING:
            for message in messages:
                log.warning("broadcast message dropped after a failure", group=self._group, id=message.message_id)
            return messages
        done, left = [], []
        for message in messages:
            try:
                await self.send_back(message, context.delay_level)
                done.append(message)
            except ClientError as error:
                log.warning("message not sent back, tried again here", id=message.message_id, why=error)
                message.reconsume_times += 1
                left.append(message)
        if left:
            self._tasks.start_soon(self._again, Batch(batch.assigned, batch.window, left))
        return done

    async def _again(self, batch: Batch) -> None:
        await self._clock.sleep(_LOCAL_RETRY_SECONDS)
        if batch.wanted:
            await self._consume(batch)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Ask the broker to deliver *message* to the group again later, or to the dead letter topic.

        Args:
            message: a message of this consumer.
            delay_level: level of the wait; 0 grows with each failure, -1 is the dead letter topic at once.

        Raises:
            ClientError: the broker did not take it.
        """
        ext = {
            "offset": message.commit_log_offset,
            "group": self._group,
            "delayLevel": delay_level,
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": False,
            "maxReconsumeTimes": self._max_reconsume_times(_DEFAULT_MAX_RECONSUME_TIMES),
            "bname": message.broker_name,
        }
        # The broker that stored the message reads it from its own log, so no other address will do.
        address = message.store_host
        group = self._session.broker(message.broker_name)
        if group is not None and group.master is not None:
            address = group.master
        await self._session.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, ext, timeout_ms=5000)

    def _max_reconsume_times(self, unset: int) -> int:
        return unset if self._options.max_reconsume_times < 0 else self._options.max_reconsume_times

    # --- ordered -----------------------------------------------------------------------------------------------

    async def run_in_order(self, assigned: AssignedQueue) -> None:
        """Consume the queue front to back, one batch at a time, until it is dropped."""
        while not assigned.dropped:
            if not assigned.window:
                await assigned.changed.wait()
                continue
            window = assigned.window
            messages = window.take(self._options.consume_batch)
            context = ConsumeContext(assigned.queue)
            assigned.busy += 1
            try:
                async with self._together:
                    if assigned.dropped or self._lock_expired(assigned):
                        result = None
                    else:
                        result = await self._ask_for_good(messages, context)
                        assigned.last_consume_ms = self._clock.wall_ms()
                if result is ConsumeResult.LATER and not assigned.released and await self._give_up(messages):
                    result = ConsumeResult.SUCCESS
                if result is ConsumeResult.SUCCESS and not assigned.released and window is assigned.window:
                    offset = window.finish(messages)
                    if offset >= 0:
                        self._offsets.update(assigned.queue, offset, only_forward=True)
            finally:
                assigned.busy -= 1
                assigned.wake()
            if result is None:
                await self._clock.sleep(0.1)
            elif result is ConsumeResult.LATER:
                for message in messages:
                    message.reconsume_times += 1
                await self._clock.sleep(context.suspend_ms / 1000)

    def _lock_expired(self, assigned: AssignedQueue) -> bool:
        if self._options.model is MessageModel.BROADCASTING:
            return False
        return QueueLocks.expired(assigned.locked_at, self._clock.monotonic())

    async def _give_up(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Move *messages* to the dead letter topic if they failed too often; return whether all of them went."""
        limit = self._options.max_reconsume_times
        if messages[0].damage and not self._options.take_damaged:
            return await self._to_dead_letters(messages[0])
        if limit < 0 or any(message.reconsume_times < limit for message in messages):
            return False
        for message in messages:
            try:
                await self._send_to_retry_topic(message, limit)
            except ClientError as error:
                log.warning("message not moved to the dead letter topic", id=message.message_id, why=error)
                return False
        return True

    async def _to_dead_letters(self, message: ReceivedMessage) -> bool:
        try:
            await self.send_back(message, -1)
        except ClientError as error:
            log.warning("message not moved to the dead letter topic", id=message.queue_offset, why=error)
            return False
        return True

    async def _send_to_retry_topic(self, message: ReceivedMessage, limit: int) -> None:
        # The broker turns a message of the retry topic that is above its limit into a dead letter.
        if self._producer is None:
            self._producer = Producer(self._session, f"{self._group}_retry"[-120:], ProducerOptions())
        properties = dict(message.properties)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[RETRY_TOPIC] = message.topic
        properties[RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[MAX_RECONSUME_TIMES] = str(limit)
        properties[DELAY] = str(3 + message.reconsume_times)
        await self._producer.send(Message(retry_topic(self._group), message.body, properties, message.flag))


class _Asked:
    """A batch and what its listener said."""

    __slots__ = ("batch", "began", "busy", "context", "result")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.busy = False

    def enter(self, now: float) -> None:
        """The listener is asked from *now* on (monotonic seconds)."""
        self.batch.assigned.busy += 1
        self.busy = True
        self.began = now
        self.context = ConsumeContext(self.batch.assigned.queue)
        self.result = ConsumeResult.LATER

    def leave(self) -> None:
        """Nothing more is done with the batch."""
        if self.busy:
            self.busy = False
            self.batch.assigned.busy -= 1
            self.batch.assigned.wake()
