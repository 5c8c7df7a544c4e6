"""Java's `String.hashCode` and the hashes the store derives from it."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=65536)
def java_hash(text: str) -> int:
    """Hash of a string as Java computes it: signed 32 bits over UTF-16 code units."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    if len(raw) % 2 == 0 and text.isascii():
        for code in raw[1::2]:
            value = (31 * value + code) & 0xFFFFFFFF
    else:
        for index in range(0, len(raw), 2):
            value = (31 * value + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def index_key_hash(key: str) -> int:
    """Hash of an index key (`topic#key`), never negative; the absolute value of the smallest integer becomes 0."""
    value = abs(java_hash(key))
    return 0 if value == 1 << 31 else value
