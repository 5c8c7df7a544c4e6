"""The tolerant reader of JSON: linear in the length of the text, in short steps that can be counted.

The laws:

* Every expression below is possessive: it never looks at a character twice because something later did not fit.
* Members of an object or a list that are nested at most twice, as many as follow each other within ``_WINDOW``
  characters, are a *run* and are handed to msgspec as a whole. A character is therefore looked at at most once for each
  of the three containers around it, once by msgspec, and once as a token where msgspec would not have it.
* Everything else is read token by token. Members of runs and tokens are counted, each at its cost, and the sum can be
  limited. No call into C is long, but for strings above the window, whose escapes are limited as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

DEEPEST = 64
"""Most levels of nesting; deeper text is refused, for whoever writes the value again goes one call deeper per level."""

_WINDOW = 16 * 1024
_MEMBER_STEPS, _DIALECT_STEPS, _TOKEN_STEPS, _RUN_STEPS = 1, 2, 10, 20
_SLICE = 1 << 20

# Atomic groups, not possessive repeats of groups: Python before 3.11.5 and 3.12 matches wrongly with those.
_STRING = r'"(?>(?:[^"\\]++|\\.)*)"'
_PLAIN = r"""[^{}\[\]"']++"""
_FLAT = rf"[{{\[](?>(?:{_PLAIN}|{_STRING})*)[}}\]]"
_NESTED = rf"[{{\[](?>(?:{_PLAIN}|{_STRING}|{_FLAT})*)[}}\]]"
_MEMBER = rf"""(?>(?:[^{{}}\[\]"',]++|{_STRING}|{_NESTED})+)"""

_run = re.compile(rf"(?>(?:{_MEMBER},)*)(?>(?:{_MEMBER}(?=[}}\]]))?)", re.DOTALL).match
_string_parts = re.compile(rf"({_STRING})", re.DOTALL).split
_numbers = re.compile(r"\{(-?[0-9]++:-?[0-9]++(?>(?:,-?[0-9]++:-?[0-9]++)*))\}").sub
_numeric_keys = re.compile(r"([{,]\s*+)(-?[0-9]++)(?=\s*+:)").subn
_quoted = {
    '"': re.compile(r'"((?>(?:[^"\\]++|\\.)*))"', re.DOTALL).match,
    "'": re.compile(r"'((?>(?:[^'\\]++|\\.)*))'", re.DOTALL).match,
}
_space = re.compile(r"\s++").match
_space_and_commas = re.compile(r"[\s,]++").match
_number = re.compile(r"-?[0-9]++(?>(?:\.[0-9]++)?)(?>(?:[eE][+-]?[0-9]++)?)").match
_word = re.compile(r"[A-Za-z_$][\w$.]*+|-?[0-9]++").match
_escape = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_surrogate = re.compile("[\ud800-\udfff]")
_pair = re.compile("([\ud800-\udbff])([\udc00-\udfff])")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_DIGITS = 20
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


class JsonError(ValueError):
    """Text that is JSON in no dialect, or that could not be written again.

    Args:
        message: where and why, for people.
        at: character where the reader stood; 0 where it is the whole text that cannot be.
    """

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.at = at


def text_of(data: bytes | bytearray | memoryview | str) -> str:
    """Return *data* as text. Raises :class:`JsonError`."""
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}") from None


def check(value: Any, levels: int = DEEPEST) -> None:
    """Refuse a value, as msgspec made it, that could not be written again.

    Raises:
        JsonError: it is nested deeper than *levels*, or holds a whole number beyond 64 bits.
    """
    level = [value]
    for _ in range(levels + 1):
        inner: list[Any] = []
        for node in level:
            kind = type(node)
            if kind is dict:
                inner += node.values()
            elif kind is list:
                inner += node
            elif kind is int and not _SMALLEST <= node <= _LARGEST:
                raise JsonError(f"a number of {len(str(node))} characters, more than 64 bits hold")
        if not inner:
            return
        level = inner
    raise JsonError(f"nested deeper than {DEEPEST} levels")


