"""Under which hashes a message stands in the key index; what repeats is kept with its queue."""

from __future__ import annotations

from operator import mul

from understudy.format.java_hash import POWERS_OF_LENGTH, unsigned_hash
from understudy.format.remembered import remember
from understudy.store.consume_queue import ConsumeQueue

_PREFIX_CACHE_MAX = 64
_TAG_PREFIX = b"T#"
#: A unique key ends with the low half of its time and a counter; what is before changes about once a minute.
_UNIQ_TAIL = 8
_TAIL_POWERS = POWERS_OF_LENGTH[_UNIQ_TAIL]


#: What a message is found by: its queue, the properties UNIQ_KEY, KEYS and TAGS as far as it has them, where its record
#: starts, its store time in milliseconds.
Keys = tuple[ConsumeQueue, bytes | None, bytes | None, bytes | None, int, int]


def index_hashes(queue: ConsumeQueue, unique: bytes | None, keys: bytes | None, tags: bytes | None) -> list[int]:
    """Return the index hashes of one message, in the order in which they are indexed; see :data:`Keys`.

    Args:
        queue: of the message; keeps what hashes of its topic begin with.
        unique: the message's unique key.
        keys: its keys, separated by blanks.
        tags: its tags; each of the three is ``None`` where the message has none.
    """
    found = []
    if unique is not None:
        found.append(_unique_hash(queue, unique))
    if keys is not None:
        found += [unsigned_hash(key, queue.hash_prefix) for key in keys.split(b" ") if key]
    if tags is not None:
        value = queue.tag_hashes.get(tags)
        if value is None:
            value = remember(queue.tag_hashes, tags, unsigned_hash(_TAG_PREFIX + tags, queue.hash_prefix))
        found.append(value)
    return found


def _unique_hash(queue: ConsumeQueue, unique: bytes) -> int:
    tail, before = unique[-_UNIQ_TAIL:], unique[:-_UNIQ_TAIL]
    if not before or not tail.isascii():
        return unsigned_hash(unique, queue.hash_prefix)
    known = queue.prefix_hashes.get(before)
    if known is None:
        # Moved on by the length of a tail.
        known = unsigned_hash(before, queue.hash_prefix) * pow(31, _UNIQ_TAIL, 1 << 32)
        remember(queue.prefix_hashes, before, known, _PREFIX_CACHE_MAX)
    value: int = known + sum(map(mul, tail, _TAIL_POWERS))
    return value & 0xFFFFFFFF
