"""One simulated connection: two pipes that carry bytes with delay and loss, in order or not at all, as TCP does.

Nothing here knows hosts: what happens on the way is asked of the :class:`Links` the connection goes through.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from understudy.runtime.signal import Signal


@attrs.define
class LinkQuality:
    """How one direction between two hosts behaves.

    Attributes:
        delay_seconds: least and greatest one-way delay.
        loss: share of writes that are lost once and arrive after *retransmit_seconds* more.
        retransmit_seconds: least and greatest extra delay of a lost write.
        bytes_per_second: what the link carries; infinite by default.
    """

    delay_seconds: tuple[float, float] = (0.0002, 0.001)
    loss: float = 0.0
    retransmit_seconds: tuple[float, float] = (0.2, 0.6)
    bytes_per_second: float = math.inf


class Links(Protocol):
    """What a connection asks of the network it goes through."""

    random: random.Random
    sent_bytes: int
    stalls: int

    def quality(self, source: str, target: str) -> LinkQuality: ...
    def is_cut(self, source: str, target: str, service: tuple[str, int]) -> bool: ...
    def forget(self, stream: SimStream) -> None: ...


class Pipe:
    """One direction of one connection to *service*, host and port."""

    WINDOW_BYTES = 1 << 20

    def __init__(self, network: Links, source: str, target: str, service: tuple[str, int]) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.service = service
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.in_flight_bytes = 0
        self.ended_at: float | None = None
        self.broken_at: float | None = None
        self.last_arrival = 0.0
        self.busy_until = 0.0
        self.held = False
        self.abandoned = False
        self.reader: trio.CancelScope | None = None
        self.drained = Signal()

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through."""
        return self.network.is_cut(self.source, self.target, self.service)

    def wake(self) -> None:
        """Let who waits here look again."""
        if self.reader is not None:
            self.reader.cancel()
        self.drained.set()

    def put(self, data: bytes) -> None:
        """Take *data* on the way; a reader sleeps until it arrives."""
        self.in_flight_bytes += len(data)
        self.chunks.append((self.arrival(len(data)), data))
        if self.reader is not None:
            arrival = self.next_arrival()
            self.reader.deadline = math.inf if arrival is None else arrival

    def arrival(self, size: int) -> float:
        quality = self.network.quality(self.source, self.target)
        draw = self.network.random
        delay = draw.uniform(*quality.delay_seconds)
        if quality.loss and draw.random() < quality.loss:
            delay += draw.uniform(*quality.retransmit_seconds)
            self.network.stalls += 1
        # a narrow link carries one write after the other
        self.busy_until = max(self.busy_until, trio.current_time()) + size / quality.bytes_per_second
        self.last_arrival = max(self.last_arrival, self.busy_until + delay)
        return self.last_arrival

    def next_arrival(self) -> float | None:
        """When the head may be read; ``None`` while a partition holds it or there is nothing."""
        if self.is_cut:
            self.held = True
            return None
        if self.held:
            # the first retransmission after the heal carries what was held back
            self.held = False
            quality = self.network.quality(self.source, self.target)
            self.last_arrival = max(
                self.last_arrival, trio.current_time() + self.network.random.uniform(*quality.delay_seconds)
            )
            self.chunks = deque((max(at, self.last_arrival), data) for at, data in self.chunks)
            if self.ended_at is not None:
                self.ended_at = max(self.ended_at, self.last_arrival)
            if self.broken_at is not None:
                self.broken_at = max(self.broken_at, self.last_arrival)
        times = [at for at in (self.broken_at, self.chunks[0][0] if self.chunks else self.ended_at) if at is not None]
        return min(times, default=None)


class SimStream:
    """One side of a simulated connection."""

    def __init__(
        self, local: tuple[str, int], peer: tuple[str, int], incoming: Pipe, outgoing: Pipe, network: Links
    ) -> None:
        self.local = local
        self.peer = peer
        self._incoming = incoming
        self._outgoing = outgoing
        self._network = network
        self._closed = False

    async def receive_some(self, max_bytes: int) -> bytes:
        pipe = self._incoming
        waits = False
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this side closed the connection")
            arrival = pipe.next_arrival()
            if arrival is None or arrival > trio.current_time():
                waits = True
                # One scope for all: whatever changes moves its deadline, or ends it.
                pipe.reader = trio.CancelScope(deadline=math.inf if arrival is None else arrival)
                try:
                    with pipe.reader:
                        await trio.sleep_forever()
                finally:
                    pipe.reader = None
            elif waits:
                break
            else:
                waits = True
                await trio.lowlevel.checkpoint()
        if pipe.broken_at is not None and pipe.broken_at <= trio.current_time():
            raise trio.BrokenResourceError("connection reset by peer")
        if not pipe.chunks:
            return b""
        taken = bytearray()
        while pipe.chunks and len(taken) < max_bytes and pipe.chunks[0][0] <= trio.current_time():
            at, data = pipe.chunks.popleft()
            room = max_bytes - len(taken)
            taken += data[:room]
            if len(data) > room:
                pipe.chunks.appendleft((at, data[room:]))
        pipe.in_flight_bytes -= len(taken)
        pipe.drained.set()
        return bytes(taken)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        pipe = self._outgoing
        rest = bytes(data)
        while rest:
            if self._closed:
                raise trio.ClosedResourceError("this side closed the connection")
            broken_at = self._incoming.broken_at
            if broken_at is not None and self._incoming.next_arrival() is not None and broken_at <= trio.current_time():
                raise trio.BrokenResourceError("connection reset by peer")
            room = pipe.WINDOW_BYTES - pipe.in_flight_bytes
            if room <= 0:
                await pipe.drained.wait()
                continue
            part, rest = rest[:room], rest[room:]
            self._put(part)

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        pipe = self._outgoing
        broken_at = self._incoming.broken_at
        if self._closed or (broken_at is not None and broken_at <= trio.current_time()):
            return 0
        data = b"".join(buffers)[: max(0, pipe.WINDOW_BYTES - pipe.in_flight_bytes)]
        if data:
            self._put(data)
        return len(data)

    def _put(self, data: bytes) -> None:
        pipe, back = self._outgoing, self._incoming
        if pipe.abandoned and back.broken_at is None and not pipe.is_cut:
            # the far host came back without this connection and answers with a reset
            back.broken_at = back.arrival(0)
            back.wake()
        self._network.sent_bytes += len(data)
        pipe.put(data)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._network.forget(self)
        if self._outgoing.ended_at is None:
            self._outgoing.ended_at = self._outgoing.arrival(0)
        self._outgoing.wake()
        self._incoming.wake()

    def cut_short(self) -> None:
        """Let this side find the connection reset: something on the way has ended it."""
        self._incoming.broken_at = trio.current_time()
        self.wake()

    def wake(self) -> None:
        """Let who waits on either direction look again: links have changed."""
        self._incoming.wake()
        self._outgoing.wake()

    def reset(self, *, silently: bool) -> None:
        """End the connection as the death of this side's process does, or *silently*, so that the peer hears nothing.

        Tasks of the dead process that wait here are not woken: whoever kills it cancels them.
        """
        if self._closed:
            return
        self._closed = True
        self._network.forget(self)
        if not silently:
            self._outgoing.broken_at = self._outgoing.arrival(0)
            self._outgoing.wake()
        self._incoming.abandoned = True
        self._incoming.in_flight_bytes = 0
        self._incoming.chunks.clear()
