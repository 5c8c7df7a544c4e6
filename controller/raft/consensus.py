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
"""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Any, Protocol

import attrs

from understudy.controller.raft import facts
from understudy.controller.raft.core import CANDIDATE, FOLLOWER, LEADER, Core, Fate, Timing
from understudy.controller.raft.errors import FatalError, NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.facts import ROLE_NAMES, ElectionRound, Event, Facts
from understudy.controller.raft.journal import Journal
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
from understudy.controller.raft.pinned import FailReason, turn_clock
from understudy.controller.raft.sessions import ReplicatedState
from understudy.controller.raft.snapshot import SnapshotAssembly, SnapshotStore

MAX_COMMAND_BYTES = 60_000
"""Below the core's batch size: longer commands would take a chunked path that has a known fault."""

KEPT_ROUNDS = 32


class Ticket(Protocol):
    """A proposal or barrier whose answer will come."""

    def deliver(self, value: Any, error: Exception | None) -> None:
        """Called once, after the answer is durable."""
        ...


@attrs.define(eq=False)
class _Barrier:
    ticket: Ticket
    term: int
    round: int | None = None
    index: int | None = None


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
        self.outbox: list[tuple[str, PeerMessage]] = []
        self.results: list[tuple[Ticket, Any, Exception | None]] = []
        self.events: deque[Event] = deque(maxlen=2000)
        self.rounds: deque[ElectionRound] = deque(maxlen=KEPT_ROUNDS)
        self.virgins: dict[str, bool] = {}
        self.features: dict[str, int] = {}
        self._random = source
        self._round = 0
        self._echo = 0
        self._round_sent: deque[tuple[int, float]] = deque(maxlen=4096)
        self._acknowledged: dict[str, int] = {}
        self._acknowledged_at: dict[str, float] = {}
        self._voters: set[str] = set()
        self._pre_vote: ElectionRound | None = None
        self._pre_vote_until = -math.inf
        self._election: ElectionRound | None = None
        self._started = self._leader_heard = -math.inf if journal.virgin else now
        self._join_target: tuple[int, int] | None = None
        self._forced_term = -1
        self._handed_over = False
        self._assembly = SnapshotAssembly()
        self._barriers: list[_Barrier] = []
        self.core = Core(member, self.peers, journal, snapshots, timing, self, compaction_entries)
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

    def welcomed(self, peer: str, virgin: bool, features: int) -> None:
        """*peer* accepted this member and said what its disk knows."""
        self.virgins[peer] = virgin
        self.features[peer] = features
        if not self.journal.voter and self.journal.virgin and all(self.virgins.get(p, False) for p in self.peers):
            self.journal.set_voter()
            self._emit("voter", "every disk of the quorum is empty: this one founds it with the others")

    def lost_entries(self, peer: str, last_index: int) -> int:
        """Return the index up to which *peer* had confirmed entries it no longer holds; 0 when it lost nothing."""
        if self.core.role() != LEADER:
            return 0
        match = self.core.match_index(peer)
        return match if last_index < match else 0

    def forget(self, peer: str) -> bool:
        """Forget which disk *peer* has, and what it had confirmed; returns whether a disk was known."""
        known = peer in self.journal.peers
        self.journal.set_peer(peer, "")
        self.virgins.pop(peer, None)
        self._voters.discard(peer)
        self._acknowledged.pop(peer, None)
        self._acknowledged_at.pop(peer, None)
        if self.core.role() == LEADER:
            self.core.forget_match(peer)
        return known

    def propose(self, command: bytes, ticket: Ticket) -> None:
        """Append *command* if this member leads; the ticket hears the result or why there is none."""
        if self.core.role() != LEADER:
            raise NotLeaderError(self.core.leader())
        if len(command) > MAX_COMMAND_BYTES:
            raise ValueError(f"command of {len(command)} bytes; at most {MAX_COMMAND_BYTES} are accepted")
        self.core.propose(command, ticket)

    def open_barrier(self, ticket: Ticket) -> None:
        """Answer *ticket* with an index once everything committed before now is applied and leadership was proved."""
        if self.core.role() != LEADER:
            raise NotLeaderError(self.core.leader())
        self._barriers.append(_Barrier(ticket, self.core.term(), None if self.peers else 0))

    def close_barrier(self, ticket: Ticket) -> None:
        """Nobody waits for *ticket* any longer."""
        self._barriers = [barrier for barrier in self._barriers if barrier.ticket is not ticket]

    def hand_over(self, peer: str | None) -> str | None:
        """Ask *peer* (default: the one that is furthest) to lead. Returns what stands against it, or ``None``."""
        answers: list[Any] = []
        node = None if peer is None else self.core.nodes.get(peer)
        if peer is not None and node is None:
            return f"{peer} is no member"
        self.core.transferLeadership(node, lambda _result, reason: answers.append(reason))
        if answers and answers[0] == FailReason.SUCCESS:
            self._handed_over = True
            return None
        if answers and answers[0] == FailReason.NOT_LEADER:
            return "this member does not lead"
        return "the target is not connected or does not hold the whole log yet"

    def compact(self) -> None:
        """Write a snapshot and cut the log at the next occasion."""
        self.core.forceLogCompaction()

    def tick(self) -> None:
        """Let the core act on everything received and on the time."""
        before = self.journal.last_index()
        self.core.doTick(0)
        if self.core.role() == LEADER and self.peers:
            waiting = [barrier for barrier in self._barriers if barrier.round is None]
            if self.journal.last_index() > before or waiting:
                self.core.send_round()  # one round per turn, however many commands came
                for barrier in waiting:
                    barrier.round = self._round

    # -- outputs -------------------------------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether another turn is useful at once."""
        core = self.core
        return (not self.peers and core.role() == LEADER and core.commit_index() < self.journal.last_index()) or (
            core.applied_index() < core.commit_index()
        )

    def take_outbox(self) -> list[tuple[str, PeerMessage]]:
        """Return the messages to send; call it only after the journal was synced."""
        outbox, self.outbox = self.outbox, []
        return outbox

    def take_appends(self) -> list[tuple[str, PeerMessage]]:
        """Return entries that may be sent while the journal is being synced, so that all disks work at the same time.

        Only a leader whose term is durable may: it never leads this term again should it lose those entries, and it
        counts itself among those that hold them in the next turn, after the sync.
        """
        if self.core.role() != LEADER or self.journal.synced_term != self.core.term():
            return []
        if any(isinstance(message, SnapshotChunk) for _, message in self.outbox):
            return []  # entries that follow a snapshot must not overtake it
        appends = [item for item in self.outbox if isinstance(item[1], Append)]
        if appends:
            self.outbox = [item for item in self.outbox if not isinstance(item[1], Append)]
        return appends

    def take_results(self) -> list[tuple[Ticket, Any, Exception | None]]:
        """Return finished proposals and barriers; call it only after the journal was synced."""
        self._settle_barriers()
        results, self.results = self.results, []
        return results

    def next_deadline(self) -> float:
        """Return when the next turn is due even if nothing arrives (monotonic seconds)."""
        if self.core.role() == LEADER:
            return min(self.core.next_round_at(), self.now + self.timing.heartbeat_seconds) + 1e-4
        deadline = self.core.election_deadline()
        if deadline <= self.now:
            if not self.journal.voter:
                return self.now + self.timing.election_min_seconds
            deadline = self._pre_vote_until if self._pre_vote is not None else self.now
        return max(deadline, self.now + 0.001) + 1e-4

    def leads(self) -> bool:
        """Whether this member leads and everything of earlier terms is applied."""
        core = self.core
        return core.role() == LEADER and core.applied_index() >= core.no_op_index() > 0

    def lease_valid(self, now: float) -> bool:
        """Whether a majority followed a round sent less than an election timeout before *now*: a gauge, no proof."""
        if self.core.role() != LEADER or self._handed_over:
            return False
        return self._followed_since(now - 0.9 * self.timing.election_min_seconds, without=None)

    def facts(self, now: float, problem: str = "") -> Facts:
        """Return this member's view at *now* (monotonic seconds)."""
        core, journal = self.core, self.journal
        last = journal.entries[-1]
        return Facts(
            member=self.member,
            role=ROLE_NAMES[core.role()],
            term=core.term(),
            leader=core.leader(),
            voted_for=journal.voted_for,
            last_index=last[1],
            last_term=last[2],
            commit_index=core.commit_index(),
            applied_index=core.applied_index(),
            voter=journal.voter,
            ready=self.leads(),
            lease=self.lease_valid(now),
            connected=tuple(sorted(core.outlet.connected)),
            match={peer: core.match_index(peer) for peer in self.peers} if core.role() == LEADER else {},
            features=self.state.features,
            next_election_in_seconds=max(0.0, core.election_deadline() - now),
            rounds=tuple(self.rounds),
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
        # runs inside the core: only take notes
        if fate is Fate.APPLIED:
            self.results.append((ticket, result, None))
        elif fate is Fate.NEVER_APPENDED:
            self.results.append((ticket, None, NotLeaderError(None)))
        else:
            self.results.append((ticket, None, OutcomeUnknownError("leadership changed while it was replicated")))

    def may_campaign(self) -> bool:
        if not self.journal.voter:
            return False
        last_index, last_term = self._log_end()
        if self.core.handover_pending():
            self._forced_term = self.core.term() + 1
            self._begin_election(ElectionRound(self._forced_term, self.now, last_index, last_term, forced=True))
            return True
        asked = self._pre_vote
        if asked is None or asked.term != self.core.term() + 1 or self.now >= self._pre_vote_until:
            if asked is not None:
                asked.outcome, asked.ended = "no majority would vote", self.now
            asked = ElectionRound(self.core.term() + 1, self.now, last_index, last_term)
            asked.pre_votes[self.member] = facts.ACCEPT
            self._pre_vote, self._pre_vote_until = asked, self.now + self.draw_election_timeout()
            self._keep_round(asked)
            self._emit("pre_vote", f"asking for votes in term {asked.term}")
            for peer in self.peers:
                if peer in self.core.outlet.connected:
                    self.outbox.append((peer, PreVoteRequest(asked.term, last_index, last_term)))
        if self._majority(sum(answer == facts.ACCEPT for answer in asked.pre_votes.values())):
            self._pre_vote = None
            self._begin_election(asked)
            return True
        return False

    def on_role(self, old: int, new: int) -> None:
        if new != CANDIDATE and self._election is not None:
            self._election.outcome = "won" if new == LEADER else "lost"
            self._election.ended = self.now
            self._emit("round", self._election.describe(self.members))
            self._election = None
        if new == FOLLOWER:
            self._handed_over = False
        last_index, last_term = self._log_end()
        detail = f"{ROLE_NAMES[old]} -> {ROLE_NAMES[new]} log=({last_index},{last_term})"
        self._emit("role", detail, ROLE_NAMES[new])

    def on_term(self, term: int, voted_for: str | None) -> None:
        if voted_for is not None and not self.journal.voter:
            raise FatalError("a member without a vote was about to vote")
        if voted_for == self.member and self._election is not None:
            self._election.term = term
            self._election.votes = {self.member: facts.ACCEPT}

    def on_leader(self) -> None:
        self._acknowledged.clear()
        self._acknowledged_at.clear()
        self._round_sent.clear()
        self._voters.clear()
        self._handed_over = False

    def on_round(self) -> None:
        self._round += 1
        self._round_sent.append((self._round, self.now))

    def send(self, peer: str, message: dict[str, Any]) -> None:
        out = self._outgoing(peer, message)
        if out is not None:
            self.outbox.append((peer, out))

    def _outgoing(self, peer: str, message: dict[str, Any]) -> PeerMessage | None:
        kind, core = message["type"], self.core
        if kind == "append_entries":
            if "prevLogIdx" in message:
                return Append(
                    message["term"],
                    message["commit_index"],
                    message["prevLogIdx"],
                    message["prevLogTerm"],
                    message["entries"],
                    self._round,
                    self.journal.last_index(),
                    self._followed_since(self.now - 0.9 * self.timing.election_min_seconds, without=peer),
                )
            chunk = message.get("serialized")
            if chunk is None:
                return SnapshotPending(message["term"], message["commit_index"], self._round)
            data, _, _, offset = chunk
            store = self.snapshots
            return SnapshotChunk(
                message["term"],
                message["commit_index"],
                store.index,
                store.term,
                offset,
                store.current_bytes,
                data,
                self._round,
            )
        if kind == "next_node_idx":
            return Acknowledgement(
                core.term(),
                message["next_node_idx"],
                message["reset"],
                message["success"],
                self._echo,
                self.journal.voter,
            )
        if kind == "request_vote":
            forced = message["term"] == self._forced_term
            return VoteRequest(message["term"], message["last_log_index"], message["last_log_term"], forced)
        if kind == "response_vote":
            return Vote(message["term"])
        if kind == "timeout_now":
            return Handover(message["term"])
        return None

    # -- messages ------------------------------------------------------------------------------------------------

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take one message of member *peer*. *Errors*: :class:`FatalError` when going on would be unsafe."""
        node = self.core.nodes.get(peer)
        if node is None:
            return
        if isinstance(message, Append):
            if self._follow(peer, message.term, message.sequence):
                self._on_append(node, message)
                self._maybe_join(message)
        elif isinstance(message, Acknowledgement):
            self._on_acknowledgement(peer, node, message)
        elif isinstance(message, PreVoteRequest):
            self._on_pre_vote_request(peer, message)
        elif isinstance(message, PreVoteAnswer):
            self._on_pre_vote_answer(peer, message)
        elif isinstance(message, VoteRequest):
            self._on_vote_request(peer, node, message)
        elif isinstance(message, Vote):
            self._on_vote(peer, node, message.term, facts.ACCEPT)
        elif isinstance(message, VoteRefusal):
            self._on_vote(peer, node, message.term, message.reason)
            self._yield_to(message.voter_term)
        elif isinstance(message, TermNotice):
            self._yield_to(message.term)
        elif isinstance(message, Handover):
            if self.journal.voter:
                self.core.outlet.deliver(node, {"type": "timeout_now", "term": message.term})
        elif isinstance(message, SnapshotChunk):
            if self._follow(peer, message.term, message.sequence):
                self._on_chunk(peer, node, message)
        elif self._follow(peer, message.term, message.sequence):
            self._heartbeat(node, message.term, 0)
            self._acknowledge_presence(peer)

    def _yield_to(self, term: int) -> None:
        if term > self.core.term():
            self.core.step_down(term)

    def _on_pre_vote_request(self, peer: str, message: PreVoteRequest) -> None:
        reason = self._log_judgement(message.last_index, message.last_term)
        if message.term <= self.core.term():
            reason = facts.EXPIRED_VOTE_TERM
        elif self._hears_leader():
            reason = facts.ALREADY_HAS_LEADER
        elif not self.journal.voter:
            reason = facts.NOT_VOTER
        answer = PreVoteAnswer(message.term, self.core.term(), reason == facts.ACCEPT, reason)
        self.outbox.append((peer, answer))

    def _on_pre_vote_answer(self, peer: str, message: PreVoteAnswer) -> None:
        self._yield_to(message.voter_term)
        asked = self._pre_vote
        if asked is not None and message.term == asked.term:
            asked.pre_votes[peer] = facts.ACCEPT if message.granted else message.reason

    def _on_vote_request(self, peer: str, node: Any, message: VoteRequest) -> None:
        last_index, last_term = self._log_end()
        refused = ""
        if not self.journal.voter:
            refused = facts.NOT_VOTER
        elif message.term < self.core.term():
            refused = facts.EXPIRED_VOTE_TERM
        elif self._hears_leader() and not message.forced:
            refused = facts.ALREADY_HAS_LEADER
        else:
            before = len(self.outbox)
            self.core.outlet.deliver(
                node,
                {
                    "type": "request_vote",
                    "term": message.term,
                    "last_log_index": message.last_index,
                    "last_log_term": message.last_term,
                },
            )
            granted = any(to == peer and isinstance(sent, Vote) for to, sent in self.outbox[before:])
            if not granted:
                refused = self._log_judgement(message.last_index, message.last_term)
                if refused == facts.ACCEPT:
                    refused = facts.ALREADY_VOTED
        self._emit("vote_answer", f"to {peer} for term {message.term}: {refused or facts.ACCEPT}")
        if refused:
            self.outbox.append((peer, VoteRefusal(message.term, self.core.term(), refused, last_index, last_term)))

    def _on_vote(self, peer: str, node: Any, term: int, answer: str) -> None:
        election = self._election
        if election is None or term != self.core.term() or election.term != term or peer in election.votes:
            return
        election.votes[peer] = answer
        self._emit("vote_result", f"from {peer} for term {term}: {answer}")
        if answer == facts.ACCEPT:
            self.core.outlet.deliver(node, {"type": "response_vote", "term": term})

    def _on_acknowledgement(self, peer: str, node: Any, message: Acknowledgement) -> None:
        self._yield_to(message.term)
        if message.term != self.core.term() or self.core.role() != LEADER:
            return
        end = self.journal.last_index() + 1
        if message.next_index > end:
            if message.reset:
                self.core.rewind_peer(peer, end)
            return
        if not message.voter:
            # its disk is new: it may have promised something it no longer knows, so it counts for nothing yet
            self._voters.discard(peer)
            if message.reset:
                self.core.rewind_peer(peer, message.next_index)
            return
        self._voters.add(peer)
        if message.sequence > self._acknowledged.get(peer, 0):
            self._acknowledged[peer] = message.sequence
            for sequence, sent in reversed(self._round_sent):
                if sequence <= message.sequence:
                    self._acknowledged_at[peer] = max(sent, self._acknowledged_at.get(peer, sent))
                    break
        self.core.outlet.deliver(
            node,
            {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.reset,
                "success": message.success,
            },
        )

    def _follow(self, peer: str, term: int, sequence: int) -> bool:
        """Accept *peer* as leader of *term*, or tell it that its time is over."""
        if term < self.core.term():
            self.outbox.append((peer, TermNotice(self.core.term())))
            return False
        if term == self.core.term():
            if self.core.role() == LEADER:
                raise FatalError(f"member {peer} leads term {term} too: two leaders in one term")
            leader = self.core.leader()
            if leader is not None and leader not in (peer, self.member):
                raise FatalError(f"members {leader} and {peer} both lead term {term}")
        self._leader_heard = self.now
        self._echo = sequence
        if self._pre_vote is not None:
            self._pre_vote.outcome, self._pre_vote.ended = "called off, a leader is heard", self.now
            self._pre_vote = None
        return True

    def _heartbeat(self, node: Any, term: int, commit: int) -> None:
        self.core.outlet.deliver(
            node, {"type": "append_entries", "term": term, "commit_index": commit, "serialized": None}
        )

    def _acknowledge_presence(self, peer: str) -> None:
        """Tell the leader that it is heard, without claiming any entry."""
        next_index = self.journal.last_index() + 1
        self.outbox.append(
            (peer, Acknowledgement(self.core.term(), next_index, False, False, self._echo, self.journal.voter))
        )

    def _on_append(self, node: Any, message: Append) -> None:
        entries = self.journal.entries
        first, last = entries[0][1], entries[-1][1]
        for position, entry in enumerate(message.entries):
            if entry[1] != message.previous_index + 1 + position:
                raise FatalError(f"member {node.id} sent entries that are not contiguous")
        previous = message.previous_index
        new_entries, previous_term = message.entries, message.previous_term
        if first <= previous <= last and entries[previous - first][2] == previous_term:
            known = 0
            for _, index, term in new_entries:
                if index > last or entries[index - first][2] != term:
                    break
                known += 1
            matched = previous + known
            if known == len(new_entries):
                # a heartbeat or a repetition must never cut what was acknowledged after it
                self._heartbeat(node, message.term, min(message.commit, matched))
                self.outbox.append(
                    (
                        node.id,
                        Acknowledgement(self.core.term(), matched + 1, False, True, self._echo, self.journal.voter),
                    )
                )
                return
            if matched < last and matched < max(self.core.commit_index(), self.core.applied_index()):
                raise FatalError(f"leader {node.id} contradicts committed entry {matched + 1}")
            if known:
                new_entries, previous = new_entries[known:], matched
                previous_term = entries[matched - first][2]
        self.core.outlet.deliver(
            node,
            {
                "type": "append_entries",
                "term": message.term,
                "commit_index": message.commit,
                "entries": new_entries,
                "prevLogIdx": previous,
                "prevLogTerm": previous_term,
            },
        )

    def _on_chunk(self, peer: str, node: Any, message: SnapshotChunk) -> None:
        entries = self.journal.entries
        first, last = entries[0][1], entries[-1][1]
        index = message.snapshot_index
        held = first <= index <= last and entries[index - first][2] == message.snapshot_term
        if index <= self.core.applied_index() or held:
            # never go back in time, never drop an acknowledged suffix
            self._heartbeat(node, message.term, 0)
            success = held or index <= self.core.commit_index()
            self.outbox.append(
                (peer, Acknowledgement(self.core.term(), index + 1, True, success, self._echo, self.journal.voter))
            )
            return
        self._heartbeat(node, message.term, 0)
        data = self._assembly.add(index, message.snapshot_term, message.total_bytes, message.offset_bytes, message.data)
        if data is None:
            self._acknowledge_presence(peer)
            return
        if isinstance(data, bytes):
            try:
                self.snapshots.install(data)
            except ValueError as error:
                self._emit("snapshot", f"snapshot of {peer} refused: {error}")
            else:
                self._emit("snapshot", f"snapshot of {peer} installed, index {index}")
                self.core.outlet.deliver(
                    node,
                    {
                        "type": "append_entries",
                        "term": message.term,
                        "commit_index": message.commit,
                        "serialized": data,
                    },
                )
                return
        # a part is missing or damaged: let the leader begin again
        reset = Acknowledgement(self.core.term(), last + 1, True, False, self._echo, self.journal.voter)
        self.outbox.append((peer, reset))

    def _maybe_join(self, message: Append) -> None:
        """Become a voter once everything is held that a leader had when a majority without this member followed it."""
        if self.journal.voter:
            return
        if message.confirmed and (self._join_target is None or self._join_target[0] != message.term):
            self._join_target = (message.term, message.leader_end)
        target = self._join_target
        if target is not None and target[0] == self.core.term() and self.core.commit_index() >= target[1]:
            self.journal.set_voter()
            self._emit("voter", f"caught up to index {target[1]}: this member votes from now on")

    # -- small judgements ----------------------------------------------------------------------------------------

    def _log_end(self) -> tuple[int, int]:
        last = self.journal.entries[-1]
        return last[1], last[2]

    def _majority(self, count: int) -> bool:
        return 2 * count > len(self.members)

    def _log_judgement(self, index: int, term: int) -> str:
        own_index, own_term = self._log_end()
        if (term, index) >= (own_term, own_index):
            return facts.ACCEPT
        return facts.EXPIRED_LEDGER_TERM if term < own_term else facts.SMALL_LEDGER_END_INDEX

    def _hears_leader(self) -> bool:
        if self.core.role() == LEADER:
            return self.lease_valid(self.now)
        # a process that has just started may have followed a leader a moment ago and not know it any longer
        known = self.core.leader() is not None or self._leader_heard == self._started
        return known and self.now - self._leader_heard < self.timing.election_min_seconds

    def _followed_since(self, since: float, without: str | None) -> bool:
        """Whether a majority, this member included and *without* left out, followed a round sent after *since*."""
        count = 1
        for peer, sent in self._acknowledged_at.items():
            if peer != without and peer in self._voters and sent > since:
                count += 1
        return self._majority(count)

    def _begin_election(self, election: ElectionRound) -> None:
        self._election = election
        if election not in self.rounds:
            self._keep_round(election)

    def _keep_round(self, election: ElectionRound) -> None:
        if self.rounds and self.rounds[-1].outcome == "running":
            self.rounds[-1].outcome, self.rounds[-1].ended = "timed out", self.now
        self.rounds.append(election)

    def _settle_barriers(self) -> None:
        core, waiting = self.core, []
        for barrier in self._barriers:
            if core.role() != LEADER or core.term() != barrier.term:
                self.results.append((barrier.ticket, None, NotLeaderError(core.leader())))
                continue
            if barrier.index is None and self.leads():
                barrier.index = core.commit_index()
            followed = 1 + sum(
                1
                for peer, acknowledged in self._acknowledged.items()
                if barrier.round and peer in self._voters and acknowledged >= barrier.round
            )
            if (
                barrier.index is not None
                and core.applied_index() >= barrier.index
                and barrier.round is not None
                and (not self.peers or self._majority(followed))
            ):
                self.results.append((barrier.ticket, barrier.index, None))
            else:
                waiting.append(barrier)
        self._barriers = waiting
