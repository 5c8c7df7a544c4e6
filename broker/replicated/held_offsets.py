"""Offsets of pops that a slave has heard of and may not count yet: its log is not so far. Pure.

What is popped comes again because a check point in the log says so. Tables and the log come on different connections:
an offset may be here before that check point is. Counted at once, it would have this slave, if it acts next, or a
master that takes the offset from it, go on behind messages that nothing brings back. So it waits until the log has
what its source says belongs to it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from understudy.broker.offset_keys import is_of

Queues = dict[str, dict[int, int]]


class HeldOffsets:
    """The offsets of one source that wait, two of a queue at the most: the oldest, and the newest."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def sift(self, news: Queues, log_ends: Mapping[str, Mapping[int, int]], reached: int) -> tuple[Queues, Queues]:
        """Tell which offsets count now: those of *news* whose log is here, and those that waited for it.

        Args:
            news: offsets by key and queue, newer than all before.
            log_ends: the byte of the log that belongs to each, as far as one does.
            reached: where the own log ends.

        Returns:
            The offsets, and what of the log belongs to them.
        """
        found, ends = Queues(), Queues()
        for key, queues in news.items():
            for queue_id, offset in queues.items():
                end = log_ends.get(key, {}).get(queue_id, 0)
                if end <= reached:
                    self._held.pop((key, queue_id), None)
                    found.setdefault(key, {})[queue_id] = offset
                    if end:
                        ends.setdefault(key, {})[queue_id] = end
                else:  # the oldest one stays: where pops never pause, the newest is always ahead of the log
                    self._held.setdefault((key, queue_id), [])[1:] = [(end, offset)]
        for (key, queue_id), held in list(self._held.items()):
            here = [each for each in held if each[0] <= reached]
            if here:
                ends.setdefault(key, {})[queue_id], found.setdefault(key, {})[queue_id] = here[-1]
                self._held[key, queue_id] = held[len(here) :]
                if not self._held[key, queue_id]:
                    del self._held[key, queue_id]
        return found, ends

    def forget(self, topics: Container[str], groups: Container[str]) -> None:
        """Forget the offsets of deleted *topics* and *groups*."""
        for key, queue_id in [each for each in self._held if is_of(each[0], topics, groups)]:
            del self._held[key, queue_id]
