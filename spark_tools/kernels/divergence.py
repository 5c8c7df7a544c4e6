"""Where the queues of replicas part: every unit against the first real one any replica has at its position, and what it
points to against where the logs differ.

Whichever replica that is, two units that differ cannot both be equal to it, so the answer does not depend on the order
of the replicas, nor on which of them is short, begins late or has no queue at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from understudy.spark_tools.kernels.consumequeue import Units, is_filler, is_valid
from understudy.spark_tools.kernels.extents import Extents

NOWHERE = -1


def first_divergence(held: Sequence[tuple[Units, int]], *, batched: bool) -> int:
    """Smallest queue offset at which any two replicas hold different messages.

    Fillers in front of the first real unit and holes say nothing about a message and are left aside.

    Args:
        held: units of each replica and the position of the first one.
        batched: units of batches, which say their queue offset themselves.

    Returns:
        The queue offset, `NOWHERE` when all agree wherever two of them have units.
    """
    filled = [(units, first) for units, first in held if len(units)]
    if len(filled) < 2:
        return NOWHERE
    low = min(first for _, first in filled)
    rows = max(first + len(units) for units, first in filled) - low
    physical, size = np.zeros(rows, np.int64), np.zeros(rows, np.int32)
    known = np.zeros(rows, bool)
    different = np.zeros(rows, bool)
    for units, first in filled:
        mine = slice(first - low, first - low + len(units))
        real = is_valid(units) & ~is_filler(units)
        unlike = (units["physical_offset"] != physical[mine]) | (units["size"] != size[mine])
        different[mine] |= real & known[mine] & unlike
        fresh = real & ~known[mine]
        physical[mine][fresh] = units["physical_offset"][fresh]
        size[mine][fresh] = units["size"][fresh]
        known[mine] |= real
    if not different.any():
        return NOWHERE
    position = low + int(different.argmax())
    if not batched:
        return position
    there = [units[position - first :][:1] for units, first in filled if first <= position]
    return min(int(unit["base_offset"][0]) for unit in there if (is_valid(unit) & ~is_filler(unit)).any())


def first_differing_message(held: Sequence[tuple[Units, int]], differing: Extents, batched: bool) -> int:
    """Smallest queue offset whose unit points to a record of which the logs hold different bytes.

    Args:
        held: units of each replica and the position of the first one.
        differing: where the logs of the replicas differ.
        batched: units of batches, which say their queue offset themselves.

    Returns:
        The queue offset, `NOWHERE` when there is none.
    """
    found = []
    for units, first in held if len(differing) else ():
        real = is_valid(units) & ~is_filler(units)
        rows = np.flatnonzero(real & differing.holds(units["physical_offset"].astype(np.int64)))
        if len(rows):
            found.append(int(units["base_offset"][rows].min()) if batched else first + int(rows[0]))
    return min(found, default=NOWHERE)
