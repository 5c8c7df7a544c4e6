"""Connections inside the process: what two parts of it say to each other needs no socket.

What one side sends waits for the other in a buffer of bounded size, as it would in a kernel's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from understudy.runtime.network import ByteStream, Listener, Network
from understudy.runtime.signal import Signal

BUFFER_BYTES = 1024 * 1024
LOOPBACK = "127.0.0.1"


class _Pipe:
    """Bytes on their way in one direction."""

    __slots__ = ("changed", "data", "ended")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self.changed = Signal()

    def end(self) -> None:
        self.ended = True
        self.changed.set()


class MemoryStream:
    """One side of a connection; made by :func:`memory_connection`."""

    def __init__(self, local: tuple[str, int], peer: tuple[str, int], incoming: _Pipe, outgoing: _Pipe) -> None:
        self.local = local
        self.peer = peer
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    async def receive_some(self, max_bytes: int) -> bytes:
        pipe = self._incoming
        while not pipe.data:
            if self._closed:
                raise trio.ClosedResourceError("this side closed the connection")
            if pipe.ended:
                await trio.lowlevel.checkpoint()
                return b""
            await pipe.changed.wait()
        data = bytes(memoryview(pipe.data)[:max_bytes])
        del pipe.data[:max_bytes]
        pipe.changed.set()  # there is room
        return data

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        pipe, sent = self._outgoing, 0
        if pipe.ended:
            return 0
        for buffer in buffers:
            taken = memoryview(buffer)[: BUFFER_BYTES - len(pipe.data)]
            pipe.data += taken
            sent += len(taken)
            if len(taken) < len(buffer):
                break
        if sent:
            pipe.changed.set()
        return sent

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this side closed the connection")
            if self._outgoing.ended:
                raise trio.BrokenResourceError("the other side closed the connection")
            left = left[self.send_nowait((left,)) :]
            if not left:
                await trio.lowlevel.checkpoint()
                return
            await self._outgoing.changed.wait()

    async def aclose(self) -> None:
        self._closed = True
        self._incoming.end()
        self._outgoing.end()
        await trio.lowlevel.checkpoint()


def memory_connection(client: tuple[str, int], server: tuple[str, int]) -> tuple[MemoryStream, MemoryStream]:
    """Return the client's and the server's side of a new connection between these addresses."""
    there, back = _Pipe(), _Pipe()
    return MemoryStream(client, server, back, there), MemoryStream(server, client, there, back)


class Inside(Protocol):
    """A server of this process."""

    async def serve(self, stream: ByteStream) -> None:
        """Serve a connection until it ends; must not raise."""
        ...


class InsideNetwork:
    """A network on which some addresses are inside this process.

    Args:
        network: for all other addresses.
        find: returns the server at a host and port if it is one of this process.
        start: runs the server's side of a connection.
    """

    def __init__(
        self,
        network: Network,
        find: Callable[[str, int], Inside | None],
        start: Callable[[Callable[[ByteStream], Awaitable[None]], ByteStream], None],
    ) -> None:
        self._network = network
        self._find = find
        self._start = start
        self._number = 0

    async def listen(self, host: str, port: int) -> Listener:
        return await self._network.listen(host, port)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        server = self._find(host, port)
        if server is None:
            return await self._network.connect(host, port, timeout_seconds)
        self._number += 1
        ours, theirs = memory_connection((LOOPBACK, self._number % 65_536), (host, port))
        self._start(server.serve, theirs)
        await trio.lowlevel.checkpoint()
        return ours

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        return await self._network.resolve(host, timeout_seconds)
