"""Which brokers a producer avoids for a while (LatencyFaultToleranceImpl.java), and its choice of the next queue."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from understudy.mqclient.queue import MessageQueue

# A send that took at least the first figure makes its broker unavailable for the second, both milliseconds.
_PENALTIES_MS = ((550, 0), (1800, 2_000), (3000, 5_000), (5000, 6_000), (15_000, 10_000))
_LIMITS_MS = [limit for limit, _ in _PENALTIES_MS]
_FAILED_SEND_MS = 10_000


class BrokerHealth:
    """Remembers slow and failed sends by broker name; times are monotonic seconds given by the caller."""

    def __init__(self) -> None:
        self._avoid_until: dict[str, float] = {}

    def sent(self, broker_name: str, took_ms: float, now: float) -> None:
        """Record a send that was answered after *took_ms* milliseconds."""
        at = bisect.bisect_right(_LIMITS_MS, took_ms) - 1
        penalty_ms = _PENALTIES_MS[at][1] if at >= 0 else 0
        if penalty_ms:
            self._avoid_until[broker_name] = now + penalty_ms / 1000
        else:
            self._avoid_until.pop(broker_name, None)

    def failed(self, broker_name: str, now: float) -> None:
        """Record a send that was not answered or was refused by an overloaded broker."""
        self._avoid_until[broker_name] = now + _FAILED_SEND_MS / 1000

    def available(self, broker_name: str, now: float) -> bool:
        """Return whether nothing speaks against *broker_name*."""
        return now >= self._avoid_until.get(broker_name, 0.0)


class QueueChooser:
    """Takes the queues of a topic in turn, around brokers that are in trouble."""

    def __init__(self, start: int) -> None:
        self._next = start

    def choose(
        self, queues: Sequence[MessageQueue], health: BrokerHealth, now: float, last_broker: str | None
    ) -> MessageQueue:
        """Return the next queue.

        Args:
            queues: all writable queues; not empty.
            health: what is known of the brokers.
            now: monotonic seconds.
            last_broker: broker group of the attempt that just failed, avoided when there is another.
        """
        count = len(queues)
        start = self._next
        for step in range(count):
            queue = queues[(start + step) % count]
            if queue.broker_name != last_broker and health.available(queue.broker_name, now):
                self._next = (start + step + 1) % count
                return queue
        for step in range(count):
            queue = queues[(start + step) % count]
            if queue.broker_name != last_broker:
                self._next = (start + step + 1) % count
                return queue
        self._next = (start + 1) % count
        return queues[start % count]
