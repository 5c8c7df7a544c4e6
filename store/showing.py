"""Shows what was held back from readers: much of it in portions, with turns for others between them.

A log that was opened with more than its replicas were known to have holds all of that back, and all of it may be seen
at once when they turn out to have it (:mod:`understudy.store.hiding`). Whatever becomes of the log between two
portions, what is held back then is what is left: a cut takes off its end, a confirm offset that is set anew stops it
where it says, and what is stored meanwhile stands behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter

import trio

from understudy.store.core import StoreCore
from understudy.store.hiding import hide_after
from understudy.store.lookup import Lookup


class Showing:
    """See the module."""

    def __init__(self, core: StoreCore, lookup: Lookup) -> None:
        self._core = core
        self._lookup = lookup
        self._at_work = False

    def hide_after(self, offset: int) -> int:
        """Hide messages that end behind physical *offset* until they are confirmed; return how many there are."""
        return hide_after(self._core, self._lookup, offset)

    @contextmanager
    def portions(self, nursery: trio.Nursery) -> Iterator[None]:
        """Have one portion shown after the other by a task of *nursery* when there is more than one, in this block."""

        def more() -> None:
            if not self._at_work:
                self._at_work = True
                nursery.start_soon(self._show)

        core = self._core
        before, core.more_to_show = core.more_to_show, more
        try:
            if core.held and core.held[0][0] <= core.show_limit():
                more()
            yield
        finally:
            core.more_to_show = before

    async def _show(self) -> None:
        try:
            await trio.lowlevel.checkpoint()
            while self._core.show_held():
                await trio.lowlevel.checkpoint()
        finally:
            self._at_work = False

    def hidden(self, before: int) -> tuple[int, int]:
        """Return how many messages that end at or before physical offset *before* are held back, and their bytes."""
        core = self._core
        count = bisect_right(core.held, before, key=itemgetter(0))
        if not count:
            return 0, 0
        limit = core.show_limit()
        shown = limit if core.held[0][0] > limit else core.shown_to
        return count, min(before, core.log.end) - shown
