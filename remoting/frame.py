"""Frames without I/O: bytes in, commands out, and back.

A frame is ``length:4  type:1 header_length:3  header  body``, all big-endian; *length* counts what follows it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import repeat

from understudy.remoting import binary_header, json_header
from understudy.remoting.command import BINARY_HEADER, CURRENT_VERSION, JSON_HEADER, Command
from understudy.remoting.json_header import HeaderError

FRAME_LIMIT_BYTES = 16 * 1024 * 1024
HEADER_LIMIT_BYTES = 256 * 1024  # properties of a message are below 32 KiB, six times that with every byte escaped

_HEAD = struct.Struct(">iI")
_decode_usual = json_header.decode_exact
_DECODERS: dict[int, Callable[[bytes | memoryview], Command]] = {
    JSON_HEADER: json_header.decode,
    BINARY_HEADER: binary_header.decode,
}

Buffer = bytes | bytearray | memoryview
ALL_COMMANDS = 1 << 62


class FrameError(Exception):
    """Bytes that are no frame; the connection they came from must be closed. The message says why."""


class FrameReader:
    """Cuts a stream of bytes into commands.

    Args:
        frame_limit_bytes: largest whole frame.
        header_limit_bytes: largest header.

    Attributes:
        error: what is wrong behind the commands that were returned last.
        incomplete: the bytes of an incomplete frame; the same object for good, so that a fast path may look at it.
    """

    __slots__ = ("_at", "_header_limit", "_length_limit", "_needed", "_rest", "_skipping", "error", "incomplete")

    def __init__(
        self, frame_limit_bytes: int = FRAME_LIMIT_BYTES, header_limit_bytes: int = HEADER_LIMIT_BYTES
    ) -> None:
        self._length_limit = frame_limit_bytes - 4  # of what the length field counts
        self._header_limit = min(header_limit_bytes, 0xFFFFFF)  # its length has 24 bits, its type is above them
        self.error: FrameError | None = None
        self.incomplete = bytearray()
        self._needed = 8  # bytes that must have arrived before another look can find a frame
        self._skipping = 0  # bytes of a refused frame that are still to come
        self._rest = b""  # bytes that were not looked at yet, from _at on
        self._at = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame held so far."""
        return len(self.incomplete)

    @property
    def left(self) -> bool:
        """Whether there are bytes that :meth:`feed` did not look at, because of its bound; :meth:`more` does."""
        return bool(self._rest)

    def feed(self, data: bytes, most: int = ALL_COMMANDS) -> list[Command]:
        """Take the next bytes and return the commands completed by them, in order.

        Args:
            data: the bytes; only when nothing is :attr:`left`.
            most: return no more commands than that.

        Raises:
            FrameError: the bytes are no frame, or one above a limit. When whole commands came before it, these are
                returned, the error is in :attr:`error`, and the next call raises it.
        """
        if self.error is not None:
            raise self.error
        if self._skipping:
            skipped = min(self._skipping, len(data))
            self._skipping -= skipped
            data = data[skipped:]
        if self.incomplete:
            self.incomplete += data
            if len(self.incomplete) < self._needed:
                return []
            data = bytes(self.incomplete)
            self.incomplete.clear()
        commands = self._decode(data, 0, most)
        if self.error is not None and not commands:
            raise self.error
        return commands

    def more(self, most: int) -> list[Command]:
        """Return the next commands of the bytes that are :attr:`left`, *most* of them; none where :attr:`error` is."""
        data, self._rest = self._rest, b""
        return self._decode(data, self._at, most)

    def _decode(self, data: bytes, at: int, most: int) -> list[Command]:
        """Return the commands from *at* on; keep what is behind them, and what is wrong there."""
        commands: list[Command] = []
        end = len(data)
        needed = 8
        try:
            for _ in repeat(None, most):
                if end - at < 8:
                    break
                length, header_length = _HEAD.unpack_from(data, at)
                kind = JSON_HEADER  # unless the first byte of the length of the header says otherwise
                if not header_length + 4 <= length <= self._length_limit or header_length > self._header_limit:
                    kind, header_length = self._checked(length, header_length, data[at : at + 8])
                frame_end = at + 4 + length
                if frame_end > end:
                    needed = 4 + length
                    break
                body_at = at + 8 + header_length
                try:  # nearly always that is all
                    command = _decode_usual(data[at + 8 : body_at]) if kind == JSON_HEADER else None
                except (ValueError, RecursionError):
                    command = None
                if command is None or command.opaque is None:
                    try:
                        command = _DECODERS[kind](data[at + 8 : body_at])
                    except HeaderError as error:
                        raise FrameError(str(error)) from None
                    command.serialize = kind
                if body_at < frame_end:
                    command.body = data[body_at:frame_end]
                commands.append(command)
                at = frame_end
            else:
                if at < end:  # as many as are wanted
                    self._rest, self._at = data, at
                    return commands
        except FrameError as error:
            self.error = error
            return commands
        if at < end:
            self.incomplete += data[at:] if at else data
        self._needed = needed
        return commands

    def skip(self) -> Command | None:
        """Give up the incomplete frame: its bytes are dropped, those that are still to come are ignored.

        Returns:
            The command of its header, without body; ``None`` when the header is not complete, and nothing changes then.
        """
        if len(self.incomplete) < 8:
            return None
        length, kind_and_length = _HEAD.unpack_from(self.incomplete)
        kind, header_length = kind_and_length >> 24, kind_and_length & 0xFFFFFF
        if len(self.incomplete) < 8 + header_length:
            return None
        try:
            command = _DECODERS[kind](bytes(self.incomplete[8 : 8 + header_length]))
        except HeaderError as error:
            raise FrameError(str(error)) from None
        self._skipping = 4 + length - len(self.incomplete)
        self.incomplete.clear()
        self._needed = 8
        return command

    def _checked(self, length: int, kind_and_length: int, head: Buffer) -> tuple[int, int]:
        """Return type and length of an unusual header. Raises :class:`FrameError`."""
        kind, header_length = kind_and_length >> 24, kind_and_length & 0xFFFFFF
        if not header_length + 4 <= length <= self._length_limit:
            raise FrameError(self._why(length, header_length, head))
        if header_length > self._header_limit:
            raise FrameError(f"header of {header_length} bytes is above the limit of {self._header_limit}")
        if kind not in _DECODERS:
            raise FrameError(f"unknown header type {kind}")
        return kind, header_length

    def _why(self, length: int, header_length: int, head: Buffer) -> str:
        if bytes(head[:4]) in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP"):
            return "looks like HTTP; this port speaks the remoting protocol"
        if head[0] == 0x16:
            return "looks like TLS; this port speaks plain text"
        if length > self._length_limit:
            return f"frame of {length + 4} bytes is above the limit of {self._length_limit + 4}"
        if length < 4:
            return f"frame length {length} is too small"
        return f"header of {header_length} bytes does not fit its frame of {length + 4}"


