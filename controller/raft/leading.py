"""The leader's side: commands, reads that wait for proof, what followers hold, leases, and handing over."""

from __future__ import annotations

from typing import Any

from understudy.controller.raft import dialect
from understudy.controller.raft.barriers import Barriers, Result, Ticket
from understudy.controller.raft.core import LEADER, Core, Fate, Timing
from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.followers import Followers
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.messages import Acknowledgement, Append, PeerMessage, SnapshotChunk, SnapshotPending
from understudy.controller.raft.pinned import FailReason
from understudy.controller.raft.snapshot import SnapshotStore

MAX_COMMAND_BYTES = 60_000
"""Below the core's batch size: longer commands would take a chunked path that has a known fault."""

LEASE_SHARE = 0.9
"""Of the least election timeout: how long a round that a majority followed proves that nobody else leads."""


class Leading:
    """What one member does while it leads; a member that does not lead refuses with the leader's name.

    Args:
        peers: ids of the others.
        core: the algorithm.
        journal: its log.
        snapshots: its snapshot file.
        timing: election timing.
    """

    def __init__(
        self, peers: list[str], core: Core, journal: Journal, snapshots: SnapshotStore, timing: Timing
    ) -> None:
        self._peers = peers
        self._core = core
        self._journal = journal
        self._snapshots = snapshots
        self._lease_seconds = LEASE_SHARE * timing.election_min_seconds
        self._followers = Followers(len(peers) + 1)
        self._barriers = Barriers()
        self._results: list[Result] = []
        self._handed_over = False

    def ready(self) -> bool:
        """Whether this member leads and everything of earlier terms is applied."""
        core = self._core
        return core.role() == LEADER and core.applied_index() >= core.no_op_index() > 0

    def lease_valid(self, now: float) -> bool:
        """Whether a majority followed a round sent less than an election timeout before *now*: a gauge, no proof."""
        if self._core.role() != LEADER or self._handed_over:
            return False
        return self._followers.followed_since(now - self._lease_seconds)

    def begin(self) -> None:
        """A leadership begins."""
        self._followers.begin()
        self._handed_over = False

    def end(self) -> None:
        """This member follows."""
        self._handed_over = False

    # -- commands and reads --------------------------------------------------------------------------------------

    def propose(self, command: bytes, ticket: Ticket) -> None:
        """Append *command*; the ticket hears the result or why there is none."""
        self._must_lead()
        if len(command) > MAX_COMMAND_BYTES:
            raise ValueError(f"command of {len(command)} bytes; at most {MAX_COMMAND_BYTES} are accepted")
        self._core.propose(command, ticket)

    def open_barrier(self, ticket: Ticket) -> None:
        """Answer *ticket* with an index once everything committed before now is applied and leadership was proved."""
        self._must_lead()
        self._barriers.open(ticket, self._core.term(), alone=not self._peers)

    def close_barrier(self, ticket: Ticket) -> None:
        """Nobody waits for *ticket* any longer."""
        self._barriers.close(ticket)

    def decided(self, ticket: Ticket, result: Any, fate: Fate) -> None:
        """Note what became of a command. Runs inside the core."""
        if fate is Fate.APPLIED:
            self._results.append((ticket, result, None))
        elif fate is Fate.NEVER_APPENDED:
            self._results.append((ticket, None, NotLeaderError(None)))
        else:
            self._results.append((ticket, None, OutcomeUnknownError("leadership changed while it was replicated")))

    def take_results(self) -> list[Result]:
        """Return finished commands and barriers."""
        core = self._core
        term = core.term() if core.role() == LEADER else None
        ready_commit = core.commit_index() if self.ready() else None
        barriers = self._barriers.settle(term, ready_commit, core.applied_index(), core.leader(), self._followers)
        results, self._results = self._results, []
        return results + barriers

    def _must_lead(self) -> None:
        if self._core.role() != LEADER:
            raise NotLeaderError(self._core.leader())

    # -- rounds --------------------------------------------------------------------------------------------------

    def send_what_is_due(self, last_index_before: int) -> None:
        """Send one round when the log grew beyond *last_index_before* in this turn, or a read waits for one."""
        if self._core.role() != LEADER or not self._peers:
            return
        if self._journal.last_index() > last_index_before or self._barriers.need_round():
            self._core.send_round()
            self._barriers.use_round(self._followers.round)

    def new_round(self, now: float) -> None:
        """A round leaves at *now*."""
        self._followers.new_round(now)

    def entries_for(self, peer: str, said: dict[str, Any], now: float) -> Append:
        """Return the core's entries for *peer* as a message."""
        # Whoever was asked to lead may have been elected at once, by members that followed this one a moment ago.
        confirmed = not self._handed_over and self._followers.followed_since(now - self._lease_seconds, without=peer)
        return dialect.append_of(said, self._followers.round, self._journal.last_index(), confirmed)

    def snapshot_part(self, said: dict[str, Any]) -> SnapshotChunk | SnapshotPending:
        """Return the core's part of a snapshot as a message."""
        return dialect.snapshot_part_of(said, self._snapshots, self._followers.round)

    def may_send_before_sync(self, outbox: list[tuple[str, PeerMessage]]) -> bool:
        """Whether entries may be sent while the journal is being synced, so that all disks work at the same time.

        Only a leader whose term is durable may: it never leads this term again should it lose those entries, and it
        counts itself among those that hold them in the next turn, after the sync. Entries never overtake a snapshot.
        """
        if self._core.role() != LEADER or self._journal.synced_term != self._core.term():
            return False
        return not any(isinstance(message, SnapshotChunk) for _, message in outbox)

    # -- followers -----------------------------------------------------------------------------------------------

    def on_acknowledgement(self, peer: str, message: Acknowledgement) -> None:
        """Take what *peer* says about its log; of another term it is worth nothing."""
        core = self._core
        if message.term != core.term() or core.role() != LEADER:
            return
        end = self._journal.last_index() + 1
        if message.next_index > end:
            if message.reset:
                core.rewind_peer(peer, end)
        elif message.voter:
            self._followers.heard(peer, message.sequence)
            core.hear(peer, dialect.held_entries(message))
        else:
            # its disk is new: it may have promised something it no longer knows, so it counts for nothing yet
            self._followers.without_vote(peer)
            if message.reset:
                core.rewind_peer(peer, message.next_index)

    def lost_entries(self, peer: str, last_index: int) -> int:
        """Return the index up to which *peer* had confirmed entries it no longer holds; 0 when it lost nothing."""
        if self._core.role() != LEADER:
            return 0
        match = self._core.match_index(peer)
        return match if last_index < match else 0

    def forget(self, peer: str) -> None:
        """Count nothing that *peer* confirmed with another disk."""
        self._followers.forget(peer)
        if self._core.role() == LEADER:
            self._core.forget_match(peer)

    def hand_over(self, peer: str | None) -> str | None:
        """Ask *peer* (default: the one that is furthest) to lead. Returns what stands against it, or ``None``."""
        answers: list[Any] = []
        node = None if peer is None else self._core.nodes.get(peer)
        if peer is not None and node is None:
            return f"{peer} is no member"
        self._core.transferLeadership(node, lambda _result, reason: answers.append(reason))
        if answers and answers[0] == FailReason.SUCCESS:
            self._handed_over = True
            return None
        if answers and answers[0] == FailReason.NOT_LEADER:
            return "this member does not lead"
        return "the target is not connected or does not hold the whole log yet"
