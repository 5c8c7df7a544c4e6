"""Consuming with a listener: queues are shared out, pulled ahead within limits, and progress is stored.

The story of a message: a pull (held by the broker until there is something) brings it into its queue's window; a task
gives it to the listener; when everything below it is finished too, the window's lowest offset moves past it and is
stored at the broker. A message that fails is sent back to the broker, which delivers it again later, and after too many
failures keeps it in the dead letter topic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from understudy.mqclient.assigned import AssignedQueue
from understudy.mqclient.client_requests import serve_requests
from understudy.mqclient.concurrently import Concurrently
from understudy.mqclient.consumption import Consumption
from understudy.mqclient.heartbeat import ConsumeType, MessageModel
from understudy.mqclient.listener import Listener, PushConsumerOptions, check_listener
from understudy.mqclient.locks import QueueLocks
from understudy.mqclient.membership import Membership
from understudy.mqclient.offsets import BrokerOffsets, FileOffsets, OffsetStore
from understudy.mqclient.pulling import Pulling
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, open_session
from understudy.mqclient.tracing import Tracer
from understudy.mqclient.waiting_batches import WaitingBatches
from understudy.runtime.background import ShieldedTasks, bare_errors, open_shielded
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("mqclient.push_consumer")

LOCK_AGAIN_MS = 1_000
"""How long to wait when a broker did not answer for its locks: another one may act for it before they run out."""


class PushConsumer:
    """A consumer with a listener. Make it with :func:`open_push_consumer`.

    Attributes:
        session: the client below.
        group: consumer group.
        membership: this consumer's place in its group.
        options: see :class:`PushConsumerOptions`.
        tracer: tells what was consumed, if it is asked to.
    """

    def __init__(
        self, session: Session, group: str, listener: Listener, options: PushConsumerOptions, tasks: ShieldedTasks
    ) -> None:
        self.session = session
        self.group = group
        self.options = options
        self.membership = Membership(
            session, group, ConsumeType.PASSIVELY, options.model, options.consume_from, options.strategy,
            options.rebalance_ms,
        )  # fmt: skip
        self.offsets: OffsetStore
        if options.model is MessageModel.BROADCASTING:
            folder = f"{options.offset_folder}/{session.client_id}/{group}"
            self.offsets = FileOffsets(session.world.disk, folder)
        else:
            self.offsets = BrokerOffsets(session, group)
        self.locks = QueueLocks(session, group)
        self.started_ms = session.world.clock.wall_ms()
        self.tracer = Tracer(session, group, options.trace_topic) if options.enable_message_trace else None
        self.consumption = Consumption(
            session, group, listener, options, self.offsets, tasks, self._interrupted, self.tracer
        )
        self._clock = session.world.clock
        self._tasks = tasks
        self._held: dict[MessageQueue, AssignedQueue] = {}
        self._batches = WaitingBatches()
        self._pulling = Pulling(session, self.membership, options, self.offsets)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues held now."""
        return tuple(sorted(queue for queue, assigned in self._held.items() if not assigned.dropped))

    @property
    def held(self) -> Mapping[MessageQueue, AssignedQueue]:
        """State of the queues held now, for reports."""
        return self._held

    async def subscribe(self, topic: str, expression: str = "*", expression_type: str = "TAG") -> None:
        """Add or replace a subscription while running.

        Raises:
            InvalidMessageError: it names no topic, or no tag.
            BrokerError: a broker of the topic cannot serve the condition (``SQL92``); the subscription is as it was.
        """
        await self.membership.check(topic, expression, expression_type)
        self.membership.subscribe(topic, expression, expression_type)
        await self.session.send_heartbeats()
        self.membership.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """Give up a topic; its queues go back with their progress stored."""
        self.membership.subscriptions.pop(topic, None)
        await self.session.send_heartbeats()
        self.membership.rebalance_soon()

    def pause(self) -> None:
        """Stop pulling; what was pulled is still consumed."""
        self._pulling.pause()

    def resume(self) -> None:
        """Pull again."""
        self._pulling.resume()

    async def persist(self) -> None:
        """Store the progress of all held queues now."""
        await self.offsets.persist(list(self._held))

    # --- the queues --------------------------------------------------------------------------------------------

    async def take(self, queue: MessageQueue) -> None:
        """Start consuming *queue*."""
        assigned = self._held[queue] = AssignedQueue(queue, waiting=self._batches)
        self._tasks.start_soon(self._run_queue, assigned)

    async def revoke(self, queue: MessageQueue) -> None:
        """Stop consuming *queue*; it is given back when its listeners are done."""
        assigned = self._held.get(queue)
        if assigned is not None and not assigned.dropped:
            assigned.drop()
            self._tasks.start_soon(self._give_back, assigned)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from the given offsets, of those queues that are held."""
        for queue, offset in offsets.items():
            assigned = self._held.get(queue)
            if assigned is None or assigned.dropped:
                continue
            log.info("offset reset", group=self.group, queue=queue, offset=offset)
            assigned.drop()
            with self._clock.move_on_after(self.options.close_timeout_ms / 1000):
                await assigned.idle()
            assigned.released = True
            self.offsets.update(queue, offset)
            await self.offsets.persist([queue])
            await self._release(assigned)
        self.membership.rebalance_soon()

    async def _give_back(self, assigned: AssignedQueue) -> None:
        # A new owner starts at the stored offset, so results that are nearly there are worth a short wait; an ordered
        # batch must be over before another member may begin.
        with self._clock.move_on_after(self.options.consume_timeout_ms / 1000 if self.options.ordered else 1.0):
            await assigned.idle()
        await self.offsets.persist([assigned.queue])
        await self._release(assigned)
        self.membership.rebalance_soon()

    async def _release(self, assigned: AssignedQueue) -> None:
        assigned.released = True
        if self._held.get(assigned.queue) is not assigned:
            return
        del self._held[assigned.queue]
        self.offsets.forget(assigned.queue)
        if self._locking and assigned.locked_at is not None:
            await self.locks.unlock([assigned.queue])

    @property
    def _locking(self) -> bool:
        return self.options.ordered and self.options.model is MessageModel.CLUSTERING

    async def _run_queue(self, assigned: AssignedQueue) -> None:
        try:
            with assigned.pulling:
                if self._locking:
                    await self._wait_for_lock(assigned)
                assigned.next_offset = await self._pulling.first_offset(assigned.queue)
                if self.options.ordered:
                    self._tasks.start_soon(self.consumption.run_in_order, assigned)
                await self._pulling.run(assigned)
        except Exception as error:  # one queue must not end the consumer: another rebalance takes it again
            log.error("queue failed", exc=error, group=self.group, queue=assigned.queue, error=repr(error))
            await self._clock.sleep(self.options.pull_retry_ms / 1000)
            await self.revoke(assigned.queue)

    async def _wait_for_lock(self, assigned: AssignedQueue) -> None:
        while True:
            asked_at = self._clock.monotonic()
            if assigned.queue in await self.locks.lock([assigned.queue]):
                assigned.locked_at = asked_at
                return
            await self._clock.sleep(1.0)

    # --- the loops ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to consume. Each task is shielded alone: if one fails, the others have the end of the block as well."""
        start_soon = self._tasks.start_soon
        start_soon(self.session.refresh_routes)
        start_soon(self.session.keep_alive)
        start_soon(self.membership.run, lambda: list(self._held), self.revoke, self.take)
        start_soon(self._persist_for_ever)
        if self.tracer is not None:
            start_soon(self.tracer.run)
        if self._locking:
            start_soon(self._renew_locks)
        if not self.options.ordered:
            several = Concurrently(self.consumption, self._batches, self.options, self._clock)
            start_soon(several.watch)
            for _ in range(self.options.consume_tasks):
                start_soon(several.run)

    def _interrupted(self, error: BaseException) -> None:
        """Let no listener begin any more, and end the block by *error*; leaving it closes this consumer as ever."""
        for assigned in self._held.values():
            assigned.drop()
        self._tasks.fail(error)

    async def _persist_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self.options.persist_ms / 1000)
            await self.persist()

    async def _renew_locks(self) -> None:
        pause_ms = self.options.lock_ms
        while True:
            await self._clock.sleep(pause_ms / 1000)
            pause_ms = self.options.lock_ms
            mine = {
                queue: held for queue, held in self._held.items() if held.locked_at is not None and not held.dropped
            }
            asked_at = self._clock.monotonic()
            answer = await self.locks.renew(mine)
            for queue, assigned in mine.items():
                if queue in answer.granted:
                    assigned.locked_at = asked_at
                elif queue in answer.refused or self.locks.expired(assigned.locked_at, self._clock.monotonic()):
                    log.warning("lock lost", group=self.group, queue=queue)
                    await self.revoke(queue)
                else:  # its broker was silent: the lock still holds, and who answers in its place may grant it again
                    pause_ms = min(pause_ms, LOCK_AGAIN_MS)

    async def close(self) -> None:
        """Stop pulling, wait a bounded time for listeners, store the progress, release locks and sign off."""
        for assigned in self._held.values():
            assigned.drop()
        with self._clock.move_on_after(self.options.close_timeout_ms / 1000):
            for assigned in list(self._held.values()):
                await assigned.idle()
        await self.persist()
        if self._locking:
            await self.locks.unlock([queue for queue, held in self._held.items() if held.locked_at is not None])
        if self.tracer is not None:
            await self.tracer.close()
        await self.session.sign_off(consumer_group=self.group)


