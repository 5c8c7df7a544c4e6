"""Which topics were deleted, and where in the log: what is before that is gone for good.

The log keeps the messages of a deleted topic until its files go, and a start that walks the log would enter them again:
below a topic of the same name, or as a topic that nobody has. So every deletion stands with its physical offset in a
small file, ``deleted.topics``, before it is answered.

A store of the reference has no such file. There a topic counts as deleted when the table of topics does not have it
although that was changed after the message was stored (:class:`LivingTopics`), and no queue of it is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, load_table, save_table

log = get_logger("store.deletions")

FILE_NAME = "deleted.topics"
#: Most deletions that are kept; the oldest go first.
DELETIONS_MAX = 50_000


class Deletion(NamedTuple):
    """The end of one life of a topic.

    Attributes:
        position: physical offset of the log's end at that moment.
        store_ms: no message of that life was stored after this time (ms). A message counts as deleted by both, so that
            a log that was cut and written anew by somebody who does not know this file loses nothing.
    """

    position: int
    store_ms: int


@attrs.frozen
class LivingTopics:
    """The table of topics beside a store.

    Args:
        names: the topics it has.
        changed_ms: when it was changed last (ms), by the clock that stamps messages; 0 when that is unknown.
        batch: those of them that have batch queues.
    """

    names: frozenset[str]
    changed_ms: int
    batch: frozenset[str] = frozenset()

    def lacks(self, topic: str, store_ms: int) -> bool:
        """Whether a message stored at *store_ms* is of a topic that was deleted before the table was changed."""
        return store_ms < self.changed_ms and topic not in self.names


class Deletions:
    """The last deletion of each topic whose old messages may still be in the log.

    Attributes:
        by_topic: change it through methods only.
        until: no record at this physical offset or after it is of a deleted topic.
        is_saved: the file says the same.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, Deletion] = {}
        self.until = 0
        self.is_saved = True

    def add(self, topic: str, deletion: Deletion) -> None:
        """Note that *topic* was deleted; it replaces what was noted of it before."""
        if self.by_topic.get(topic) != deletion:
            self.by_topic.pop(topic, None)  # the order is that of the deletions
            if len(self.by_topic) >= DELETIONS_MAX:
                del self.by_topic[next(iter(self.by_topic))]
            self.by_topic[topic] = deletion
            self.until = max(self.until, deletion.position)
            self.is_saved = False

    def covers(self, topic: str, physical: int, store_ms: int) -> bool:
        """Whether the record of *topic* at *physical* was deleted with its topic."""
        deletion = self.by_topic.get(topic)
        return deletion is not None and physical < deletion.position and store_ms <= deletion.store_ms

    def fit(self, log_min: int, log_end: int) -> None:
        """Forget what is before the log, and let nothing reach behind its end: what comes there is new.

        Args:
            log_min, log_end: the first byte of the log and the one after its last.
        """
        positions = [each.position for each in self.by_topic.values()]
        if positions and (min(positions) <= log_min or max(positions) > log_end):
            self.by_topic = {
                topic: each if each.position <= log_end else each._replace(position=log_end)
                for topic, each in self.by_topic.items()
                if each.position > log_min and log_end > log_min
            }
            self.is_saved = False
            positions = [each.position for each in self.by_topic.values()]
        self.until = max(positions, default=0)

    def clear(self) -> None:
        """Forget all: the log begins anew."""
        self.fit(0, 0)


def to_json(deletions: Mapping[str, Deletion]) -> dict[str, list[int]]:
    """Return deletions as they stand in files and answers."""
    return {topic: list(each) for topic, each in deletions.items()}


def from_json(value: Any) -> dict[str, Deletion]:
    """Read what :func:`to_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, Mapping):
        raise ValueError("deletions are no JSON object")
    found = {}
    for topic, row in value.items():
        if not (isinstance(row, list) and len(row) == 2 and all(type(each) is int and each >= 0 for each in row)):
            raise ValueError(f"deletion of {topic}: a position and a time are expected")
        found[str(topic)] = Deletion(*row)
    return found


def load_deletions(disk: Disk, path: str) -> Deletions:
    """Read the file; one that cannot be read is said and counts as empty. Blocking."""
    deletions = Deletions()
    try:
        file = load_table(disk, path)
        for damage in file.damage:
            log.warning("the deletions of topics are damaged, their other copy is used", damage=damage)
        found = from_json((file.data or {}).get("topics", {}))
    except (TableDamagedError, ValueError) as error:
        log.error("the deletions of topics cannot be read; old messages of such topics may come back", error=error)
        found = {}
    for topic, deletion in found.items():
        deletions.add(topic, deletion)
    deletions.is_saved = True
    return deletions


def save_deletions(disk: Disk, path: str, content: dict[str, list[int]]) -> None:
    """Write the file durably. Blocking. Raises ``OSError``."""
    save_table(disk, path, {"topics": content})
