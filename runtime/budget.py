"""Memory of one kind that all peers of a process share; :mod:`understudy.runtime.load` has the rules and the totals."""

from __future__ import annotations

from collections.abc import Hashable

SMALL_BYTES = 64 * 1024
UNLIMITED = 1 << 62


class Budget:
    """Bytes of one kind that wait in this process.

    Args:
        limit: most bytes.

    Attributes:
        used: bytes that wait now.
        refused: how often a holder was told that it holds too much.
    """

    __slots__ = ("_held", "limit", "refused", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0
        self._held: dict[Hashable, int] = {}

    def change(self, holder: Hashable, by: int) -> None:
        """Count *by* bytes more for *holder*, or less when it is negative."""
        if not by:
            return
        self.used += by
        held = self._held.get(holder, 0) + by
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def held_by(self, holder: Hashable) -> int:
        """Return the bytes counted for *holder*."""
        return self._held.get(holder, 0)

    def allows(self, holder: Hashable, more: int = 0) -> bool:
        """Tell whether *holder* may hold what is counted for it and *more* bytes; the caller counts refusals."""
        held = self._held.get(holder, 0) + more
        return held <= SMALL_BYTES or held <= self.limit - self.used - more

    def biggest(self) -> Hashable:
        """Return who holds most; there must be a holder."""
        return max(self._held, key=self._held.__getitem__)


def text_bytes(*texts: str) -> int:
    """Return how many bytes the characters of *texts* take in memory at most."""
    return sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
