"""Queues held by one client of a group, so that ordered consumption has one reader.

Locks are kept for clients that may be gone, so what they take of the memory has a total that hosts share: a new lock
for which there is no room is refused as if another client had it.

Source: RebalanceLockManager.java.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Hashable, Iterable

import attrs

from understudy.runtime.budget import UNLIMITED, Budget, text_bytes
from understudy.runtime.pace import run_steps

Queue = tuple[str, str, int]
"""Topic, broker name and queue id."""

LOCK_LIFETIME_MS = 60_000
"""Default of the reference's ``rocketmq.broker.rebalance.lockMaxLiveTime``."""

QUEUES_OF_A_STEP = 256

LOCK_BYTES = 640
"""Memory of one lock without its texts, its share of a group's table included."""


@attrs.frozen
class Lock:
    """One lock.

    Attributes:
        client_id: who holds it.
        taken_ms: since when, or when it was refreshed last.
        host: for which it counts.
        size_bytes: of memory.
    """

    client_id: str
    taken_ms: int
    host: Hashable
    size_bytes: int


Held = OrderedDict[Queue, Lock]
"""Queue to its lock; what was refreshed last stands last."""


class QueueLocks:
    """Locks of every group. A lock that is not refreshed for *lifetime_ms* belongs to nobody.

    Args:
        lifetime_ms: as above.
        kept: the memory they share; unlimited if not given.
    """

    def __init__(self, lifetime_ms: int = LOCK_LIFETIME_MS, kept: Budget | None = None) -> None:
        self._lifetime_ms = lifetime_ms
        self._kept = kept or Budget(UNLIMITED)
        self._groups: dict[str, Held] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int, host: Hashable = ""
    ) -> list[Queue]:
        """Take or refresh what *client_id* may have of *queues*.

        Args:
            group: that consumes in order.
            client_id: of the member that asks.
            queues: that it asks for.
            now_ms: moment, on the clock of the other calls.
            host: where the client is, for which its locks count.

        Returns:
            The queues the client holds after the call, in the order asked for.
        """
        return run_steps(self.locking(group, client_id, queues, now_ms, host))

    def locking(
        self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int, host: Hashable = ""
    ) -> Generator[None, None, list[Queue]]:
        """Do in steps what :meth:`lock` does; between them others may lock and unlock.

        Args:
            group, client_id, queues, now_ms, host: as of :meth:`lock`.
        """
        granted: list[Queue] = []
        held, refused = Held(), False
        for number, queue in enumerate(queues):
            if number % QUEUES_OF_A_STEP == 0:
                if number:
                    yield
                held = self._groups.get(group, Held())
            entry = held.get(queue)
            if entry is not None and now_ms - entry.taken_ms <= self._lifetime_ms:
                if entry.client_id != client_id:
                    continue
                lock = Lock(client_id, now_ms, entry.host, entry.size_bytes)
            else:
                size = LOCK_BYTES + text_bytes(group, client_id, queue[0], queue[1])
                lock = Lock(client_id, now_ms, host, size)
                if not self._kept.allows(host, size):
                    refused = True
                    continue
                if entry is not None:
                    self._kept.change(entry.host, -entry.size_bytes)
                self._kept.change(host, size)
                held = self._groups.setdefault(group, held)
            held[queue] = lock
            held.move_to_end(queue)
            granted.append(queue)
        self._kept.refused += refused
        return granted

    def is_full(self, host: Hashable) -> bool:
        """Whether *host* may take no lock more."""
        return not self._kept.allows(host, LOCK_BYTES)

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
            if entry is not None and entry.client_id == client_id:
                self._forget(group, held, queue)

    def owner(self, group: str, queue: Queue, now_ms: int) -> str | None:
        """Return the client that holds *queue*, or ``None``."""
        held = self._groups.get(group)
        entry = None if held is None else held.get(queue)
        return None if entry is None or now_ms - entry.taken_ms > self._lifetime_ms else entry.client_id

    def any_held(self, group: str, now_ms: int) -> bool:
        """Tell whether some client of *group* consumes in order now."""
        held = self._groups.get(group)
        if not held:
            return False
        return now_ms - held[next(reversed(held))].taken_ms <= self._lifetime_ms

    def expiring(self, now_ms: int) -> Generator[None, None, None]:
        """Forget, in steps, locks that nobody refreshed, so that dead groups take no memory."""
        count = 0
        for group in list(self._groups):
            while held := self._groups.get(group):
                oldest = next(iter(held))
                if now_ms - held[oldest].taken_ms <= self._lifetime_ms:
                    break
                self._forget(group, held, oldest)
                count += 1
                if count % QUEUES_OF_A_STEP == 0:
                    yield
            count += 1
            if count % QUEUES_OF_A_STEP == 0:
                yield

    def _forget(self, group: str, held: Held, queue: Queue) -> None:
        lock = held.pop(queue)
        self._kept.change(lock.host, -lock.size_bytes)
        if not held:
            del self._groups[group]
