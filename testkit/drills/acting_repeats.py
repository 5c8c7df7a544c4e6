"""Which messages a failover may deliver twice: one table. Every other repeat is a violation.

A row says for which fault of whose host, and when the message must have been due, counted from the beginning of the
fault. What is in no row must not happen: progress is replicated within half a second, a returning master takes over
what its slaves know, and a broker that was away asks before it delivers.

What may be lost stands in :mod:`~understudy.testkit.drills.acting_losses`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

import attrs

from understudy.testkit.drills.acting_faults import DEAF, ENDS_PROCESS, SILENT, SLOW
from understudy.testkit.history import Violation

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
    """

    kind: str
    home: Home
    begin: float
    end: float
    flushed: bool = True
    host: str = ""
    unserved: bool = False

    @property
    def away(self) -> bool:
        """Whether the host said nothing as long as it lasted, or heard nothing and so fell silent itself."""
        return self.kind in (*SILENT, *DEAF)

    def near(self, other: Met) -> bool:
        """Return whether *other* may still have, or already have, been felt while this one lasted."""
        return other.begin - NEAR_SECONDS <= self.end and self.begin <= other.end + NEAR_SECONDS

    def took(self, seconds: float) -> bool:
        """Return whether bytes written at *seconds* may be gone with the power."""
        return self.kind == "power" and not self.flushed and self.begin - FLUSH_SECONDS <= seconds <= self.begin


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
    """

    key: str
    delayed: bool
    due: float
    came: tuple[float, ...]
    met: tuple[Met, ...]
    hosts: frozenset[str] = frozenset()
    recognizable: bool = False

    @property
    def unlocked(self) -> bool:
        """Whether locks were lost before it came again: at some time since it came, too few members for a majority."""
        away = [met for met in self.met if met.away and met.host in self.hosts]
        first, last = self.came[0], self.came[-1]
        moments = [first, *(met.begin for met in away if first <= met.begin <= last)]
        return any(
            len({met.host for met in away if met.begin <= moment <= met.end + NOTICE_SECONDS})
            >= len(self.hosts) - len(self.hosts) // 2
            for moment in moments
        )

    def slowed(self, seconds: float) -> bool:
        """Return whether a link of its group was slow at *seconds*: copies came late."""
        return any(
            met.kind == "slow" and met.host in self.hosts and met.begin <= seconds <= met.end for met in self.met
        )

    def acting_since(self, lost: Met) -> float:
        """Return since when a slave may have acted when *lost* met it, or until it was over; infinity: none did."""
        return min(
            (
                met.begin
                for met in self.met
                if met.home in (Home.MASTER, Home.SERVER)
                and met.begin <= lost.end
                and lost.begin <= met.end + RETURN_SECONDS
            ),
            default=math.inf,
        )

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

        Infinity when another member was there to learn from it, or when it was back before the master.
        """
        since = math.inf
        for host in self.hosts - {lost.host}:
            away = [met for met in self.met if met.host == host and met.away and met.begin <= lost.begin]
            away = [met for met in away if lost.begin <= met.end + NOTICE_SECONDS and met.end <= lost.end]
            if not away:
                return math.inf
            since = min(since, *(met.begin if met.home is Home.MASTER else math.inf for met in away), math.inf)
        return since


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
        unflushed: only where the fault took bytes that had not been flushed.
        alone: only where it took the last member of the group; *before* then counts from when the master was away.
        acting: only where a slave may act at that time: the master or a name server had met a fault as well; *before*
            then counts from the later one. It counts as well when the message came first: a slave that begins to act
            delivers what fell due while nobody did, and one whose clock was set back is late by as much.
        deaf: only where a slave was away until then; *before* then counts from when it was.
        unserved: only where the fault took the last name server that was there.
        unknown: only where the slave that acted had not got the master's copy: it looks for that one in its log.
        late_copies: *before* is longer by as long as a slow link holds up a copy.
        commits: also a plain message that was consumed then, where so many members were away that locks were lost: its
            commit was known to the lost member only, and who has to lock again asks for the committed offset.
            *before* is longer by as long as it may take to commit.
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

    def covers(self, repeat: Repeat) -> bool:
        """Return whether *repeat* is one of these."""
        if len(repeat.came) > self.most or (self.unknown and repeat.delayed and repeat.recognizable):
            return False
        if not (repeat.delayed or (self.commits and repeat.unlocked)):
            return False
        before = self.before if repeat.delayed else self.before + COMMIT_SECONDS
        if self.late_copies and repeat.slowed(repeat.came[0]):
            before += SLOW_SECONDS
        moments = (repeat.due, repeat.came[0]) if self.acting else (repeat.due,)
        return any(
            met.kind in self.faults
            and met.home is self.home
            and not (self.unflushed and met.flushed)
            and (met.unserved or not self.unserved)
            and self._since(repeat, met) - before <= moment <= min(met.begin + self.after, met.end + NOTICE_SECONDS)
            for met in repeat.met
            for moment in moments
        )

    def _since(self, repeat: Repeat, met: Met) -> float:
        if self.alone:
            return repeat.alone_since(met)
        if self.acting:
            return max(repeat.acting_since(met), met.begin)
        return repeat.deaf_since(met) if self.deaf else met.begin


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
        "acting slave lost",
        "the slave that acts is cut off or dies; it delivers until slaveTimeout, and the next one cannot learn of it",
        (*SILENT, "cut-in", *ENDS_PROCESS),
        Home.SLAVE,
        before=SYNC_SECONDS,
        after=SLAVE_TIMEOUT_SECONDS + NOTICE_SECONDS,
        acting=True,
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
        (*SILENT, *ENDS_PROCESS),
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
        "escape unanswered",
        "what escaped to another group's master was stored there, and the answer was lost: it is put once more",
        (*SILENT, *ENDS_PROCESS),
        Home.OTHER,
        before=GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS,
        after=GROUP_TIMEOUT_SECONDS + NOTICE_SECONDS,
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
        if row.acting:
            faults += ", after or during one at the host of the master or of a name server"
        if row.unserved:
            faults += ", when no other name server was there"
        if row.unflushed:
            faults += ", with `ASYNC_FLUSH`"
        if row.unknown:
            faults += ", unless the slave that acts has the master's copy in its log"
        begin = "the master was away" if row.alone else "the slave was deaf" if row.deaf else "the fault"
        begin = "the later fault" if row.acting else begin
        end = f"{row.after:g} s after the fault" if row.after else "the fault"
        when = f"from {abs(row.before):g} s {'before' if row.before > 0 else 'after'} {begin} to {end}"
        if row.acting:
            when += ", or delivered late then"
        if row.late_copies:
            when += f"; from {SLOW_SECONDS:g} s earlier on a slow link"
        if row.commits:
            when += f"; plain messages from {row.before + COMMIT_SECONDS:g} s before, if locks were lost"
        lines.append(f"| {row.name} | {row.why} | {faults} | {when} |")
    return "\n".join(lines)


