"""Queues held by one client of a group, so that ordered consumption has one reader.

Source: RebalanceLockManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable

Queue = tuple[str, str, int]
"""Topic, broker name and queue id."""

LOCK_LIFETIME_MS = 60_000
"""Default of the reference's ``rocketmq.broker.rebalance.lockMaxLiveTime``."""


class QueueLocks:
    """Locks of every group. A lock that is not refreshed for *lifetime_ms* belongs to nobody."""

    def __init__(self, lifetime_ms: int = LOCK_LIFETIME_MS) -> None:
        self._lifetime_ms = lifetime_ms
        self._groups: dict[str, dict[Queue, tuple[str, int]]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Take or refresh what *client_id* may have of *queues*.

        Args:
            group: that consumes in order.
            client_id: of the member that asks.
            queues: that it asks for.
            now_ms: moment, on the clock of the other calls.

        Returns:
            The queues the client holds after the call, in the order asked for.
        """
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            entry = held.get(queue)
            if entry is None or entry[0] == client_id or now_ms - entry[1] > self._lifetime_ms:
                held[queue] = (client_id, now_ms)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Give back those of *queues* that *client_id* owns; others' locks stay."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                del held[queue]
        if not held:
            del self._groups[group]

    def owner(self, group: str, queue: Queue, now_ms: int) -> str | None:
        """Return the client that holds *queue*, or ``None``."""
        entry = self._groups.get(group, {}).get(queue)
        return None if entry is None or now_ms - entry[1] > self._lifetime_ms else entry[0]

    def any_held(self, group: str, now_ms: int) -> bool:
        """Tell whether some client of *group* consumes in order now."""
        return any(now_ms - taken <= self._lifetime_ms for _, taken in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Forget locks nobody refreshed, so that dead groups take no memory."""
        for group in list(self._groups):
            held = self._groups[group]
            for queue in [queue for queue, (_, taken) in held.items() if now_ms - taken > self._lifetime_ms]:
                del held[queue]
            if not held:
                del self._groups[group]
