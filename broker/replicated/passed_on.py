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


class KeptAnswer(ReplicatedTable):
    """An answer about the timer, byte for byte. A master without a timer refuses it.

    Attributes:
        body: as the master answered it, ``None`` before.
    """

    optional = True

    def __init__(self) -> None:
        self.body: bytes | None = None

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Kept(self)


class TimerCheckpoint(KeptAnswer):
    """How far the timer has come (60)."""

    name = "timer checkpoint"
    code = RequestCode.GET_TIMER_CHECK_POINT


class TimerMetrics(KeptAnswer):
    """How many messages of each topic wait in the timer (61)."""

    name = "timer metrics"
    code = RequestCode.GET_TIMER_METRICS


class _Kept(Copying):
    def __init__(self, table: KeptAnswer) -> None:
        self._table = table

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        self._table.body = answer.body or None
        return Taken.ALL
