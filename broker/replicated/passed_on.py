"""Tables that this broker does not use itself: a slave keeps its master's answer for a master that comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, ReplicatedTable, Source, Taken
from understudy.remoting.codes import RequestCode


class RequestModes(ReplicatedTable):
    """How groups consume topics (402).

    Attributes:
        modes: the master's, as they were answered; empty on a master, whose groups all consume by the default.
    """

    name = "request modes"
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE

    def __init__(self) -> None:
        self.modes: dict[str, Any] = {}

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Modes(self)


class _Modes(Copying):
    def __init__(self, table: RequestModes) -> None:
        self._table = table

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        modes = read_object(answer.body).get("messageRequestModeMap")
        self._table.modes = dict(modes) if isinstance(modes, Mapping) else {}
        return Taken.ALL
