"""Which messages a failover may deliver twice: one table. Every other repeat is a violation.

A row says for which fault of whose host, and when the message must have been due, counted from the beginning of the
fault, or of the silence of that host that it ended; where a clock was stepped while it waited, when it came first
counts as well. What is in no row must not happen: progress is replicated within half a second, a returning master takes
over what its slaves know, and a broker that was away asks before it delivers.

What may be lost stands in :mod:`~understudy.testkit.drills.acting_losses`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from understudy.testkit.drills.acting_faults import DEAF, ENDS_PROCESS, SILENT
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.met_faults import (
    COMMIT_SECONDS,
    FLUSH_SECONDS,
    GROUP_TIMEOUT_SECONDS,
    NOTICE_SECONDS,
    SLAVE_TIMEOUT_SECONDS,
    SLOW_SECONDS,
    SYNC_SECONDS,
    Home,
    Met,
)
from understudy.testkit.history import Violation

ROUND_TRIP_SECONDS = 0.1
"""Longest time until a name server has answered who asks it at once."""


@attrs.frozen
class Allowance:
    """One row: repeats that are the price of availability, and its bound.

    Attributes:
        name: for the table of counts.
        why: what happens, for people.
        faults: kinds of faults.
        home: whose host must have met one.
        before, after: the message was due between so many seconds before the fault (below zero: after it began) and so
            many after its beginning.
        most: how often it may come at most.
        unflushed: only where the fault took bytes that had not been flushed, and another host met one near it: else the
            slaves give back what was lost, and know what was delivered.
        alone: only where it took the last member of the group; *before* then counts from when the master was away.
        acting: only where a slave may act at that time: the master or a name server had met a fault as well; *before*
            then counts from the later one. It counts as well when the message came first: a slave that begins to act
            delivers what fell due while nobody did, and one whose clock was set back is late by as much. For plain
            messages it counts from the master's one, if the slave had acted for less than a commit may take.
        deaf: only where a slave was away until then; *before* then counts from when it was.
        unserved: only where the fault took the last name server that was there.
        unknown: only where the slave that acted had not got the master's copy: it looks for that one in its log.
        late_copies: *before* is longer by as long as a slow link holds up a copy.
        commits: also a plain message that was consumed then, where locks were lost: its commit was known to the lost
            member only, and who has to lock again asks for the committed offset. *before* is longer by as long as it
            may take to commit.
        elsewhere: only where something may have escaped, for the master or a name server met a fault before it was
            over, and not all copies are in one log that is not the other group's master's, as far as it is known where
            they are; also a fault of a member's host that has such a master, if one copy is there and one is not.
        unheard: only where the master heard no name server when it began.
        delayed: also a delayed message that was due then; otherwise the master is there, and locks were lost because it
            was not the only one that is away.
    """

    name: str
    why: str
    faults: tuple[str, ...]
    home: Home
    before: float
    after: float
    most: int = 2
    unflushed: bool = False
    alone: bool = False
    acting: bool = False
    deaf: bool = False
    unserved: bool = False
    unknown: bool = False
    late_copies: bool = False
    commits: bool = False
    elsewhere: bool = False
    unheard: bool = False
    delayed: bool = True

    def covers(self, repeat: Repeat) -> bool:
        """Return whether *repeat* is one of these."""
        if len(repeat.came) > self.most or (self.unknown and repeat.delayed and repeat.recognizable):
            return False
        if not (self.delayed if repeat.delayed else self.commits):
            return False
        before = self.before if repeat.delayed else self.before + COMMIT_SECONDS
        if self.late_copies and repeat.slowed(repeat.came[0]):
            before += SLOW_SECONDS
        moments = (*repeat.moments, repeat.came[0]) if self.acting else repeat.moments
        return any(
            met.kind in self.faults
            and (repeat.escaped_to(met) if self.elsewhere else met.home is self.home)
            and not (self.unflushed and (met.flushed or not repeat.met_elsewhere(met)))
            and (met.unserved or not self.unserved)
            and (not self.unheard or repeat.unheard(met))
            and (repeat.delayed or (repeat.unlocked(met) if self.delayed else repeat.unlocked_beside(met)))
            and self._since(repeat, met) - before
            <= moment
            <= min(repeat.felt(met) + self._after(met), met.end + NOTICE_SECONDS)
            for met in repeat.met
            for moment in moments
        )

    def _after(self, met: Met) -> float:
        """Return for how long it still counts: who has ended does nothing more, what it put out is on its way."""
        ended = met.kind in self._ends and met.home is not Home.SERVER  # the master lives on without name servers
        return min(self.after, NOTICE_SECONDS) if ended else self.after

    @property
    def _ends(self) -> tuple[str, ...]:
        """Faults that end all of it; who puts something there waits for a machine without power as for a cut one."""
        return ("kill",) if self.elsewhere else ENDS_PROCESS

    def _since(self, repeat: Repeat, met: Met) -> float:
        if self.alone:
            return repeat.alone_since(met)
        if self.acting:
            later = max(repeat.acting_since(met), met.begin)
            return later if repeat.delayed else min(later, repeat.untold_since(met))
        return repeat.deaf_since(met) if self.deaf else repeat.quiet_since(met)


ALLOWED = (
    Allowance(
        "sudden death",
        "the master delivered it, or was told that it was consumed, and died before its slaves knew",
        ENDS_PROCESS,
        Home.MASTER,
        before=SYNC_SECONDS,
        after=0.0,
        unknown=True,
        commits=True,
    ),
    Allowance(
        "silence",
        "the master hears neither a name server nor every slave, and delivers until slaveTimeout",
        SILENT,
        Home.MASTER,
        before=SYNC_SECONDS,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        unknown=True,
    ),
    Allowance(
        "silent master",
        "consumers reach the master, its slaves do not: what is committed there is known to it alone",
        ("cut", "cut-in", "cut-out"),
        Home.MASTER,
        before=SYNC_SECONDS,
        after=math.inf,
        commits=True,
        delayed=False,
    ),
    Allowance(
        "both at once",
        "the master hears its slaves, but no name server, and delivers until it notices that one has begun to act",
        ("cut-off-servers",),
        Home.MASTER,
        before=NOTICE_SECONDS - GROUP_TIMEOUT_SECONDS,
        after=GROUP_TIMEOUT_SECONDS + 2 * NOTICE_SECONDS,
        unknown=True,
        late_copies=True,
    ),
    Allowance(
        "no copies either",
        "the master hears no name server when nothing is copied from it any more, and delivers until slaveTimeout",
        ("cut-copies",),
        Home.MASTER,
        before=0.0,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        unknown=True,
        late_copies=True,
        unheard=True,
    ),
    Allowance(
        "acting slave lost",
        "the slave that acts is cut off or dies; it delivers until slaveTimeout, and the next one cannot learn of it",
        (*SILENT, "cut-in", *ENDS_PROCESS),
        Home.SLAVE,
        before=SYNC_SECONDS,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        acting=True,
        commits=True,
    ),
    Allowance(
        "deaf slave",
        "the slave that acts had heard nothing of its master for a while when that one was lost, too",
        (*SILENT, "cut-in", *ENDS_PROCESS),
        Home.MASTER,
        before=SYNC_SECONDS,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        deaf=True,
        commits=True,
    ),
    Allowance(
        "slave shown first",
        "a slave is away when every name server is lost; the first one that is back shows it no master, and it acts",
        DEAF,
        Home.SERVER,
        before=SYNC_SECONDS,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        deaf=True,
        unserved=True,
    ),
    Allowance(
        "last member lost",
        "the slave acts with nobody there to copy from it, and is lost as well; the master comes back without it",
        (*SILENT, "cut-in", *ENDS_PROCESS),
        Home.SLAVE,
        before=SYNC_SECONDS,
        after=0.0,
        alone=True,
        commits=True,
    ),
    Allowance(
        "signed off",
        "something has signed the master off, and it delivers until its next look at its group",
        ("sign-off",),
        Home.MASTER,
        before=SYNC_SECONDS,
        after=2 * NOTICE_SECONDS,
        unknown=True,
    ),
    Allowance(
        "dropped",
        "the connections of a living master break, name servers drop it, and it delivers until they have answered it",
        ("reset",),
        Home.MASTER,
        before=0.0,
        after=ROUND_TRIP_SECONDS,
        unknown=True,
    ),
    Allowance(
        "escape unanswered",
        "what escaped to another group's master was not answered: it is put once more, and what was put with it",
        (*SILENT, *ENDS_PROCESS),
        Home.OTHER,
        before=GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS,
        after=GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS,
        elsewhere=True,
    ),
    Allowance(
        "disk stalled",
        "another group's master could not flush what escaped to it in the time that a put has: it is put once more, or "
        "the master that is back delivers it",
        ("stalled-disk",),
        Home.OTHER,
        before=GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS,
        after=math.inf,
        elsewhere=True,
    ),
    Allowance(
        "not flushed",
        "the master lost what ASYNC_FLUSH had not written yet, the copies of delayed messages and its progress too",
        ("power",),
        Home.MASTER,
        before=FLUSH_SECONDS,
        after=0.0,
        unflushed=True,
    ),
)


def allowed_table() -> str:
    """Return :data:`ALLOWED` as a table in Markdown; ``docs/failover.md`` holds it."""
    lines = ["| repeated | why | after which fault | when it was due, or came first |", "|---|---|---|---|"]
    for row in ALLOWED:
        faults = ", ".join(row.faults) + f" at the {row.home.value}'s host"
        if not row.delayed:
            faults += ", and one of the last name server, or of another member, so that no majority is left"
            faults += "; cut-in alone, if a lock ran out in it that no slave could renew"
        if row.acting:
            faults += ", after or during one at the host of the master or of a name server"
        if row.unserved:
            faults += ", when no other name server was there"
        if row.elsewhere:
            faults += ", with copies in two groups or there, after one at the host of the master or of a name server"
        if row.unheard:
            faults += ", during cut-off-servers at the same"
        if row.unflushed:
            faults += ", with `ASYNC_FLUSH`, and another host met a fault near it"
        if row.unknown:
            faults += ", unless the slave that acts has the master's copy in its log"
        begin = "the master was away" if row.alone else "the slave was deaf" if row.deaf else "the fault"
        begin = "the later fault" if row.acting else begin
        end = f"{row.after:g} s after the fault" if row.after else "the fault"
        end = "its end" if row.after == math.inf else end
        if NOTICE_SECONDS < row.after < math.inf and row.home is not Home.SERVER and set(row.faults) & set(row._ends):
            end += f" ({NOTICE_SECONDS:g} s after {', '.join(row._ends)})"
        before = f"{abs(row.before):g} s {'before' if row.before > 0 else 'after'} " if row.before else ""
        when = f"from {before}{begin} to {end}"
        if row.acting:
            when += ", or delivered late then"
        if row.late_copies:
            when += f"; from {SLOW_SECONDS:g} s earlier on a slow link"
        if not row.delayed:
            when = f"plain messages from {row.before + COMMIT_SECONDS:g} s before to its end if no lock can be renewed"
        elif row.commits:
            when += f"; plain messages from {row.before + COMMIT_SECONDS:g} s before, if locks were lost"
            if row.acting:
                when += f", and from so long before the earlier one, if it had acted for less than {COMMIT_SECONDS:g} s"
        lines.append(f"| {row.name} | {row.why} | {faults} | {when} |")
    return "\n".join(lines)


def judge(repeats: Iterable[Repeat]) -> tuple[Counter[str], list[Violation]]:
    """Return how many repeats each row of :data:`ALLOWED` explains, and a violation for each that none does.

    Mostly only delayed messages may be repeated: consumers keep their positions over a failover.
    """
    counts: Counter[str] = Counter()
    violations = []
    for repeat in repeats:
        rows = _rows(repeat)
        if rows:
            counts.update(rows)
            continue
        kind = "delayed message" if repeat.delayed else "message"
        came = ", ".join(f"{seconds:.2f}" for seconds in repeat.came)
        violations.append(Violation("repeated", f"{kind} {repeat.key}, due {repeat.due:.2f} s, came at {came} s"))
    return counts, violations


def _rows(repeat: Repeat) -> Counter[str]:
    """Return how many repeats of it each row explains; nothing: not all of them have one."""
    counts: Counter[str] = Counter()
    for part in repeat.parts():
        found = _explain([part]) or _chain(part)
        if not found:
            return Counter()
        counts += found
    return counts


def _chain(repeat: Repeat) -> Counter[str]:
    """Return how many repeats each row explains, if each copy has one for coming after the one before it."""
    counts = _explain(repeat.steps())
    return counts if set(counts.values()) <= {1} else Counter()  # nothing has the same consequence twice in a row


def _explain(parts: Sequence[Repeat]) -> Counter[str]:
    """Return how many repeats each row explains, if each of *parts* has one."""
    counts: Counter[str] = Counter()
    for part in parts:
        row = next((row for row in ALLOWED if row.covers(part)), None)
        if row is None:
            return Counter()
        counts[row.name] += len(part.came) - 1
    return counts


def explained(candidates: Sequence[Repeat]) -> Repeat:
    """Return the first of *candidates*, one repeat by each time it may have been due, that a row explains; else any."""
    return next((each for each in candidates if _rows(each)), candidates[0])
