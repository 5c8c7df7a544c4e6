"""Shows what was held back from readers: much of it in portions, with turns for others between them.

A log that was opened with more than its replicas were known to have holds all of that back, and all of it may be seen
at once when they turn out to have it (:mod:`understudy.store.hiding`). Whatever becomes of the log between two
portions, what is held back then is what is left: a cut takes off its end, a confirm offset that is set anew stops it
where it says, and what is stored meanwhile stands behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

import trio

from understudy.store.core import StoreCore


class Showing:
    """See the module; :meth:`run` is a task of the store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core

    async def run(self) -> None:
        """Show one portion after the other until cancelled; asleep while there is none."""
        handled = 0
        while True:
            handled = await self._core.more_to_show.wait(handled)
            while self._core.show_held():
                await trio.lowlevel.checkpoint()

    def hidden(self, before: int) -> tuple[int, int]:
        """Return how many messages that end at or before physical offset *before* are held back, and their bytes."""
        core = self._core
        count = bisect_right(core.held, before, key=itemgetter(0))
        if not count:
            return 0, 0
        limit = core.show_limit()
        shown = limit if core.held[0][0] > limit else core.shown_to
        return count, min(before, core.log.end) - shown
