"""What a member can say about elections, in the words an operator knows from the reference."""

from __future__ import annotations

import attrs

ROLE_NAMES = {0: "FOLLOWER", 1: "CANDIDATE", 2: "LEADER"}

ACCEPT = "ACCEPT"
ALREADY_VOTED = "REJECT_ALREADY_VOTED"
ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
NOT_VOTER = "REJECT_NOT_VOTER"


@attrs.define
class ElectionRound:
    """One attempt to lead, from the question whether it would succeed to its end.

    Args:
        term: the term asked for.
        started: monotonic seconds.
        last_index: end of the candidate's log.
        last_term: term of that entry.
        pre_votes: answer per member to "would you vote for me".
        votes: answer per member to the real request.
        outcome: running, won, lost (a leader or a newer term appeared), timed out, or why it was called off.
        forced: started because the leader handed over.
        attempt: how often votes for this term were asked for in a row, this time included.
    """

    term: int
    started: float
    last_index: int
    last_term: int
    pre_votes: dict[str, str] = attrs.field(factory=dict)
    votes: dict[str, str] = attrs.field(factory=dict)
    outcome: str = "running"
    forced: bool = False
    ended: float | None = None
    attempt: int = 1

    def describe(self, members: list[str]) -> str:
        """Return the round as one readable line."""

        def answers(given: dict[str, str]) -> str:
            return " ".join(f"{member}={given.get(member, 'no answer')}" for member in members)

        asked = "handover by the leader" if self.forced else f"pre-vote[{answers(self.pre_votes)}]"
        again = "" if self.attempt == 1 else f" attempt={self.attempt}"
        took = "" if self.ended is None else f" after {(self.ended - self.started) * 1000:.0f} ms"
        return (
            f"election round term={self.term} log=({self.last_index},{self.last_term}){again} {asked} "
            f"vote[{answers(self.votes)}] accepted={sum(v == ACCEPT for v in self.votes.values())}/{len(members)} "
            f"outcome={self.outcome}{took}"
        )


@attrs.frozen
class Event:
    """Something an observer may want to know.

    Args:
        at: monotonic seconds.
        member: who says it.
        kind: role, vote_answer, vote_result, pre_vote, voter, peer, commit_lost, snapshot, features.
        term: of *member* then.
        detail: what happened, readable.
        role: for kind role.
    """

    at: float
    member: str
    kind: str
    term: int
    detail: str
    role: str = ""


@attrs.frozen
class Facts:
    """One member's view, for tools and metrics."""

    member: str
    role: str
    term: int
    leader: str | None
    voted_for: str | None
    last_index: int
    last_term: int
    commit_index: int
    applied_index: int
    voter: bool
    ready: bool
    lease: bool
    connected: tuple[str, ...]
    match: dict[str, int]
    features: int
    next_election_in_seconds: float
    rounds: tuple[ElectionRound, ...]
    sync_count: int
    snapshot_index: int
    problem: str = ""

    def powerless(self) -> Facts:
        """Return the view of this member while it can neither lead nor vote."""
        return attrs.evolve(self, role="FOLLOWER", leader=None, ready=False, lease=False, match={})
