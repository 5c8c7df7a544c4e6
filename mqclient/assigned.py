"""One queue that a push consumer holds, between taking it and giving it back."""

from __future__ import annotations

import attrs
import trio

from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.waiting_batches import WaitingBatches
from understudy.mqclient.window import Window
from understudy.runtime.signal import Signal


@attrs.define(eq=False)
class AssignedQueue:
    """State of one held queue; changed only by its consumer's tasks.

    Attributes:
        queue: which.
        window: pulled and unfinished messages.
        waiting: where its batches wait for a listener, among those of other queues.
        pulling: cancelled to stop pulling; consumption of what is in flight goes on.
        dropped: the queue is to be given back: nothing new starts.
        released: the queue may have another owner: results no longer count.
        busy: batches that listeners have at the moment.
        changed: set whenever messages arrive, finish, or the queue is dropped.
        locked_at: monotonic seconds of the last confirmed lock, of ordered consumption.
        next_offset: where the next pull starts.
        replica: broker id that the last answer suggested.
        last_pull_ms, last_consume_ms: wall times for reports.
    """

    queue: MessageQueue
    window: Window = attrs.field(factory=Window)
    waiting: WaitingBatches = attrs.field(factory=WaitingBatches)
    pulling: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    dropped: bool = False
    released: bool = False
    busy: int = 0
    changed: Signal = attrs.field(factory=Signal)
    locked_at: float | None = None
    next_offset: int = -1
    replica: int = 0
    last_pull_ms: int = 0
    last_consume_ms: int = 0

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self.changed.set()

    def drop(self) -> None:
        """Stop pulling and starting."""
        self.dropped = True
        self.waiting.forget(len(self.window))
        self.pulling.cancel()
        self.wake()

    async def idle(self) -> None:
        """Wait until no listener has a batch of this queue."""
        while self.busy:
            await self.changed.wait()

    def restart(self, offset: int) -> None:
        """Forget what was pulled and go on from *offset*; batches in flight no longer count."""
        left, self.window = self.window, Window()
        self.waiting.forget(len(left))
        self.next_offset = offset


@attrs.frozen
class Batch:
    """Messages of one queue on their way to a listener."""

    assigned: AssignedQueue
    window: Window
    messages: list[ReceivedMessage]

    @property
    def counts(self) -> bool:
        """Whether what becomes of it still matters: its queue is ours, and was not set to another offset."""
        return not self.assigned.released and self.window is self.assigned.window

    @property
    def wanted(self) -> bool:
        """Whether a listener may begin with it."""
        return not self.assigned.dropped and self.window is self.assigned.window
