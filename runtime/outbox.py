"""What a connection still has to send: bytes the network did not take at once.

The laws:

* :meth:`Outbox.send` never waits. What is kept is sent by a task that lives only as long as there is something to send.
* A peer for which too much waits is *choked*: no more answers should be made for it until it has read what waits.
* A peer that takes nothing for too long, or whose outbox overflows, is disconnected. When the outboxes of all
  connections hold more than the process may, the largest goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from understudy.runtime.clock import Clock
from understudy.runtime.load import Budget
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream

log = get_logger("runtime.outbox")

Buffer = bytes | bytearray | memoryview

_SEND_CHUNK_BYTES = 256 * 1024


class OutboxLimits(Protocol):
    """The bounds of what waits for one peer: bytes that choke it, bytes that end it, seconds that it may stall."""

    @property
    def pause_bytes(self) -> int: ...
    @property
    def outbox_bytes(self) -> int: ...
    @property
    def stall_seconds(self) -> float: ...


class Outbox:
    """The outgoing side of one connection.

    Args:
        stream: where bytes go.
        clock: for stalls.
        limits: of the connection.
        total: where what waits is counted.
        close: ends the connection, with a reason.

    Attributes:
        last_sent: monotonic seconds of the last progress of the sending task.
        nursery: where the sending task runs; ``None`` until the connection is served.
        unsent: what waits; the same list for good, so that a fast path may look at it.
    """

    def __init__(
        self,
        stream: ByteStream,
        clock: Clock,
        limits: OutboxLimits,
        total: Budget,
        close: Callable[[str], None],
    ) -> None:
        self.nursery: trio.Nursery | None = None
        self.last_sent = 0.0
        self._stream = stream
        self._clock = clock
        self._limits = limits
        self._total = total
        self._close = close
        self.unsent: list[Buffer] = []
        self._waiting_bytes = 0
        self._when_drained: list[Callable[[], None]] = []

    @property
    def choked(self) -> bool:
        """Whether no more answers should be made for the peer; see :meth:`when_drained`."""
        waiting = self._waiting_bytes
        return waiting > self._limits.pause_bytes or (waiting > 0 and not self._total.allows(self))

    def send(self, parts: Sequence[Buffer], size_bytes: int) -> None:
        """Send *parts*, *size_bytes* in all, or keep what the network does not take now."""
        if self.unsent:
            self._keep(parts, 0)
            return
        sent = self._stream.send_nowait(parts)
        if sent < size_bytes:
            self._keep(parts, sent)
            if self.nursery is not None:
                self.nursery.start_soon(self._drain)

    def when_drained(self, callback: Callable[[], None]) -> None:
        """Call *callback* once when everything that waits is sent, or the connection has ended."""
        self._when_drained.append(callback)

    async def wait_drained(self) -> None:
        """Wait until nothing waits any more."""
        if self.unsent:
            drained = trio.Event()
            self._when_drained.append(drained.set)
            await drained.wait()

    def drop(self) -> None:
        """Forget what waits, of a connection that ends."""
        self.unsent.clear()
        self._total.change(self, -self._waiting_bytes)
        self._waiting_bytes = 0

    def ended(self) -> None:
        """Forget what waits, tell those who wait for it, and let go of the connection."""
        self.drop()
        self._tell_drained()
        self.nursery, self._close = None, _close_no_more

    def disconnect(self, reason: str) -> None:
        """End the connection, whose outbox is too large."""
        self.drop()
        self._close(reason)

    def _keep(self, parts: Sequence[Buffer], skip: int) -> None:
        before = self._waiting_bytes
        for part in parts:
            size = len(part)
            if skip >= size:
                skip -= size
                continue
            self.unsent.append(memoryview(part)[skip:] if skip else part)
            self._waiting_bytes += size - skip
            skip = 0
        waiting, total = self._waiting_bytes, self._total
        total.change(self, waiting - before)
        if waiting > self._limits.outbox_bytes:
            self.disconnect(f"slow reader: {waiting} bytes wait for it, limit {self._limits.outbox_bytes}")
        while total.used > total.limit:
            total.refused += 1
            largest = total.biggest()
            assert isinstance(largest, Outbox)
            why = f"slow reader: {total.held_by(largest)} of {total.used} bytes wait for it, limit {total.limit}"
            log.warning("answers hold too much memory, connection closed", why=why)
            largest.disconnect(why)

    @trio.lowlevel.enable_ki_protection
    async def _drain(self) -> None:
        """Send what waits; the only task that may wait for the network to take bytes."""
        while self.unsent:
            first, count, size = self.unsent[0], 0, 0
            if len(first) > _SEND_CHUNK_BYTES:  # a part of it, without a copy
                size = _SEND_CHUNK_BYTES
                chunk: Buffer = memoryview(first)[:size]
            else:
                for part in self.unsent:
                    if count and size + len(part) > _SEND_CHUNK_BYTES:
                        break
                    count += 1
                    size += len(part)
                chunk = b"".join(self.unsent[:count])
            with self._clock.move_on_after(self._limits.stall_seconds) as scope:
                try:
                    await self._stream.send_all(chunk)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._close("broken by the peer or the network")
                    return
            if scope.cancelled_caught:
                self._close(f"slow reader: took nothing for {self._limits.stall_seconds:g} s")
                return
            if not self.unsent:
                return  # disconnected meanwhile
            self.last_sent = self._clock.monotonic()
            # Only now: until then writes must queue behind the bytes under way.
            if count:
                del self.unsent[:count]
            else:
                self.unsent[0] = memoryview(first)[size:]
            self._waiting_bytes -= size
            self._total.change(self, -size)
        self._tell_drained()

    def _tell_drained(self) -> None:
        waiting, self._when_drained = self._when_drained, []
        for callback in waiting:
            callback()


def _close_no_more(reason: str) -> None:
    """What is called to end a connection that has ended."""
