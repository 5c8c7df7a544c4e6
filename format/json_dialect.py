"""JSON as fastjson writes it: maps whose keys are bare numbers or whole objects.

Standard JSON is read by msgspec; only what it refuses goes through the tolerant reader below. The dialect appears in
files and bodies of Java peers, so both must be read; which form is written is the caller's choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_STANDARD = msgspec.json.Decoder()
_encode_scalar = msgspec.json.encode
_STRING = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_NUMBERS = re.compile(r"\{(-?[0-9]+:-?[0-9]+(?:,-?[0-9]+:-?[0-9]+)*)\}")
_NUMERIC_KEY = re.compile(r"([{,]\s*)(-?[0-9]+)(?=\s*:)")


class JsonError(ValueError):
    """Text that is JSON in no dialect; the message says where."""


class ObjectKey:
    """A map key that is an object itself, for example a message queue. Equal and hashed by its content."""

    __slots__ = ("text",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.text = dumps(dict(sorted(fields.items()))).decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"ObjectKey({self.text})"


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Read standard JSON or the dialect.

    Accepts unquoted numeric and identifier keys, objects as keys (the key becomes the object's compact standard JSON
    text), single-quoted strings and stray commas. Keys are always ``str``; a repeated key keeps its last value.

    Raises:
        JsonError: the text cannot be read, or is nested deeper than 64 levels.
    """
    try:
        return _STANDARD.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}") from None
    try:
        return _STANDARD.decode(_with_quoted_numbers(text))
    except (msgspec.DecodeError, RecursionError):
        pass
    reader = _Reader(text)
    value = reader.value(0)
    reader.blank()
    if reader.at != len(text):
        raise JsonError(f"unexpected text after the value at character {reader.at}")
    return value


def _with_quoted_numbers(text: str) -> str:
    """Return *text* with its bare numeric keys quoted: what is standard JSON then means the same in the dialect.

    Large tables differ from standard JSON in nothing else, and the standard reader is ten times faster.
    """
    parts = _STRING.split(text)
    parts[::2] = [_NUMERIC_KEY.sub(r'\1"\2"', _NUMBERS.sub(_quoted, part)) for part in parts[::2]]
    return "".join(parts)


def _quoted(found: re.Match[str]) -> str:
    return '{"' + found[1].replace(",", ',"').replace(":", '":') + "}"


def dumps(value: Any, *, bare_keys: bool = False) -> bytes:
    """Write compact JSON, keeping the order of dicts.

    Args:
        value: dicts (keys ``str``, ``int`` or :class:`ObjectKey`), lists, tuples and scalars.
        bare_keys: write ``int`` and :class:`ObjectKey` keys unquoted, as fastjson does by default; otherwise quoted,
            which every reader of standard JSON accepts.
    """
    if not bare_keys:
        try:
            return _encode_scalar(value)  # the same text in one call, unless a key is none of standard JSON
        except TypeError:
            pass
    parts: list[bytes] = []
    _write(value, bare_keys, parts)
    return b"".join(parts)


def _write(value: Any, bare: bool, parts: list[bytes]) -> None:
    if isinstance(value, dict):
        if bare and value and all(type(key) is int and type(item) is int for key, item in value.items()):
            parts.append(b"{%s}" % b",".join([b"%d:%d" % pair for pair in value.items()]))  # queues with offsets
            return
        separator = b"{"
        for key, item in value.items():
            parts.append(separator)
            separator = b","
            parts.append(_key(key, bare))
            parts.append(b":")
            _write(item, bare, parts)
        parts.append(b"}" if value else b"{}")
    elif isinstance(value, (list, tuple)):
        separator = b"["
        for item in value:
            parts.append(separator)
            separator = b","
            _write(item, bare, parts)
        parts.append(b"]" if value else b"[]")
    else:
        parts.append(_encode_scalar(value))


def _key(key: object, bare: bool) -> bytes:
    if isinstance(key, str):
        return _encode_scalar(key)
    if isinstance(key, ObjectKey):
        return key.text.encode() if bare else _encode_scalar(key.text)
    if not isinstance(key, int):
        raise TypeError(f"a map key must be a string, an integer or an ObjectKey, not {type(key).__name__}")
    return b"%d" % key if bare else b'"%d"' % key


_BLANK = re.compile(r"[\s,]*")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_$][\w$.]*|-?\d+")
_PLAIN = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_DEEPEST = 64


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def blank(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # the pattern matches anything

    def fail(self, what: str) -> JsonError:
        return JsonError(f"{what} at character {self.at}")

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self.fail(f"nested deeper than {_DEEPEST} levels")
        self.blank()
        if self.at >= len(self.text):
            raise self.fail("text ends where a value is expected")
        head = self.text[self.at]
        if head == "{":
            return self.object(depth)
        if head == "[":
            return self.array(depth)
        if head in "\"'":
            return self.string(head)
        number = _NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            token = number.group()
            return int(token) if token.lstrip("-").isdigit() else float(token)
        word = _WORD.match(self.text, self.at)
        if word and word.group() in _PLAIN:
            self.at = word.end()
            return _PLAIN[word.group()]
        raise self.fail(f"unexpected {head!r}")

    def skip_commas(self, end: str) -> bool:
        """Skip blanks and commas; return whether *end* follows (and consume it)."""
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]  # the pattern matches anything
        if self.text.startswith(end, self.at):
            self.at += 1
            return True
        if self.at >= len(self.text):
            raise self.fail(f"text ends where {end!r} is expected")
        return False

    def object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        result: dict[str, Any] = {}
        while not self.skip_commas("}"):
            head = self.text[self.at]
            if head in "\"'":
                key = self.string(head)
            elif head in "{[":
                key = dumps(self.value(depth + 1)).decode()
            else:
                word = _WORD.match(self.text, self.at)
                if not word:
                    raise self.fail(f"unexpected {head!r} where a key is expected")
                key = word.group()
                self.at = word.end()
            self.blank()
            if not self.text.startswith(":", self.at):
                raise self.fail("':' expected")
            self.at += 1
            result[key] = self.value(depth + 1)
        return result

    def array(self, depth: int) -> list[Any]:
        self.at += 1
        result: list[Any] = []
        while not self.skip_commas("]"):
            result.append(self.value(depth + 1))
        return result

    def string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        text = self.text
        while True:
            end = self.at
            while end < len(text) and text[end] != quote and text[end] != "\\":
                end += 1
            if end >= len(text):
                raise self.fail("string without an end")
            parts.append(text[self.at : end])
            self.at = end + 1
            if text[end] == quote:
                return "".join(parts)
            parts.append(self.escape())

    def escape(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("string without an end")
        letter = self.text[self.at]
        self.at += 1
        if letter in "ux":
            width = 4 if letter == "u" else 2
            digits = self.text[self.at : self.at + width]
            try:
                code = int(digits, 16)
            except ValueError:
                raise self.fail(f"bad escape \\{letter}{digits}") from None
            self.at += width
            if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", self.at):
                low = int(self.text[self.at + 2 : self.at + 6] or "0", 16)
                if 0xDC00 <= low < 0xE000:
                    self.at += 6
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            return chr(code)
        return _ESCAPES.get(letter, letter)
