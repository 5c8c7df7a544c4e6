"""Which queues of static topics lie where: kept as a master answered them, never replaced by an older table.

Source: TopicQueueMappingManager.java, TopicQueueMappingSerializeWrapper.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.format.data_version import DataVersion

_TABLE = "topicQueueMappingInfoMap"  # the name in the file; answers call the same table topicQueueMappingDetailMap


class QueueMappings:
    """The mappings of one broker.

    Args:
        now_ms: wall clock in milliseconds.

    Attributes:
        rows: mapping of each static topic, as it was read.
        version: of the whole table.
        on_change: called after the table changed.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.rows: dict[str, Any] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []

    def take(self, rows: Mapping[str, Any], version: DataVersion) -> bool:
        """Take a master's table in place of ours; return False, and change nothing, when it is older.

        Our table without a row is older than any: its version is only the time of the start.
        """
        if self.rows and version < self.version:
            return False
        if rows != self.rows or (rows and version != self.version):
            self.rows, self.version = dict(rows), version
            for callback in self.on_change:
                callback()
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
        self.rows.update(rows)
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])
