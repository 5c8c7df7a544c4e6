"""How far each delay level has been delivered.

Source: ScheduleMessageService.java, DelayOffsetSerializeWrapper.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.format.data_version import DataVersion


class ScheduleProgress:
    """How far each delay level has been delivered; saved as ``delayOffset.json``.

    Attributes:
        offsets: level (from 1) to the queue offset that is next.
        version: grows once every ``version_step`` updates.
        on_change: called after every change.
    """

    def __init__(self, now_ms: Callable[[], int], version_step: int = 200) -> None:
        self._now_ms = now_ms
        self.version_step = max(version_step, 1)
        self.offsets: dict[int, int] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []
        self._updates = 0

    def update(self, level: int, offset: int) -> None:
        """Note that everything of *level* before *offset* is delivered."""
        if self.offsets.get(level) == offset:
            return
        self.offsets[level] = offset
        self._updates += 1
        if self._updates % self.version_step == 0:
            self.version = self.version.next(self._now_ms())
        for listener in self.on_change:
            listener()

    def take(self, offsets: Mapping[int, int], version: DataVersion) -> int:
        """Learn another replica's progress: each level moves forward, never back; return how many did."""
        moved = {level: offset for level, offset in offsets.items() if offset > self.offsets.get(level, -1)}
        self.offsets.update(moved)
        newer = version > self.version or (self.version.is_first and version != self.version)
        if newer:
            self.version = version
        if moved or newer:
            for listener in self.on_change:
                listener()
        return len(moved)

    def cut(self, offsets: Mapping[int, int]) -> None:
        """Set levels back: what they had beyond that was delivered from a log that is lost."""
        self.offsets.update(offsets)
        for listener in self.on_change:
            listener()

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``delayOffset.json``."""
        return {"dataVersion": self.version.to_json(), "offsetTable": dict(self.offsets)}

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Take a saved or replicated progress over.

        Raises:
            ValueError: an entry is no offset.
        """
        table = value.get("offsetTable") or {}
        if not isinstance(table, Mapping):
            raise ValueError("offsetTable is no JSON object")
        try:
            self.offsets.update({int(level): int(offset) for level, offset in table.items()})
        except (TypeError, ValueError):
            raise ValueError("offsetTable: levels and offsets must be whole numbers") from None
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])
