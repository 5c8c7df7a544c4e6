"""Looks at a consumer of ordered queues from outside: when did the lock of a queue run out that nobody could renew?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import trio

from understudy.mqclient.assigned import AssignedQueue
from understudy.mqclient.locks import QueueLocks
from understudy.mqclient.queue import MessageQueue


class LockWatch:
    """Notes the queues that a consumer gives up because their locks have run out, not because it was told so.

    Where a slave has acted since a lock was granted last, that one could have renewed it: then it does not count.
    """

    def __init__(self) -> None:
        self._held: dict[MessageQueue, AssignedQueue] = {}
        self._acted: dict[str, float] = {}
        self._ran_out: dict[MessageQueue, list[float]] = {}

    def look(self, held: Mapping[MessageQueue, AssignedQueue], acting: Iterable[str]) -> None:
        """Compare the queues that are held now with those of the last look.

        Args:
            held: the queues.
            acting: groups of a slave that acts.
        """
        now = trio.current_time()
        self._acted.update(dict.fromkeys(acting, now))
        for queue, assigned in self._held.items():
            locked_at, acted = assigned.locked_at, self._acted.get(queue.broker_name, -math.inf)
            if assigned.dropped and locked_at is not None and QueueLocks.expired(locked_at, now) and acted < locked_at:
                self._ran_out.setdefault(queue, []).append(now)
        self._held = {queue: assigned for queue, assigned in held.items() if not assigned.dropped}

    def ran_out(self, queue: MessageQueue) -> tuple[float, ...]:
        """Return when the lock of *queue* ran out, each time; a look later at the most (seconds of the run)."""
        return tuple(self._ran_out.get(queue, ()))
