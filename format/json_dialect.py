"""JSON as fastjson writes it: maps whose keys are bare numbers or whole objects.

Standard JSON is read by msgspec; what it refuses is read by :mod:`understudy.format.json_reader`. The dialect appears
in files and bodies of Java peers, so both must be read; which form is written is the caller's choice. What is read here
can be written here: text is never half a surrogate pair, a number never above 64 bits, nesting never deeper than
:data:`~understudy.format.json_reader.DEEPEST` levels.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from understudy.format.json_reader import JsonError, Reader, check, text_of

_STANDARD = msgspec.json.Decoder()
_encode_scalar = msgspec.json.encode

STEPS_LIMIT = 1_500_000
"""Largest cost of a peer's large text as the reader counts it: below half a second."""

__all__ = [
    "STEPS_LIMIT",
    "JsonError",
    "ObjectKey",
    "Rows",
    "dump_chunks",
    "dump_pieces",
    "dumps",
    "join_in_steps",
    "loads",
    "loads_in_steps",
]


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


def loads(data: bytes | bytearray | memoryview | str, steps_limit: int | None = None) -> Any:
    """Read standard JSON or the dialect, in a time that grows with the length of *data* and with nothing else.

    Accepts unquoted numeric and identifier keys, objects as keys (the key becomes the object's compact standard JSON
    text), single-quoted strings and stray commas. Keys are always ``str``; a repeated key keeps its last value.

    Args:
        data: the text.
        steps_limit: largest cost of a text that is not standard JSON, as of :func:`loads_in_steps`.

    Raises:
        JsonError: the text cannot be read, is nested deeper than 64 levels, or holds what could not be written again:
            half a surrogate pair, a number beyond 64 bits.
    """
    try:
        value = _STANDARD.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Reader(text_of(data), steps_limit).read()
    check(value)
    return value


def loads_in_steps(data: bytes | bytearray | memoryview | str, steps_limit: int | None = STEPS_LIMIT) -> Any:
    """Read what :func:`loads` reads in many short calls, for large texts in a thread: none keeps other threads waiting.

    Args:
        data: the text.
        steps_limit: largest cost, about four million to a second, so that a peer's text is refused soon that would
            take long or fill the memory; ``None`` for no limit.

    Raises:
        JsonError: as :func:`loads`, and when the text takes more than *steps_limit* steps.
    """
    return Reader(text_of(data), steps_limit).read()


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


class Rows:
    """A JSON object whose entries are made while it is written, which can happen once.

    Args:
        entries: keys, as for :func:`dumps`, and values.
    """

    def __init__(self, entries: Iterable[tuple[object, Any]]) -> None:
        self.entries = entries


SMALL_TABLE = 32
"""Tables of so many entries are written in one piece."""


def dump_pieces(value: Any, *, bare_keys: bool = False) -> Iterator[bytes]:
    """Write what :func:`dumps` writes, in short pieces, for tables that would take long.

    Args:
        value: an object or a list; tables in it and in its lists may be :class:`Rows`, lists may be iterators; both
            are made while they are written.
        bare_keys: as for :func:`dumps`.
    """
    if isinstance(value, (Iterator, list)):
        start = b"["
        for each in value:
            if isinstance(each, Rows):
                yield start
                yield from dump_pieces(each, bare_keys=bare_keys)
            else:
                yield start + dumps(each, bare_keys=bare_keys)
            start = b","
        yield b"]" if start == b"," else b"[]"
        return
    entries: Iterable[tuple[object, Any]] = value.entries if isinstance(value, Rows) else value.items()
    separator = b"{"
    for key, item in entries:
        yield separator + _key(key, bare_keys) + b":"
        separator = b","
        if _is_made_in_pieces(item):
            yield from dump_pieces(item, bare_keys=bare_keys)
        else:
            yield dumps(item, bare_keys=bare_keys)
    yield b"}" if separator == b"," else b"{}"


def _is_made_in_pieces(item: Any) -> bool:
    if isinstance(item, (Rows, Iterator)):
        return True
    return (isinstance(item, dict) and _is_long(item)) or (isinstance(item, list) and len(item) > SMALL_TABLE)


_PIECES_OF_A_CHUNK = 1_000
"""Joining many more in one call keeps every other thread waiting for some milliseconds."""


def join_in_steps(pieces: Iterable[bytes]) -> Generator[None, None, bytes]:
    """Return *pieces* in one text, with a step for each of them."""
    chunks: list[bytes] = []
    parts: list[bytes] = []
    for piece in pieces:
        parts.append(piece)
        if len(parts) >= _PIECES_OF_A_CHUNK:
            chunks.append(b"".join(parts))
            parts.clear()
        yield
    return b"".join(chunks + parts)


def dump_chunks(value: Any, *, bare_keys: bool = False) -> Iterator[bytes]:
    """Write what :func:`dump_pieces` writes, in chunks of some tens of kilobytes."""
    pieces = dump_pieces(value, bare_keys=bare_keys)
    while chunk := list(islice(pieces, _PIECES_OF_A_CHUNK)):
        yield b"".join(chunk)


def _is_long(table: dict[Any, Any]) -> bool:
    return len(table) > SMALL_TABLE or any(
        isinstance(item, Rows) or (isinstance(item, dict) and len(item) > SMALL_TABLE) for item in table.values()
    )


def _write(value: Any, bare: bool, parts: list[bytes]) -> None:
    if isinstance(value, Rows):
        parts.extend(dump_pieces(value, bare_keys=bare))
    elif isinstance(value, dict):
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
