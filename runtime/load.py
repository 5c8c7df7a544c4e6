"""What all connections of one process share: memory for what waits, and the turns of the event loop.

The rules:

* Memory for each kind of what waits has a total. One holder may hold as much of it as is free for everyone else: a
  single one gets half, twenty greedy ones a twenty-first each, and a newcomer always finds room. So the biggest are
  refused first, and the total holds without any of them being looked at.
* What little a holder needs at least (:data:`SMALL_BYTES`) is never refused. Where answers come above the total all the
  same (each peer may have one that is under way), the connection that holds most is closed.
* Connections with much work take turns of bounded length, one in each turn of the event loop, in order of asking.
  Others are served in every turn.
* What thousands of connections do at once when they come, their first requests, has its share of each turn, too
  (:data:`NEWCOMERS`), so that those that are there already are served meanwhile.

Source of the first rule: "dynamic thresholds" of packet switches (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import trio

from understudy.runtime.damping import Damping
from understudy.runtime.metrics import Family, Sample

SMALL_BYTES = 64 * 1024
NEWCOMERS = 3
"""Connections whose first bytes are dealt with in one turn of the event loop: about a millisecond for each."""
DEFAULT_MEMORY_BYTES = 8 << 30
"""Of a simulated host; a real one asks the system (``memory_limit.py``)."""

OUTGOING_PART, INCOMING_PART, PARKED_PART = 16, 16, 32
"""Parts of the process's memory that may wait: answers for slow readers, requests not yet begun, parked ones."""


class Budget:
    """Bytes of one kind that wait in this process.

    Args:
        limit: most bytes.

    Attributes:
        used: bytes that wait now.
        refused: how often a holder was told that it holds too much.
    """

    __slots__ = ("_held", "limit", "refused", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0
        self._held: dict[Hashable, int] = {}

    def change(self, holder: Hashable, by: int) -> None:
        """Count *by* bytes more for *holder*, or less when it is negative."""
        if not by:
            return
        self.used += by
        held = self._held.get(holder, 0) + by
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def held_by(self, holder: Hashable) -> int:
        """Return the bytes counted for *holder*."""
        return self._held.get(holder, 0)

    def allows(self, holder: Hashable, more: int = 0) -> bool:
        """Tell whether *holder* may hold what is counted for it and *more* bytes; the caller counts refusals."""
        held = self._held.get(holder, 0) + more
        return held <= SMALL_BYTES or held <= self.limit - self.used - more

    def biggest(self) -> Hashable:
        """Return who holds most; there must be a holder."""
        return max(self._held, key=self._held.__getitem__)


class Totals(Protocol):
    """Settings that say how much may wait, in bytes; without one it is a part of the memory."""

    @property
    def waiting_outgoing_bytes(self) -> int | None: ...
    @property
    def waiting_incoming_bytes(self) -> int | None: ...
    @property
    def waiting_parked_bytes(self) -> int | None: ...


class Load:
    """The totals of one process.

    Args:
        memory_bytes: what the process may use.

    Attributes:
        outgoing: bytes that peers have not taken yet.
        incoming: bytes of requests that are incomplete or wait for a handler.
        parked: bytes of requests that wait for something to happen.
        turn: held by a connection with much work while it works.
        newcomers: passed by each connection before it deals with its first bytes.
        lines: through which lines about what peers do go into the log.
    """

    def __init__(self, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.outgoing = Budget(memory_bytes // OUTGOING_PART)
        self.incoming = Budget(memory_bytes // INCOMING_PART)
        self.parked = Budget(memory_bytes // PARKED_PART)
        self.turn = trio.Lock()
        self.newcomers = trio.Semaphore(NEWCOMERS)
        self.lines = Damping()

    def limit(self, totals: Totals) -> None:
        """Take what the settings of the program say."""
        self.outgoing.limit = totals.waiting_outgoing_bytes or self.outgoing.limit
        self.incoming.limit = totals.waiting_incoming_bytes or self.incoming.limit
        self.parked.limit = totals.waiting_parked_bytes or self.parked.limit

    def families(self) -> list[Family]:
        """Return what waits, how much of it may, and what was refused, as metrics."""
        kinds = {"outgoing": self.outgoing, "incoming": self.incoming, "parked": self.parked}
        return [
            Family(
                "rocketmq_waiting_bytes",
                "gauge",
                "Bytes that wait in the process",
                [Sample(budget.used, {"kind": kind}) for kind, budget in kinds.items()],
            ),
            Family(
                "rocketmq_waiting_bytes_limit",
                "gauge",
                "Bytes that may wait in the process",
                [Sample(budget.limit, {"kind": kind}) for kind, budget in kinds.items()],
            ),
            Family(
                "rocketmq_waiting_refused_total",
                "counter",
                "Peers refused because what waits for them is too much",
                [Sample(budget.refused, {"kind": kind}) for kind, budget in kinds.items()],
            ),
        ]
