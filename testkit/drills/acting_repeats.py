"""A message that came more than once, and what the faults of a run say about it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import attrs

from understudy.testkit.drills.acting_faults import DEAF, ENDS_PROCESS, SILENT, STANDS_STILL, STEPS_CLOCK
from understudy.testkit.drills.met_faults import (
    ASK_SECONDS,
    COMMIT_SECONDS,
    GROUP_TIMEOUT_SECONDS,
    LOCK_LIVES_SECONDS,
    LOCK_SECONDS,
    LONGEST_DELAY_SECONDS,
    NOTICE_SECONDS,
    RETURN_SECONDS,
    SLAVE_TIMEOUT_SECONDS,
    Home,
    Met,
)


@attrs.frozen
class Repeat:
    """A message that a group of consumers got more than once.

    Attributes:
        key: its identity.
        delayed: it was sent with a delay level.
        due: when it was due, for a plain message when it came first; virtual seconds.
        came: when each delivery came.
        met: the faults of the run, seen from its group.
        hosts: of all members of its group.
        recognizable: a slave of its group put it elsewhere although the copy that came first was in its log.
        places: where each delivery stood: its group, and where in the log (bytes); empty: not known.
        longest_delay_seconds: how long a delayed message of its run waits at the most.
        ran_out: when the lock of the queue ran out that it was read from last, and no slave acted that could renew it.
        by_clock: when it was due by the clock of who stored it, where that one was stepped then.
        acted: when slaves of its group began to act, and their hosts.
    """

    key: str
    delayed: bool
    due: float
    came: tuple[float, ...]
    met: tuple[Met, ...]
    hosts: frozenset[str] = frozenset()
    recognizable: bool = False
    places: tuple[tuple[str, int], ...] = ()
    longest_delay_seconds: float = LONGEST_DELAY_SECONDS
    ran_out: tuple[float, ...] = ()
    by_clock: tuple[float, ...] = ()
    acted: tuple[tuple[float, str], ...] = ()

    def parts(self) -> list[Repeat]:
        """Return it as its copies, and for each copy that came again that alone: each may have a reason of its own.

        A copy that came again was read again, as any plain message is: what was delayed waits no more where it stands.
        Where a log may have lost it in between, another copy stands there.
        """
        if not self.places:
            return [self]
        copies: list[tuple[tuple[str, int], list[float]]] = []
        standing: dict[tuple[str, int], list[float]] = {}
        for place, seconds in zip(self.places, self.came, strict=True):
            came = standing.get(place)
            if came is None or any(met.took(came[0]) and met.begin <= seconds for met in self.met):
                came = standing[place] = []
                copies.append((place, came))
            came.append(seconds)
        again = [
            attrs.evolve(self, delayed=False, due=came[0], came=tuple(came), places=())
            for _, came in copies
            if len(came) > 1
        ]
        if len(copies) == 1:
            return again
        first, places = tuple(came[0] for _, came in copies), tuple(place for place, _ in copies)
        return [attrs.evolve(self, came=first, places=places), *again]

    def steps(self) -> list[Repeat]:
        """Return each of its copies with the one before it, as a repeat of its own: each may have another reason.

        Whoever put a later one did so because of what became of the one before.
        """
        first, *later = itertools.pairwise(sorted(self.came))
        places: list[tuple[tuple[str, int], ...]] = [*itertools.pairwise(self.places)] or [()] * (len(later) + 1)
        return [attrs.evolve(self, came=first, places=places[0])] + [
            attrs.evolve(self, due=two[0], came=two, places=stood) for two, stood in zip(later, places[1:], strict=True)
        ]

    @property
    def moments(self) -> tuple[float, ...]:
        """When it was due, and, where a clock of its group was stepped while it waited, when it came first.

        Who keeps it goes by its own clock, so it may come later than it was due by the others. Where that one was
        stepped when it stored the message, it is due by as much sooner or later.
        """
        stepped = any(
            met.kind in STEPS_CLOCK
            and met.host in self.hosts
            and met.begin <= self.due
            and self.due - self.longest_delay_seconds <= met.end
            for met in self.met
        )
        return (self.due, self.came[0], *self.by_clock) if self.delayed and stepped else (self.due,)

    def unlocked(self, lost: Met) -> bool:
        """Return whether locks were lost before it came again, while only the host of *lost* may have known its commit.

        At some time since it came there were too few members for a majority, or the master was away, and no name server
        was there to tell of a slave in its place. Who kept its locks until others could be told has told them.
        """
        told = lost.end + RETURN_SECONDS + COMMIT_SECONDS
        return self._outvoted(1, lambda moment, hosts: moment <= told) or self._leaderless(
            lambda master: master.begin <= told
        )

    def unlocked_beside(self, silent: Met) -> bool:
        """Return whether locks were lost before it came again although consumers reached the *silent* master.

        Another member was away as well, and no majority was left; or no name server was there to tell of a slave; or
        nobody could renew its lock, as the master is heard, and shown, until it falls silent because it hears nobody.
        """
        held = self.came[0], min(self.came[-1], silent.begin + LOCK_LIVES_SECONDS, silent.end)
        if silent.kind == "cut-in" and any(held[0] <= seconds <= held[1] + NOTICE_SECONDS for seconds in self.ran_out):
            return True
        return self._outvoted(2, lambda moment, hosts: silent.host in hosts) or self._leaderless(
            lambda master: master.host == silent.host and master.begin <= silent.end and silent.begin <= master.end
        )

    def _leaderless(self, counts: Callable[[Met], bool]) -> bool:
        """Return whether nobody was there to renew locks before it came again, after a loss that *counts*."""
        lost = [met for met in self.met if met.home is Home.MASTER and met.away and counts(met)]
        servers = [met for met in self.met if met.unserved]
        return any(
            self.came[0] - NOTICE_SECONDS <= max(master.end, server.end)
            and master.begin + LOCK_SECONDS <= self.came[-1]
            and server.begin <= master.begin + GROUP_TIMEOUT_SECONDS
            and master.begin <= server.end
            for master in lost
            for server in servers
        )

    def _outvoted(self, at_least: int, counts: Callable[[float, set[str]], bool]) -> bool:
        """Return whether no majority was left at a moment that *counts*, as are the hosts that were away.

        Args:
            at_least: so many must have been away.
            counts: called with a moment, and with the hosts that were away.
        """
        fewest = max(len(self.hosts) - len(self.hosts) // 2, at_least)
        away = [met for met in self.met if met.away and met.host in self.hosts]
        first, last = self.came[0], self.came[-1]
        for moment in (first, *(met.begin for met in away if first <= met.begin <= last)):
            hosts = {met.host for met in away if met.begin <= moment <= met.end + NOTICE_SECONDS}
            if len(hosts) >= fewest and counts(moment, hosts):
                return True
        return False

    def felt(self, lost: Met) -> float:
        """Return since when its host can have noticed *lost*: one that stands still when it begins cannot before.

        A machine that sleeps before the silence has lasted long enough to mean something does not count that time. A
        process that ends notices nothing.
        """
        if lost.kind in ENDS_PROCESS:
            return lost.begin
        asleep = [met for met in self.met if met.kind in STANDS_STILL and met.host == lost.host and met != lost]
        noticed = lost.begin + SLAVE_TIMEOUT_SECONDS
        slept = sum(
            met.end - met.begin for met in asleep if met.kind == "suspend" and lost.begin < met.begin <= noticed
        )
        return max(lost.begin + slept, *(met.end for met in asleep if met.begin <= lost.begin <= met.end), lost.begin)

    def met_elsewhere(self, lost: Met) -> bool:
        """Return whether another host met a fault near *lost*."""
        return any(met.host != lost.host and lost.near(met) for met in self.met)

    def escaped_to(self, lost: Met) -> bool:
        """Return whether it may have been on its way to another group's master at the host that *lost* met.

        Then a copy stands in that one's log, or it went elsewhere in one put with others: what is put together is done
        when the last of it is answered. Where the host is a member's as well, one copy is there and one is not.
        """
        groups = {group for group, _ in self.places}
        there, escaped = bool(groups & lost.masters), len(groups) > 1
        there = there or escaped or not groups if lost.home is Home.OTHER else there and escaped
        return there and any(met.home in (Home.MASTER, Home.SERVER) and met.begin <= lost.end for met in self.met)

    def quiet_since(self, lost: Met) -> float:
        """Return since when nobody can have learned anything from the host that *lost* met: it was silent before.

        One that is cut off from name servers is not: its slaves copy on until one of them acts.
        """
        silent = [met for met in self.met if met.kind in SILENT and met.host == lost.host]
        silent = [met for met in silent if met.kind != "cut-off-servers"]
        return min((met.begin for met in silent if met.begin <= lost.begin <= met.end), default=lost.begin)

    def unheard(self, lost: Met) -> bool:
        """Return whether the host that *lost* met was cut off from all name servers when that began."""
        return any(
            met.kind == "cut-off-servers" and met.host == lost.host and met.begin <= lost.begin <= met.end
            for met in self.met
        )

    def slowed(self, seconds: float) -> bool:
        """Return whether a link of its group was slow at *seconds*: copies came late."""
        return any(
            met.kind == "slow" and met.host in self.hosts and met.begin <= seconds <= met.end for met in self.met
        )

    def acting_since(self, lost: Met) -> float:
        """Return since when a slave may have acted when *lost* met it, or until it was over; infinity: none did.

        No slow link makes one act, nor does a name server's wall clock.
        """
        return min(
            (
                met.begin
                for met in self.met
                if met.home in (Home.MASTER, Home.SERVER)
                and met.kind != "slow"
                and not (met.home is Home.SERVER and met.kind in STEPS_CLOCK)
                and met.begin <= lost.end
                and lost.begin <= met.end + RETURN_SECONDS
            ),
            default=math.inf,
        )

    def untold_since(self, lost: Met) -> float:
        """Return since when nobody could be told of a commit when *lost* met the slave that acted; infinity: one could.

        Consumers could tell neither the master, which was away, nor that slave, which had just begun to act.
        """
        away = [met for met in self.met if met.home is Home.MASTER and met.away and met.kind != "cut-off-servers"]
        begins = [met.begin for met in away if met.begin <= lost.begin <= met.end]
        acted = [
            at for at, host in self.acted if host == lost.host and min(begins, default=math.inf) <= at <= lost.begin
        ]
        return min(begins) if acted and min(acted) >= lost.begin - COMMIT_SECONDS else math.inf

    def deaf_since(self, lost: Met) -> float:
        """Return since when a slave had learned nothing of the master when *lost* met that one; infinity: all had."""
        reach = SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS  # a question that was under way had to fail first
        return min(
            (
                met.begin
                for met in self.met
                if met.home is Home.SLAVE and met.kind in DEAF and met.begin <= lost.begin <= met.end + reach
            ),
            default=math.inf,
        )

    def alone_since(self, lost: Met) -> float:
        """Return since when the master had been away when *lost* took the only member that was not.

        Infinity when another member was there to learn from it, or when it was back before the master. That one is on
        its way back as long as it asks in turn the others, who do not answer.
        """
        since = math.inf
        longest = ASK_SECONDS * max(len(self.hosts) - 2, 0)

        def end(met: Met) -> float:
            return max(met.end, min(met.returned, met.end + longest)) if met.home is Home.MASTER else met.end

        for host in self.hosts - {lost.host}:
            away = [met for met in self.met if met.host == host and met.away and met.begin <= lost.begin]
            away = [
                met for met in away if lost.begin <= max(met.end + NOTICE_SECONDS, end(met)) and end(met) <= lost.end
            ]
            if not away:
                return math.inf
            since = min(since, *(met.begin if met.home is Home.MASTER else math.inf for met in away), math.inf)
        return since
