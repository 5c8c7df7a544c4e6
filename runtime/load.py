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

from typing import Protocol

import trio

from understudy.runtime.budget import SMALL_BYTES, Budget
from understudy.runtime.damping import Damping
from understudy.runtime.metrics import Family, Sample

NEWCOMERS = 3
"""Connections whose first bytes are dealt with in one turn of the event loop: about a millisecond for each."""
DEFAULT_MEMORY_BYTES = 8 << 30
"""Of a simulated host; a real one asks the system (``memory_limit.py``)."""

OUTGOING_PART, INCOMING_PART, PARKED_PART = 16, 16, 32
"""Parts of the process's memory that may wait: answers for slow readers, requests not yet begun, parked ones."""
KEPT_PART = 8
"""Part of it for what is kept of peers beyond their connections: locks of a broker, topics of a name server."""

__all__ = ["DEFAULT_MEMORY_BYTES", "NEWCOMERS", "SMALL_BYTES", "Budget", "Load", "Totals"]


class Totals(Protocol):
    """Settings that say how much may wait, in bytes; without one it is a part of the memory."""

    @property
    def waiting_outgoing_bytes(self) -> int | None: ...
    @property
    def waiting_incoming_bytes(self) -> int | None: ...
    @property
    def waiting_parked_bytes(self) -> int | None: ...
    @property
    def kept_for_peers_bytes(self) -> int | None: ...


class Load:
    """The totals of one process.

    Args:
        memory_bytes: what the process may use.

    Attributes:
        outgoing: bytes that peers have not taken yet.
        incoming: bytes of requests that are incomplete or wait for a handler.
        parked: bytes of requests that wait for something to happen.
        kept: bytes of what peers have this process remember, whether their connections last or not.
        turn: held by a connection with much work while it works.
        newcomers: passed by each connection before it deals with its first bytes.
        lines: through which lines about what peers do go into the log.
    """

    def __init__(self, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.outgoing = Budget(memory_bytes // OUTGOING_PART)
        self.incoming = Budget(memory_bytes // INCOMING_PART)
        self.parked = Budget(memory_bytes // PARKED_PART)
        self.kept = Budget(memory_bytes // KEPT_PART)
        self.turn = trio.Lock()
        self.newcomers = trio.Semaphore(NEWCOMERS)
        self.lines = Damping()

    def limit(self, totals: Totals) -> None:
        """Take what the settings of the program say."""
        self.outgoing.limit = totals.waiting_outgoing_bytes or self.outgoing.limit
        self.incoming.limit = totals.waiting_incoming_bytes or self.incoming.limit
        self.parked.limit = totals.waiting_parked_bytes or self.parked.limit
        self.kept.limit = totals.kept_for_peers_bytes or self.kept.limit

    def families(self) -> list[Family]:
        """Return what waits, how much of it may, and what was refused, as metrics."""
        kinds = {"outgoing": self.outgoing, "incoming": self.incoming, "parked": self.parked, "kept": self.kept}
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
