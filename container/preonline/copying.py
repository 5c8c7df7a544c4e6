"""Which slaves copy the log of a master that comes back, as far as their connections tell: pure.

A slave does not say over that connection who it is. It comes from its own host as a rule, so it is known by that;
slaves of one host are told apart by their number only. One that is listed by another address than it connects from is
taken for whichever slave is still waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from understudy.container.preonline.handshake import Member


def not_copying(wanted: Sequence[Member], connected: Iterable[str], known: Iterable[Member]) -> tuple[Member, ...]:
    """Return those of *wanted* that no connection is left for.

    Args:
        wanted: slaves, those first that are known to copy.
        connected: the slaves' end of each connection over which a slave has said how far it is, ``host:port``.
        known: other members of the group: a connection from the host of one is that one's.
    """
    left = Counter(map(_host, connected))
    own = {_host(each.address) for each in (*wanted, *known)}
    elsewhere = sum(count for host, count in left.items() if host not in own)
    missing = []
    for member in wanted:
        host = _host(member.address)
        if left[host]:
            left[host] -= 1
        elif elsewhere:
            elsewhere -= 1
        else:
            missing.append(member)
    return tuple(missing)


def _host(address: str) -> str:
    return address.rpartition(":")[0] or address
