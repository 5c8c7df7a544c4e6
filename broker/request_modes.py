"""How groups consume topics: by pulls, or by pops whose queues the broker shares out.

Source: MessageRequestModeManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from understudy.format.json_values import name_of
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number

PULL, POP = "PULL", "POP"


@attrs.frozen
class RequestMode:
    """How one group consumes one topic.

    Attributes:
        mode: :data:`PULL` or :data:`POP`.
        share: with pops, of how many clients after it in the list a client gets the queues too; 0 or less, or nearly as
            many as there are: all queues.
    """

    mode: str = PULL
    share: int = -1

    def to_json(self, topic: str, group: str) -> dict[str, Any]:
        """Return its form on the wire and in the file."""
        return {"consumerGroup": group, "mode": self.mode, "popShareQueueNum": self.share, "topic": topic}

    @classmethod
    def from_json(cls, value: object, what: str) -> RequestMode:
        """Read it. Raises ``ValueError``, whose text begins with *what*."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{what} is no JSON object")
        mode = name_of(value.get("mode") or PULL, f"{what}: mode")
        if mode not in (PULL, POP):
            raise ValueError(f"{what}: mode is {mode[:32]!r}, it must be {PULL} or {POP}")
        return cls(mode, whole_number(value.get("popShareQueueNum", 0), f"{what}: popShareQueueNum", INT_MIN, INT_MAX))


Modes = dict[str, dict[str, RequestMode]]


class RequestModeTable:
    """The modes that were set.

    Attributes:
        rows: by topic and group.
        on_change: called after every change.
    """

    def __init__(self) -> None:
        self.rows: Modes = {}
        self.on_change: list[Callable[[], None]] = []

    def get(self, topic: str, group: str) -> RequestMode | None:
        """Return what was set for *group* in *topic*."""
        groups = self.rows.get(topic)
        return None if groups is None else groups.get(group)

    def put(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode of *group* in *topic*."""
        self.rows.setdefault(topic, {})[group] = mode
        self._changed()

    def take(self, rows: Modes) -> None:
        """Have the rows of another replica, and no others."""
        if rows != self.rows:
            self.rows = rows
            self._changed()

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``messageRequestMode.json``."""
        table = {
            topic: {group: mode.to_json(topic, group) for group, mode in groups.items()}
            for topic, groups in self.rows.items()
        }
        return {"messageRequestModeMap": table}

    def _changed(self) -> None:
        for listener in self.on_change:
            listener()


def read_modes(content: Mapping[str, Any]) -> Modes:
    """Read the content of the file, or another replica's answer. Raises ``ValueError`` naming an entry that is none."""
    table = content.get("messageRequestModeMap") or {}
    if not isinstance(table, Mapping):
        raise ValueError("messageRequestModeMap is no JSON object")
    found: Modes = {}
    for topic, groups in table.items():
        if not isinstance(groups, Mapping):
            raise ValueError(f"messageRequestModeMap entry {topic}: no JSON object")
        found[str(topic)] = {
            str(group): RequestMode.from_json(each, f"messageRequestModeMap entry {topic}, {group}")
            for group, each in groups.items()
        }
    return found
