"""Java property files: ``key=value`` lines as java.util.Properties reads them."""

from __future__ import annotations

from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A line that cannot be read; the message says which."""


def parse(text: str) -> dict[str, str]:
    """Read property lines: ``#`` and ``!`` comments, ``=``, ``:`` or blanks after the key, escapes, continued lines.

    Raises:
        PropertiesError: a unicode escape without four hexadecimal digits.
    """
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        result[_unescape(line[:end], number)] = _unescape(rest, number)
    return result


def write(values: dict[str, str]) -> str:
    """Write sorted ``key=value`` lines, as the reference stores and shows its settings."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        at += 2
        if letter == "u":
            digits = text[at : at + 4]
            try:
                parts.append(chr(int(digits, 16)) if len(digits) == 4 else "")
            except ValueError:
                raise PropertiesError(f"line {number}: \\u{digits} is no unicode escape") from None
            if len(digits) != 4:
                raise PropertiesError(f"line {number}: \\u{digits} is no unicode escape")
            at += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    return "".join(parts)
