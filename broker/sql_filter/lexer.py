"""Words of a SQL92 condition with the places where they stand.

Keywords count in any case, names of properties as they are written. A comment is ``--`` to the end of its line, or
``/* */``. Each character is looked at once.

Source: SelectorParser.jj. Differs because a character that begins no word is refused wherever it stands: the reference
stops reading, without a word, behind the first whole condition.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_TEXT = 8_192
"""Characters of a condition; the largest is compiled within 10 ms."""

KEYWORDS = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"],
)
NAME, STRING, DECIMAL, FLOAT, END = "name", "string", "decimal", "float", "end"

_WORD = re.compile(
    r"""
    (?P<space>(?:[ \t\n\r\f]+|--[^\n\r]*|/\*.*?\*/)+)
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<decimal>0|[1-9][0-9]*[lL]?)
    | (?P<sign><>|<=|>=|[=<>(),+-])
    """,
    re.VERBOSE | re.DOTALL,
)


class SqlError(ValueError):
    """A text that is no condition; the message says what is wrong and at which line and column."""


class Word(NamedTuple):
    """One word: its kind (a keyword or a sign is its own), its text as written, and where it begins."""

    kind: str
    text: str
    at: int


def place(text: str, at: int) -> str:
    """Return where *at* is in *text*, for people: line and column, both from 1."""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def refuse(text: str, at: int, why: str) -> SqlError:
    """Return the error of what stands at *at*."""
    return SqlError(f"{why} (at {place(text, at)})")


def words(text: str) -> list[Word]:
    """Return the words of a condition; the last one is ``END``.

    Raises:
        SqlError: the text is too long, or something in it is no word.
    """
    if len(text) > MAX_TEXT:
        raise SqlError(f"a condition of {len(text)} characters; at most {MAX_TEXT} are read")
    found, at, make = list[Word](), 0, tuple.__new__
    for match in _WORD.finditer(text):
        begin, end = match.span()
        if begin != at:
            break
        at, kind = end, match.lastgroup or ""
        if kind == "space":
            continue
        word = match[0]
        if kind == "sign":
            kind = word
        elif kind == NAME and word.upper() in KEYWORDS:
            kind = word.upper()
        found.append(make(Word, (kind, word, begin)))
    if at < len(text):
        raise refuse(text, at, _no_word(text, at))
    found.append(Word(END, "", len(text)))
    return found


def _no_word(text: str, at: int) -> str:
    if text[at] == "'":
        return "a string without its closing quote"
    if text.startswith("/*", at):
        return "a comment without its end"
    return f"{text[at]!r} begins no word"
