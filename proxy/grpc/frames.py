"""Frames of HTTP/2 in bytes, and the names of their numbers (RFC 9113). Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client says first, before its settings."""
HEAD_BYTES = 9
LARGEST_FRAME_BYTES = 16_384
"""Content of a frame; what a side allows that says nothing else."""
DEFAULT_WINDOW_BYTES = 65_535
"""Of a connection and of a stream, before anything is said of it."""
LARGEST_WINDOW_BYTES = (1 << 31) - 1
ANY_STREAM = (1 << 31) - 1


class FrameType(IntEnum):
    """What a frame is."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """What a side says of itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x01, 0x01, 0x04, 0x08, 0x20
"""Flags."""

HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")


def frame(kind: int, flags: int, stream_id: int, content: bytes = b"") -> bytes:
    """Return one frame.

    Args:
        kind: a :class:`FrameType`.
        flags: of that type.
        stream_id: 0 for the connection.
        content: behind the head.
    """
    size = len(content)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + content


def header_frames(stream_id: int, block: bytes, most: int, *, end: bool) -> bytes:
    """Return the frames of a block of header fields.

    Args:
        stream_id: whose they are.
        block: the fields.
        most: bytes of each frame.
        end: nothing follows on the stream.
    """
    flags = END_STREAM if end else 0
    if len(block) <= most:
        return frame(FrameType.HEADERS, flags | END_HEADERS, stream_id, block)
    frames = [frame(FrameType.HEADERS, flags, stream_id, block[:most])]
    for at in range(most, len(block), most):
        last = END_HEADERS if at + most >= len(block) else 0
        frames.append(frame(FrameType.CONTINUATION, last, stream_id, block[at : at + most]))
    return b"".join(frames)


def settings_frame(values: Sequence[tuple[int, int]]) -> bytes:
    """Return a frame that says *values* of this side."""
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(number, value) for number, value in values))


def settings_in(content: bytes) -> list[tuple[int, int]]:
    """Return what the content of a frame of settings says, in its order; its length is a multiple of six."""
    return list(_SETTING.iter_unpack(content))


def number_frame(kind: int, stream_id: int, number: int) -> bytes:
    """Return a frame whose content is one number: a window's growth, or why a stream ends."""
    return frame(kind, 0, stream_id, number.to_bytes(4, "big"))


def goaway_frame(last_stream_id: int, why: int) -> bytes:
    """Return a frame that says that the connection ends, or that no stream may be opened on it any more."""
    return frame(FrameType.GOAWAY, 0, 0, last_stream_id.to_bytes(4, "big") + why.to_bytes(4, "big"))
