"""How far each consumer group has come in each queue.

Source: ConsumerOffsetManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.data_version import DataVersion


class OffsetTable:
    """Committed, reset and pulled offsets of one broker. Keys are ``topic@group``, then the queue id.

    Attributes:
        committed: what groups have confirmed; saved.
        reset: offsets an administrator set that the next pull must learn; memory only.
        pulled: where the next pull will begin; memory only.
        version: grows once every ``version_step`` commits.
        on_change: called after every change of :attr:`committed`.
    """

    def __init__(self, now_ms: Callable[[], int], version_step: int = 500) -> None:
        self._now_ms = now_ms
        self.version_step = max(version_step, 1)
        self.committed: dict[str, dict[int, int]] = {}
        self.reset: dict[str, dict[int, int]] = {}
        self.pulled: dict[str, dict[int, int]] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []
        self._commits = 0
        self.state_version: Callable[[], int] = lambda: 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the committed offset; a smaller one than before is accepted, as the reference does."""
        key = f"{topic}@{group}"
        queues = self.committed.get(key)
        if queues is None:
            queues = self.committed[key] = {}
        queues[queue_id] = offset
        self._commits += 1
        if self._commits % self.version_step == 0:
            self.version = self.version.next(self._now_ms(), self.state_version())
        for listener in self.on_change:
            listener()

    def commit_unless_reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit unless an administrator's reset of this queue still waits for its pull; return whether it did."""
        if self.reset and self.pending_reset(group, topic, queue_id) is not None:
            return False
        self.commit(group, topic, queue_id, offset)
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return what the group will go on with: the pending reset, else the committed offset, else -1."""
        if self.reset:
            pending = self.pending_reset(group, topic, queue_id)
            if pending is not None:
                return pending
        queues = self.committed.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of the committed offsets of *group* in *topic*."""
        return dict(self.committed.get(f"{topic}@{group}", {}))

    def record_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where the next pull of *group* begins."""
        key = f"{topic}@{group}"
        queues = self.pulled.get(key)
        if queues is None:
            queues = self.pulled[key] = {}
        queues[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the next pull begins as far as this broker knows, else -1."""
        queues = self.pulled.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an administrator's offset: committed at once, told to the consumer at its next pull."""
        self.reset.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the reset offset that the next pull must learn."""
        queues = self.reset.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the pending reset offset and forget it."""
        key = f"{topic}@{group}"
        queues = self.reset.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self.reset[key]
        return offset

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which *group* has committed offsets."""
        return [topic for topic, _, name in (key.rpartition("@") for key in self.committed) if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets in *topic*."""
        return [group for name, _, group in (key.rpartition("@") for key in self.committed) if name == topic]

    def remove_group(self, group: str) -> None:
        """Forget every offset of *group*."""
        self._remove(lambda topic, name: name == group)

    def remove_topic(self, topic: str) -> None:
        """Forget every offset in *topic*."""
        self._remove(lambda name, group: name == topic)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Give *target_group* the offsets of *source_group* in *topic*."""
        offsets = self.committed.get(f"{topic}@{source_group}")
        if offsets is not None:
            self.committed[f"{topic}@{target_group}"] = dict(offsets)
            self._changed()

    def merge(self, table: Mapping[str, Mapping[int, int]], version: DataVersion) -> None:
        """Put another replica's offsets over these and take its version."""
        for key, queues in table.items():
            self.committed.setdefault(key, {}).update(queues)
        self.version = version
        for listener in self.on_change:
            listener()

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``consumerOffset.json``."""
        return {
            "dataVersion": self.version.to_json(),
            "offsetTable": {key: dict(queues) for key, queues in self.committed.items()},
        }

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Put a saved table over what is there.

        Raises:
            ValueError: an entry is no offset; the message names it.
        """
        table = value.get("offsetTable") or {}
        if not isinstance(table, Mapping):
            raise ValueError("offsetTable is no JSON object")
        for key, queues in table.items():
            if not isinstance(queues, Mapping):
                raise ValueError(f"offsetTable entry {key}: no JSON object")
            try:
                self.committed[str(key)] = {int(queue): int(offset) for queue, offset in queues.items()}
            except (TypeError, ValueError):
                raise ValueError(f"offsetTable entry {key}: queue ids and offsets must be whole numbers") from None
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])

    def _remove(self, doomed: Callable[[str, str], bool]) -> None:
        for table in (self.committed, self.reset, self.pulled):
            for key in [key for key in table if doomed(key.rpartition("@")[0], key.rpartition("@")[2])]:
                del table[key]
        self._changed()

    def _changed(self) -> None:
        self.version = self.version.next(self._now_ms(), self.state_version())
        for listener in self.on_change:
            listener()
