"""The version of a table that replicas and name servers compare.

Source: DataVersion.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.format.numbers import whole_number


def _whole(value: Any) -> int:
    try:
        return 0 if value is None else whole_number(value, "a version")
    except ValueError:
        return 0


@attrs.frozen(order=True)
class DataVersion:
    """State version, counter and time of the last change; compared in this order.

    Attributes:
        state_version: epoch of the replica group, 0 outside controller mode.
        counter: changes since the table was made.
        timestamp: wall time of the last change in milliseconds.
    """

    state_version: int = 0
    counter: int = 0
    timestamp: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after one more change at *now_ms*."""
        return DataVersion(state_version, self.counter + 1, now_ms)

    @property
    def is_first(self) -> bool:
        """Whether nothing was changed yet; the time is only that of the start then, and makes nothing newer."""
        return self.state_version == 0 and self.counter == 0

    def to_json(self) -> dict[str, int]:
        """Return the three fields under their wire names."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, value: Any) -> DataVersion:
        """Read the wire form; absent or unreadable fields count as 0, as old peers leave ``stateVersion`` out."""
        if not isinstance(value, Mapping):
            return cls()
        return cls(_whole(value.get("stateVersion")), _whole(value.get("counter")), _whole(value.get("timestamp")))
