"""The ROCKETMQ binary header (type 1) (RocketMQSerializable.java)."""

from __future__ import annotations

import struct

from understudy.remoting.command import BINARY_HEADER, LANGUAGES, Command
from understudy.remoting.json_header import HeaderError

_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_LENGTH = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")


def decode(header: bytes | memoryview) -> Command:
    """Decode a header; empty strings become ``None`` or are left out, a repeated key keeps its last value.

    Raises:
        HeaderError: a length points outside the header, or text is not UTF-8.
    """
    data = bytes(header)
    if len(data) < _FIXED.size + 4:
        raise HeaderError(f"binary header of {len(data)} bytes is shorter than {_FIXED.size + 4}")
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
    at = _FIXED.size
    if not 0 <= remark_length <= len(data) - at - 4:
        raise HeaderError(f"binary header has a remark of {remark_length} bytes outside the header")
    try:
        remark = data[at : at + remark_length].decode() if remark_length else None
        at += remark_length
        (ext_length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if not 0 <= ext_length <= len(data) - at:
            raise HeaderError(f"binary header has ext fields of {ext_length} bytes outside the header")
        ext = _decode_ext(data, at, at + ext_length) if ext_length else None
    except UnicodeDecodeError:
        raise HeaderError("binary header has text that is not UTF-8") from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else None
    return Command(code, name, version, opaque, flag, remark, ext, b"", BINARY_HEADER)


def _decode_ext(data: bytes, at: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while at < end:
        if at + 2 > end:
            raise HeaderError("binary header ends inside an ext field")
        (length,) = _KEY_LENGTH.unpack_from(data, at)
        at += 2
        if length < 0 or at + length + 4 > end:
            raise HeaderError("binary header has an ext key that reaches outside its block")
        key = data[at : at + length].decode()
        at += length
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if length < 0 or at + length > end:
            raise HeaderError(f"binary header has a value of {key!r} that reaches outside its block")
        if length:
            ext[key] = data[at : at + length].decode()
        else:
            ext.pop(key, None)  # an empty string does not survive binary serialization
        at += length
    return ext
