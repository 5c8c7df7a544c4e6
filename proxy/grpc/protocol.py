"""HTTP/2 as its server sees it, without I/O: bytes in, calls of a receiver; calls of its methods, bytes out.

The laws (RFC 9113):

* What came is dealt with frame by frame, and no more of it at once than is asked for. A fault of a frame ends the
  connection with a GOAWAY that says why; a stream ends by itself only where this side wants it to.
* What costs this side work and the client nothing is told to the receiver as *control*, which bounds it.
* A block of header fields that goes on in frame after frame is bounded by its bytes and its frames.
"""

from __future__ import annotations

from typing import Protocol

from understudy.proxy.grpc import frames
from understudy.proxy.grpc.fields import FieldsError, FieldsReader
from understudy.proxy.grpc.frames import ErrorCode, FrameType, Setting
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.streams import Stream, Streams

_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x01, 0x04, 0x08, 0x20
_DATA, _HEADERS = int(FrameType.DATA), int(FrameType.HEADERS)
_LARGEST_WINDOW = frames.LARGEST_WINDOW_BYTES
_MOST_HEADER_FRAMES = 64
_OF_REQUESTS = {":method", ":scheme", ":path"}


class ProtocolError(Exception):
    """The connection ends; what is to be sent says so already.

    Args:
        code: what the client is told.
        why: for people.
    """

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(f"{code.name}: {why}")
        self.code = code


