"""One member as a pure object: messages, links, proposals and time in; messages, results and events out.

Laws kept here, on top of the core's:

1. A message from outside the member list is nothing.
2. An acknowledgement counts only in the term it was given, within the log, and from a member that may vote.
3. One vote per member and term, on both sides. Entries that match are never cut. Two leaders in a term, or a conflict
   below the commit index, stop the member.
4. Nobody campaigns who a majority would not vote for (pre-vote), and nobody votes while a leader is heard (stickiness),
   unless that leader hands over.
5. A member on an empty disk votes only after every other disk is known to be empty too, or after it holds everything a
   leader had that a majority without it was following.
6. The owner syncs the journal after each turn and only then takes messages and results out. Entries of a leader whose
   term is durable may leave during that sync.

The parts: ``core`` is the algorithm; ``leading``, ``following``, ``candidacy`` and ``voting`` are what a member does as
a leader, with a leader's messages, to become one, and for others who want to.
"""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Any

from understudy.controller.raft import dialect, facts
from understudy.controller.raft.barriers import Result, Ticket
from understudy.controller.raft.candidacy import Candidacy
from understudy.controller.raft.core import CANDIDATE, FOLLOWER, LEADER, Core, Fate, Timing
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.facts import ROLE_NAMES, Event, Facts
from understudy.controller.raft.following import Following
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.leading import Leading
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    Handover,
    PeerMessage,
    PreVoteAnswer,
    PreVoteRequest,
    SnapshotChunk,
    SnapshotPending,
    TermNotice,
    Vote,
    VoteRefusal,
    VoteRequest,
)
from understudy.controller.raft.pinned import turn_clock
from understudy.controller.raft.sessions import ReplicatedState
from understudy.controller.raft.snapshot import SnapshotStore
from understudy.controller.raft.voting import Voting


