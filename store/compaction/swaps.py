"""A new generation of closed files takes the place of the old one, whole or not at all.

Both are on the disk until then, the new one under temporary names. What is to be done is written down first, durably,
in ``compaction/swap``: that is the moment of the swap. Then names are changed, in an order that may be gone through
again from its beginning, and the note goes. A start that finds a note goes through it; without one, temporary files are
what is left of a round that did not get so far.

``position-checkpoint`` is the reference's: up to which queue offset each queue was compacted.
"""

from __future__ import annotations

import os.path
from typing import Any

import attrs

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, load_table, save_table
from understudy.store.compaction.files import TEMPORARY, CompactedQueue
from understudy.store.compaction.layout import FOLDER

log = get_logger("store.compaction")

POSITIONS, NOTE = "position-checkpoint", "swap"
_KEY = "queueOffsetMap"


@attrs.frozen
class Swap:
    """What is to be done for one queue.

    Attributes:
        topic, queue_id: which queue.
        old: where the files begin that go.
        new: where the files begin that come.
        position: queue offset up to which the queue is compacted then.
    """

    topic: str
    queue_id: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    position: int

    @classmethod
    def from_json(cls, value: Any) -> Swap:
        """Read what was noted. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        return cls(
            str(value["topic"]),
            int(value["queueId"]),
            tuple(map(int, value["old"])),
            tuple(map(int, value["new"])),
            int(value["position"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what is noted."""
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "old": list(self.old),
            "new": list(self.new),
            "position": self.position,
        }


class Positions:
    """Up to which queue offset each queue was compacted: the last one that a round has noted.

    Args:
        disk: where it is kept.
        root: folder of the store.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self.folder = os.path.join(root, FOLDER)
        self._path = os.path.join(self.folder, POSITIONS)
        self._by_queue: dict[str, int] = {}

    def load(self) -> None:
        """Read the file. One that cannot be read counts as empty: then rounds look at everything again. Blocking."""
        try:
            file = load_table(self._disk, self._path)
        except TableDamagedError as error:
            log.warning("positions of compaction cannot be read; queues are compacted from their beginning", why=error)
            return
        rows = (file.data or {}).get(_KEY)
        if isinstance(rows, dict):
            self._by_queue = {str(name): value for name, value in rows.items() if isinstance(value, int)}

    def of(self, topic: str, queue_id: int) -> int:
        """Return the position of a queue; -1 for one that was never compacted."""
        return self._by_queue.get(f"{topic}_{queue_id}", -1)

    def set(self, topic: str, queue_id: int, position: int | None) -> None:
        """Change the position of a queue; ``None`` forgets it. Durable with the next :meth:`save`."""
        by_queue = dict(self._by_queue)
        by_queue.pop(f"{topic}_{queue_id}", None)
        if position is not None:
            by_queue[f"{topic}_{queue_id}"] = position
        self._by_queue = by_queue

    def save(self) -> None:
        """Write the file durably. Blocking. Raises ``OSError``."""
        make_folder_durably(self._disk, self.folder)
        save_table(self._disk, self._path, {_KEY: self._by_queue})


def note_swap(disk: Disk, positions: Positions, swap: Swap) -> None:
    """Decide durably that *swap* is done; its new files are durable under their temporary names. Blocking."""
    make_folder_durably(disk, positions.folder)
    save_table(disk, os.path.join(positions.folder, NOTE), swap.to_json())


def carry_out(disk: Disk, positions: Positions, queue: CompactedQueue, swap: Swap) -> None:
    """Do what was noted; it may have been done in part. Blocking.

    Args:
        disk: where the files are.
        positions: get the new one.
        queue: whose files they are.
        swap: what was noted.

    Raises:
        OSError: the disk refused; it may be tried again.
    """
    for start in swap.new:
        for temporary, path in zip(queue.file(start, TEMPORARY).paths, queue.file(start).paths, strict=True):
            if disk.exists(temporary):
                disk.replace(temporary, path)
    for start in sorted(set(swap.old).difference(swap.new)):
        for path in queue.file(start).paths:
            disk.remove(path)
    disk.sync_folder(queue.log_folder)
    disk.sync_folder(queue.queue_folder)
    positions.set(swap.topic, swap.queue_id, swap.position)
    positions.save()
    for name in (NOTE, f"{NOTE}.bak"):
        disk.remove(os.path.join(positions.folder, name))
    disk.sync_folder(positions.folder)


def noted_swap(disk: Disk, positions: Positions) -> Swap | None:
    """Return the swap that a process was carrying out when it ended. Blocking."""
    try:
        content = load_table(disk, os.path.join(positions.folder, NOTE)).data
        return None if content is None else Swap.from_json(content)
    except (TableDamagedError, KeyError, TypeError, ValueError) as error:
        log.error("the note of a swap of compacted files cannot be read", why=error)
        return None
