"""Which queue a message goes to: messages of one group always to the same, the others in turn.

Source: LocalTopicRouteService.java, SendMessageActivity.java, consistentHash of Guava's Hashing.
"""

from __future__ import annotations

from understudy.format.java_hash import java_hash

_MASK = (1 << 64) - 1
_FACTOR = 2862933555777941757
_RANGE = float(1 << 31)


def consistent_hash(state: int, buckets: int) -> int:
    """Return which of *buckets* has *state*; more buckets move as few states as can be.

    Args:
        state: 64 bits, signed or not.
        buckets: how many there are, at least 1.
    """
    state &= _MASK
    candidate = 0
    while True:
        state = (state * _FACTOR + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / _RANGE))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


def queue_of_group(message_group: str, queues: int) -> int:
    """Return the number of the queue, among *queues* that are sorted by broker and id, of a message group."""
    return consistent_hash(java_hash(message_group), queues)
