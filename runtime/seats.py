"""Who may hold a connection to a port that has few of them, when many hosts, or a single rude one, want more.

The rules:

* One host may hold as many seats as are free for all others: a single one gets half, and a newcomer finds room.
* A seat is *kept* once its holder has shown what it is there for, for as long as its server says so. The others are
  given up to newcomers that find no room. The host that has most of them loses one, if they are more than all that the
  newcomer's host holds; else the newcomer's own host loses one. It is the one that has stood still longest. So
  connections that say nothing shut nobody out, however many there are, however they are spread over hosts, and however
  fast they come back. Hosts that speak the protocol and get their seats kept can: only a server's list of addresses
  keeps those out.
* A host is an address of IPv4, or a /64 of IPv6: whoever has one such address has all of them.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Seat:
    """One connection's.

    Attributes:
        host: who holds it, an address or a network.
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
        self._taken: dict[Seat, None] = {}  # what stands still longest first
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
        host = _holder(host)
        if not self._has_room(host):
            given_up = self._given_up_to(host)
            if given_up is None:
                self.refused += 1
                return None
            self.give_back(given_up)
            given_up.leave()
        seat = Seat(host, leave)
        self._taken[seat] = None
        self._held[host] += 1
        return seat

    def moved(self, seat: Seat) -> None:
        """Note that the holder of *seat* makes progress: those that stand still longer give way before it."""
        if seat in self._taken:
            del self._taken[seat]
            self._taken[seat] = None

    def _given_up_to(self, host: str) -> Seat | None:
        """Return the seat that a newcomer of *host* gets though there is no room for it."""
        loose = [seat for seat in self._taken if not seat.kept]
        most = Counter(seat.host for seat in loose).most_common(1)
        loser = most[0][0] if most and most[0][1] > self._held.get(host, 0) else host
        return next((seat for seat in loose if seat.host == loser), None)

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


def _holder(host: str) -> str:
    """Return what counts as one host: an address of IPv4 or a name is one, of IPv6 its /64."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # a link-local address keeps its zone: the same /64 is on every link
    network = ipaddress.ip_network((int(address), 64), strict=False)
    return f"{network}%{address.scope_id}" if address.scope_id else str(network)
