"""Which bits of a Bloom filter stand for a group's condition on a topic; brokers of the reference keep them with it.

Source: BloomFilter.java; MurmurHash3_x64_128 by Austin Appleby, with seed 0.
"""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def hash_functions(error_percent: int) -> int:
    """Return how many bits one entry sets where this share of hits may be wrong."""
    return math.ceil(math.log(error_percent / 100) / math.log(0.5))


def positions(group: str, topic: str, error_percent: int, bits: int) -> list[int]:
    """Return the bits of *group*'s condition on *topic*.

    Args:
        error_percent: how many hits of 100 may be wrong, 1 to 99.
        bits: length of the bit map.
    """
    low = _murmur3(f"{group}#{topic}".encode())
    first, second = _signed(low), _signed(low >> 32)
    found = []
    for number in range(1, hash_functions(error_percent) + 1):
        combined = _signed(first + number * second)
        found.append((~combined if combined < 0 else combined) % bits)
    return found


def _signed(value: int) -> int:
    """Return the lower half of *value* as Java's int."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _murmur3(data: bytes) -> int:
    """Return the first 64 of the 128 bits."""
    one = two = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        low, high = int.from_bytes(data[at : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
        one ^= _rotated(low * _C1 & _MASK, 31) * _C2 & _MASK
        one = ((_rotated(one, 27) + two) * 5 + 0x52DCE729) & _MASK
        two ^= _rotated(high * _C2 & _MASK, 33) * _C1 & _MASK
        two = ((_rotated(two, 31) + one) * 5 + 0x38495AB5) & _MASK
    low, high = int.from_bytes(data[whole : whole + 8], "little"), int.from_bytes(data[whole + 8 :], "little")
    two ^= _rotated(high * _C2 & _MASK, 33) * _C1 & _MASK
    one ^= _rotated(low * _C1 & _MASK, 31) * _C2 & _MASK
    one, two = one ^ len(data), two ^ len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    one, two = _mixed(one), _mixed(two)
    return one + two & _MASK
