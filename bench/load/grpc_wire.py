"""A plain blocking client of a proxy: it calls methods, or sends whatever frames an attack is made of."""

from __future__ import annotations

import socket

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, StreamEnded, StreamReset, TrailersReceived
from hpack import Encoder
from hyperframe.frame import HeadersFrame, SettingsFrame

from bench.load.wire import TIMEOUT_S
from understudy.proxy.grpc.framing import MessageReader, framed
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE

PREAMBLE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LARGEST_ANSWER = 64 << 20


def call_fields(path: str, client_id: str) -> list[tuple[str, str]]:
    """Return the header fields of a call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "proxy"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
    ]


class GrpcPeer:
    """One connection to a proxy on the loopback.

    Args:
        port: of the proxy.
        client_id: who the client says it is.
    """

    def __init__(self, port: int, client_id: str = "bench") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._readers: dict[int, MessageReader] = {}
        self._messages: dict[int, list[bytes]] = {}
        self._statuses: dict[int, int | None] = {}

    def __enter__(self) -> GrpcPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def begin(self, rpc: str, message: bytes, *, end: bool = True) -> int:
        """Call *rpc* with a message that fits into the windows; return the number of the stream."""
        stream = self._h2.get_next_available_stream_id()
        self._readers[stream], self._messages[stream] = MessageReader(_LARGEST_ANSWER), []
        self._h2.send_headers(stream, call_fields(SERVICE + rpc, self._client_id))
        self._h2.send_data(stream, framed(message), end_stream=end)
        self.socket.sendall(self._h2.data_to_send())
        return stream

    def wait(self, stream: int) -> bytes:
        """Return the first message of the answer, once there is one. Raises ``ConnectionError``: there is none."""
        while not self._messages[stream] and stream not in self._statuses:
            self._receive()
        if not self._messages[stream]:
            raise ConnectionResetError(f"the call ended with status {self._statuses[stream]}")
        return self._messages[stream][0]

    def ask(self, rpc: str, message: bytes) -> bytes:
        """Play a call with one request to its end; return the message of its answer."""
        stream = self.begin(rpc, message)
        answer = self.wait(stream)
        while stream not in self._statuses:
            self._receive()
        return answer

    def stream(self, path: str, data: bytes, fields: tuple[tuple[str, str], ...] = ()) -> None:
        """Send *data*, of any length, as one call and wait for its end. Raises ``ConnectionError``."""
        stream = self._h2.get_next_available_stream_id()
        self._readers[stream], self._messages[stream] = MessageReader(_LARGEST_ANSWER), []
        self._h2.send_headers(stream, [*call_fields(path, self._client_id), *fields])
        view, at = memoryview(data), 0
        while at < len(view) and stream not in self._statuses:
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(view) - at)
            if size <= 0:
                self._receive()
                continue
            self._h2.send_data(stream, bytes(view[at : at + size]), end_stream=at + size == len(view))
            at += size
            self.socket.sendall(self._h2.data_to_send())
        while stream not in self._statuses:
            self._receive()

    def _receive(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("closed by the proxy")
        for event in self._h2.receive_data(data):
            self._take(event)
        self.socket.sendall(self._h2.data_to_send())

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            stream = event.stream_id or 0
            self._messages[stream] += self._readers[stream].feed(event.data or b"")
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        elif isinstance(event, TrailersReceived):
            fields = dict(event.headers or ())
            self._statuses[event.stream_id or 0] = int(str(fields.get("grpc-status", "2")))
        elif isinstance(event, (StreamEnded, StreamReset)):
            self._statuses.setdefault(event.stream_id or 0, None)
        elif isinstance(event, ConnectionTerminated):
            raise ConnectionResetError(f"the proxy says goodbye: {event.error_code}")


class RawPeer:
    """A connection that sends frames as they are given, and reads only when asked to.

    Args:
        port: of the proxy.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.settimeout(1.0)
        self._encoder = Encoder()
        self._stream = -1
        self.send(PREAMBLE + SettingsFrame(0).serialize())

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send *data*; return whether the proxy still takes it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def headers(self, path: str, client_id: str = "raw", *, end: bool = False) -> bytes:
        """Return the frame that opens the next call."""
        self._stream += 2
        frame = HeadersFrame(self._stream, self._encoder.encode(call_fields(path, client_id)))
        frame.flags.add("END_HEADERS")
        if end:
            frame.flags.add("END_STREAM")
        return frame.serialize()

    @property
    def stream(self) -> int:
        """Number of the call that was opened last."""
        return self._stream

    def read_what_is_there(self) -> int:
        """Take what the proxy has sent so far; return how many bytes."""
        count = 0
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(1 << 18):
                count += len(data)
        except OSError:
            pass
        self.socket.settimeout(1.0)
        return count


def message(topic: str, body: bytes, number: int = 0) -> v2.Message:
    """Return a message."""
    return v2.Message(
        topic=v2.Resource(name=topic), body=body, system_properties=v2.SystemProperties(message_id=f"bench-{number}")
    )


def producer_settings(topic: str) -> bytes:
    """Return what a producer says first of itself."""
    settings = v2.Settings(client_type=v2.PRODUCER)
    settings.publishing.topics.add().name = topic
    return bytes(v2.TelemetryCommand(settings=settings).SerializeToString())


def consumer_settings(group: str, topic: str) -> bytes:
    """Return what a consumer says first of itself."""
    settings = v2.Settings(client_type=v2.SIMPLE_CONSUMER)
    settings.subscription.group.name = group
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = topic
    entry.expression.expression = "*"
    return bytes(v2.TelemetryCommand(settings=settings).SerializeToString())
