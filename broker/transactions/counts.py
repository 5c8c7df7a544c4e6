"""How many half messages are open in each topic, and what became of the others.

The table of open ones is saved as the reference's ``transactionMetrics``. It is counted anew at each start: what is
carried over as a sum of changes goes wrong for good when one change is lost.

Source: TransactionMetrics.java, BrokerMetricsManager.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from understudy.format.data_version import DataVersion
from understudy.format.numbers import whole_number
from understudy.runtime.metrics import Histogram

NAME = FILE_NAME = "transactionMetrics"
_LATENCY_SECONDS = (5, 60, 600, 3600, 43_200, 86_400)


class TransactionCounts:
    """The counts of one broker.

    Args:
        now_ms: wall clock in milliseconds.

    Attributes:
        open: half messages of each real topic that nobody has decided.
        commits, rollbacks: decisions since the start by real topic.
        latency: seconds from the birth of a committed message to its commit.
        on_change: called when :attr:`open` changes.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._known = DataVersion(timestamp=now_ms())
        self._changes = 0  # since then, the last one at
        self._changed_ms = 0
        self._stamps: dict[str, int] = {}
        self.open: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self.rollbacks: Counter[str] = Counter()
        self.latency = Histogram(_LATENCY_SECONDS)
        self.on_change: list[Callable[[], None]] = []

    def add(self, topic: str, number: int = 1) -> None:
        """Count *number* more open half messages of *topic*; below 0, fewer."""
        now_ms = self._now_ms()
        self.open[topic] += number
        self._stamps[topic] = self._changed_ms = now_ms
        self._changes += 1
        for listener in self.on_change:
            listener()

    def recount(self, found: Mapping[str, int]) -> None:
        """Take *found* for what is open."""
        stamps, now_ms = self._stamps, self._now_ms()
        self.open = Counter(found)
        self._stamps = {topic: stamps.get(topic, now_ms) for topic in found}
        for listener in self.on_change:
            listener()

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        rows = {
            topic: {"count": number, "timeStamp": self._stamps.get(topic, 0)} for topic, number in self.open.items()
        }
        known = self._known
        version = DataVersion(0, known.counter + self._changes, self._changed_ms) if self._changes else known
        return {"dataVersion": version.to_json(), "transactionCount": rows}

    def load(self, content: Mapping[str, Any]) -> None:
        """Take a saved table over.

        Raises:
            ValueError: an entry is no count.
        """
        table = content.get("transactionCount") or {}
        if not isinstance(table, Mapping):
            raise ValueError("transactionCount is no JSON object")
        for topic, row in table.items():
            if not isinstance(row, Mapping):
                raise ValueError(f"transactionCount entry {topic}: no JSON object")
            self.open[str(topic)] = whole_number(row.get("count"), f"transactionCount entry {topic}: count")
            self._stamps[str(topic)] = whole_number(row.get("timeStamp"), f"transactionCount entry {topic}: timeStamp")
        self._known, self._changes = DataVersion.from_json(content.get("dataVersion")), 0
