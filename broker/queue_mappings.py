"""Which queues of static topics lie where: the table of one broker, never replaced by an older one.

Source: TopicQueueMappingManager.java, TopicQueueMappingSerializeWrapper.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.format.data_version import DataVersion
from understudy.format.static_topics import TopicMapping

_TABLE = "topicQueueMappingInfoMap"  # the name in the file; answers call the same table topicQueueMappingDetailMap


class QueueMappings:
    """The mappings of one broker.

    Args:
        now_ms: wall clock in milliseconds.

    Attributes:
        rows: mapping of each static topic, as it was read.
        table: the same, understood; always the same object, so that a fast path may look at it.
        version: of the whole table.
        on_change: called after the table changed.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.rows: dict[str, Any] = {}
        self.table: dict[str, TopicMapping] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []

    def take(self, rows: Mapping[str, Any], version: DataVersion) -> bool:
        """Take a master's table in place of ours; return False, and change nothing, when it is older.

        Our table without a row is older than any: its version is only the time of the start.

        Raises:
            ValueError: it holds something that is no mapping.
        """
        if self.rows and version < self.version:
            return False
        if rows != self.rows or (rows and version != self.version):
            understood = _understood(rows)
            self.rows, self.version = dict(rows), version
            self.table.clear()
            self.table.update(understood)
            self._changed()
        return True

    def put(self, mapping: TopicMapping) -> None:
        """Set the mapping of one topic, as an administrator asked for."""
        self.rows = {**self.rows, mapping.topic: mapping.to_json()}
        self.table[mapping.topic] = mapping
        self.version = self.version.next(self._now_ms())
        self._changed()

    def remove(self, topic: str) -> bool:
        """Take the mapping of *topic* away; return whether there was one."""
        if self.table.pop(topic, None) is None:
            return False
        self.rows = {name: row for name, row in self.rows.items() if name != topic}
        self.version = self.version.next(self._now_ms())
        self._changed()
        return True

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``topicQueueMapping.json``."""
        return {"dataVersion": self.version.to_json(), _TABLE: dict(self.rows)}

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Take a saved table over.

        Raises:
            ValueError: it holds something that is no mapping.
        """
        rows = value.get(_TABLE) or {}
        if not isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows.values()):
            raise ValueError(f"{_TABLE}: topics with their mappings are expected")
        self.table.update(_understood(rows))
        self.rows.update(rows)
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()


def _understood(rows: Mapping[str, Any]) -> dict[str, TopicMapping]:
    return {topic: TopicMapping.from_json(row, topic) for topic, row in rows.items()}
