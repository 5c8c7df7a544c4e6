"""Extents: byte ranges of a log, in order and apart from each other, as two arrays of bounded length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extents:
    """Ranges [starts[n], ends[n]) of physical offsets, ascending; neighbours do not touch."""

    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def bytes(self) -> int:
        """Sum of the lengths."""
        return int((self.ends - self.starts).sum())

    def holds(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Which of these physical offsets lie in one of the ranges."""
        if not len(self.starts):
            return np.zeros(len(offsets), bool)
        before = np.searchsorted(self.starts, offsets, "right") - 1
        inside: npt.NDArray[np.bool_] = (before >= 0) & (offsets < self.ends[np.maximum(before, 0)])
        return inside


NOTHING = Extents(np.empty(0, np.int64), np.empty(0, np.int64))


def joined(starts: Offsets, ends: Offsets, most: int) -> Extents:
    """Ranges in any order as at most `most` extents; where there are more, those closest together become one.

    What is between two that become one counts as well: a reader that asks for differences is told too many, never too
    few.
    """
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    gaps = starts[1:] - reached[:-1]
    apart = gaps > 0
    if np.count_nonzero(apart) >= most:
        apart &= gaps > np.partition(gaps, len(gaps) - most)[len(gaps) - most]
    return Extents(np.concatenate([starts[:1], starts[1:][apart]]), np.concatenate([reached[:-1][apart], reached[-1:]]))
