"""Moves groups past what they popped: at once, or when the check point that waits in memory is done.

A check point that waits is written by :meth:`Moving.run` when it is due, and by the end of it at the latest.
"""

from __future__ import annotations

from collections.abc import Set

import attrs
import trio

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.buffer import Buffered, BufferLimits, PopBuffer
from understudy.broker.pop.inflight import InFlight
from understudy.broker.pop.log import ReviveLog
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint
from understudy.broker.statistics import BrokerStatistics
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.store.status import PutRejected

log = get_logger("broker.pop.buffer")

RETRY_SECONDS = 0.1


class Moving:
    """What pops and acknowledgements of one broker change.

    Args:
        clock: both clocks.
        config: read at each use.
        offsets: where groups are.
        written: the log of check points and acknowledgements.
        stats: counts.

    Attributes:
        buffer: check points that wait in memory.
        in_flight: what is popped and not acknowledged.
    """

    def __init__(
        self, clock: Clock, config: BrokerConfig, offsets: OffsetTable, written: ReviveLog, stats: BrokerStatistics
    ) -> None:
        self._stats = stats
        self._clock = clock
        self._config = config
        self._offsets = offsets
        self._log = written
        self._wake = Signal()
        self.buffer = PopBuffer()
        self.in_flight = InFlight()

    def position(self, group: str, topic: str, queue_id: int) -> int:
        """Return where a group goes on in a queue; -1 when it is new there."""
        return max(self._offsets.query(group, topic, queue_id), self.buffer.position(group, topic, queue_id))

    def popped(self, point: CheckPoint, revive_queue: int, following: int) -> None:
        """Note that messages went out, and move their group to *following*. Raises ``PutRejected``: they must not."""
        now_ms = self._clock.wall_ms()
        if self._config.enable_pop_buffer_merge and self.buffer.takes(point, now_ms, self._limits()):
            self.buffer.keep(point, revive_queue, following, now_ms, self._clock.monotonic(), self._limits())
            self._wake.set()
        else:
            self.write(point, revive_queue)
            self.passed(point.group, point.topic, point.queue_id, following)
        self.in_flight.add(point.topic, point.group, point.queue_id, len(point.offsets))
        self._stats.check_point(point.group, point.topic)

    def write(self, point: CheckPoint, revive_queue: int) -> int:
        """Write a check point that does not wait.

        Returns:
            The byte of the log behind it; 0 where no log has it.

        Raises:
            PutRejected: it is not written.
        """
        overtakes = self.buffer.first_waiting(point.group, point.topic, point.queue_id) is not None
        point = attrs.evolve(point, overtakes=True) if overtakes else point
        return self._log.write(point, revive_queue, point.revive_ms - AHEAD_MS)

    def passed(self, group: str, topic: str, queue_id: int, following: int) -> None:
        """Move a group to *following*, behind what it popped before.

        Args:
            group: that popped.
            topic: of the queue.
            queue_id: of the queue.
            following: queue offset where it goes on.
        """
        if not self.buffer.follows(group, topic, queue_id, following):
            self._offsets.commit_popped(group, topic, queue_id, following, self._log.belongs)

    def acked(self, ack: Ack, revive_queue: int, revive_ms: int) -> int:
        """Take acknowledgements.

        Returns:
            The byte of the log behind them, 0 when they are not written.

        Raises:
            PutRejected: they cannot be written.
        """
        topic, group, queue_id, *_ = ack.key
        self.in_flight.add(topic, group, queue_id, -len(ack.offsets))
        self._stats.acknowledged(group, topic, len(ack.offsets))
        if len(self.buffer) and self.buffer.ack(ack):
            self._commit()
            return 0
        return self._log.write(ack, revive_queue, revive_ms)

    def reset(self, group: str, topic: str, queue_id: int) -> None:
        """Forget what a group popped of a queue: its offset was reset."""
        self.buffer.forget(group, topic, queue_id)
        self.in_flight.clear(topic, group, queue_id)

    def forget_topics(self, topics: Set[str]) -> None:
        """Forget what was popped of deleted topics."""
        self.buffer.forget_topics(topics)
        self._log.counts.forget_topics(topics)
        self.in_flight.forget_topics(topics)

    async def run(self) -> None:
        """Write what waits in memory when it is due, until cancelled; then write all of it."""
        try:
            while True:
                left = self.buffer.next_due_at() - self._clock.monotonic()
                if left > 0:
                    with self._clock.move_on_after(left):
                        await self._wake.wait()
                elif not self._write(self._clock.monotonic()):
                    await self._clock.sleep(RETRY_SECONDS)
                await trio.lowlevel.checkpoint()
        finally:
            self._write(float("inf"))

    def _write(self, until: float) -> bool:
        """Write what is due until *until* (monotonic seconds); return whether all of it could be."""
        for waiting in self.buffer.due(until):
            try:
                self._write_one(waiting)
            except PutRejected as error:
                log.warning("check point not written yet", topic=waiting.point.topic, why=error)
                return False
        self._commit()
        return True

    def _write_one(self, waiting: Buffered) -> None:
        point, queue = waiting.point, waiting.revive_queue
        done = tuple(offset for offset in point.offsets if offset not in point.open_offsets)
        if self.buffer.first_waiting(point.group, point.topic, point.queue_id) not in (None, waiting):
            point = attrs.evolve(point, overtakes=True)
        self._log.write(point, queue, point.revive_ms - AHEAD_MS)
        acks = [Ack(point.key, done, True)] if self._config.enable_pop_batch_ack and done else [
            Ack(point.key, (offset,)) for offset in done
        ]  # fmt: skip
        for ack in acks:
            self._log.write(ack, queue, point.revive_ms)
        self.buffer.finish(waiting)

    def _commit(self) -> None:
        for (group, topic, queue_id), following in self.buffer.commits():
            self._offsets.commit_popped(group, topic, queue_id, following, self._log.belongs)

    def _limits(self) -> BufferLimits:
        config = self._config
        return BufferLimits(
            config.pop_ck_stay_buffer_time,
            config.pop_ck_stay_buffer_time_out,
            config.pop_ck_max_buffer_size,
            config.pop_ck_offset_max_queue_size,
        )