class Receiver(Protocol):
    """What is told of a client. Nothing here may raise."""

    def on_request(self, stream_id: int, fields: dict[str, str]) -> None:
        """A stream was opened, by these header fields."""
        ...

    def on_data(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        """Data of an open stream came.

        Args:
            stream_id: the stream.
            data: without padding.
            size: bytes of the windows that it took, padding included, which are to be given back.
            ended: nothing more comes.
        """
        ...

    def on_end(self, stream_id: int) -> None:
        """The client says nothing more on a stream that is still open."""
        ...

    def on_reset(self, stream_id: int) -> None:
        """The client has ended a stream; it is gone."""
        ...

    def on_room(self, stream_id: int) -> None:
        """There may be more room for what is sent, on one stream or, 0, on all."""
        ...

    def on_settings(self) -> None:
        """Settings came, which may concern the windows of all streams."""
        ...

    def on_control(self) -> None:
        """A frame came that carries nothing for a call."""
        ...

    def on_pong(self) -> None:
        """A ping was answered."""
        ...

    def on_goodbye(self) -> None:
        """The client opens no more streams."""
        ...


class ServerProtocol(Streams):
    """The state of one connection.

    Args:
        limits: bounds of what its client may do.
        receiver: told what the client does.
    """

    __slots__ = (
        "_buffer",
        "_header_block",
        "_header_ends",
        "_header_frames",
        "_header_stream",
        "_highest",
        "_is_answered",
        "_reader",
        "_receiver",
        "_said_hello",
        "_settled",
    )

    def __init__(self, limits: GrpcLimits, receiver: Receiver) -> None:
        super().__init__(limits)
        self._receiver = receiver
        self._reader = FieldsReader(limits.header_list_bytes)
        self._highest = 0
        self._buffer = b""
        self._said_hello = self._settled = self._is_answered = False
        self._header_stream, self._header_frames, self._header_block = 0, 0, b""
        self._header_ends = False

    def close(self, why: ErrorCode) -> None:
        """Say that the connection ends, and why."""
        self._out.append(frames.goaway_frame(self._highest, why))

    # --- what comes --------------------------------------------------------------------------------------------

    def receive(self, data: bytes, most: int) -> bool:
        """Take the next bytes and deal with some of the frames that are whole.

        Args:
            data: the bytes; none to go on with those that are there.
            most: frames.

        Returns:
            Whether there may be more whole frames.

        Raises:
            ProtocolError: the client has broken the protocol.
        """
        if self._buffer:
            data = self._buffer + data
        at = 0
        try:
            if not self._said_hello:
                at = self._hello(data)
                if not at:
                    self._buffer = data
                    return False
            end, unpack = len(data), frames.HEAD.unpack_from
            for _ in range(most):
                begin = at + frames.HEAD_BYTES
                if begin > end:
                    break
                high, low, kind, flags, stream_id = unpack(data, at)
                size = high << 8 | low
                if size > frames.LARGEST_FRAME_BYTES:
                    raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
                following = begin + size
                if following > end:
                    break
                at = following
                self._frame(kind, flags, stream_id & 0x7FFFFFFF, data[begin:following])
            else:
                self._buffer = data[at:]
                return at < end
        except ProtocolError as error:
            self._out.append(frames.goaway_frame(self._highest, error.code))
            self._buffer = b""
            raise
        self._buffer = data[at:] if at else data
        return False

    def _hello(self, data: bytes) -> int:
        """Return where the preface ends, 0 when it is not whole yet."""
        if not data.startswith(frames.PREFACE):
            if not frames.PREFACE.startswith(data):
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "these bytes are not HTTP/2")
            return 0
        self._said_hello = True
        return len(frames.PREFACE)

    def _frame(self, kind: int, flags: int, stream_id: int, content: bytes) -> None:
        if self._header_stream and (kind != FrameType.CONTINUATION or stream_id != self._header_stream):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "another frame in the middle of header fields")
        if kind == _HEADERS and self._settled:
            self._on_headers(flags, stream_id, content)
        elif kind == _DATA and self._settled:
            self._on_data(flags, stream_id, content)
        elif kind == FrameType.SETTINGS:
            self._on_settings(flags, stream_id, content)
        elif not self._settled:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "settings must come first")
        else:
            on = _OTHERS.get(kind)
            if on is None:
                self._receiver.on_control()  # of an extension: nothing is known of it
            else:
                on(self, flags, stream_id, content)

    def _on_headers(self, flags: int, stream_id: int, content: bytes) -> None:
        if flags & (_PADDED | _PRIORITY):
            if flags & _PADDED:
                content = _unpadded(content)
            if flags & _PRIORITY:
                if len(content) < 5:
                    raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "a priority without its five bytes")
                content = content[5:]
        if not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is no client's")
        if flags & _END_HEADERS:
            self._on_fields(stream_id, content, bool(flags & _END_STREAM))
            return
        self._header_stream, self._header_block, self._header_frames = stream_id, content, 1
        self._header_ends = bool(flags & _END_STREAM)
        self._bound_headers()

    def _on_continuation(self, flags: int, stream_id: int, content: bytes) -> None:
        if not self._header_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "header fields go on that have not begun")
        self._header_block += content
        self._header_frames += 1
        self._bound_headers()
        if flags & _END_HEADERS:
            block, self._header_stream, self._header_block = self._header_block, 0, b""
            self._on_fields(stream_id, block, self._header_ends)

    def _bound_headers(self) -> None:
        most = self._limits.header_list_bytes
        if len(self._header_block) > 2 * most or self._header_frames > _MOST_HEADER_FRAMES:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, f"header fields of more than {most} bytes")

    def _on_fields(self, stream_id: int, block: bytes, ended: bool) -> None:
        try:
            fields = self._reader.read(block)
        except FieldsError as error:
            raise ProtocolError(error.code, str(error)) from None
        if stream_id <= self._highest:
            self._on_trailers(stream_id, fields, ended)
            return
        if not fields.keys() >= _OF_REQUESTS:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a request without method, scheme or path")
        if len(self._streams) >= self._limits.calls:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"more than {self._limits.calls} streams at a time")
        self._highest = stream_id
        self._streams[stream_id] = Stream(self._client_window, self._given_each, ended)
        self._receiver.on_request(stream_id, fields)
        if ended and stream_id in self._streams:
            self._receiver.on_end(stream_id)

    def _on_trailers(self, stream_id: int, fields: dict[str, str], ended: bool) -> None:
        stream = self._stream(stream_id)
        if not ended:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "header fields in the middle of a stream")
        if fields and next(iter(fields))[0] == ":":  # such fields come first
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the fields behind a request are those of a request")
        if stream is None:
            self._left.pop(stream_id, None)
            self._receiver.on_control()
        else:
            stream.ended = True
            self._receiver.on_end(stream_id)

    def _stream(self, stream_id: int) -> Stream | None:
        """Return the stream that its client goes on with, ``None`` for one that was left."""
        stream = self._streams.get(stream_id)
        if stream is None:
            if stream_id in self._left:
                return None
            if stream_id > self._highest or not stream_id & 1:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} has not begun")
            raise ProtocolError(ErrorCode.STREAM_CLOSED, f"stream {stream_id} has ended")
        if stream.ended:
            raise ProtocolError(ErrorCode.STREAM_CLOSED, f"stream {stream_id} goes on behind its end")
        return stream

    def _on_data(self, flags: int, stream_id: int, content: bytes) -> None:
        size = len(content)
        if flags & _PADDED:
            content = _unpadded(content)
        self._credit -= size
        if self._credit < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of the connection")
        stream, ended = self._stream(stream_id), bool(flags & _END_STREAM)
        if stream is None:
            self._give_back_to_all(size)
            self._receiver.on_control()
            if ended:
                self._left.pop(stream_id, None)
            return
        stream.credit -= size
        if stream.credit < 0:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of the stream")
        stream.ended = ended
        self._receiver.on_data(stream_id, content, size, ended=ended)
        if ended and stream_id in self._streams:
            self._receiver.on_end(stream_id)

    def _on_settings(self, flags: int, stream_id: int, content: bytes) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "settings of a stream")
        if len(content) % 6 or (flags & frames.ACK and content):
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"settings of {len(content)} bytes")
        if flags & frames.ACK:
            if not self._settled:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "settings must come first")
            if self._is_answered:
                self._receiver.on_control()
            self._is_answered = True
            return
        self._settled = True
        window = self._client_window
        for number, value in frames.settings_in(content):
            if number == Setting.INITIAL_WINDOW_SIZE:
                if value > _LARGEST_WINDOW:
                    raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"windows of {value} bytes")
                window = value  # a frame may say it three thousand times, and each time concerns all streams
            elif number == Setting.MAX_FRAME_SIZE:
                if not frames.LARGEST_FRAME_BYTES <= value < 1 << 24:
                    raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
                self._largest = value
            elif number == Setting.ENABLE_PUSH and value > 1:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        self._resize_windows(window)
        self._out.append(frames.frame(FrameType.SETTINGS, frames.ACK, 0))
        self._receiver.on_settings()

    def _resize_windows(self, size: int) -> None:
        more, self._client_window = size - self._client_window, size
        for stream in self._streams.values() if more else ():
            stream.window += more
            if stream.window > _LARGEST_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "a window grows beyond all bounds")

    def _on_window(self, flags: int, stream_id: int, content: bytes) -> None:
        if len(content) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"the growth of a window in {len(content)} bytes")
        more = int.from_bytes(content, "big") & 0x7FFFFFFF
        if not more:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a window grows by nothing")
        if not stream_id:
            self.window += more
            if self.window > _LARGEST_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window grows beyond all bounds")
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.window += more
            if stream.window > _LARGEST_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "a window grows beyond all bounds")
        else:
            self._began(stream_id)
            return
        self._receiver.on_room(stream_id)

    def _began(self, stream_id: int) -> None:
        if stream_id > self._highest or not stream_id & 1:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} has not begun")

    def _on_reset(self, flags: int, stream_id: int, content: bytes) -> None:
        if len(content) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"the end of a stream in {len(content)} bytes")
        self._began(stream_id)
        self._left.pop(stream_id, None)
        if self._streams.pop(stream_id, None) is not None:
            self._receiver.on_reset(stream_id)
        self._receiver.on_control()

    def _on_ping(self, flags: int, stream_id: int, content: bytes) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a ping of a stream")
        if len(content) != 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a ping of {len(content)} bytes")
        if flags & frames.ACK:
            self._receiver.on_pong()
        else:
            self._out.append(frames.frame(FrameType.PING, frames.ACK, 0, content))
        self._receiver.on_control()

    def _on_goaway(self, flags: int, stream_id: int, content: bytes) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a goodbye of a stream")
        if len(content) < 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a goodbye of {len(content)} bytes")
        self._receiver.on_goodbye()

    def _on_priority(self, flags: int, stream_id: int, content: bytes) -> None:
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        if len(content) != 5:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a priority of {len(content)} bytes")
        self._receiver.on_control()

    def _on_push(self, flags: int, stream_id: int, content: bytes) -> None:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a client cannot push")


_OTHERS = {
    int(FrameType.PRIORITY): ServerProtocol._on_priority,
    int(FrameType.RST_STREAM): ServerProtocol._on_reset,
    int(FrameType.PUSH_PROMISE): ServerProtocol._on_push,
    int(FrameType.PING): ServerProtocol._on_ping,
    int(FrameType.GOAWAY): ServerProtocol._on_goaway,
    int(FrameType.WINDOW_UPDATE): ServerProtocol._on_window,
    int(FrameType.CONTINUATION): ServerProtocol._on_continuation,
}


def _unpadded(content: bytes) -> bytes:
    if not content or content[0] >= len(content):
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more padding than there is in the frame")
    return content[1 : len(content) - content[0]]