class Consensus:
    """See the laws above.

    Args:
        member: own id.
        peers: ids of the others.
        journal: opened journal.
        snapshots: snapshot store over *state*.
        state: sessions and machine.
        timing: election timing.
        source: randomness for election timeouts.
        now: monotonic seconds.
        compaction_entries: the log is cut to a snapshot when it is longer.
    """

    def __init__(
        self,
        member: str,
        peers: list[str],
        journal: Journal,
        snapshots: SnapshotStore,
        state: ReplicatedState,
        timing: Timing,
        source: random.Random,
        now: float,
        compaction_entries: int = 5000,
    ) -> None:
        self.member = member
        self.peers = sorted(peers)
        self.members = sorted([member, *peers])
        self.journal = journal
        self.snapshots = snapshots
        self.state = state
        self.timing = timing
        self.now = turn_clock.now = now
        self.events: deque[Event] = deque(maxlen=2000)
        self.blank_disks: dict[str, bool] = {}
        self.features: dict[str, int] = {}
        self._random = source
        self._outbox: list[tuple[str, PeerMessage]] = []
        self._candidacy = Candidacy(member, len(self.members))
        self.core = Core(member, self.peers, journal, snapshots, timing, self, compaction_entries)
        self._leading = Leading(self.peers, self.core, journal, snapshots, timing)
        self._voting = Voting(self.core, journal, lambda: self._hears_leader(), self._outbox, self._emit)
        started = -math.inf if journal.is_blank else now
        self._following = Following(member, self.core, journal, snapshots, started, self._outbox, self._emit)
        if not peers and not journal.voter:
            journal.set_voter()

    # -- inputs --------------------------------------------------------------------------------------------------

    def at(self, now: float) -> None:
        """Set the time of this turn; call it before any other input."""
        self.now = turn_clock.now = now

    def connect(self, peer: str) -> None:
        """Messages to *peer* can be sent from now on."""
        self.core.outlet.connect(self.core.nodes[peer])

    def disconnect(self, peer: str) -> None:
        """Messages to *peer* would be lost from now on."""
        self.core.outlet.disconnect(self.core.nodes[peer])

    def welcomed(self, peer: str, blank_disk: bool, features: int) -> None:
        """*peer* accepted this member and said what its disk knows."""
        self.blank_disks[peer] = blank_disk
        self.features[peer] = features
        if not self.journal.voter and self.journal.is_blank and all(self.blank_disks.get(p, False) for p in self.peers):
            self.journal.set_voter()
            self._emit("voter", "every disk of the quorum is blank: this one founds it with the others")

    def step_down(self) -> None:
        """Lead no longer, in the same term: others may have elected somebody whom this member could not hear."""
        if self.core.role() == LEADER:
            self.core.step_down(self.core.term())

    def lost_entries(self, peer: str, last_index: int) -> int:
        """Return the index up to which *peer* had confirmed entries it no longer holds; 0 when it lost nothing."""
        return self._leading.lost_entries(peer, last_index)

    def forget(self, peer: str) -> bool:
        """Forget which disk *peer* has, and what it had confirmed; returns whether a disk was known."""
        known = peer in self.journal.peers
        self.journal.set_peer(peer, "")
        self.blank_disks.pop(peer, None)
        self._leading.forget(peer)
        return known

    def propose(self, command: bytes, ticket: Ticket) -> None:
        """Append *command* if this member leads; the ticket hears the result or why there is none."""
        self._leading.propose(command, ticket)

    def open_barrier(self, ticket: Ticket) -> None:
        """Answer *ticket* with an index once everything committed before now is applied and leadership was proved."""
        self._leading.open_barrier(ticket)

    def close_barrier(self, ticket: Ticket) -> None:
        """Nobody waits for *ticket* any longer."""
        self._leading.close_barrier(ticket)

    def hand_over(self, peer: str | None) -> str | None:
        """Ask *peer* (default: the one that is furthest) to lead. Returns what stands against it, or ``None``."""
        return self._leading.hand_over(peer)

    def compact(self) -> None:
        """Write a snapshot and cut the log at the next occasion."""
        self.core.forceLogCompaction()

    def tick(self) -> None:
        """Let the core act on everything received and on the time."""
        before = self.journal.last_index()
        self.core.doTick(0)
        self._leading.send_what_is_due(before)  # one round per turn, however many commands came

    # -- outputs -------------------------------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether another turn is useful at once."""
        core = self.core
        if self._following.installs():
            return True
        return (not self.peers and core.role() == LEADER and core.commit_index() < self.journal.last_index()) or (
            core.applied_index() < core.commit_index()
        )

    def take_outbox(self) -> list[tuple[str, PeerMessage]]:
        """Return the messages to send; call it only after the journal was synced."""
        outbox = self._outbox[:]
        self._outbox.clear()
        return outbox

    def take_appends(self) -> list[tuple[str, PeerMessage]]:
        """Return the messages that may be sent while the journal is being synced."""
        if not self._leading.may_send_before_sync(self._outbox):
            return []
        appends = [item for item in self._outbox if isinstance(item[1], Append)]
        if appends:
            self._outbox[:] = [item for item in self._outbox if not isinstance(item[1], Append)]
        return appends

    def take_results(self) -> list[Result]:
        """Return finished proposals and barriers; call it only after the journal was synced."""
        return self._leading.take_results()

    def next_deadline(self) -> float:
        """Return when the next turn is due even if nothing arrives (monotonic seconds)."""
        if self.core.role() == LEADER:
            return min(self.core.next_round_at(), self.now + self.timing.heartbeat_seconds) + 1e-4
        deadline = self.core.election_deadline()
        if deadline <= self.now:
            if not self.journal.voter:
                return self.now + self.timing.election_min_seconds
            deadline = self._candidacy.asks_until() or self.now
        return max(deadline, self.now + 0.001) + 1e-4

    def leads(self) -> bool:
        """Whether this member leads and everything of earlier terms is applied."""
        return self._leading.ready()

    def facts(self, now: float, problem: str = "") -> Facts:
        """Return this member's view at *now* (monotonic seconds)."""
        core, journal = self.core, self.journal
        last_index, last_term = journal.end()
        return Facts(
            member=self.member,
            role=ROLE_NAMES[core.role()],
            term=core.term(),
            leader=core.leader(),
            voted_for=journal.voted_for,
            last_index=last_index,
            last_term=last_term,
            commit_index=core.commit_index(),
            applied_index=core.applied_index(),
            voter=journal.voter,
            ready=self.leads(),
            lease=self._leading.lease_valid(now),
            connected=tuple(sorted(core.outlet.connected)),
            match={peer: core.match_index(peer) for peer in self.peers} if core.role() == LEADER else {},
            features=self.state.features,
            next_election_in_seconds=max(0.0, core.election_deadline() - now),
            rounds=tuple(self._candidacy.rounds),
            sync_count=journal.sync_count,
            snapshot_index=self.snapshots.index,
            problem=problem,
        )

    def _emit(self, kind: str, detail: str, role: str = "") -> None:
        self.events.append(Event(self.now, self.member, kind, self.core.term(), detail, role))

    # -- what the core asks (see CoreOwner) ----------------------------------------------------------------------

    def draw_election_timeout(self) -> float:
        low, high = self.timing.election_min_seconds, self.timing.election_max_seconds
        return low + (high - low) * self._random.random()

    def apply_command(self, index: int, payload: bytes) -> Any:
        return self.state.apply(index, payload)

    def on_result(self, ticket: Ticket, result: Any, fate: Fate) -> None:
        self._leading.decided(ticket, result, fate)

    def may_campaign(self) -> bool:
        if not self.journal.voter:
            return False
        term, log_end = self.core.term() + 1, self.journal.end()
        if self.core.handover_pending():
            self._candidacy.stand_forced(term, self.now, log_end)
            return True
        if self._candidacy.must_ask(term, self.now):
            self._candidacy.ask(term, self.now, log_end, self.now + self.draw_election_timeout())
            self._emit("pre_vote", f"asking for votes in term {term}")
            for peer in self.peers:
                if peer in self.core.outlet.connected:
                    self._outbox.append((peer, PreVoteRequest(term, *log_end)))
        return self._candidacy.stand()

    def on_role(self, old: int, new: int) -> None:
        if new != CANDIDATE:
            election = self._candidacy.end(new == LEADER, self.now)
            if election is not None:
                self._emit("round", election.describe(self.members))
        if new == FOLLOWER:
            self._leading.end()
        last_index, last_term = self.journal.end()
        detail = f"{ROLE_NAMES[old]} -> {ROLE_NAMES[new]} log=({last_index},{last_term})"
        self._emit("role", detail, ROLE_NAMES[new])

    def on_term(self, term: int, voted_for: str | None) -> None:
        if voted_for is not None and not self.journal.voter:
            raise FatalError("a member without a vote was about to vote")
        if voted_for == self.member:
            self._candidacy.voted_for_itself(term)

    def on_leader(self) -> None:
        self._leading.begin()

    def on_round(self) -> None:
        self._leading.new_round(self.now)

    def send(self, peer: str, message: dict[str, Any]) -> None:
        kind = message["type"]
        out: PeerMessage
        if kind == "append_entries":
            whole = "prevLogIdx" in message
            out = self._leading.entries_for(peer, message, self.now) if whole else self._leading.snapshot_part(message)
        elif kind == "next_node_idx":
            out = dialect.acknowledgement_of(message, self.core.term(), self._following.echo, self.journal.voter)
        elif kind == "request_vote":
            out = dialect.vote_request_of(message, self._candidacy.is_forced(message["term"]))
        elif kind == "response_vote":
            out = Vote(message["term"])
        elif kind == "timeout_now":
            out = Handover(message["term"])
        else:
            raise FatalError(f"the core wants to send {kind}, which members of this quorum never do")
        self._outbox.append((peer, out))

    # -- messages ------------------------------------------------------------------------------------------------

    def installs(self) -> bool:
        """Whether a received snapshot becomes durable in this turn; no more messages may be taken in it."""
        return self._following.installs()

    def finish_install(self) -> bool:
        """Take over the snapshot that the last turn made durable, if any; the first input of a turn."""
        return self._following.finish_install()

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take one message of member *peer*. Raises :class:`FatalError` when going on would be unsafe."""
        if peer not in self.core.nodes:
            return
        if isinstance(message, Append | SnapshotChunk | SnapshotPending):
            self._on_leader_message(peer, message)
        elif isinstance(message, Acknowledgement):
            self._yield_to(message.term)
            self._leading.on_acknowledgement(peer, message)
        elif isinstance(message, PreVoteRequest):
            self._voting.on_question(peer, message)
        elif isinstance(message, PreVoteAnswer):
            self._yield_to(message.voter_term)
            self._candidacy.answered(peer, message.term, facts.ACCEPT if message.granted else message.reason)
        elif isinstance(message, VoteRequest):
            self._voting.on_request(peer, message)
        elif isinstance(message, Vote):
            self._on_vote(peer, message.term, facts.ACCEPT)
        elif isinstance(message, VoteRefusal):
            self._on_vote(peer, message.term, message.reason)
            self._yield_to(message.voter_term)
        elif isinstance(message, TermNotice):
            self._yield_to(message.term)
        elif self.journal.voter:
            self.core.hear(peer, dialect.stand_now(message.term))

    def _yield_to(self, term: int) -> None:
        if term > self.core.term():
            self.core.step_down(term)

    def _on_leader_message(self, peer: str, message: Append | SnapshotChunk | SnapshotPending) -> None:
        following = self._following
        if not following.accept(peer, message, self.now):
            return
        self._candidacy.call_off(self.now)
        if isinstance(message, Append):
            following.on_append(peer, message)
            following.maybe_join(message)
        elif isinstance(message, SnapshotChunk):
            following.on_chunk(peer, message)
        else:
            following.on_pending(peer, message)

    def _on_vote(self, peer: str, term: int, answer: str) -> None:
        if term != self.core.term() or not self._candidacy.count(peer, term, answer):
            return
        self._emit("vote_result", f"from {peer} for term {term}: {answer}")
        if answer == facts.ACCEPT:
            self.core.hear(peer, dialect.vote_given(term))

    def _hears_leader(self) -> bool:
        if self.core.role() == LEADER:
            return self._leading.lease_valid(self.now)
        return self._following.hears_leader(self.now, self.timing.election_min_seconds)
