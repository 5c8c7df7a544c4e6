"""The properties string of a message and the Java string hash; pure.

``name 0x01 value 0x02`` repeated, in UTF-8. The last 0x02 may be missing (old clients); a pair with an empty name or
value does not exist; of two pairs with one name the last counts (MessageDecoder.java).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import mul

NAME_END = "\x01"
PAIR_END = "\x02"

_MASK = 0xFFFFFFFF
_POWERS_LENGTH = 256
#: 31 ** (n - 1), ..., 31 ** 0 modulo 2 ** 32, for a vectorised polynomial over the last n characters.
_POWERS = tuple(pow(31, _POWERS_LENGTH - 1 - i, 1 << 32) for i in range(_POWERS_LENGTH))
POWERS_OF_LENGTH = tuple(_POWERS[_POWERS_LENGTH - n :] for n in range(_POWERS_LENGTH + 1))


def unsigned_hash(text: bytes, seed: int = 0) -> int:
    """Return the hash of Java's ``String.hashCode`` modulo 2 ** 32.

    Args:
        text: UTF-8.
        seed: hash of the text before this one, to hash a concatenation piece by piece.
    """
    units: bytes | tuple[int, ...] = text
    if not text.isascii():
        wide = text.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
        units = tuple(wide[i] << 8 | wide[i + 1] for i in range(0, len(wide), 2))
    for start in range(0, len(units), _POWERS_LENGTH):
        part = units[start : start + _POWERS_LENGTH]
        length = len(part)
        seed = (seed * pow(31, length, 1 << 32) + sum(map(mul, part, POWERS_OF_LENGTH[length]))) & _MASK
    return seed


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: a signed 32-bit number, also the tags code of a TAGS property."""
    value = unsigned_hash(text.encode("utf-8", "surrogatepass") if text.isascii() else _utf8(text))
    return value - (1 << 32) if value & 0x80000000 else value


def java_hash_of_bytes(text: bytes) -> int:
    """Return Java's ``String.hashCode`` of a text in UTF-8."""
    value = unsigned_hash(text)
    return value - (1 << 32) if value & 0x80000000 else value


def _utf8(text: str) -> bytes:
    # A lone surrogate cannot come from UTF-8; it becomes "?", as Java's encoder writes it.
    return text.encode("utf-8", "replace")


def parse_properties(text: str | bytes | memoryview) -> dict[str, str]:
    """Return the pairs of a properties string; malformed parts are left out as the reference does."""
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", "replace")
    pairs: dict[str, str] = {}
    for chunk in text.split(PAIR_END):
        name, separator, value = chunk.partition(NAME_END)
        if separator and name and value:
            pairs[name] = value
    return pairs


def format_properties(pairs: Mapping[str, str | None]) -> str:
    """Return the properties string of *pairs*; a None value is left out."""
    return "".join(
        [f"{name}{NAME_END}{value}{PAIR_END}" for name, value in pairs.items() if value is not None],
    )


def find_property(properties: bytes, name: bytes, start: int = 0) -> bytes | None:
    """Return the value of one property without parsing the others; None if there is none.

    Args:
        properties: the properties string in UTF-8.
        name: the name, followed by 0x01.
        start: where the properties string begins in *properties*.
    """
    at = properties.find(name, start)
    value: bytes | None = None
    while at >= 0:
        first = at + len(name)
        if at == start or properties[at - 1] == 2:
            end = properties.find(b"\x02", first)
            # An empty value does not exist; of several the last counts.
            value = (properties[first:] if end < 0 else properties[first:end]) or value
        at = properties.find(name, first)
    return value