class Reader:
    """Reads one text.

    Args:
        text: what is read.
        steps_limit: largest cost of the text, about four million to a second; ``None`` for no limit.
    """

    def __init__(self, text: str, steps_limit: int | None = None) -> None:
        self._text = text
        self._at = 0
        self._no_run_until = 0
        self._steps_left = math.inf if steps_limit is None else steps_limit
        if steps_limit is not None:
            escapes = sum(text.count("\\", start, start + _SLICE) for start in range(0, len(text), _SLICE))
            self._pay(escapes * _TOKEN_STEPS)

    def read(self) -> Any:
        """Return the value of the whole text. Raises :class:`JsonError`."""
        value = self._value(0)
        self._skip(_space)
        if self._at != len(self._text):
            raise self._fail("unexpected text after the value")
        return value

    def _fail(self, what: str) -> JsonError:
        return JsonError(f"{what} at character {self._at}", self._at)

    def _pay(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise self._fail("too many values or escapes for one text, send it in parts; stopped")

    def _skip(self, blanks: Callable[[str, int, int], re.Match[str] | None]) -> None:
        found = blanks(self._text, self._at, self._at + _WINDOW)
        while found is not None and found.end() == self._at + _WINDOW:
            self._at = found.end()
            found = blanks(self._text, self._at, self._at + _WINDOW)
        if found is not None:
            self._at = found.end()

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise self._fail(f"nested deeper than {DEEPEST} levels")
        self._pay(_TOKEN_STEPS)
        self._skip(_space)
        text, at = self._text, self._at
        if at >= len(text):
            raise self._fail("text ends where a value is expected")
        head = text[at]
        if head == "{":
            return self._object(depth)
        if head == "[":
            return self._array(depth)
        if head in _quoted:
            return self._string(head)
        number = _number(text, at, at + _WINDOW)
        if number is not None:
            return self._number(number.group())
        word = _word(text, at)
        if word is not None and word.group() in _WORDS:
            self._at = word.end()
            return _WORDS[word.group()]
        raise self._fail(f"unexpected {head!r}")

    def _run(self, depth: int, form: str) -> Any:
        """Read the members that come next, as many as can be taken together.

        Returns:
            Their object or list; ``None`` when they must be read as tokens, up to ``_no_run_until``.
        """
        at = self._no_run_until = self._at
        self._pay(_RUN_STEPS)
        found = _run(self._text, at, at + _WINDOW)
        if found is None or found.end() == at or depth + 3 > DEEPEST:
            return None
        text = form % found.group().rstrip(",")
        members = text.count(",") + text.count("{") + text.count("[") + text.count('"') // 2
        self._pay(members * _MEMBER_STEPS)
        try:
            value = _decode(text)
        except msgspec.DecodeError:
            self._pay(members * _DIALECT_STEPS)
            value = _with_numeric_keys(text)
        if value is None:
            self._no_run_until = found.end()
            return None
        check(value, 3)
        self._at = found.end()
        return value

    def _number(self, token: str) -> int | float:
        value: int | float
        if not token.lstrip("-").isdigit():
            value = float(token)
            if value in (float("inf"), float("-inf")):
                raise self._fail("a number out of range")
        elif len(token) > _DIGITS or not _SMALLEST <= (value := int(token)) <= _LARGEST:
            raise self._fail(f"a number of {len(token)} characters, more than 64 bits hold,")
        self._at += len(token)
        return value

    def _ended(self, end: str) -> bool:
        """Skip blanks and commas; return whether *end* follows (and consume it)."""
        self._skip(_space_and_commas)
        if self._text.startswith(end, self._at):
            self._at += 1
            return True
        if self._at >= len(self._text):
            raise self._fail(f"text ends where {end!r} is expected")
        return False

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        result: dict[str, Any] = {}
        tokens_until = 0
        while not self._ended("}"):
            if self._at >= tokens_until:
                run = self._run(depth, "{%s}")
                if run is not None:
                    result.update(run)
                    continue
                tokens_until = self._no_run_until
            key = self._key(depth)
            self._skip(_space)
            if not self._text.startswith(":", self._at):
                raise self._fail("':' expected")
            self._at += 1
            result[key] = self._value(depth + 1)
        return result

    def _key(self, depth: int) -> str:
        head = self._text[self._at]
        if head in _quoted:
            self._pay(_TOKEN_STEPS)
            return self._string(head)
        if head in "{[":
            return _encode(self._value(depth + 1)).decode()
        self._pay(_TOKEN_STEPS)
        word = _word(self._text, self._at)
        if word is None:
            raise self._fail(f"unexpected {head!r} where a key is expected")
        self._at = word.end()
        return word.group()

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        result: list[Any] = []
        tokens_until = 0
        while not self._ended("]"):
            if self._at >= tokens_until:
                run = self._run(depth, "[%s]")
                if run is not None:
                    result += run
                    continue
                tokens_until = self._no_run_until
            result.append(self._value(depth + 1))
        return result

    def _string(self, quote: str) -> str:
        found = _quoted[quote](self._text, self._at)
        if found is None:
            raise self._fail("string without an end")
        content = found[1]
        if "\\" in content:
            content = _pair.sub(_joined, _escape.sub(self._unescaped, content))
            if _surrogate.search(content):
                raise self._fail("half a surrogate pair in the string")
        self._at = found.end()
        return content

    def _unescaped(self, found: re.Match[str]) -> str:
        code = found[1] or found[2]
        if code:
            return chr(int(code, 16))
        letter = found[3]
        if letter in "ux":
            raise self._fail(f"bad escape \\{letter} in the string")
        return _ESCAPES.get(letter, letter)


def _joined(found: re.Match[str]) -> str:
    high, low = ord(found[1]), ord(found[2])
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _with_numeric_keys(text: str) -> Any:
    """Return the value of a run if only bare numeric keys keep it from being standard JSON, else ``None``."""
    parts = _string_parts(text)
    changed = 0
    for index in range(0, len(parts), 2):
        plain = _numbers(_with_quotes, parts[index])
        changed += plain is not parts[index]
        parts[index], count = _numeric_keys(r'\1"\2"', plain)
        changed += count
    try:
        return _decode("".join(parts)) if changed else None
    except msgspec.DecodeError:
        return None


def _with_quotes(found: re.Match[str]) -> str:
    return '{"' + found[1].replace(",", ',"').replace(":", '":') + "}"
