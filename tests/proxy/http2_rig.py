"""HTTP/2 without I/O: the server's protocol, h2's client, and single frames."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    HeadersFrame,
    SettingsFrame,
)

from understudy.proxy.grpc.frames import PREFACE
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.protocol import ServerProtocol

FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/t/Echo"), (":authority", "test")]
HELLO = PREFACE + SettingsFrame(0).serialize()


@attrs.define
class Told:
    """Notes what a client has done."""

    requests: dict[int, dict[str, str]] = attrs.field(factory=dict)
    data: dict[int, bytes] = attrs.field(factory=dict)
    sizes: list[tuple[int, int]] = attrs.field(factory=list)
    ended: list[int] = attrs.field(factory=list)
    others: list[str] = attrs.field(factory=list)

    def on_request(self, stream_id: int, fields: dict[str, str]) -> None:
        self.requests[stream_id] = fields

    def on_data(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        self.data[stream_id] = self.data.get(stream_id, b"") + data
        self.sizes.append((stream_id, size))

    def on_end(self, stream_id: int) -> None:
        self.ended.append(stream_id)

    def on_reset(self, stream_id: int) -> None:
        self.others.append(f"reset {stream_id}")

    def on_room(self, stream_id: int) -> None:
        self.others.append(f"room {stream_id}")

    def on_settings(self) -> None:
        self.others.append("settings")

    def on_control(self) -> None:
        self.others.append("control")

    def on_pong(self) -> None:
        self.others.append("pong")

    def on_goodbye(self) -> None:
        self.others.append("goodbye")


class Pair:
    """A server and h2's client; bytes go between them when :meth:`exchange` says so."""

    def __init__(self, limits: GrpcLimits | None = None) -> None:
        self.told = Told()
        self.server = ServerProtocol(limits or GrpcLimits(), self.told)
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.seen: list[events.Event] = []
        self.exchange()

    def exchange(self) -> None:
        """Carry over what both sides have to say, until neither has anything."""
        while True:
            there, back = self.client.data_to_send(), self.server.take()
            if not there and not back:
                return
            if there:
                receive(self.server, there)
            if back:
                self.seen += self.client.receive_data(back)

    def begin(self, *fields: tuple[str, str], data: bytes = b"", end: bool = True) -> int:
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, [*FIELDS, *fields], end_stream=end and not data)
        if data:
            self.client.send_data(stream, data, end_stream=end)
        self.exchange()
        return stream

    def of(self, stream: int, kind: type[events.Event]) -> list[events.Event]:
        return [each for each in self.seen if isinstance(each, kind) and getattr(each, "stream_id", 0) == stream]


def receive(server: ServerProtocol, data: bytes) -> None:
    """Take all of *data*."""
    left = server.receive(data, 3)
    while left:
        left = server.receive(b"", 3)


def talking(limits: GrpcLimits | None = None) -> tuple[ServerProtocol, Told]:
    """Return a server whose client has said its settings."""
    told = Told()
    server = ServerProtocol(limits or GrpcLimits(), told)
    receive(server, HELLO)
    server.take()
    told.others.clear()
    return server, told


def headers(stream: int = 1, *, end: bool = True, fields: Iterable[tuple[str, str]] = FIELDS) -> bytes:
    frame = HeadersFrame(stream, Encoder().encode(list(fields)))
    frame.flags.add("END_HEADERS")
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()


def data_frame(stream: int, data: bytes, *, end: bool = False, pad: int = 0) -> bytes:
    frame = DataFrame(stream, data, pad_length=pad)
    if pad:
        frame.flags.add("PADDED")
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()


def frames_in(data: bytes) -> list[Frame]:
    found = []
    while data:
        frame, size = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + size]))
        found.append(frame)
        data = data[9 + size :]
    return found