def judge(repeats: Iterable[Repeat]) -> tuple[Counter[str], list[Violation]]:
    """Return how many repeats each row of :data:`ALLOWED` explains, and a violation for each that none does.

    Mostly only delayed messages may be repeated: consumers keep their positions over a failover.
    """
    counts: Counter[str] = Counter()
    violations = []
    for repeat in repeats:
        row = next((row for row in ALLOWED if row.covers(repeat)), None)
        if row is not None:
            counts[row.name] += len(repeat.came) - 1
            continue
        kind = "delayed message" if repeat.delayed else "message"
        came = ", ".join(f"{seconds:.2f}" for seconds in repeat.came)
        violations.append(Violation("repeated", f"{kind} {repeat.key}, due {repeat.due:.2f} s, came at {came} s"))
    return counts, violations


def explained(candidates: Sequence[Repeat]) -> Repeat:
    """Return the first of *candidates*, one repeat by each time it may have been due, that a row explains; else any."""
    return next((each for each in candidates if any(row.covers(each) for row in ALLOWED)), candidates[0])


def with_unserved(met: Sequence[Met], servers: Iterable[str]) -> tuple[Met, ...]:
    """Return *met*, each fault marked with which the last of *servers* (hosts) was lost: nobody shows a master then."""
    lost = [each for each in met if each.home is Home.SERVER and each.kind in DEAF]
    wanted = set(servers)

    def unserved(last: Met) -> bool:
        return last in lost and wanted <= {
            each.host for each in lost if each.begin <= last.begin <= each.end + NOTICE_SECONDS
        }

    return tuple(attrs.evolve(each, unserved=unserved(each)) for each in met)
