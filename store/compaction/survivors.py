"""Which records of closed files survive a round; pure. The package's text has the rules.

Source: CompactionLog.java (OffsetMap, shouldRetainMsg).
"""

from __future__ import annotations

from hashlib import blake2b

import attrs

TOMBSTONE_MS = 24 * 3_600_000
"""How long after it was stored a tombstone is kept. The reference drops it in the next round."""
KEY_BYTES = 160
"""Of memory that one key takes in the table of a round."""
_FEWEST_KEYS = 100


def digest(keys: bytes) -> bytes:
    """Return what stands for a KEYS property in the table of a round."""
    return blake2b(keys, digest_size=16).digest()


@attrs.frozen
class Entry:
    """What is to be known of one record.

    Attributes:
        key: see :func:`digest`.
        offset: its queue offset.
        is_tombstone: its body is empty.
        store_ms: when it was stored (wall time).
    """

    key: bytes
    offset: int
    is_tombstone: bool
    store_ms: int


class Newest:
    """The largest queue offset of each key, among the records of one round.

    Args:
        most_bytes: of memory that the table may take; it has room for a hundred keys at least.

    Attributes:
        last: queue offset of the last record noted; -1 for none.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = max(most_bytes // KEY_BYTES, _FEWEST_KEYS)
        self._by_key: dict[bytes, int] = {}
        self.last = -1

    def note(self, entry: Entry) -> bool:
        """Note the next record in order; False when there is no room for its key: this round ends before it."""
        if len(self._by_key) >= self._most and entry.key not in self._by_key:
            return False
        self._by_key[entry.key] = self.last = entry.offset
        return True

    def survives(self, entry: Entry, now_ms: int) -> bool:
        """Whether a record stays.

        Args:
            entry: the record.
            now_ms: wall time.
        """
        if entry.offset > self.last:
            return True
        if entry.offset < self._by_key.get(entry.key, -1):
            return False
        return not entry.is_tombstone or now_ms < entry.store_ms + TOMBSTONE_MS
