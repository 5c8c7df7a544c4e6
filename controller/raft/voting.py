"""What a member answers to those who stand for election, with the reason of each refusal."""

from __future__ import annotations

from collections.abc import Callable

from understudy.controller.raft import dialect, facts
from understudy.controller.raft.core import Core
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.messages import (
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    Vote,
    VoteRefusal,
    VoteRequest,
)


class Voting:
    """One member's votes.

    Args:
        core: the algorithm, which keeps one vote per term.
        journal: its log; says whether this member may vote.
        hears_leader: whether a leader is heard now: then nobody else is voted for, unless that leader hands over.
        outbox: where answers go.
        emit: tells observers of an event: kind and detail.
    """

    def __init__(
        self,
        core: Core,
        journal: Journal,
        hears_leader: Callable[[], bool],
        outbox: list[tuple[str, PeerMessage]],
        emit: Callable[[str, str], None],
    ) -> None:
        self._core = core
        self._journal = journal
        self._hears_leader = hears_leader
        self._outbox = outbox
        self._emit = emit

    def on_question(self, peer: str, message: PreVoteRequest) -> None:
        """Say whether *peer* would get a vote; promises nothing and changes nothing."""
        term = self._core.term()
        reason = self._log_judgement(message.last_index, message.last_term)
        if message.term <= term:
            reason = facts.EXPIRED_VOTE_TERM
        elif self._hears_leader():
            reason = facts.ALREADY_HAS_LEADER
        elif not self._journal.voter:
            reason = facts.NOT_VOTER
        self._outbox.append((peer, PreVoteAnswer(message.term, term, reason == facts.ACCEPT, reason)))

    def on_request(self, peer: str, message: VoteRequest) -> None:
        """Vote for *peer*, or refuse with the reason."""
        refused = self._refusal(peer, message)
        self._emit("vote_answer", f"to {peer} for term {message.term}: {refused or facts.ACCEPT}")
        if refused:
            answer = VoteRefusal(message.term, self._core.term(), refused, *self._journal.end())
            self._outbox.append((peer, answer))

    def _refusal(self, peer: str, message: VoteRequest) -> str:
        if not self._journal.voter:
            return facts.NOT_VOTER
        if message.term < self._core.term():
            return facts.EXPIRED_VOTE_TERM
        if self._hears_leader() and not message.forced:
            return facts.ALREADY_HAS_LEADER
        before = len(self._outbox)
        self._core.hear(peer, dialect.vote_wanted(message))
        if any(to == peer and isinstance(sent, Vote) for to, sent in self._outbox[before:]):
            return ""
        reason = self._log_judgement(message.last_index, message.last_term)
        return facts.ALREADY_VOTED if reason == facts.ACCEPT else reason

    def _log_judgement(self, index: int, term: int) -> str:
        """Say whether a log that ends with entry *index* of *term* holds everything that may be committed here."""
        own_index, own_term = self._journal.end()
        if (term, index) >= (own_term, own_index):
            return facts.ACCEPT
        return facts.EXPIRED_LEDGER_TERM if term < own_term else facts.SMALL_LEDGER_END_INDEX
