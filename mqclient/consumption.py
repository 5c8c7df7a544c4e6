"""Giving messages to the listener, and what happens to those it does not want now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import trio

from understudy.format.names import retry_topic
from understudy.format.record import FLAG_INNER_BATCH
from understudy.mqclient.assigned import AssignedQueue, Batch
from understudy.mqclient.errors import ClientError, RecordDamagedError
from understudy.mqclient.heartbeat import MessageModel
from understudy.mqclient.listener import (
    INTERRUPTS,
    ConsumeContext,
    ConsumeResult,
    Listener,
    PushConsumerOptions,
    checked_result,
    tell_error,
)
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
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import ShieldedTasks, interruptible
from understudy.runtime.log import get_logger

log = get_logger("mqclient.consumption")

_LOCAL_RETRY_SECONDS = 5.0
_DEFAULT_MAX_RECONSUME_TIMES = 16


class Consumption:
    """The listener of one consumer with its rules for failures.

    Attributes:
        listener: what the application gave, traced if that is wanted.
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
        interrupted: Callable[[BaseException], None],
        tracer: Tracer | None = None,
    ) -> None:
        self.statistics = ConsumeStatistics(session.world.clock)
        self._session = session
        self._clock = session.world.clock
        self._group = group
        self._listener = functools.partial(interruptible, listener)
        self.listener = self._listener if tracer is None else self._traced
        self._options = options
        self._offsets = offsets
        self._tasks = tasks
        self._tracer = tracer
        self._tell_interrupted = interrupted
        self._interrupted = False
        self._producer: Producer | None = None
        self._together = trio.CapacityLimiter(options.consume_tasks)

    async def ask(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Call the listener. To raise, to answer anything else and to take too long is :attr:`ConsumeResult.LATER`."""
        began = self._clock.monotonic()
        result = ConsumeResult.LATER
        with self._clock.move_on_after(self._options.consume_timeout_ms / 1000) as scope:
            try:
                result = checked_result(await self.listener(messages, context))
            except Exception as error:
                self.failed("listener failed", error, messages[0], context)
            except INTERRUPTS as error:
                self.interrupted(error, context)
        if scope.cancelled_caught:
            self.was_late(messages[0], context)
        good = result is ConsumeResult.SUCCESS
        self.statistics.consumed(messages[0].topic, len(messages), good, began, self._clock.monotonic())
        return result

    async def _traced(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        assert self._tracer is not None
        with self._tracer.consuming(messages) as consuming:
            try:
                consuming.result = result = checked_result(await self._listener(messages, context))
            except (Exception, *INTERRUPTS):
                consuming.result = ConsumeResult.LATER
                raise
        return result

    def was_late(self, first: ReceivedMessage, context: ConsumeContext) -> None:
        """Tell that the listener was cancelled with the batch that begins with *first*."""
        limit_ms = self._options.consume_timeout_ms
        late = TimeoutError(f"the listener took longer than {limit_ms:g} ms and was cancelled")
        self.failed("listener took too long", late, first, context)

    def failed(self, what: str, error: Exception, first: ReceivedMessage, context: ConsumeContext) -> None:
        """Tell of what went wrong.

        Args:
            what: for the log.
            error: with its traceback.
            first: message of the batch.
            context: of the batch.
        """
        log.error(what, exc=error, group=self._group, queue=context.queue, first=first.message_id, error=repr(error))
        tell_error(self._options.on_error, error, first)

    def interrupted(self, error: BaseException, context: ConsumeContext) -> None:
        """Have the consumer closed, and *error* raised then: an interrupt of the program has hit a listener.

        Args:
            error: an interrupt.
            context: of the batch that the listener has; it is tried again later.
        """
        log.warning("listener interrupted", group=self._group, queue=context.queue, error=repr(error))
        self._interrupted = True
        self._tell_interrupted(error)

    def refuses(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> bool:
        """Return whether one of *messages* cannot be read and the listener does not want such; tells of it."""
        damaged = next((message for message in messages if message.damage), None)
        if damaged is None or self._options.take_damaged:
            return False
        error = RecordDamagedError(f"{context.queue} at {damaged.queue_offset}: {damaged.damage}")
        self.failed("message cannot be read", error, damaged, context)
        return True

    async def _ask_for_good(self, messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Call the listener unless a message cannot be read and it does not want such."""
        return ConsumeResult.LATER if self.refuses(messages, context) else await self.ask(messages, context)

    # --- concurrent: concurrently.py has the tasks that do it ---------------------------------------------------

    async def settle(self, batch: Batch, context: ConsumeContext, result: ConsumeResult) -> None:
        """Send back what failed of *batch*, and count what is off our hands as finished.

        Args:
            batch: that its listener has answered.
            context: with what the listener wrote into it.
            result: what it said.
        """
        finished = batch.messages
        if not batch.counts:
            return
        if result is ConsumeResult.LATER or context.succeeded is not None:
            good = (context.succeeded or 0) if result is ConsumeResult.SUCCESS else 0
            finished = batch.messages[:good] + await self._put_off(batch, batch.messages[good:], context)
        self.finish(batch, finished)

    def finish(self, batch: Batch, finished: list[ReceivedMessage]) -> None:
        """Count these messages of *batch* as consumed, and move the progress of their queue."""
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
            if self._interrupted:  # nobody else has them: they come again when this member is back
                return []
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
        if not batch.wanted:
            return
        context = ConsumeContext(batch.assigned.queue)
        batch.assigned.busy += 1
        try:
            result = await self._ask_for_good(batch.messages, context)
            await self.settle(batch, context, result)
        finally:
            batch.assigned.busy -= 1
            batch.assigned.wake()

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Ask the broker to deliver *message* to the group again later, or to the dead letter topic.

        Args:
            message: a message of this consumer.
            delay_level: level of the wait; 0 grows with each failure, -1 is the dead letter topic at once.

        Raises:
            ClientError: the broker did not take it.
        """
        most = self._max_reconsume_times(_DEFAULT_MAX_RECONSUME_TIMES)
        if message.sys_flag & FLAG_INNER_BATCH and not message.damage:  # the broker has nothing but the whole batch
            await self._send_to_retry_topic(message, most if delay_level >= 0 else 0, delay_level)
            return
        ext = {
            "offset": message.commit_log_offset,
            "group": self._group,
            "delayLevel": delay_level,
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": False,
            "maxReconsumeTimes": most,
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

    async def _send_to_retry_topic(self, message: ReceivedMessage, limit: int, delay_level: int = 0) -> None:
        # The broker turns a message of the retry topic that is above its limit into a dead letter.
        if self._producer is None:
            self._producer = Producer(self._session, f"{self._group}_retry"[-120:], ProducerOptions())
        properties = dict(message.properties)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[RETRY_TOPIC] = message.topic
        properties[RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[MAX_RECONSUME_TIMES] = str(limit)
        properties[DELAY] = str(delay_level if delay_level > 0 else 3 + message.reconsume_times)
        await self._producer.send(Message(retry_topic(self._group), message.body, properties, message.flag))
