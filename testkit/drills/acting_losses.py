"""Which messages a failover may lose: only what ``flushDiskType=ASYNC_FLUSH`` had not written when the power failed.

And only where another host met a fault near it: a master takes back from its slaves what it has lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.testkit.drills.met_faults import Home, Met


def may_be_lost(acknowledged: float, due: float | None, met: Iterable[Met]) -> bool:
    """Return whether an acknowledged message may be missing.

    It may when it was not on the disk of a master whose power failed, and another host met a fault near that: then its
    slaves may not have it either, or cannot give it back in time.

    Args:
        acknowledged: virtual time of the answer.
        due: of a delayed message, when it was due; its copy is written then, by whichever group takes it.
        met: the faults of the run, seen from its group.
    """
    met = tuple(met)
    return any(
        ((each.home is Home.MASTER and each.took(acknowledged)) or (due is not None and each.took(due)))
        and any(other.host != each.host and each.near(other) for other in met)
        for each in met
    )
