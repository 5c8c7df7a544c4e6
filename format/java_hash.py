"""Java's ``String.hashCode``, and what the index makes of it; pure.

A hash is ``h = 31 * h + unit`` over the UTF-16 units of a text, modulo 2 ** 32, read as a signed number.
"""

from __future__ import annotations

import codecs
from operator import mul

_MASK = 0xFFFFFFFF
_POWERS_LENGTH = 256
#: 31 ** (n - 1), ..., 31 ** 0 modulo 2 ** 32, for a vectorised polynomial over the last n characters.
_POWERS = tuple(pow(31, _POWERS_LENGTH - 1 - i, 1 << 32) for i in range(_POWERS_LENGTH))
POWERS_OF_LENGTH = tuple(_POWERS[_POWERS_LENGTH - n :] for n in range(_POWERS_LENGTH + 1))


def _replaced_as_java(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for bytes that are no UTF-8: of half a surrogate pair, Java makes one unit and not three."""
    assert isinstance(error, UnicodeDecodeError)
    text, at, end = error.object, error.start, error.end
    if text[at] == 0xED and 0xA0 <= int.from_bytes(text[at + 1 : at + 2], "big") <= 0xBF:
        end = at + 3 if 0x80 <= int.from_bytes(text[at + 2 : at + 3], "big") <= 0xBF else at + 2
    return "\ufffd", end


_AS_JAVA = "understudy-java"
codecs.register_error(_AS_JAVA, _replaced_as_java)


def unsigned_hash(text: bytes, seed: int = 0) -> int:
    """Return the hash of Java's ``String.hashCode`` modulo 2 ** 32.

    Args:
        text: UTF-8.
        seed: hash of the text before this one, to hash a concatenation piece by piece.
    """
    if text.isascii():
        return _hash_units(text, seed)
    return _hash_units(_units(text.decode("utf-8", _AS_JAVA)), seed)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: a signed 32-bit number, also the tags code of a TAGS property."""
    return signed(_hash_units(text.encode() if text.isascii() else _units(text), 0))


def java_hash_of_bytes(text: bytes) -> int:
    """Return Java's ``String.hashCode`` of a text in UTF-8."""
    return signed(unsigned_hash(text))


def signed(unsigned: int) -> int:
    """Return a number below 2 ** 32 as Java reads it."""
    return unsigned - (1 << 32) if unsigned & 0x80000000 else unsigned


def index_hash(unsigned: int) -> int:
    """Return the hash an index entry holds: the absolute value of the signed hash; that of -2**31 counts as 0."""
    if unsigned >= 0x80000000:
        unsigned = (1 << 32) - unsigned
        if unsigned == 0x80000000:
            return 0
    return unsigned


def index_key_hash(key: str) -> int:
    """Return the hash an index entry holds for a key (``topic#key``)."""
    return index_hash(java_hash(key) & _MASK)


def _units(text: str) -> tuple[int, ...]:
    wide = text.encode("utf-16-be", "surrogatepass")
    return tuple(wide[i] << 8 | wide[i + 1] for i in range(0, len(wide), 2))


def _hash_units(units: bytes | tuple[int, ...], seed: int) -> int:
    for start in range(0, len(units), _POWERS_LENGTH):
        part = units[start : start + _POWERS_LENGTH]
        length = len(part)
        seed = (seed * pow(31, length, 1 << 32) + sum(map(mul, part, POWERS_OF_LENGTH[length]))) & _MASK
    return seed