@asynccontextmanager
async def open_push_consumer(
    world: World,
    name_servers: str | Sequence[str],
    group: str,
    subscriptions: Mapping[str, str],
    listener: Listener,
    options: PushConsumerOptions | None = None,
) -> AsyncIterator[PushConsumer]:
    """Open a consumer that calls *listener*; leaving the block stores its progress and signs it off.

    Args:
        world: clock, network, disk and randomness.
        name_servers: ``host:port`` of one or more, as a list or separated by semicolons.
        group: consumer group.
        subscriptions: ``*`` or ``TagA || TagB`` by topic.
        listener: gets batches of one queue and their context.
        options: see :class:`PushConsumerOptions`.

    Raises:
        InvalidMessageError: a name or subscription is not legal.
        InvalidOptionError: the listener cannot be called as consumers call it.
        NotConnectedError: no name server answers.
    """
    chosen = options or PushConsumerOptions()
    check_listener(listener)
    with bare_errors():
        async with open_session(world, name_servers, chosen.session) as session, open_shielded() as tasks:
            consumer = PushConsumer(session, group, listener, chosen, tasks)
            if isinstance(consumer.offsets, FileOffsets):
                await consumer.offsets.load()
            consumer.membership.subscribe_all(subscriptions)
            serve_requests(consumer)
            await consumer.membership.join()
            consumer.start()
            try:
                yield consumer
            finally:
                with world.clock.move_on_after(chosen.close_timeout_ms / 1000 + 3) as scope:
                    scope.shield = True
                    await consumer.close()
