"""A member's own attempts to lead: first the question who would vote for it, then the vote.

A round begins with a pre-vote, which changes nothing anywhere: a member cut off from the others asks in vain and burns
no term. Only when a majority would vote does the core stand for election. A leader that hands over skips the question.
"""

from __future__ import annotations

import math
from collections import deque

from understudy.controller.raft import facts
from understudy.controller.raft.facts import ElectionRound
from understudy.controller.raft.followers import is_majority

KEPT_ROUNDS = 32


class Candidacy:
    """Rounds of one member.

    Args:
        member: own id.
        members: size of the quorum.
    """

    def __init__(self, member: str, members: int) -> None:
        self.rounds: deque[ElectionRound] = deque(maxlen=KEPT_ROUNDS)
        self._member = member
        self._members = members
        self._asked: ElectionRound | None = None
        self._asked_until = -math.inf
        self._election: ElectionRound | None = None
        self._forced_term = -1

    # -- the question --------------------------------------------------------------------------------------------

    def must_ask(self, term: int, now: float) -> bool:
        """Whether no question for *term* is under way at *now* (monotonic seconds)."""
        asked = self._asked
        return asked is None or asked.term != term or now >= self._asked_until

    def ask(self, term: int, now: float, log_end: tuple[int, int], until: float) -> None:
        """Begin a round that asks who would vote.

        Args:
            term: for which votes would be asked.
            now, until: monotonic seconds of the beginning, and after which answers count no more.
            log_end: index and term of this member's last entry.
        """
        former = self._asked
        self._asked, self._asked_until = ElectionRound(term, now, *log_end), until
        if former is not None:
            former.outcome, former.ended = "no majority would vote", now
            if former.term == term and self.rounds[-1] is former:
                # a member that is cut off asks in vain for days: that must not push out the elections before
                self._asked.attempt = former.attempt + 1
                self.rounds.pop()
        self._asked.pre_votes[self._member] = facts.ACCEPT
        self._keep(self._asked)

    def answered(self, peer: str, term: int, answer: str) -> None:
        """*peer* answers the question for *term*."""
        if self._asked is not None and self._asked.term == term:
            self._asked.pre_votes[peer] = answer

    def stand(self) -> bool:
        """Go on to the vote if a majority would vote for this member."""
        asked = self._asked
        if asked is None or not is_majority(
            sum(answer == facts.ACCEPT for answer in asked.pre_votes.values()), self._members
        ):
            return False
        self._asked, self._election = None, asked
        return True

    def call_off(self, now: float) -> None:
        """A leader is heard: the question is pointless."""
        if self._asked is not None:
            self._asked.outcome, self._asked.ended = "called off, a leader is heard", now
            self._asked = None

    def asks_until(self) -> float | None:
        """Return when the present question is given up, or ``None`` when there is none."""
        return None if self._asked is None else self._asked_until

    # -- the vote ------------------------------------------------------------------------------------------------

    def stand_forced(self, term: int, now: float, log_end: tuple[int, int]) -> None:
        """The leader hands over: stand in *term* without asking first."""
        self._forced_term = term
        self._election = ElectionRound(term, now, *log_end, forced=True)
        self._keep(self._election)

    def is_forced(self, term: int) -> bool:
        """Whether the leader itself wanted the election of *term*."""
        return term == self._forced_term

    def voted_for_itself(self, term: int) -> None:
        """The core has begun the election of *term*."""
        if self._election is not None:
            self._election.term = term
            self._election.votes = {self._member: facts.ACCEPT}

    def count(self, peer: str, term: int, answer: str) -> bool:
        """Note the vote of *peer* in *term*; returns whether it is the first one that counts there."""
        election = self._election
        if election is None or election.term != term or peer in election.votes:
            return False
        election.votes[peer] = answer
        return True

    def end(self, won: bool, now: float) -> ElectionRound | None:
        """The election is decided; returns the round if there was one."""
        election, self._election = self._election, None
        if election is not None:
            election.outcome, election.ended = "won" if won else "lost", now
        return election

    def _keep(self, round_: ElectionRound) -> None:
        if self.rounds and self.rounds[-1].outcome == "running":
            self.rounds[-1].outcome, self.rounds[-1].ended = "timed out", round_.started
        self.rounds.append(round_)
