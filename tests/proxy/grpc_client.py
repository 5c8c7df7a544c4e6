"""A gRPC client for tests: HTTP/2 by h2, with whatever bytes a test wants to send in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import attrs
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from understudy.proxy.grpc.framing import MessageReader, framed
from understudy.runtime.network import ByteStream
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

_FRAME_HEAD, _GOAWAY = 9, 7


@attrs.define
class Stream:
    """One call of the client; ``headers`` are those of the answer with its trailers."""

    number: int
    headers: dict[str, str] = attrs.field(factory=dict)
    messages: list[bytes] = attrs.field(factory=list)
    ended: bool = False
    reset: int | None = None
    reader: MessageReader = attrs.field(factory=lambda: MessageReader(1 << 30))

    @property
    def status(self) -> int | None:
        return int(self.headers["grpc-status"]) if "grpc-status" in self.headers else None


class GrpcClient:
    """A connection; make it with :func:`open_client`.

    Attributes:
        goodbyes: error codes of the GOAWAYs that came.
        closed: the server has closed the connection.
    """

    def __init__(self, stream: ByteStream, *, reads: bool = True) -> None:
        self.stream = stream
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.streams: dict[int, Stream] = {}
        self.goodbyes: list[int] = []
        self.closed = False
        self.reads = reads
        self.weight: int | None = None  # told with each call, as clients on Netty do
        self.changed = Signal()
        self._frames = b""
        self._sending = trio.Lock()

    async def run(self) -> None:
        await self.flush()
        try:
            while data := await self.stream.receive_some(65536):
                self._take(self.h2.receive_data(self._without_goodbyes(data)))
                self.changed.set()
                await self.flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.closed = True
        self.changed.set()

    def _without_goodbyes(self, data: bytes) -> bytes:
        """Take GOAWAYs out: for h2 a connection ends with one, and open calls go on."""
        self._frames += data
        kept = b""
        while len(self._frames) >= _FRAME_HEAD:
            end = _FRAME_HEAD + int.from_bytes(self._frames[:3], "big")
            if len(self._frames) < end:
                break
            frame, self._frames = self._frames[:end], self._frames[end:]
            if frame[3] == _GOAWAY:
                self.goodbyes.append(int.from_bytes(frame[_FRAME_HEAD + 4 : _FRAME_HEAD + 8], "big"))
            else:
                kept += frame
        return kept

    def _take(self, events: list[Event]) -> None:
        for event in events:
            stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
            if stream is None:
                continue
            if isinstance(event, (ResponseReceived, TrailersReceived)):
                stream.headers |= {str(name): str(value) for name, value in event.headers or ()}
            elif isinstance(event, DataReceived):
                stream.messages += stream.reader.feed(event.data or b"")
                if self.reads:
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream.number)
            elif isinstance(event, StreamEnded):
                stream.ended = True
            elif isinstance(event, StreamReset):
                stream.reset = int(event.error_code or 0)

    async def flush(self) -> None:
        async with self._sending:
            data = self.h2.data_to_send()
            if data:
                await self.stream.send_all(data)

    async def begin(self, path: str, metadata: Iterable[tuple[str, str]] = (), **headers: str) -> Stream:
        """Open a stream; keyword arguments replace the usual header fields (``_`` stands for ``-``)."""
        number = self.h2.get_next_available_stream_id()
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test", "te": "trailers"}
        fields |= {"content-type": "application/grpc"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        stream = self.streams[number] = Stream(number)
        self.h2.send_headers(number, [*fields.items(), *metadata], priority_weight=self.weight)
        await self.flush()
        return stream

    async def send(self, stream: Stream, message: bytes, *, end: bool = False) -> None:
        """Send one message, in frames of the largest size that the windows allow."""
        data = framed(message)
        while data:
            window = min(self.h2.local_flow_control_window(stream.number), self.h2.max_outbound_frame_size)
            if not window:
                await self.changed.wait()
                continue
            self.h2.send_data(stream.number, data[:window])
            data = data[window:]
            await self.flush()
        if end:
            await self.end(stream)

    async def end(self, stream: Stream) -> None:
        self.h2.end_stream(stream.number)
        await self.flush()

    async def cancel(self, stream: Stream) -> None:
        self.h2.reset_stream(stream.number, 8)
        await self.flush()

    async def until(self, condition: object) -> None:
        while not condition():  # type: ignore[operator]
            await self.changed.wait()

    async def wait(self, stream: Stream) -> Stream:
        """Wait until the answer is complete, or the connection has ended."""
        await self.until(lambda: stream.ended or stream.reset is not None or self.closed)
        return stream

    async def call(self, path: str, message: bytes, metadata: Iterable[tuple[str, str]] = (), **headers: str) -> Stream:
        """Play a call with one request to its end."""
        stream = await self.begin(path, metadata, **headers)
        await self.send(stream, message, end=True)
        return await self.wait(stream)


@asynccontextmanager
async def open_client(world: World, address: tuple[str, int], *, reads: bool = True) -> AsyncIterator[GrpcClient]:
    """Connect; without *reads* the client never gives its windows back."""
    stream = await world.network.connect(*address, 5)
    async with trio.open_nursery() as nursery:
        client = GrpcClient(stream, reads=reads)
        nursery.start_soon(client.run)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await stream.aclose()
