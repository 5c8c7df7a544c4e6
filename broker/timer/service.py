"""What runs for the timer: one service as long as the broker lives, and one while it delivers.

The first puts messages into slots while another replica delivers, and makes the files durable. The second is the
deferred service over :class:`~understudy.broker.timer.source.TimerSource`.

Source: TimerMessageStore.java (TimerEnqueueGetService, TimerFlushService).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from understudy.broker.deferred_service import DeferredService
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.redelivery import Redelivery
from understudy.broker.timer.done import Again
from understudy.broker.timer.source import QUEUE, TimerSource
from understudy.broker.timer.timer import Timer
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

log = get_logger("broker.timer")

RETRY_MS = 1_000
GATHER_MS = 50
"""Messages that come within this time are put into their slots together: each alone would cost five times as much.

None is late for it, as no second is read before everything that came in it is in its slot."""


class TimerService:
    """Runs the timer of one broker.

    Args:
        world: clock and disk.
        store: holds the timer topic.
        keys: settings, read when they are needed.
        target: where due messages go; may be replaced while nothing is delivered.
        delivered: called with topic, queue id and length of each delivered message, for statistics.

    Attributes:
        timer: what it runs.
        source: reads what is due from it.
        keep: makes its progress durable.
    """

    def __init__(
        self,
        world: World,
        store: MessageStore,
        keys: MessageStoreConfig,
        target: Redelivery,
        delivered: Callable[[str, int, int], None],
    ) -> None:
        self._world = world
        self._keys = keys
        self._changed = Signal()
        self._is_open = False
        self._kept: tuple[Again, ...] = ()
        self.keep: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.timer = Timer(world, store, keys)
        self.source = TimerSource(world.clock, self.timer, delivered, lambda: keys.timer_stop_dequeue)
        self._deferred = DeferredService(world.clock, self.source, target)
        self.timer.look = self._changed.set
        self.timer.progress.on_change.append(self._changed.set)

    @property
    def target(self) -> Redelivery:
        """Where due messages go."""
        return self._deferred.target

    @target.setter
    def target(self, target: Redelivery) -> None:
        self._deferred.target = target

    def wait_for(self, missing: Callable[[], bool]) -> None:
        """Pass nothing while *missing* says that what cannot be read may be there in a moment."""
        self._deferred.missing = missing

    async def open(self) -> None:
        """Open the files; nothing else may be called before. Raises ``OSError``."""
        await self._world.disk.in_thread(self.timer.open)
        self._is_open = True

    async def run(self) -> None:
        """Put messages into slots while this broker does not deliver, and make the files durable, until cancelled."""
        clock, handled = self._world.clock, 0
        while True:
            handled = await self._changed.wait(handled)
            wait_ms = self._keys.timer_flush_interval_ms
            try:
                while not self.timer.delivers and self.timer.enqueue():
                    await trio.lowlevel.checkpoint()
                    if self.timer.must_flush:
                        await self.flush()
                await self.flush()
            except OSError as error:
                log.error("timer files not written, trying again", error=error)
                wait_ms = RETRY_MS
                self._changed.set()
            await clock.sleep(wait_ms / 1000)

    async def flush(self) -> bool:
        """Make the files durable; return whether anything had changed. Raises ``OSError``."""
        progress = self.timer.progress
        while progress.todo != self._kept:  # first: the files only say that its seconds are over
            todo = progress.todo
            if todo:
                await self.keep()
            self._kept = todo
        flush = self.timer.begin_flush()
        if flush is None:
            return False
        done = False
        with trio.CancelScope(shield=True):
            try:
                await self._world.disk.in_thread(lambda: self.timer.flush(flush))
                done = True
            finally:
                self.timer.end_flush(flush, done)
            await self.timer.delete_gone()
        return True

    async def close(self) -> None:
        """Make the files durable a last time and give them back."""
        if not self._is_open:
            return
        try:
            await self.flush()
        except OSError as error:
            log.error("timer files not written", error=error)
        self.timer.close()

    async def deliver(self) -> None:
        """Deliver what is due until cancelled."""
        try:
            await self._deferred.run()
        finally:
            self.timer.begin(False)
            self._changed.set()

    def arrived(
        self, topic: str, queue_id: int, next_offset: int, tags_code: int, store_ms: int, properties: bytes | None
    ) -> None:
        """Take note of a message in the timer topic.

        Args:
            topic: of the message.
            queue_id: of the message.
            next_offset: queue offset behind it.
            tags_code: its tags code.
            store_ms: when it was stored (wall time).
            properties: its raw properties; ``None`` where the store was not asked for them.
        """
        self._deferred.arrived(QUEUE, store_ms + GATHER_MS)
        self._changed.set()
