"""What the store needs of the properties of a message, shared by messages that lie side by side.

Messages of one producer mostly differ in the last two digits of their unique key. What was found in the properties of
one is kept with these digits cut out; two comparisons and one look-up then do for the next.
"""

from __future__ import annotations

from typing import NamedTuple

from understudy.format.java_hash import unsigned_hash
from understudy.format.properties import find_property

TAGS = b"TAGS\x01"
KEYS = b"KEYS\x01"
UNIQ_KEY = b"UNIQ_KEY\x01"
_HEX = b"0123456789ABCDEF"
#: The last two digits of a unique key and what they add to its hash.
TAILS = {bytes((high, low)): high * 31 + low for high in _HEX for low in _HEX}
_TAIL_POWER = 31 * 31
_MASK = 0xFFFFFFFF


class PropertiesDigest(NamedTuple):
    """What was found in the properties of one message, and how others can share it.

    Attributes:
        code: the tags code.
        hashes: under which the message is indexed, in their order; that of its unique key is the first.
        tail_at: where the last two digits of the unique key stand; -1 when nothing can be shared.
        length: of the properties with their length field.
        before, after: what stands before and after the two digits, the length field included.
        hash_before: index hash of the unique key without what its last two digits add.
    """

    code: int
    hashes: list[int]
    tail_at: int = -1
    length: int = 0
    before: bytes = b""
    after: bytes = b""
    hash_before: int = 0


NO_PROPERTIES = PropertiesDigest(0, [])


def shareable(field: bytes, code: int, hashes: list[int], hash_prefix: int) -> PropertiesDigest:
    """Return what was found in one message, made ready for others.

    Args:
        field: length of the properties and the properties.
        code: its tags code.
        hashes: under which it is indexed.
        hash_prefix: Java hash of ``topic#``.
    """
    unique = find_property(field, UNIQ_KEY, 2)
    if unique is None or len(unique) <= 2 or not unique.isalnum() or KEYS in field or field.count(UNIQ_KEY) != 1:
        return PropertiesDigest(code, hashes)
    tail_at = field.find(UNIQ_KEY, 2) + len(UNIQ_KEY) + len(unique) - 2
    hash_before = unsigned_hash(unique[:-2], hash_prefix) * _TAIL_POWER & _MASK
    return PropertiesDigest(code, hashes, tail_at, len(field), field[:tail_at], field[tail_at + 2 :], hash_before)
