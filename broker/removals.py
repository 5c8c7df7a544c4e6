"""When whole topics or groups lost their offsets: for a replica that slept through it.

A name is remembered with a stamp that grows with each removal, whatever the clock says. A replica that does not know of
a removal, or of an older one of that name only, speaks of a former topic or group.
"""

from __future__ import annotations

from collections.abc import Mapping

REMOVED_MAX = 1_000
"""Removals that are remembered, the newest ones."""


class Removals:
    """Removals of one kind.

    Attributes:
        stamps: name to when it was last removed (milliseconds, growing with each removal).
        changed_at: revision of the table around it at the last change.
    """

    def __init__(self) -> None:
        self.stamps: dict[str, int] = {}
        self.changed_at = 0

    def note(self, name: str, now_ms: int, revision: int) -> None:
        """Remember that *name* was removed."""
        # newer than all others whatever the clock says: the oldest is what gives way when there are too many
        self.stamps[name] = max(now_ms, max(self.stamps.values(), default=0) + 1)
        self.stamps = _newest(self.stamps, REMOVED_MAX)
        self.changed_at = revision

    def newer_than(self, known: Mapping[str, int]) -> set[str]:
        """Return the names that were removed since the replica that knows of *known* heard of it."""
        return {name for name, stamp in self.stamps.items() if known.get(name, 0) < stamp}

    def learn(self, removed: Mapping[str, int], revision: int) -> set[str]:
        """Take over what another replica remembers; return the names that are news.

        What it remembers is kept as it is; what only we remember, as far as there is room. Were its entries the ones
        that give way, they would be news again whenever the table arrives, and with them current offsets would go.
        """
        theirs = _newest(removed, REMOVED_MAX)
        news = {name for name, stamp in theirs.items() if self.stamps.get(name, 0) < stamp}
        if news:
            own = {name: stamp for name, stamp in self.stamps.items() if name not in theirs}
            known = {name: max(stamp, self.stamps.get(name, 0)) for name, stamp in theirs.items()}
            self.stamps = _newest(own, REMOVED_MAX - len(known)) | known
            self.changed_at = revision
        return news


def _newest(removed: Mapping[str, int], count: int) -> dict[str, int]:
    if len(removed) <= count:
        return dict(removed)
    return dict(sorted(removed.items(), key=lambda entry: entry[1], reverse=True)[:count])
