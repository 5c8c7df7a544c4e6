"""What clients commit at a slave while its master is there, told to the master.

A client that learned of a slave while no name server showed the master goes on committing there until it asks for its
route again, for up to half a minute. What it says meanwhile would be known to the slave alone, and be consumed again by
whoever goes on after it. So the slave passes it on, as an ordinary commit, with its next look at the master's offsets.

The master has the last word: an offset that is further there, or that went back there since, is left as it is. So
nothing is consumed again for it, and nobody's seek back is undone. It may also have moved since the slave looked, while
the commit was on its way over a slow link: so that one says what the slave saw, and the master compares once more. What
the master is told stays here as well, whatever it said a moment ago: this slave may act before its next look.

The reference keeps such commits at the slave until its master's table comes and overwrites them.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

SEEN_OFFSET = "seenOffset"
"""Header field of ours in such a commit: where the group was at the master when the slave looked, -1 for nowhere."""
UNKNOWN = -2
"""Stands for an offset at a master that was not looked at yet; -1 is one that it does not have."""


def moves_on(offset: int, looked_at: int, theirs: int) -> bool:
    """Return whether the master goes on to *offset*, which a client committed at a slave.

    Args:
        offset: what was committed.
        looked_at: where the master was when the slave looked.
        theirs: where it is now, -1 for nowhere: what has moved there since knows better.
    """
    return offset > theirs >= looked_at


@attrs.define
class _Commit:
    """The newest commit of one queue, and where the master was when the first of them came."""

    at_master: int
    offset: int

    def counts(self, theirs: int) -> bool:
        """Return whether the master, which says *theirs*, is to be told."""
        return moves_on(self.offset, self.at_master, theirs)


class ToldOffsets:
    """The offsets that clients moved at this slave and its master may not know."""

    def __init__(self) -> None:
        self._commits: dict[tuple[str, int], _Commit] = {}

    def note(self, key: str, queue_id: int, offset: int, at_master: int) -> None:
        """Remember a client's commit.

        Args:
            key: ``topic@group``.
            queue_id: the queue.
            offset: what was committed.
            at_master: the offset there at the last look, or :data:`UNKNOWN`.
        """
        self._commits.setdefault((key, queue_id), _Commit(at_master, offset)).offset = offset

    def due(self, at_master: Callable[[str, int], int]) -> list[tuple[str, int, int]]:
        """Return key, queue and offset of what the master must be told; forget what it knows better by now.

        Args:
            at_master: its offsets, as of a look after everything that was noted.
        """
        found = []
        for (key, queue_id), commit in list(self._commits.items()):
            if not commit.counts(at_master(key, queue_id)):
                del self._commits[key, queue_id]
            else:
                found.append((key, queue_id, commit.offset))
        return found

    def counts(self, key: str, queue_id: int, theirs: int) -> bool:
        """Return whether a commit of this queue is right, and not what the master has there now."""
        commit = self._commits.get((key, queue_id))
        return commit is not None and commit.counts(theirs)

    def told(self, key: str, queue_id: int, offset: int) -> None:
        """Note that the master has *offset* by now; a client may have committed again meanwhile."""
        commit = self._commits.get((key, queue_id))
        if commit is not None:
            commit.at_master = offset

    def forget(self, key: str, queue_id: int) -> None:
        """Give up an offset that the master refuses."""
        self._commits.pop((key, queue_id), None)

    def begin_anew(self) -> None:
        """Forget where another source was: what this one has is known at the first look at it."""
        for commit in self._commits.values():
            commit.at_master = UNKNOWN

    def clear(self) -> None:
        """Forget everything."""
        self._commits.clear()
