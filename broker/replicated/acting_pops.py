"""What a slave handed out for its master as a table that travels, by a request of our own.

Source: none, the reference's slaves keep no such table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.merge import Limit
from understudy.broker.pop.acting import ActingPops
from understudy.broker.replicated.orders import KNOWN
from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, GivenBackTable, Source, Taken
from understudy.remoting.codes import RequestCode

SAVE_MS = 100
"""Longest time from a change to its write: what is lost with the process is handed out again."""


class ReplicatedActingPops(GivenBackTable):
    """Check points and acknowledgements that no log holds.

    Args:
        acting: the table.
        other: makes an empty one.
    """

    name = "acting pops"
    code = RequestCode.GET_ACTING_POPS
    file = FilePlan("actingPops.json", lambda: SAVE_MS)

    def __init__(self, acting: ActingPops, other: Callable[[], ActingPops]) -> None:
        self.table = acting
        self._other = other

    def snapshot(self) -> dict[str, Any]:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.load(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.ReplicatedTable`."""
        return _Copying(self)

    def read(self, answer: Answer) -> ActingPops:
        """Return the table of *answer*. Raises ``ValueError``."""
        theirs = self._other()
        theirs.load(read_object(answer.body))
        return theirs

    def holds(self, answer: Answer) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        return not self.read(answer).empty

    def take_back(self, answer: Answer, limit: Limit) -> bool:
        """See :class:`~understudy.broker.replicated.table.GivenBackTable`."""
        theirs, before = self.read(answer), self.table.revision
        theirs.cut(limit)
        self.table.join(theirs)
        return self.table.revision != before


class _Copying(Copying):
    def __init__(self, table: ReplicatedActingPops) -> None:
        self._table = table
        self._known = ""

    def question(self) -> dict[str, str]:
        return {KNOWN: self._known}

    def take(self, answer: Answer) -> Taken:
        known = answer.ext.get(KNOWN, "")
        if not known or known != self._known:
            self._table.table.join(self._table.read(answer))
            self._known = known
        return Taken.ALL
