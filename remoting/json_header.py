"""The JSON header (type 0), in the field order and form that Java peers write (RemotingCommand.java)."""

from __future__ import annotations

import itertools

import msgspec

from understudy.format.numbers import INT_MAX, INT_MIN, whole_number
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


_NULL = msgspec.Raw(b"null")
_JAVA = msgspec.Raw(b'"JAVA"')
_NESTED = object()
_ODD_FIELDS_LIMIT = 1000  # usual headers, with text in every ext field, are read in one go


class _Raw(msgspec.Struct):
    """A header whose fields are not looked into yet, so that one without a meaning costs nothing."""

    code: msgspec.Raw = _NULL
    language: msgspec.Raw = _JAVA
    version: msgspec.Raw = _NULL
    opaque: msgspec.Raw = _NULL
    flag: msgspec.Raw = _NULL
    remark: msgspec.Raw = _NULL
    extFields: dict[str, msgspec.Raw] | None = None


_decode_raw = msgspec.json.Decoder(_Raw).decode


def _decode_tolerantly(header: bytes | memoryview) -> Command:
    """Read what other clients send: numbers as strings, non-string ext values, the language as a number."""
    try:
        fields = _decode_raw(header)
        language = _scalar(fields.language)
        if isinstance(language, int) and not isinstance(language, bool):
            language = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else None
        ext = fields.extFields
        if ext is not None and len(ext) > _ODD_FIELDS_LIMIT:
            raise HeaderError(f"JSON header has {len(ext)} ext fields, some not text, the limit is {_ODD_FIELDS_LIMIT}")
        return Command(
            code=_int(fields.code, "code") or 0,
            language=language if isinstance(language, str) else None,
            version=_int(fields.version, "version") or 0,
            opaque=_int(fields.opaque, "opaque"),
            flag=_int(fields.flag, "flag") or 0,
            remark=_text(fields.remark),
            ext=None if ext is None else {key: text for key in ext if (text := _text(ext[key])) is not None},
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderError(f"JSON header cannot be read: {error}") from None


def _scalar(raw: msgspec.Raw) -> object:
    """Return a number, a text, a truth value or ``None``; an object or a list is not looked into."""
    return _NESTED if memoryview(raw)[0] in b"{[" else _decode_any(raw)


def _int(raw: msgspec.Raw, name: str) -> int | None:
    value = _scalar(raw)
    if value is None:
        return None
    try:
        return whole_number(value, f"{name} of the JSON header", INT_MIN, INT_MAX)
    except ValueError as error:
        raise HeaderError(str(error)) from None


def _text(raw: msgspec.Raw) -> str | None:
    """Return a field as text; what is not text stays as it was written."""
    value = _scalar(raw)
    if value is None or isinstance(value, str):
        return value
    return bytes(raw).decode()


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
