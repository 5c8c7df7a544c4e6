"""Progress of delayed messages as a table that travels (45): it only ever moves forward."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.broker import delay
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.log_history import LOG_HISTORY
from understudy.broker.merge import Limit, StampedOffset, Table, merge, stamped
from understudy.broker.replicated.rules import read_levels
from understudy.broker.replicated.table import (
    Answer,
    Copying,
    KeptAsItIs,
    Merged,
    ProgressTable,
    Source,
    Taken,
)
from understudy.format import names
from understudy.remoting.codes import RequestCode

_LEVEL = "delay level "


class ReplicatedLevels(KeptAsItIs[ScheduleProgress], ProgressTable):
    """How far each delay level is delivered."""

    name = "delay"
    kind = "delayLevels"
    code = RequestCode.GET_ALL_DELAY_OFFSET

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return _Levels(self.table)

    def asking(self) -> dict[str, str]:
        """See :class:`ProgressTable`."""
        return {LOG_HISTORY: ""}

    def stamped_offsets(self) -> Table:
        """See :class:`ProgressTable`."""
        return _stamped(self.table.offsets)

    def queue_of(self, key: str, queue_id: int) -> tuple[str, int]:
        """See :class:`ProgressTable`."""
        return names.SCHEDULE_TOPIC, delay.queue_of_level(_level(key))

    def merge(self, answer: Answer, limit: Limit) -> Merged:
        """See :class:`ProgressTable`."""
        levels, version = read_levels(answer.body)
        return Merged(merge(self.stamped_offsets(), _stamped(levels), limit), version)

    def cut(self, offsets: Mapping[tuple[str, int], StampedOffset]) -> None:
        """See :class:`ProgressTable`."""
        self.table.cut({_level(key): each.offset for (key, _), each in offsets.items()})

    def put(self, merged: Merged) -> None:
        """See :class:`ProgressTable`."""
        moved = {_level(row.key): row.merged.offset for row in merged.rows if row.changed}
        self.table.take(moved, merged.version)


class _Levels(Copying):
    def __init__(self, progress: ScheduleProgress) -> None:
        self._progress = progress

    def question(self) -> dict[str, str]:
        return {}

    def take(self, answer: Answer) -> Taken:
        levels, version = read_levels(answer.body)
        self._progress.take(levels, version)
        return Taken.ALL


def key_of(level: int) -> str:
    """Return the key that *level* has in the table."""
    return f"{_LEVEL}{level}"


def _level(key: str) -> int:
    return int(key.removeprefix(_LEVEL))


def _stamped(offsets: Mapping[int, int]) -> Table:
    return stamped({key_of(level): {0: offset} for level, offset in offsets.items()})
