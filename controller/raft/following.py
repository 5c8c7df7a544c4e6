"""The follower's side: entries, snapshots and heartbeats of a leader, and how a member on a new disk becomes a voter.

What a leader sends may come twice, late, or out of order. Entries that match are never cut, whatever message repeats
them; a conflict below the commit index, or a second leader in a term, stops the member.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.controller.raft import dialect
from understudy.controller.raft.core import LEADER, Core
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.messages import (
    Acknowledgement,
    Append,
    PeerMessage,
    SnapshotChunk,
    SnapshotPending,
    TermNotice,
)
from understudy.controller.raft.snapshot import SnapshotAssembly, SnapshotStore


class Following:
    """What one member knows of its leader.

    Args:
        member: own id.
        core: the algorithm.
        journal: its log.
        snapshots: its snapshot file.
        started: when the process started (monotonic seconds), or minus infinity on a disk that never heard of a leader.
        outbox: where answers go.
        emit: tells observers of an event: kind and detail.

    Attributes:
        heard_at: when a leader was last heard (monotonic seconds). A process that has just started may have followed a
            leader a moment ago and not know it any longer: its start counts too.
        echo: newest round of the leader that was heard.
    """

    def __init__(
        self,
        member: str,
        core: Core,
        journal: Journal,
        snapshots: SnapshotStore,
        started: float,
        outbox: list[tuple[str, PeerMessage]],
        emit: Callable[[str, str], None],
    ) -> None:
        self.heard_at = self._started = started
        self.echo = 0
        self._member = member
        self._core = core
        self._journal = journal
        self._snapshots = snapshots
        self._outbox = outbox
        self._emit = emit
        self._assembly = SnapshotAssembly()
        self._join_target: tuple[int, int] | None = None
        self._installing: tuple[str, SnapshotChunk, bytes] | None = None

    def hears_leader(self, now: float, silence_seconds: float) -> bool:
        """Whether a leader was heard, or may have been before the start, less than *silence_seconds* before *now*."""
        known = self._core.leader() is not None or self.heard_at == self._started
        return known and now - self.heard_at < silence_seconds

    def accept(self, peer: str, message: Append | SnapshotChunk | SnapshotPending, now: float) -> bool:
        """Accept *peer* as the leader of its message's term, or tell it that its time is over."""
        core, term = self._core, message.term
        if term < core.term():
            self._outbox.append((peer, TermNotice(core.term())))
            return False
        if term == core.term():
            if core.role() == LEADER:
                raise self._contradiction(f"member {peer} leads term {term} too: two leaders in one term")
            leader = core.leader()
            if leader is not None and leader not in (peer, self._member):
                raise self._contradiction(f"members {leader} and {peer} both lead term {term}")
        self.heard_at = now
        self.echo = message.sequence
        return True

    def on_pending(self, peer: str, message: SnapshotPending) -> None:
        """The leader is alive and prepares a snapshot."""
        self._hear(peer, message.term, 0)
        self._acknowledge_presence(peer)

    def on_append(self, peer: str, message: Append) -> None:
        """Take entries or a heartbeat of the accepted leader *peer*."""
        entries = self._journal.entries
        first, last = entries[0][1], entries[-1][1]
        _check_entries(peer, message)
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
                self._hear(peer, message.term, min(message.commit, matched))
                self._acknowledge(peer, matched + 1, reset=False, success=True)
                return
            if matched < last and matched < max(self._core.commit_index(), self._core.applied_index()):
                raise self._contradiction(f"leader {peer} contradicts committed entry {matched + 1}")
            if known:
                new_entries, previous = new_entries[known:], matched
                previous_term = entries[matched - first][2]
        self._core.hear(peer, dialect.entries_to_append(message, new_entries, previous, previous_term))

    def on_chunk(self, peer: str, message: SnapshotChunk) -> None:
        """Take a part of a snapshot of the accepted leader *peer*; with the last one its installation begins."""
        entries = self._journal.entries
        first, last = entries[0][1], entries[-1][1]
        index = message.snapshot_index
        held = first <= index <= last and entries[index - first][2] == message.snapshot_term
        self._hear(peer, message.term, 0)
        if index <= self._core.applied_index() or held:
            # never go back in time, never drop an acknowledged suffix
            success = held or index <= self._core.commit_index()
            self._acknowledge(peer, index + 1, reset=True, success=success)
            return
        data = self._assembly.add(index, message.snapshot_term, message.total_bytes, message.offset_bytes, message.data)
        if data is None:
            self._acknowledge_presence(peer)
            return
        if isinstance(data, bytes):
            try:
                self._snapshots.install(data)
            except ValueError as error:
                self._emit("snapshot", f"snapshot of {peer} refused: {error}")
            else:
                self._installing = peer, message, data
                return
        # a part is missing or damaged: let the leader begin again
        self._acknowledge(peer, last + 1, reset=True, success=False)

    def installs(self) -> bool:
        """Whether a snapshot is on its way to the disk: nothing else may be taken before :meth:`finish_install`."""
        return self._installing is not None

    def finish_install(self) -> bool:
        """Take over the snapshot that is on the disk now; returns whether there was one."""
        if self._installing is None:
            return False
        peer, message, data = self._installing
        self._installing = None
        self._emit("snapshot", f"snapshot of {peer} installed, index {message.snapshot_index}")
        self._core.hear(peer, dialect.snapshot_installed(message, data))
        return True

    def maybe_join(self, message: Append) -> None:
        """Become a voter once everything is held that a leader had when a majority without this member followed it."""
        if self._journal.voter:
            return
        if message.confirmed and (self._join_target is None or self._join_target[0] != message.term):
            self._join_target = (message.term, message.leader_end)
        target = self._join_target
        if target is not None and target[0] == self._core.term() and self._core.commit_index() >= target[1]:
            self._journal.set_voter()
            # the disk that was lost may have voted in this term; nobody but its leader can have been elected in it
            self._core.vote_for_leader()
            self._emit("voter", f"caught up to index {target[1]}: this member votes from now on")

    def _contradiction(self, what: str) -> FatalError:
        return FatalError(
            f"{self._journal.path}: {what}; some member's disk was lost, or put back from an older copy, without a "
            f"word to the others: find out whose; if it is this one's, {self._journal.advice()}"
        )

    def _hear(self, peer: str, term: int, commit: int) -> None:
        self._core.hear(peer, dialect.heartbeat(term, commit))

    def _acknowledge_presence(self, peer: str) -> None:
        """Tell the leader that it is heard, without claiming any entry."""
        self._acknowledge(peer, self._journal.last_index() + 1, reset=False, success=False)

    def _acknowledge(self, peer: str, next_index: int, *, reset: bool, success: bool) -> None:
        answer = Acknowledgement(self._core.term(), next_index, reset, success, self.echo, self._journal.voter)
        self._outbox.append((peer, answer))


def _check_entries(peer: str, message: Append) -> None:
    """Refuse what no member of this quorum ever sends, before any of it is written down."""
    index, term = message.previous_index, message.previous_term
    for command, entry_index, entry_term in message.entries:
        index += 1
        if entry_index != index:
            raise FatalError(f"member {peer} sent entries that are not contiguous")
        if not command or not term <= entry_term <= message.term:
            raise FatalError(f"member {peer} sent entry {index} of term {entry_term}, which no leader writes")
        term = entry_term
