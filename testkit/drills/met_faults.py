"""The faults of a run as they were, seen from one group of brokers, and the times that brokers and consumers keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

import attrs

from understudy.testkit.drills.acting_faults import DEAF, SILENT, SLOW, Fault
from understudy.testkit.drills.ring import Ring

SYNC_SECONDS = 1.0
"""How old the progress of a slave may be: two rounds of half a second."""
SLAVE_TIMEOUT_SECONDS = 3.0
"""``slaveTimeout``: after so long a master that hears no slave and no name server holds delayed messages back, and so
does a slave that acts and hears no name server."""
GROUP_TIMEOUT_SECONDS = 10.0
"""``brokerNotActiveTimeoutMillis``: after so long an acting slave that hears no name server stops."""
NOTICE_SECONDS = 1.0
"""How long it takes to look at the clocks."""
RETURN_SECONDS = GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS
"""How long a slave may act after the fault that made it act is over."""
COMMIT_SECONDS = 5.0
"""How long a consumer may keep to itself what it has consumed: ``persistConsumerOffsetInterval``."""
NEAR_SECONDS = 25.0
"""How long a fault may keep a slave from having what its master acknowledged, or from giving it back: half a connection
lives for 20 s."""
SLOW_SECONDS = SLOW.delay_seconds[1]
"""How long a slow link may hold up a copy."""
FLUSH_SECONDS = 10.5
"""How long bytes may wait to be flushed with ``ASYNC_FLUSH``: ``flushCommitLogThoroughInterval`` and one round."""
LONGEST_DELAY_SECONDS = 10.0
"""How long a delayed message waits at the most in most scenarios: delay level 3."""
LOCK_SECONDS = 10.0
"""From when on after a master cannot be asked any more the locks of consumers may run out: each is renewed after 20 s,
and holds for 30 s."""
ASK_SECONDS = 3.0
"""How long a returning master waits for the answer of one slave before it asks the next."""
LOCK_LIVES_SECONDS = 30.0
"""How long a lock holds that nobody renews."""


class Happened(Protocol):
    """A fault that has happened, or will: infinity as long as it has not begun or ended."""

    @property
    def fault(self) -> Fault:
        """What happened to whom."""

    @property
    def began_at(self) -> float:
        """When it began."""

    @property
    def ended_at(self) -> float:
        """When it was over."""


@attrs.frozen
class Past:
    """A fault of processes that somebody has made and ended, as :class:`Happened` says."""

    fault: Fault
    began_at: float
    ended_at: float


class Home(Enum):
    """Whose host a fault meets, seen from the group that stored the message."""

    MASTER = "master"
    SLAVE = "slave"
    OTHER = "other group's master"
    SERVER = "name server"


@attrs.frozen
class Met:
    """A fault as it was.

    Attributes:
        kind: one of :data:`~understudy.testkit.drills.acting_faults.FAULTS`.
        home: whose host it met.
        begin, end: from when to when, in virtual seconds.
        host: which host it was.
        flushed: what was acknowledged was on the disk.
        unserved: it took the last name server that was there; see :func:`with_unserved`.
        masters: groups whose master lives at that host, as far as somebody asks.
        returned: where it met a master, when that one was online again, or *end* when it was all the time.
        jump_seconds: by how much the clock of the host was ahead meanwhile; below zero: it was behind.
    """

    kind: str
    home: Home
    begin: float
    end: float
    flushed: bool = True
    host: str = ""
    unserved: bool = False
    masters: frozenset[str] = frozenset()
    returned: float = -math.inf
    jump_seconds: float = 0.0

    @property
    def away(self) -> bool:
        """Whether the host said nothing as long as it lasted, or heard nothing and so fell silent itself."""
        return self.kind in (*SILENT, *DEAF)

    def near(self, other: Met) -> bool:
        """Return whether *other* may still have, or already have, been felt while this one lasted."""
        return other.begin - NEAR_SECONDS <= self.end and self.begin <= other.end + NEAR_SECONDS

    def took(self, seconds: float, until: float = -math.inf) -> bool:
        """Return whether bytes written at *seconds*, or at any time from then *until*, may be gone with the power."""
        unflushed = self.begin - FLUSH_SECONDS
        return self.kind == "power" and not self.flushed and seconds <= self.begin and unflushed <= max(seconds, until)


def with_unserved(met: Sequence[Met], servers: Iterable[str]) -> tuple[Met, ...]:
    """Return *met*, each fault marked with which the last of *servers* (hosts) was lost: nobody shows a master then."""
    lost = [each for each in met if each.home is Home.SERVER and each.kind in DEAF]
    wanted = set(servers)

    def unserved(last: Met) -> bool:
        return last in lost and wanted <= {
            each.host for each in lost if each.begin <= last.begin <= each.end + NOTICE_SECONDS
        }

    return tuple(attrs.evolve(each, unserved=unserved(each)) for each in met)


def met_by(
    group: str | None,
    ring: Ring,
    accidents: Iterable[Happened],
    *,
    flushed: bool,
    returned: Callable[[str, float], float],
) -> tuple[Met, ...]:
    """Return *accidents* as a group met them; where it is not known, as both a master's and a slave's.

    Args:
        group: of brokers.
        ring: where it lives.
        accidents: that have happened, or will.
        flushed: whether what is acknowledged is on the disk.
        returned: tells when the master of a group was online again that was not at some time (virtual seconds).
    """

    def homes(host: str) -> Sequence[Home]:
        if host in ring.servers:
            return (Home.SERVER,)
        if group is None:
            return (Home.MASTER, Home.SLAVE)
        if ring.container_of(group, 0) == host:
            return (Home.MASTER,)
        return (Home.SLAVE,) if host in ring.members_of(group) else (Home.OTHER,)

    def masters(host: str) -> frozenset[str]:
        """Return the other groups whose master lives at *host*."""
        return frozenset(each for each in ring.groups if each != group and ring.container_of(each, 0) == host)

    met = [
        Met(
            each.fault.kind,
            home,
            each.began_at,
            each.ended_at,
            flushed,
            host,
            masters=masters(host),
            returned=each.ended_at if group is None else returned(group, each.ended_at),
            jump_seconds=each.fault.ahead_seconds,
        )
        for each in accidents
        for host in (each.fault.host,)
        for home in homes(host)
    ]
    return with_unserved(met, ring.servers)
