"""Java property files: ``key=value`` lines as java.util.Properties reads them, and the error for what is wrong in them.

Our own reader, because importing the published one takes a quarter of a server's whole start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

LIMIT_CHARACTERS = 256 * 1024
"""Longest text that is read: updates come over the network, and a long one would keep everybody else waiting."""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ConfigError(ValueError):
    """A configuration that cannot be used; its text is one line for the user: where, which key, what is expected."""


def parse_properties(text: str, source: str = "configuration") -> dict[str, str]:
    """Read property lines: ``#`` and ``!`` comments, ``=``, ``:`` or blanks after the key, escapes, continued lines.

    Args:
        text: the file.
        source: its name, for messages.

    Returns:
        Key to text without blanks around it; the last of equal keys wins.

    Raises:
        ConfigError: a unicode escape without four hexadecimal digits, or a text above :data:`LIMIT_CHARACTERS`.
    """
    if len(text) > LIMIT_CHARACTERS:
        raise ConfigError(f"{source}: {len(text)} characters are above the limit of {LIMIT_CHARACTERS}")
    try:
        return _parse(text)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _parse(text: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        result[_unescape(line[:end], number)] = _unescape(rest, number).strip()
    return result


def format_properties(values: dict[str, str]) -> str:
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
                raise ConfigError(f"line {number}: \\u{digits} is no unicode escape") from None
            if len(digits) != 4:
                raise ConfigError(f"line {number}: \\u{digits} is no unicode escape")
            at += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    return "".join(parts)


def rewrite_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return the text of a ``.properties`` file with keys changed in place and new keys appended.

    Differs from the reference, which replaces the user's file by all of its keys and so drops comments and order.
    """
    left = dict(changes)
    lines = []
    for line in text.splitlines():
        match = re.match(r"\s*([^\s=:#!\\]+)\s*[=:\s]", line + "=")
        key = match.group(1) if match else None
        if key is not None and key in changes and not line.lstrip().startswith(("#", "!")):
            if key in left:
                lines.append(f"{key}={_escape(left.pop(key))}")
            continue
        lines.append(line)
    lines.extend(f"{key}={_escape(value)}" for key, value in left.items())
    return "\n".join(lines) + "\n"


def nearest_name(key: str, names: Iterable[str]) -> str | None:
    """Return the name that *key* was probably meant to be, or ``None``."""
    import difflib

    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + escaped if escaped.startswith(" ") else escaped
