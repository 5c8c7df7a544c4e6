"""What a master that flushes before it answers gives to its slaves."""

from __future__ import annotations

from understudy.store.message_store import MessageStore


class DurableLog:
    """What of a log survives a power loss: all that a SYNC_FLUSH master gives away.

    A slave that had more would be ahead of its master after a power loss, and could not follow it any more (differs:
    the reference gives away what is written).
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def max_physical_offset(self) -> int:
        """End of what is durable, in bytes."""
        return self._store.flushed_offset

    @property
    def min_physical_offset(self) -> int:
        """First byte, -1 for an empty log."""
        return self._store.min_physical_offset

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return durable bytes from *physical_offset*, at most to the end of their file."""
        return self._store.slice(physical_offset, max(min(max_bytes, self._store.flushed_offset - physical_offset), 0))

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """See :class:`~understudy.store.message_store.MessageStore`."""
        self._store.append_raw(physical_offset, data)
