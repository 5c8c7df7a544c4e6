"""Pulling one queue ahead of its listener: where to start, when to pause, what to do when a pull fails."""

from __future__ import annotations

from functools import partial

from understudy.format.names import RETRY_PREFIX
from understudy.mqclient.assigned import AssignedQueue, Batch
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.heartbeat import ConsumeFrom, MessageModel
from understudy.mqclient.leaders import group_of
from understudy.mqclient.listener import PushConsumerOptions
from understudy.mqclient.membership import Membership
from understudy.mqclient.offsets import OffsetStore
from understudy.mqclient.pull import PullRequest, PullResult, PullStatus, max_offset, min_offset, offset_at
from understudy.mqclient.pulls import Pulls
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session
from understudy.remoting.codes import ResponseCode
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("mqclient.pulling")

# Refusals of brokers that have forgotten the group or hold an older subscription: a heartbeat cures them.
_HEARTBEAT_CURES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


class Pulling:
    """How one consumer pulls its queues.

    Args:
        session: the client.
        membership: the consumer's place in its group.
        options: see :class:`PushConsumerOptions`.
        offsets: the consumer's progress.
    """

    def __init__(
        self,
        session: Session,
        membership: Membership,
        options: PushConsumerOptions,
        offsets: OffsetStore,
    ) -> None:
        self.session = session
        self.membership = membership
        self.group = membership.group
        self.options = options
        self.offsets = offsets
        self._clock = session.world.clock
        self._paused = False
        self._resumed = Signal()

    def pause(self) -> None:
        """Stop pulling; what was pulled is still consumed."""
        self._paused = True

    def resume(self) -> None:
        """Pull again."""
        self._paused = False
        self._resumed.set()

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where to start *queue*, asking until a broker says it."""
        while True:
            try:
                known = self.offsets.known(queue)
                stored = known if known is not None else await self.offsets.stored(queue)
                if stored is not None:
                    return stored
                first = await self._start_of_new_group(queue)
                # Differs from the reference, which stores nothing until a message was consumed: a member that takes
                # over before that would skip what arrived in between.
                self.offsets.update(queue, first)
                return first
            except ClientError as error:
                log.warning("start of queue unknown", group=self.group, queue=queue, why=error)
                await self._clock.sleep(self.options.pull_retry_ms / 1000)

    async def _start_of_new_group(self, queue: MessageQueue) -> int:
        if queue.topic.startswith(RETRY_PREFIX) or self.options.consume_from is ConsumeFrom.FIRST_OFFSET:
            return await min_offset(self.session, queue)
        if self.options.consume_from is ConsumeFrom.TIMESTAMP:
            return await offset_at(self.session, queue, self.options.consume_timestamp_ms)
        return await max_offset(self.session, queue)

    async def run(self, assigned: AssignedQueue) -> None:
        """Pull a queue for ever, from its :attr:`AssignedQueue.next_offset` on."""
        while True:
            while self._paused:
                await self._resumed.wait()
            while assigned.window.full(self.options.limits, ordered=self.options.ordered):
                await assigned.changed.wait()
            wanted = self._wanted(assigned)
            address = self._pull_address(assigned)
            if wanted is None or address is None:
                await self._clock.sleep(self.options.pull_retry_ms / 1000)
                continue
            pulls = Pulls(self.session, address, partial(self._take_and_go_on, assigned, address))
            try:
                result = await pulls.run(wanted)
            except ClientError as error:
                await self._after_failed_pull(assigned, address, error)
                continue
            if result is not None:
                await self._take_unusual(assigned, result)

    def _wanted(self, assigned: AssignedQueue) -> PullRequest | None:
        """Return what to pull next, or ``None`` when the topic is not subscribed to any more."""
        subscription = self.membership.subscriptions.get(assigned.queue.topic)
        if subscription is None:
            return None
        commit = self.offsets.known(assigned.queue) if self.options.model is MessageModel.CLUSTERING else None
        return PullRequest(
            self.group, assigned.queue, assigned.next_offset, subscription, self.options.pull_batch,
            commit_offset=commit, hold_ms=self.options.hold_ms,
        )  # fmt: skip

    def _take_and_go_on(self, assigned: AssignedQueue, address: str, result: PullResult) -> PullRequest | None:
        """Take messages, and return what to ask the same broker next unless something speaks against it."""
        self._take(assigned, result)
        if self._paused or assigned.dropped or self._pull_address(assigned) != address:
            return None
        if assigned.window.full(self.options.limits, ordered=self.options.ordered):
            return None
        return self._wanted(assigned)

    def _pull_address(self, assigned: AssignedQueue) -> str | None:
        group = group_of(self.session, assigned.queue)
        if group is None:
            return None
        return group.addresses.get(assigned.replica) or group.any_address()

    async def _after_failed_pull(self, assigned: AssignedQueue, address: str, error: ClientError) -> None:
        pause_ms = self.options.pull_retry_ms
        if isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY:
            pause_ms = min(20.0, pause_ms)
        else:
            log.warning("pull failed", group=self.group, queue=assigned.queue, broker=address, why=error)
        await self._clock.sleep(pause_ms / 1000)
        if not isinstance(error, BrokerError):
            assigned.replica = 0
            await self.session.renew_route(assigned.queue.topic)
            address = self._pull_address(assigned) or address
            await self.session.send_heartbeat(address)
        elif error.code in _HEARTBEAT_CURES:
            await self.session.send_heartbeat(address)
        elif error.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            await self.session.renew_route(assigned.queue.topic)

    async def _take_unusual(self, assigned: AssignedQueue, result: PullResult) -> None:
        if result.status is not PullStatus.OFFSET_ILLEGAL:
            self._take(assigned, result)
            return
        assigned.last_pull_ms = self._clock.wall_ms()
        assigned.replica = result.suggested_broker_id
        log.warning(
            "offset corrected",
            group=self.group, queue=assigned.queue, asked=assigned.next_offset, corrected=result.next_offset,
        )  # fmt: skip
        assigned.restart(result.next_offset)
        self.offsets.update(assigned.queue, result.next_offset)
        await self.offsets.persist([assigned.queue])

    def _take(self, assigned: AssignedQueue, result: PullResult) -> None:
        assigned.last_pull_ms = self._clock.wall_ms()
        assigned.replica = result.suggested_broker_id
        assigned.next_offset = result.next_offset
        fresh = assigned.window.add(result.messages)
        if fresh:
            assigned.wake()
            if not self.options.ordered:
                assigned.waiting.put(Batch(assigned, assigned.window, fresh))
        elif not assigned.window and not assigned.busy:
            # Everything up to here was filtered out or is finished: the progress may move on.
            self.offsets.update(assigned.queue, result.next_offset, only_forward=True)
