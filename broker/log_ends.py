"""What of the log belongs to offsets that pops moved: the check points that bring messages back are before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Queues = Mapping[str, Mapping[int, int]]


class LogEnds:
    """Bytes of the log, by key and queue of an offset table; none for what clients commit.

    Attributes:
        rows: a replica whose log ends before such a byte must not count the offset.
        newest: the largest one since the start: while less of the log is on the disk, the offsets must not be saved.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, int]] = {}
        self.newest = 0

    def note(self, key: str, queue_id: int, end: int) -> None:
        """Note that the offset of a queue belongs to the log before byte *end*."""
        self.rows.setdefault(key, {})[queue_id] = end
        self.newest = max(self.newest, end)

    def learn(self, theirs: Queues, taken: Mapping[str, Iterable[int]]) -> None:
        """Learn what another replica tells, of those queues whose offset was *taken* from it."""
        for key, queues in taken.items():
            ends = theirs.get(key, {})
            for queue_id in queues:
                if queue_id in ends:
                    self.note(key, queue_id, ends[queue_id])

    def forget(self, key: str, queues: Iterable[int]) -> None:
        """Forget what belonged to former offsets of *queues*."""
        ends = self.rows.get(key)
        if ends is not None:
            for queue_id in queues:
                ends.pop(queue_id, None)
