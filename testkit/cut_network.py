"""A network that can be cut off: while it is, no byte passes and no connection ends, as if a cable were pulled.

What was handed over before the cut may still arrive. What is sent meanwhile arrives when the network is whole again, as
TCP sends again what was lost; a connection that is closed meanwhile ends for its peer only then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from understudy.runtime.network import ByteStream, Listener, Network
from understudy.runtime.signal import Signal

_CLOSED = "this side closed the connection"
_Buffers = Sequence[bytes | bytearray | memoryview]


class Cable:
    """What one process has of the network: whole, or cut.

    Attributes:
        whole: whether bytes pass now.
    """

    def __init__(self) -> None:
        self.whole = True
        self._mended = Signal()
        self._ended: list[ByteStream] = []

    def cut(self) -> None:
        """Let nothing pass any more."""
        self.whole = False

    def mend(self) -> None:
        """Let everything pass again, what has waited first. Must be called in the event loop."""
        self.whole = True
        self._mended.set()
        ended, self._ended = self._ended, []
        for stream in ended:
            trio.lowlevel.spawn_system_task(stream.aclose)

    async def passing(self) -> None:
        """Wait while the cable is cut."""
        while not self.whole:
            await self._mended.wait()

    def end_later(self, stream: ByteStream) -> None:
        """Close *stream* once its peer can learn of it."""
        self._ended.append(stream)


class CutStream:
    """A connection over a :class:`Cable`."""

    def __init__(self, inner: ByteStream, cable: Cable) -> None:
        self._inner = inner
        self._cable = cable
        self._closed = False
        self._waiting: set[trio.CancelScope] = set()
        self._arrived: bytes | None = None  # while the cable was cut, or before somebody was cancelled who waited

    @property
    def local(self) -> tuple[str, int]:
        return self._inner.local

    @property
    def peer(self) -> tuple[str, int]:
        return self._inner.peer

    async def receive_some(self, max_bytes: int) -> bytes:
        with self._until_closed():
            if self._arrived is None:
                self._arrived = await self._inner.receive_some(max_bytes)
            await self._cable.passing()
            arrived, rest = self._arrived[:max_bytes], self._arrived[max_bytes:]
            self._arrived = rest or None
            return arrived
        raise trio.ClosedResourceError(_CLOSED)

    def send_nowait(self, buffers: _Buffers) -> int:
        return self._inner.send_nowait(buffers) if self._cable.whole else 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._until_closed():
            await self._cable.passing()
            await self._inner.send_all(data)
            return
        raise trio.ClosedResourceError(_CLOSED)

    async def aclose(self) -> None:
        self._closed = True
        for scope in self._waiting:
            scope.cancel()
        if self._cable.whole:
            await self._inner.aclose()
        else:
            self._cable.end_later(self._inner)
            await trio.lowlevel.checkpoint()

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        """Run the block until it is done, or this side closes the connection."""
        if self._closed:
            raise trio.ClosedResourceError(_CLOSED)
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)


class CutListener:
    """A bound address over a :class:`Cable`."""

    def __init__(self, inner: Listener, cable: Cable) -> None:
        self._inner = inner
        self._cable = cable

    @property
    def address(self) -> tuple[str, int]:
        return self._inner.address

    @property
    def refused(self) -> int:
        return self._inner.refused

    async def accept(self) -> ByteStream:
        return CutStream(await self._inner.accept(), self._cable)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CutNetwork:
    """A process's network behind a cable.

    Args:
        inner: the network.
        cable: shared by everything that is opened here.
    """

    def __init__(self, inner: Network, cable: Cable) -> None:
        self._inner = inner
        self._cable = cable

    async def listen(self, host: str, port: int) -> Listener:
        return CutListener(await self._inner.listen(host, port), self._cable)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        with trio.move_on_after(timeout_seconds):
            await self._cable.passing()
            return CutStream(await self._inner.connect(host, port, timeout_seconds), self._cable)
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        with trio.move_on_after(timeout_seconds):
            await self._cable.passing()
            return await self._inner.resolve(host, timeout_seconds)
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")
