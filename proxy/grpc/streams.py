"""What a server says over one HTTP/2 connection: its streams, what may be sent on them now, and the bytes of it. Pure.

The laws (RFC 9113):

* A stream is a row while one side may still say something on it. When this side has ended one before its client did,
  what the client says meanwhile is dropped, and of the latest such streams it is known that it may.
* Windows go in both directions. What was taken is given back in large pieces, and not at all on a stream whose client
  has said everything.
* Nothing here asks whether a stream is there: what is said on one that is gone is not said.
"""

from __future__ import annotations

from understudy.proxy.grpc import frames
from understudy.proxy.grpc.fields import EMPTY_TABLE
from understudy.proxy.grpc.frames import ErrorCode, FrameType, Setting
from understudy.proxy.grpc.limits import GrpcLimits

_DATA = int(FrameType.DATA)
_MOST_LEFT = 1000
"""Streams of which it is known that this side has left them before their client had."""


class Stream:
    """One stream: what it may send, what its client may, what is to be given back, whether its client has ended it."""

    __slots__ = ("credit", "ended", "owed", "window")

    def __init__(self, window: int, credit: int, ended: bool) -> None:
        self.window = window
        self.credit = credit
        self.owed = 0
        self.ended = ended


class Streams:
    """The streams of one connection.

    Args:
        limits: bounds of what its client may do.

    Attributes:
        window: bytes that all streams together may send now.
    """

    __slots__ = (
        "_client_window",
        "_credit",
        "_first_block",
        "_given",
        "_given_each",
        "_largest",
        "_left",
        "_limits",
        "_out",
        "_owed",
        "_streams",
        "window",
    )

    def __init__(self, limits: GrpcLimits) -> None:
        self._limits = limits
        self._streams: dict[int, Stream] = {}
        self._left: dict[int, None] = {}
        # A client may use the protocol's own windows until it has read what it is told.
        self._given = self._given_each = max(limits.window_bytes, frames.DEFAULT_WINDOW_BYTES)
        self._credit, self._owed = self._given, 0
        self.window = self._client_window = frames.DEFAULT_WINDOW_BYTES
        self._largest = frames.LARGEST_FRAME_BYTES
        self._first_block = EMPTY_TABLE
        settings = (
            (Setting.MAX_CONCURRENT_STREAMS, limits.calls),
            (Setting.INITIAL_WINDOW_SIZE, limits.window_bytes),
            (Setting.MAX_HEADER_LIST_SIZE, limits.header_list_bytes),
        )
        self._out = [frames.settings_frame(settings)]
        if more := self._given - frames.DEFAULT_WINDOW_BYTES:
            self._out.append(frames.number_frame(FrameType.WINDOW_UPDATE, 0, more))

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._streams)

    def take(self) -> bytes:
        """Return what is to be sent, which is not to be sent again."""
        out = self._out
        if not out:
            return b""
        data = b"".join(out) if len(out) > 1 else out[0]
        out.clear()
        return data

    def room(self, stream_id: int) -> int:
        """Return the bytes that a stream may send now in one frame; none on one that has ended."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else max(min(stream.window, self.window, self._largest), 0)

    def send_fields(self, stream_id: int, block: bytes, *, end: bool) -> None:
        """Say header fields on an open stream.

        Args:
            stream_id: the stream.
            block: as :func:`~understudy.proxy.grpc.fields.block_of` makes it.
            end: nothing more is said on it.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if self._first_block:
            block, self._first_block = self._first_block + block, b""
        self._out.append(frames.header_frames(stream_id, block, self._largest, end=end))
        if end:
            del self._streams[stream_id]
            if not stream.ended:
                self._leave(stream_id, ErrorCode.NO_ERROR)

    def send_data(self, stream_id: int, data: bytes, at: int = 0) -> int:
        """Send *data* from *at* on, as much of it as there is room for in one frame; return how many bytes."""
        size = min(self.room(stream_id), len(data) - at)
        if size > 0:
            self._streams[stream_id].window -= size
            self.window -= size
            content = data[at : at + size] if size < len(data) else data
            self._out.append(frames.frame(_DATA, 0, stream_id, content))
        return size

    def _leave(self, stream_id: int, why: ErrorCode) -> None:
        """Have the client say nothing more on a stream, which is gone."""
        if len(self._left) >= _MOST_LEFT:
            del self._left[next(iter(self._left))]
        self._left[stream_id] = None
        self._out.append(frames.number_frame(FrameType.RST_STREAM, stream_id, why))

    def give_back(self, size: int, stream_id: int) -> None:
        """Let the client send *size* bytes more, of one stream and of all; what a call has taken."""
        self._give_back_to_all(size)
        stream = self._streams.get(stream_id)
        if stream is None or stream.ended:
            return
        stream.owed += size
        if 2 * stream.owed >= self._limits.window_bytes:
            self._out.append(frames.number_frame(FrameType.WINDOW_UPDATE, stream_id, stream.owed))
            stream.credit += stream.owed
            stream.owed = 0

    def _give_back_to_all(self, size: int) -> None:
        self._owed += size
        if 2 * self._owed >= self._given:
            self._out.append(frames.number_frame(FrameType.WINDOW_UPDATE, 0, self._owed))
            self._credit += self._owed
            self._owed = 0

    def ping(self) -> None:
        """Ask whether the client is there."""
        self._out.append(frames.frame(FrameType.PING, 0, 0, b"are here"))

    def goodbye(self) -> None:
        """Say that no more streams may be opened; those that are open go on."""
        self._out.append(frames.goaway_frame(frames.ANY_STREAM, ErrorCode.NO_ERROR))
