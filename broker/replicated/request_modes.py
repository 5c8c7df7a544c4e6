"""Request modes as a table that travels (402)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, KeptTable, Source, Taken
from understudy.broker.request_modes import RequestModeTable, read_modes
from understudy.remoting.codes import RequestCode


class ReplicatedModes(KeptTable):
    """How groups consume topics.

    Args:
        modes: the table.
    """

    name = "request modes"
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    file = FilePlan("messageRequestMode.json")

    def __init__(self, modes: RequestModeTable) -> None:
        self.table = modes

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.rows |= read_modes(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Modes(self.table, source)


class _Modes(Copying):
    def __init__(self, table: RequestModeTable, source: Source) -> None:
        self._table = table
        self._source = source

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        rows = read_modes(read_object(answer.body))
        if self._source.leads:
            self._table.take(rows)
        return Taken.ALL