def encode(command: Command) -> bytes:
    """Return the whole frame of *command* with a JSON header."""
    header = json_header.encode(command)
    return _HEAD.pack(4 + len(header) + len(command.body), len(header)) + header + command.body


def buffers_of(command: Command) -> list[Buffer]:
    """Return the whole frame of *command* with a JSON header as buffers for one vectored write, its body not copied."""
    header = json_header.encode(command)
    return [framed(header, len(command.body)), command.body]


_REPLY = (
    b'{"code":%d,"extFields":{%b},"flag":1,"language":"JAVA","opaque":%d%b,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


def framed(header: bytes, body_bytes: int = 0) -> bytes:
    """Return the frame of a JSON header up to its body, of which only the length matters here."""
    return _HEAD.pack(4 + len(header) + body_bytes, len(header)) + header


def success_format(ext: bytes, remark: bytes = b"") -> bytes:
    """Return the format of a success's header, for hot paths that fill in the same fields again and again.

    Args:
        ext: as for :func:`reply_head`, itself a format.
        remark: as for :func:`reply_head`.

    Returns:
        A format that takes what *ext* takes and then the correlation number; :func:`framed` makes a frame of it.
    """
    end = b',"remark":"%b"' % remark if remark else b""
    end += b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
    return b'{"code":0,"extFields":{' + ext + b'},"flag":1,"language":"JAVA","opaque":%d' + end.replace(b"%", b"%%")


def reply_head(opaque: int, code: int, ext: bytes, body_bytes: int, remark: bytes = b"") -> bytes:
    """Return a response's frame up to its body, for hot paths that write bodies from mapped files.

    Args:
        opaque: correlation number of the request.
        code: response code.
        ext: inside of the ext object, already JSON: ``b'"queueId":"1","queueOffset":"2"'``.
        body_bytes: length of the body the caller writes after it.
        remark: already JSON without quotes (no characters that need escaping).
    """
    header = _REPLY % (code, ext, opaque, b',"remark":"%b"' % remark if remark else b"", CURRENT_VERSION)
    return framed(header, body_bytes)


def with_code(reply: bytes, code: int) -> bytes:
    """Return *reply*, the frame of a success without a body, with another response code."""
    header = b'{"code":%d' % code + reply[_HEAD.size + len(b'{"code":0') :]
    return framed(header)


def reply(opaque: int, code: int, ext: bytes, body: Sequence[Buffer] = (), remark: bytes = b"") -> list[Buffer]:
    """Return a response as buffers ready for one vectored write.

    Args:
        opaque: of the request.
        code: a response code.
        ext: header fields as JSON text without the braces.
        body: buffers, which are not copied.
        remark: as JSON text without the quotes.
    """
    return [reply_head(opaque, code, ext, sum(map(len, body)), remark), *body]
