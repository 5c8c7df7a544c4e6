"""Java property files: ``key=value`` lines as java.util.Properties reads them, and the error for what is wrong in them.

Our own reader: it keeps the line of each key, for what must be said about it, and importing the published one takes a
quarter of a server's whole start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

LIMIT_CHARACTERS = 256 * 1024
"""Longest text that is read: updates come over the network, and a long one would keep everybody else waiting."""

_UNICODE = re.compile("[0-9A-Fa-f]{4}")
_WRITTEN = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


_SHOWN_CHARACTERS = 64


class ConfigError(ValueError):
    """A configuration that cannot be used; its text is one line for the user: where, which key, what is expected.

    Args:
        message: the line.
        key: the key it is about, if the line does not say yet where that stands.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class Properties(dict[str, str]):
    """Text by key, and where each key stands.

    Args:
        values: the text by key.
        source: name of the file, or of who else gave them.
        places: where keys stand, such as ``broker.conf:12``; *source* for all others.
    """

    def __init__(self, values: Mapping[str, str], source: str, places: Mapping[str, str] | None = None) -> None:
        super().__init__(values)
        self.source = source
        self._places = dict(places or {})

    def where(self, key: str) -> str:
        """Return the place of *key*, as messages about it begin."""
        return self._places.get(key, self.source)

    def changed(self, changes: Mapping[str, str], place: str) -> Properties:
        """Return these with *changes*, which stand in *place*."""
        return Properties({**self, **changes}, self.source, {**self._places, **dict.fromkeys(changes, place)})

    def without(self, keys: Iterable[str]) -> Properties:
        """Return these but *keys*."""
        left = {key: self[key] for key in self.keys() - set(keys)}
        return Properties(left, self.source, {key: self.where(key) for key in left})

    def renamed(self, names: Mapping[str, str]) -> Properties:
        """Return these with keys of other *names*; of a value given by both names the later counts."""
        values = {names.get(key, key): text for key, text in self.items()}
        return Properties(values, self.source, {names.get(key, key): self.where(key) for key in self})

    def locate(self, error: ConfigError) -> ConfigError:
        """Return *error* with the place of its key."""
        return ConfigError(f"{self.where(error.key)}: {error}") if error.key is not None else error


def located(values: Mapping[str, str], source: str) -> Properties:
    """Return *values* as they are when they know their places, otherwise with *source* as the place of each."""
    return values if isinstance(values, Properties) else Properties(values, source)


def printable(text: str) -> str:
    """Return the beginning of *text* as it can stand in one line for a user."""
    text = text[:_SHOWN_CHARACTERS]
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def parse_properties(text: str, source: str = "configuration") -> Properties:
    """Read property lines: ``#`` and ``!`` comments, ``=``, ``:`` or blanks after the key, escapes, continued lines.

    Args:
        text: the file.
        source: its name, for messages.

    Returns:
        Key to text without blanks around it, and the line of each; the last of equal keys wins.

    Raises:
        ConfigError: a unicode escape without four hexadecimal digits, or a text above :data:`LIMIT_CHARACTERS`.
    """
    if len(text) > LIMIT_CHARACTERS:
        raise ConfigError(f"{source}: {len(text)} characters are above the limit of {LIMIT_CHARACTERS}")
    result: dict[str, str] = {}
    places: dict[str, str] = {}
    for number, line, _ in _logical_lines(text):
        if line is None:
            continue
        try:
            key, value = _pair(line)
        except ValueError as error:
            raise ConfigError(f"{source}:{number}: {error}") from None
        result[key], places[key] = value, f"{source}:{number}"
    return Properties(result, source, places)


def format_properties(values: dict[str, str]) -> str:
    """Write sorted ``key=value`` lines, as the reference stores and shows its settings."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


_LINE = re.compile("([^\r\n]*)(\r\n|\r|\n|$)")  # no other ends of lines, as in Java


def _logical_lines(text: str) -> Iterator[tuple[int, str | None, str]]:
    """Yield for each logical line its number, its text, ``None`` for comments and blanks, and all it is made of."""
    pending: str | None = None
    first, raw = 0, ""
    for number, (line, end) in enumerate(_LINE.findall(text), 1):
        if not line and not end:
            continue  # nothing behind the last line
        first = number if pending is None else first
        raw += line + end
        line = line.lstrip(" \t\f")
        if (not line and not pending) or (pending is None and line[0] in "#!"):
            yield first, None, raw
            pending, raw = None, ""
        elif _goes_on(line):
            pending = (pending or "") + line[:-1]
        else:
            yield first, (pending or "") + line, raw
            pending, raw = None, ""
    if raw:
        yield first, pending or None, raw


def _goes_on(line: str) -> bool:
    """Return whether a line, without its end, is continued by the next one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _pair(line: str) -> tuple[str, str]:
    """Return key and value of a logical line. Raises ``ValueError``."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(line[:end]), _unescape(rest).strip()


def _unescape(text: str) -> str:
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
            if not _UNICODE.fullmatch(digits):
                raise ValueError(f"\\u{printable(digits)}: expected four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    # Java writes a character beyond 16 bits as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def rewrite_properties(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Return the bytes of a ``.properties`` file with keys changed in place and new keys appended.

    What is written is ASCII, and what stays keeps its bytes: the file keeps its encoding, whichever that is.

    Differs from the reference, which replaces the user's file by all of its keys and so drops comments and order.
    """
    text = data.decode("latin-1")  # a character for each byte
    left = dict(changes)
    parts = []
    new_line, goes_on = "\n", False
    for _, line, raw in _logical_lines(text):
        body = raw.removesuffix("\n").removesuffix("\r")
        new_line = raw[len(body) :] or new_line
        try:
            key = None if line is None else _pair(line)[0]
        except ValueError:
            key = None
        if key is None or key not in changes:
            parts.append(raw)
        elif key in left:
            parts.append(f"{key}={_escape(left.pop(key))}{new_line}")
        goes_on = _goes_on(body) and not (line is None and body.lstrip(" \t\f").startswith(("#", "!")))
    if left and parts:
        # A last line without an end, or one that goes on with nothing, must not swallow what is added.
        parts.append("" if parts[-1].endswith(("\n", "\r")) else new_line)
        parts.append(new_line if goes_on else "")
    parts.extend(f"{key}={_escape(value)}{new_line}" for key, value in left.items())
    return "".join(parts).encode("latin-1")


def nearest_name(key: str, names: Iterable[str]) -> str | None:
    """Return the name that *key* was probably meant to be, or ``None``.

    It is another one by a slip of the fingers or two, in a short name by one: what only looks alike would send its
    reader to a setting that does something else.
    """
    wanted, best, nearest = key.lower(), 3 if len(key) > 6 else 2, None
    for name in names:
        distance = _edits(wanted, name.lower(), best)
        if distance < best:
            best, nearest = distance, name
    return nearest


def _edits(one: str, other: str, enough: int) -> int:
    """Return how many characters must be added, taken away or replaced between two texts; at most *enough*."""
    if abs(len(one) - len(other)) >= enough:
        return enough
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, there in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != there)))
        before = now
    return min(before[-1], enough)


def _escape(value: str) -> str:
    """Return *value* in ASCII, so that it is the same whatever encoding the rest of its file has."""
    escaped = "".join(_WRITTEN.get(each) or (each if " " <= each <= "~" else _as_units(each)) for each in value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _as_units(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
