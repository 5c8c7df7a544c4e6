"""What gRPC puts on top of HTTP/2: length-prefixed messages, timeouts and texts in header fields. Pure.

Source: PROTOCOL-HTTP2.md of gRPC.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping
from typing import TypeAlias
from urllib.parse import quote

from understudy.proxy.grpc.status import RpcError, StatusCode

PREFIX_BYTES = 5
GZIP, IDENTITY = "gzip", "identity"

_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_DIGITS = 8
_UNESCAPED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
AT_ONCE_BYTES = 128 * 1024
"""Bytes that are inflated on the event loop: a fraction of a millisecond. What has more goes on in a thread."""


def framed(message: bytes) -> bytes:
    """Return *message* with its prefix, uncompressed."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


class Inflating:
    """A compressed message that is larger than what is inflated at once.

    Args:
        inflater: what goes on with it.
        begin: what is inflated.
        left: compressed bytes that are left.
        limit_bytes: largest message.
    """

    __slots__ = ("_begin", "_inflater", "_left", "_limit")

    def __init__(self, inflater: zlib._Decompress, begin: bytes, left: bytes, limit_bytes: int) -> None:
        self._inflater = inflater
        self._begin = begin
        self._left = left
        self._limit = limit_bytes

    def __len__(self) -> int:
        """Bytes that are held."""
        return len(self._begin) + len(self._left)

    def whole(self) -> bytes:
        """Inflate the rest, in any thread; return the message. Raises :class:`RpcError`."""
        return self._begin + _inflated(self._inflater, self._left, self._limit - len(self._begin), self._limit)


Taken: TypeAlias = bytes | Inflating
"""A message, or what becomes one."""


def _inflated(inflater: zlib._Decompress, data: bytes, most: int, limit: int) -> bytes:
    """Return all that *data* inflates to, *most* bytes. Raises :class:`RpcError`: more, damaged, or not whole."""
    try:
        content = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise RpcError(StatusCode.INTERNAL, f"a message cannot be inflated: {error}") from None
    if len(content) > most:
        raise _too_large("more", limit)
    if not inflater.eof:
        raise RpcError(StatusCode.INTERNAL, "a compressed message ends in the middle")
    return content


def _too_large(size: str, limit: int) -> RpcError:
    return RpcError(StatusCode.RESOURCE_EXHAUSTED, f"a message has {size}, {limit} bytes are allowed")


class MessageReader:
    """Cuts the data of one stream into messages.

    Args:
        limit_bytes: largest message, inflated.
        encoding: how compressed messages are compressed, as the header field ``grpc-encoding`` says.
    """

    __slots__ = ("_buffer", "_encoding", "_limit")

    def __init__(self, limit_bytes: int, encoding: str = IDENTITY) -> None:
        self._limit = limit_bytes
        self._encoding = encoding
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a message that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Taken]:
        """Take the next bytes and return the messages that they complete.

        Raises:
            RpcError: a message is too large, or cannot be inflated.
        """
        buffer = self._buffer
        if not buffer and len(data) >= PREFIX_BYTES and not data[0]:
            length = int.from_bytes(data[1:PREFIX_BYTES], "big")
            if length == len(data) - PREFIX_BYTES and length <= self._limit:
                return [data[PREFIX_BYTES:]]  # nearly always: one message in one frame
        buffer += data
        found: list[Taken] = []
        while len(buffer) >= PREFIX_BYTES:
            length = int.from_bytes(buffer[1:PREFIX_BYTES], "big")
            if length > self._limit:
                raise _too_large(f"{length} bytes", self._limit)
            if len(buffer) < PREFIX_BYTES + length:
                break
            compressed, message = buffer[0], bytes(memoryview(buffer)[PREFIX_BYTES : PREFIX_BYTES + length])
            del buffer[: PREFIX_BYTES + length]
            if compressed > 1:
                raise RpcError(StatusCode.INTERNAL, f"a message begins with byte {compressed}, which is no prefix")
            found.append(self._inflated(message) if compressed else message)
        return found

    def _inflated(self, message: bytes) -> Taken:
        if self._encoding != GZIP:
            why = f"a message is compressed and grpc-encoding says {self._encoding[:32]}"
            raise RpcError(StatusCode.INTERNAL, f"{why}; send it as it is or compress it with gzip")
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        if self._limit <= AT_ONCE_BYTES:
            return _inflated(inflater, message, self._limit, self._limit)
        try:
            begin = inflater.decompress(message, AT_ONCE_BYTES)
        except zlib.error as error:
            raise RpcError(StatusCode.INTERNAL, f"a message cannot be inflated: {error}") from None
        return begin if inflater.eof else Inflating(inflater, begin, inflater.unconsumed_tail, self._limit)


def timeout_seconds(text: str) -> float:
    """Return the seconds of a ``grpc-timeout``. Raises :class:`RpcError` (INTERNAL) when it is none."""
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _TIMEOUT_DIGITS and unit in _SECONDS):
        raise RpcError(StatusCode.INTERNAL, f"grpc-timeout {text[:32]!r} is no number of at most 8 digits with a unit")
    return int(digits) * _SECONDS[unit]


def percent_encoded(text: str) -> str:
    """Return *text* as it can stand in ``grpc-message``."""
    return text if text.isascii() and text.isprintable() and "%" not in text else quote(text, safe=_UNESCAPED)


def refusal(headers: Mapping[str, str], paths: Container[str]) -> tuple[int, RpcError] | None:
    """Return why a request is no call, with the status of HTTP that says so; ``None`` if it is.

    Args:
        headers: header fields by name.
        paths: of the methods that there are.
    """
    if headers.get(":method") != "POST":
        return 405, RpcError(StatusCode.INTERNAL, "a call is a POST")
    kind = headers.get("content-type", "")
    if not kind.startswith("application/grpc"):
        return 415, RpcError(StatusCode.INTERNAL, f"content-type is {kind[:64]!r}, application/grpc is expected")
    encoding = headers.get("grpc-encoding", IDENTITY)
    if encoding not in (IDENTITY, GZIP):
        return 200, RpcError(StatusCode.UNIMPLEMENTED, f"grpc-encoding {encoding[:32]!r} is unknown; use gzip")
    path = headers.get(":path", "")
    if path not in paths:
        return 200, RpcError(StatusCode.UNIMPLEMENTED, f"there is no method {path[:200]}")
    if "grpc-timeout" in headers:
        try:
            timeout_seconds(headers["grpc-timeout"])
        except RpcError as error:
            return 200, error
    return None
