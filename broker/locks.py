"""Queues held by one client of a group, so that ordered consumption has one reader.

Source: RebalanceLockManager.java.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable

from understudy.runtime.pace import run_steps

Queue = tuple[str, str, int]
"""Topic, broker name and queue id."""

LOCK_LIFETIME_MS = 60_000
"""Default of the reference's ``rocketmq.broker.rebalance.lockMaxLiveTime``."""

QUEUES_OF_A_STEP = 256

Held = OrderedDict[Queue, tuple[str, int]]
"""Queue to the client that holds it and since when; what was refreshed last stands last."""


class QueueLocks:
    """Locks of every group. A lock that is not refreshed for *lifetime_ms* belongs to nobody."""

    def __init__(self, lifetime_ms: int = LOCK_LIFETIME_MS) -> None:
        self._lifetime_ms = lifetime_ms
        self._groups: dict[str, Held] = {}

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
        return run_steps(self.locking(group, client_id, queues, now_ms))

    def locking(
        self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int
    ) -> Generator[None, None, list[Queue]]:
        """Do in steps what :meth:`lock` does; between them others may lock and unlock.

        Args:
            group, client_id, queues, now_ms: as of :meth:`lock`.
        """
        granted: list[Queue] = []
        held = Held()
        for number, queue in enumerate(queues):
            if number % QUEUES_OF_A_STEP == 0:
                if number:
                    yield
                held = self._groups.setdefault(group, Held())
            entry = held.get(queue)
            if entry is None or entry[0] == client_id or now_ms - entry[1] > self._lifetime_ms:
                held[queue] = (client_id, now_ms)
                held.move_to_end(queue)
                granted.append(queue)
        return granted

    def holding(
        self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int
    ) -> Generator[None, None, frozenset[Queue]]:
        """Find in steps which of *queues* the client holds already.

        Args:
            group, client_id, queues, now_ms: as of :meth:`lock`.
        """
        found: list[Queue] = []
        for number, queue in enumerate(queues):
            if number and number % QUEUES_OF_A_STEP == 0:
                yield
            if self.owner(group, queue, now_ms) == client_id:
                found.append(queue)
        return frozenset(found)

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Give back those of *queues* that *client_id* owns; others' locks stay."""
        run_steps(self.unlocking(group, client_id, queues))

    def unlocking(self, group: str, client_id: str, queues: Iterable[Queue]) -> Generator[None, None, None]:
        """Do in steps what :meth:`unlock` does."""
        for number, queue in enumerate(queues):
            if number and number % QUEUES_OF_A_STEP == 0:
                yield
            held = self._groups.get(group)
            if held is None:
                return
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                del held[queue]
                if not held:
                    del self._groups[group]

    def owner(self, group: str, queue: Queue, now_ms: int) -> str | None:
        """Return the client that holds *queue*, or ``None``."""
        held = self._groups.get(group)
        entry = None if held is None else held.get(queue)
        return None if entry is None or now_ms - entry[1] > self._lifetime_ms else entry[0]

    def any_held(self, group: str, now_ms: int) -> bool:
        """Tell whether some client of *group* consumes in order now."""
        held = self._groups.get(group)
        if not held:
            return False
        _, taken = held[next(reversed(held))]
        return now_ms - taken <= self._lifetime_ms

    def expiring(self, now_ms: int) -> Generator[None, None, None]:
        """Forget, in steps, locks that nobody refreshed, so that dead groups take no memory."""
        count = 0
        for group in list(self._groups):
            while held := self._groups.get(group):
                _, taken = held[next(iter(held))]
                if now_ms - taken <= self._lifetime_ms:
                    break
                held.popitem(last=False)
                if not held:
                    del self._groups[group]
                count += 1
                if count % QUEUES_OF_A_STEP == 0:
                    yield
            count += 1
            if count % QUEUES_OF_A_STEP == 0:
                yield
