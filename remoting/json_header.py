"""The JSON header (type 0), in the field order and form that Java peers write (RemotingCommand.java)."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from understudy.remoting.command import LANGUAGES, Command

#: Decodes the header of a usual peer. ``ValueError``, ``RecursionError``: :func:`decode` may be able to read it.
decode_exact = msgspec.json.Decoder(Command).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.encode
_stand_in_opaque = itertools.count(1 << 30)


class HeaderError(ValueError):
    """A header that cannot be read; the message says why."""


def decode(header: bytes | memoryview) -> Command:
    """Decode a header; a missing correlation number is replaced by one of our own, as the reference does.

    Raises:
        HeaderError: not a JSON object, or a field that has no meaning as its type.
    """
    try:
        command = decode_exact(header)
    except (ValueError, RecursionError):
        command = _decode_tolerantly(header)
    if command.opaque is None:
        command.opaque = next(_stand_in_opaque) & 0x7FFFFFFF
    return command


def _decode_tolerantly(header: bytes | memoryview) -> Command:
    """Read what other clients send: numbers as strings, non-string ext values, the language as a number."""
    try:
        fields = _decode_any(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderError(f"JSON header cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise HeaderError("JSON header is not an object")
    language = fields.get("language", "JAVA")
    if isinstance(language, int) and not isinstance(language, bool):
        language = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else None
    ext = fields.get("extFields")
    if ext is not None:
        if not isinstance(ext, dict):
            raise HeaderError("extFields of the JSON header is not an object")
        ext = {key: _text(value) for key, value in ext.items() if value is not None}
    remark = fields.get("remark")
    opaque = fields.get("opaque")
    return Command(
        code=_int(fields, "code"),
        language=language if isinstance(language, str) else None,
        version=_int(fields, "version"),
        opaque=None if opaque is None else _int(fields, "opaque"),
        flag=_int(fields, "flag"),
        remark=None if remark is None else _text(remark),
        ext=ext,
    )


def _int(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise HeaderError(f"{name} of the JSON header is {value!r}, not a number") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise HeaderError(f"{name} of the JSON header is outside the range of 32-bit integers")
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _encode(value).decode()


def encode(command: Command) -> bytes:
    """Encode a header. Keys come in alphabetical order, ext fields in their own; null remark and ext are left out."""
    ext = b',"extFields":' + _encode(command.ext) if command.ext is not None else b""
    remark = b',"remark":' + _encode(command.remark) if command.remark is not None else b""
    return b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        ext,
        command.flag,
        (command.language or "OTHER").encode(),
        command.opaque or 0,
        remark,
        command.version,
    )
