"""Who may hold a connection to a port that has few of them, when many hosts, or a single rude one, want more.

The rules:

* One host may hold as many seats as are free for all others: a single one gets half, and a newcomer finds room.
* A seat is *kept* once its holder has shown what it is there for, for as long as its server says so. The others are
  given up to newcomers: a host that wants one more than it may hold loses its own oldest seat that is not kept. So
  connections that say nothing shut nobody out, however many there are and however fast they come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Seat:
    """One connection's.

    Attributes:
        host: who holds it.
        leave: ends the connection; called at most once, when a newcomer gets the seat.
        kept: whether no newcomer gets it.
    """

    host: str
    leave: Callable[[], None]
    kept: bool = False


class Seats:
    """The seats of one port.

    Args:
        most: connections at a time.

    Attributes:
        refused: how many newcomers found none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[Seat, None] = {}  # the oldest first
        self._held = Counter[str]()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, host: str, leave: Callable[[], None]) -> Seat | None:
        """Return a seat for a newcomer, if need be that of another connection, which is ended; ``None``: refuse it.

        Args:
            host: where it comes from.
            leave: ends it; must not wait, and must not raise.
        """
        if not self._has_room(host):
            given_up = next((seat for seat in self._taken if not seat.kept and seat.host == host), None)
            if given_up is None and not self._held[host]:
                given_up = next((seat for seat in self._taken if not seat.kept), None)
            if given_up is None:
                self.refused += 1
                return None
            self.give_back(given_up)
            given_up.leave()
        seat = Seat(host, leave)
        self._taken[seat] = None
        self._held[host] += 1
        return seat

    def _has_room(self, host: str) -> bool:
        free = self._most - len(self._taken)
        held = self._held.get(host, 0)
        return free > 0 and (not held or held < free)

    def give_back(self, seat: Seat) -> None:
        """Take back the seat of a connection that has ended; without effect when a newcomer has it."""
        if seat in self._taken:
            del self._taken[seat]
            self._held[seat.host] -= 1
            if not self._held[seat.host]:
                del self._held[seat.host]
